"""Database. Answers that were booked from an agent's log, and recorded, too: the recorded request
counts, whichever came first.

`import` looks for what was recorded before (`addon/parts/agent_logs`). What is replayed or merged
behind it is found here: an imported row becomes a duplicate of the recorded request of its response
id, or, where a side has none, of its session, time and figures; and a row with the rest of a sum
shrinks by what was recorded of its session. A sum only shrinks here; an import reckons it anew.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ledger.maintenance import corrections
from ledger.maintenance.known import BookedAnswer, answers_of
from ledger.maintenance.same_answer import (
    APART_MAX,
    FIGURES,
    REQUEST_MAX,
    by_model,
    figures_of,
    is_its_wire,
    is_within,
    names_of,
    rest_of,
    stated_of,
)
from ledger.model.exchange import Exchange, Source
from ledger.store.keys import Key, instant_text

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection, Engine

    from ledger.store.writing.batches import Price

RECORDED_AGAIN = "the ledger has recorded answers of this sum"

SPAN_MAX = timedelta(hours=6)
"""Answers within it are looked for together: what a question of the database names is bounded."""

type Span = tuple[datetime, datetime]


def settle_in(engines: Sequence["Engine"], new: Iterable[Exchange], price: "Price") -> None:
    """`settle` in a ledger file. A shared ledger does it when the exchanges arrive there."""
    from ledger.store import db

    if len(engines) == 1:
        with db.writing(engines[0]) as connection:
            settle(connection, [(instant_text(each.opened_at), each.id) for each in new], price)


def settle(connection: "Connection", keys: Sequence[Key], price: "Price") -> None:
    """Let what was recorded count in the place of what was imported, where these exchanges, which
    are new, bring one of both."""
    from ledger.store.scope import requests

    r = requests.c
    ids = [name for _, name in keys]
    moments = [datetime.fromisoformat(opened_at) for opened_at, _ in keys]
    new = answers_of(connection, r.opened_at.between(min(moments), max(moments)) & r.id.in_(ids))
    spans = _spans(new)
    taken: set[str] = set()
    for span in spans:
        within = r.opened_at.between(*span)
        logged = answers_of(connection, within & (r.source == Source.IMPORT))
        logged = [each for each in logged if stated_of(each) is None]
        if logged:
            inputs = {each.input_tokens for each in logged}
            responses = {each.response_id for each in logged if each.response_id}
            alike = r.input_tokens.in_(inputs - {None}) | r.response_id.in_(responses)
            recorded = answers_of(connection, within & (r.source != Source.IMPORT) & alike)
            taken |= _link(connection, logged, recorded)
    sessions = {
        session
        for each in new
        if not each.is_import and each.id not in taken
        for session in (each.session_id, each.parent_session_id)
        if session is not None
    }
    if sessions:
        # In a log a session has no agent before its name.
        sessions |= {name.partition(":")[2] or name for name in sessions}
        sums = answers_of(
            connection, r.session_id.in_(sorted(sessions)) & (r.source == Source.IMPORT)
        )
        _shrink(connection, [each for each in sums if stated_of(each) is not None], price)


def _link(
    connection: "Connection", logged: Sequence[BookedAnswer], recorded: Sequence[BookedAnswer]
) -> set[str]:
    """Make imported answers duplicates; the recorded requests that are originals."""
    import sqlalchemy as sa

    from ledger.store.tables import exchanges

    e = exchanges.c
    by: dict[object, list[BookedAnswer]] = defaultdict(list)
    for each in recorded:
        by[each.response_id].append(each)
        by[figures_of(each)].append(each)
    taken = set[str]()
    times = [each.opened_at for each in recorded]
    if times:
        last = max(each.settled_at for each in recorded) + APART_MAX
        is_near = e.opened_at.between(min(times) - APART_MAX, last)
        is_taken = is_near & (e.source == Source.IMPORT) & e.duplicate_of.is_not(None)
        taken = {*connection.scalars(sa.select(e.duplicate_of).where(is_taken))}
    for one in logged:
        found = [
            each
            for each in {
                each.id: each
                for name in (one.response_id, figures_of(one))
                if name is not None
                for each in by.get(name, ())
            }.values()
            if each.id not in taken and _is_same(each, one)
        ]
        if not found:
            continue
        at = one.settled_at
        nearest = min(found, key=lambda each: (abs(each.settled_at - at), each.id))
        taken.add(nearest.id)
        is_one = (e.opened_at == one.opened_at) & (e.id == one.id)
        connection.execute(sa.update(exchanges).where(is_one).values(duplicate_of=nearest.id))
    return taken


def _is_same(answer: BookedAnswer, logged: BookedAnswer) -> bool:
    if not is_within(answer, logged, APART_MAX):
        return False
    if answer.response_id is not None and logged.response_id is not None:
        return answer.response_id == logged.response_id
    sessions = names_of(logged.agent, [logged.session_id])
    return figures_of(answer) == figures_of(logged) and is_its_wire(answer, logged, sessions)


def _shrink(connection: "Connection", sums: Iterable[BookedAnswer], price: "Price") -> None:
    """Give the rows with the rest of a sum what is left of it beside all answers of the session."""
    from ledger.store.scope import requests

    r = requests.c
    of_session: dict[tuple[str | None, str | None], list[BookedAnswer]] = defaultdict(list)
    for each in sums:
        of_session[each.agent, each.session_id].append(each)
    for (agent, session), rows in of_session.items():
        names = names_of(agent, [session])
        answers = [
            each
            for each in answers_of(
                connection, r.session_id.in_(names) | r.parent_session_id.in_(names)
            )
            if each.agent in (agent, None) and stated_of(each) is None
        ]
        figures = [dict(zip(FIGURES, stated_of(row) or (), strict=True)) for row in rows]
        wholes = [stated["input_tokens"] for stated in figures]
        known = by_model(answers, zip((row.model for row in rows), wholes, strict=True))
        for row, stated in zip(rows, figures, strict=True):
            left = {
                name: min(
                    has, max(0, count - sum(getattr(one, name) or 0 for one in known[row.model]))
                )
                for name, count in stated.items()
                if count is not None and (has := getattr(row, name)) is not None
            }
            if any(getattr(row, name) != count for name, count in left.items()):
                _add(connection, row, left, price)


def _add(
    connection: "Connection", row: BookedAnswer, left: Mapping[str, int], price: "Price"
) -> None:
    booked = corrections.booked_of(connection, row.opened_at, row.id)
    if booked is not None:
        usage = rest_of(booked.reading.usage, left)
        reading = replace(booked.reading, usage=usage, reason=RECORDED_AGAIN)
        corrections.add_reading(connection, reading, price(booked.exchange, reading))


def _spans(answers: Iterable[BookedAnswer]) -> list[Span]:
    """The times around these answers, those that overlap as one, as far as `SPAN_MAX`."""
    spans: list[Span] = []
    for each in sorted(answers, key=lambda each: each.opened_at):
        begins = each.opened_at - APART_MAX - REQUEST_MAX
        ends = each.settled_at + APART_MAX
        if spans and begins <= spans[-1][1] and ends - spans[-1][0] <= SPAN_MAX:
            spans[-1] = spans[-1][0], max(spans[-1][1], ends)
        else:
            spans.append((begins, ends))
    return spans
