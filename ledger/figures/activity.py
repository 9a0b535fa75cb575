"""Database. Running requests and today's cost, as `tokentee top` shows them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ledger.figures.figures import Figures, Key
from ledger.figures.queries import groups_of, opened, totals
from ledger.store.engines.urls import file_of
from ledger.store.processes import nodes
from ledger.store.scope import Scope, conditions, requests, snapshot
from ledger.text.period import day_of

RUNNING_MAX = 100
"""Open requests that are read, the newest first."""
RUNNING_HOURS_MAX = 24
"""An older open row belongs to a dead process whose rows are not yet marked as lost."""
SPEED_SECONDS = 60
"""Tokens per second are computed over the requests that ended within this time."""
SPEED_HOURS_MAX = 2
"""Longest duration of a request that counts for the speed; longer ones are ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningRequest:
    """One running request."""

    opened_at: datetime
    model: str | None
    provider: str
    session: str | None
    is_answered: bool | None
    """Whether upstream's answer has begun; None where the proxy is on another machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """The activity of a ledger at one moment."""

    now: datetime
    running: tuple[RunningRequest, ...]
    running_count: int
    ended: int
    """Requests that ended in the last SPEED_SECONDS."""
    output_tokens: int
    """Output tokens of these requests."""
    today: Figures
    sessions: Mapping[Key, Figures]
    models: Mapping[Key, Figures]


def take(engine: Engine, scope: Scope, now: datetime) -> Activity:
    """The activity of the requests that meet the scope's conditions; its period is today, of its
    zone."""
    now = now.astimezone(scope.zone or UTC)
    today = day_of(now)
    of_today = replace(scope, since=today.start.astimezone(UTC), until=today.end.astimezone(UTC))
    ever = replace(scope, since=None, until=None)
    found = groups_of(engine, ("session", "model"), of_today)
    with snapshot(engine) as connection:
        running, count = _running(connection, ever, now)
        r = requests.c
        output = sa.func.sum(sa.cast(r.output_tokens, sa.BigInteger))
        speed = connection.execute(
            sa.select(sa.func.count(), output).where(
                *conditions(ever, connection.dialect.name),
                r.opened_at >= now - timedelta(hours=SPEED_HOURS_MAX),
                r.settled_at >= now - timedelta(seconds=SPEED_SECONDS),
            )
        ).one()
    return Activity(
        now=now,
        running=running,
        running_count=count,
        ended=speed[0],
        output_tokens=int(speed[1] or 0),
        today=sum(found.values(), Figures()),
        sessions=_by(found, 0),
        models=_by(found, 1),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusLine:
    """What a status line shows. None: not known."""

    now: datetime
    today: Figures
    session: Figures | None
    """None: no session is named, or it has no request."""
    last_hour: Figures | None
    """Of the session."""
    model: str | None
    """Of the session's last answer."""
    context_tokens: int | None
    """What its next request sends at least: the input and the output of that answer."""


def status(engine: Engine, scope: Scope, session: str | None, now: datetime) -> StatusLine:
    """The status of a session, and of today in the scope's zone."""
    today = day_of(now.astimezone(scope.zone or UTC))
    of_today = replace(scope, since=today.start.astimezone(UTC), until=today.end.astimezone(UTC))
    whole = hour = last = None
    if session is not None:
        its = replace(scope, only=(*scope.only, ("session", session)))
        whole = totals(engine, its)
        hour = totals(engine, replace(its, since=now - timedelta(hours=1)))
        r = requests.c
        with snapshot(engine) as connection:
            last = connection.execute(
                sa.select(r.model, r.input_tokens, r.output_tokens)
                .where(r.session_id == session, r.input_tokens.is_not(None))
                .order_by(r.opened_at.desc(), r.id.desc())
                .limit(1)
            ).first()
    return StatusLine(
        now=now,
        today=totals(engine, of_today),
        session=whole if whole and whole.requests else None,
        last_hour=hour,
        model=last.model if last else None,
        context_tokens=last.input_tokens + (last.output_tokens or 0) if last else None,
    )


def _by(found: Mapping[Key, Figures], place: int) -> dict[Key, Figures]:
    groups: dict[Key, Figures] = {}
    for key, figures in found.items():
        one = (key[place],)
        groups[one] = groups.get(one, Figures()) + figures
    return groups


def _running(
    connection: Connection, scope: Scope, now: datetime
) -> tuple[tuple[RunningRequest, ...], int]:
    of = opened(scope, connection.dialect.name)
    e, is_running = of.c, of.c.opened_at >= now - timedelta(hours=RUNNING_HOURS_MAX)
    rows = connection.execute(
        sa.select(e.id, e.node, e.opened_at, e.model, e.provider, e.session_id)
        .where(is_running)
        .order_by(e.opened_at.desc())
        .limit(RUNNING_MAX)
    ).all()
    file = file_of(connection.engine.url)
    answered = nodes.answered(file, {row.node for row in rows if row.node}) if file else set()
    running = tuple(
        RunningRequest(
            opened_at=row.opened_at,
            model=row.model,
            provider=row.provider,
            session=row.session_id,
            is_answered=row.id in answered if file else None,
        )
        for row in rows
    )
    count = sa.select(sa.func.count()).select_from(of).where(is_running)
    return running, connection.execute(count).scalar_one()
