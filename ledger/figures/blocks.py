"""Database. Requests by blocks of five hours, in which plans count use.

A block is a window that an answer stated (`quotas`: 300 minutes before its reset), where there is
one. Otherwise it begins with the first request after the block before it, as log readers guess it;
a stated window ends a guessed one.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ledger.figures.figures import Report, total_of
from ledger.figures.limits import RESET_TOLERANCE
from ledger.figures.queries import report
from ledger.model.errors import LedgerError
from ledger.settings.rates import Currency
from ledger.store.scope import Scope, conditions, requests, snapshot, within
from ledger.store.tables import quotas

WORD = "block"
BLOCK_MINUTES = 300
BLOCK = timedelta(minutes=BLOCK_MINUTES)
BLOCKS_MAX = 400
"""Blocks of one report: each is a query. About a quarter of a year without a night's pause."""
STATED, GUESSED = "stated", "guessed"


def report_by_block(
    engine: Engine,
    scope: Scope,
    *,
    now: datetime | None = None,
    currency: Currency | None = None,
) -> Report:
    """The figures of each block with requests, the earliest first; each row says whether an answer
    stated its window (`stated`) or it begins with its first request (`guessed`).

    LedgerError if the period has more than `BLOCKS_MAX` blocks.
    """
    with snapshot(engine) as connection:
        found = list(_blocks(connection, scope))
    whole = report(engine, (), scope, now=now, currency=currency)
    rows = []
    for start, end, how in found:
        block = replace(scope, since=start, until=end)
        total = report(engine, (), block, now=now, currency=currency).total
        if total.figures.requests:
            begin, until = (at.astimezone(scope.zone or UTC) for at in (start, end))
            key = (f"{begin:%Y-%m-%d %H:%M}", f"{until:%H:%M}", how)
            rows.append(replace(total, key=key))
    assert total_of(row.figures for row in rows) == whole.total.figures
    return replace(whole, by=(WORD, "until", "window"), rows=tuple(rows))


def _blocks(connection: Connection, scope: Scope) -> Iterator[tuple[datetime, datetime, str]]:
    """Start, end and kind of each block, cut at the ends of the period."""
    stated = _stated(connection, scope)
    at = _next_request(connection, scope, None)
    for _ in range(BLOCKS_MAX):
        if at is None:
            return
        window = next((each for each in stated if each[0] <= at < each[1]), None)
        if window is not None:
            start, end, how = *window, STATED
        else:
            following = min((begin for begin, _ in stated if begin > at), default=at + BLOCK)
            start, end, how = at, min(at + BLOCK, following), GUESSED
        yield max(start, scope.since or start), min(end, scope.until or end), how
        at = _next_request(connection, scope, end)
    if at is not None:
        raise LedgerError(f"more than {BLOCKS_MAX} blocks of five hours: give a shorter period")


def _stated(connection: Connection, scope: Scope) -> list[tuple[datetime, datetime]]:
    """Windows that answers stated of the accounts that the scope is about, the earliest first, none
    over another."""
    q, r = quotas.c, requests.c
    where = [q.kind == "plan", q.window_minutes == BLOCK_MINUTES, q.resets_at.is_not(None)]
    if scope.since is not None:
        where.append(q.resets_at > scope.since)
    if scope.until is not None:
        where.append(q.resets_at < scope.until + BLOCK)
    if scope.only:
        holder = sa.func.coalesce(r.account, r.key_fingerprint, "")
        about = conditions(scope, connection.dialect.name)
        holders = connection.execute(sa.select(r.provider, holder).where(*about).distinct()).all()
        where.append(sa.tuple_(q.provider, q.holder).in_([tuple(each) for each in holders]))
    found: list[tuple[datetime, datetime]] = []
    for reset in connection.scalars(
        sa.select(q.resets_at).where(*where).distinct().order_by(q.resets_at)
    ):
        begin = reset - BLOCK
        if not found or reset - found[-1][1] >= RESET_TOLERANCE:
            found.append((max(begin, found[-1][1]) if found else begin, reset))
    return found


def _next_request(connection: Connection, scope: Scope, since: datetime | None) -> datetime | None:
    """When the first request of the period, or the first from then on, was opened; of all, since
    the blocks of a plan do not depend on the requests that a report is about."""
    at = requests.c.opened_at
    asked = within(replace(scope, since=since or scope.since), at)
    found: datetime | None = connection.scalar(sa.select(sa.func.min(at)).where(*asked))
    return found
