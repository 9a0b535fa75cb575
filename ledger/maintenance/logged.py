"""Database. Which answers in an agent's log were recorded on the wire, too.

A log that names the response is matched by its id. One that does not is matched by session, input
and output tokens and time: each recorded row matches at most one logged answer.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ledger.model.exchange import Source
from ledger.store.requests_view import requests

QUESTION_MAX = 500
"""Ids of one question: each is a bound parameter."""
APART_MAX = timedelta(minutes=10)
"""How far the log's time may be from the recorded one: an agent writes its log when an answer is
complete, and its clock is another than the proxy's if it runs on another machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """One answer in a log, as far as it can be matched."""

    at: datetime
    response_id: str | None
    session_id: str
    input_tokens: int | None
    output_tokens: int | None


def recorded(engine: Engine, answers: Sequence[Logged]) -> list[bool]:
    """For each answer, in order, whether the ledger has it from the wire."""
    ids = sorted({one.response_id for one in answers if one.response_id is not None})
    sessions = sorted({one.session_id for one in answers if one.response_id is None})
    with engine.connect() as connection:
        known = _response_ids(connection, ids)
        rows = _rows(connection, sessions)
    found = []
    for one in answers:
        if one.response_id is not None:
            found.append(one.response_id in known)
        else:
            found.append(_take(rows[one.session_id], one))
    return found


def _response_ids(connection: Connection, ids: Sequence[str]) -> set[str]:
    known: set[str] = set()
    for at in range(0, len(ids), QUESTION_MAX):
        known.update(
            connection.scalars(
                sa.select(requests.c.response_id).where(
                    requests.c.response_id.in_(ids[at : at + QUESTION_MAX]),
                    requests.c.source != Source.IMPORT,
                )
            )
        )
    return known


def _rows(connection: Connection, sessions: Sequence[str]) -> dict[str, list[Any]]:
    rows: dict[str, list[Any]] = defaultdict(list)
    r = requests.c
    for at in range(0, len(sessions), QUESTION_MAX):
        query = (
            sa.select(r.session_id, r.opened_at, r.settled_at, r.input_tokens, r.output_tokens)
            .where(
                r.session_id.in_(sessions[at : at + QUESTION_MAX]),
                r.source != Source.IMPORT,
            )
            .order_by(r.opened_at, r.id)
        )
        for row in connection.execute(query):
            rows[row.session_id].append(row)
    return rows


def _take(rows: list[Any], one: Logged) -> bool:
    """Whether a row matches; it is removed, so that it matches no other answer."""
    for row in rows:
        is_same = (row.input_tokens, row.output_tokens) == (one.input_tokens, one.output_tokens)
        if is_same and row.opened_at - APART_MAX <= one.at <= row.settled_at + APART_MAX:
            rows.remove(row)
            return True
    return False
