"""Database. Requests by blocks of five hours, in which plans count use, each account by itself.

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
from ledger.figures.queries import report
from ledger.model.errors import LedgerError
from ledger.model.exchange import RESET_TOLERANCE
from ledger.store.scope import NO_VALUE, Scope, conditions, requests, snapshot, within
from ledger.store.tables import quotas

BLOCK_WORD = "block"
BLOCK_MINUTES = 300
BLOCK = timedelta(minutes=BLOCK_MINUTES)
BLOCKS_MAX = 400
"""Blocks of one report: each is a query. About a quarter of a year of one account without a night's
pause."""
STATED, GUESSED = "stated", "guessed"

type _Holder = tuple[str, str, str]
"""Provider, account and, without an account, the key's fingerprint; empty: not known."""


def report_by_block(engine: Engine, scope: Scope, *, now: datetime | None = None) -> Report:
    """The figures of each block with requests, the earliest first, by provider and account (of a
    request without one, its key); each row says whether an answer stated its window (`stated`) or
    it begins with its first request (`guessed`).

    LedgerError if the period has more than `BLOCKS_MAX` blocks.
    """
    found, rows = [], []
    with snapshot(engine) as connection:
        r = requests.c
        of_key = sa.case((r.account.is_(None), r.key_fingerprint))
        columns = [r.provider, sa.func.coalesce(r.account, ""), sa.func.coalesce(of_key, "")]
        holders = sa.select(*columns).where(*conditions(scope, connection.dialect.name)).distinct()
        for holder in map(tuple, connection.execute(holders).all()):
            for block in _blocks(connection, scope, holder):
                found.append((block, holder))
                if len(found) > BLOCKS_MAX:
                    raise LedgerError(
                        f"more than {BLOCKS_MAX} blocks of five hours: give a shorter period, or "
                        "one account (--only account=…)"
                    )
        whole = report(connection, (), scope, now=now)
        for (start, end, how), (provider, account, key) in sorted(found):
            held = [("provider", provider), ("account", account or NO_VALUE)]
            held += [("key", key or NO_VALUE)] if not account else []
            words = dict(held)
            only = (*(each for each in scope.only if each[0] not in words), *held)
            its = replace(scope, since=start, until=end, only=only)
            total = report(connection, (), its, now=now).total
            if total.figures.requests:
                begin, until = (at.astimezone(scope.zone or UTC) for at in (start, end))
                whose = f"{provider}/{account or key}"
                names = (f"{begin:%Y-%m-%d %H:%M}", f"{until:%H:%M}", how, whose)
                rows.append(replace(total, key=names))
    if total_of(row.figures for row in rows) != whole.total.figures:
        raise LedgerError("requests have a time that is none: give a period (--since)")
    by = (BLOCK_WORD, "until", "window", "account")
    return replace(whole, by=by, rows=tuple(rows))


def _blocks(
    connection: Connection, scope: Scope, holder: _Holder
) -> Iterator[tuple[datetime, datetime, str]]:
    """Start, end and kind of each block of a holder, cut at the ends of the period."""
    q = quotas.c
    provider, account, key = holder
    where = [q.kind == "plan", q.window_minutes == BLOCK_MINUTES, q.resets_at.is_not(None)]
    where += [q.provider == provider, q.holder == (account or key)]
    if scope.since is not None:
        where.append(q.resets_at > scope.since)
    if scope.until is not None:
        where.append(q.resets_at < scope.until + BLOCK)
    # The windows that answers stated, the earliest first, none over another.
    stated: list[tuple[datetime, datetime]] = []
    for reset in connection.scalars(
        sa.select(q.resets_at).where(*where).distinct().order_by(q.resets_at)
    ):
        begin = reset - BLOCK
        if not stated or reset - stated[-1][1] >= RESET_TOLERANCE:
            stated.append((max(begin, stated[-1][1]) if stated else begin, reset))
    at = _next_request(connection, scope, holder, None)
    while at is not None:
        window = next((each for each in stated if each[0] <= at < each[1]), None)
        if window is not None:
            start, end, how = *window, STATED
        else:
            following = min((begin for begin, _ in stated if begin > at), default=at + BLOCK)
            start, end, how = at, min(at + BLOCK, following), GUESSED
        yield max(start, scope.since or start), min(end, scope.until or end), how
        at = _next_request(connection, scope, holder, end)


def _next_request(
    connection: Connection, scope: Scope, holder: _Holder, since: datetime | None
) -> datetime | None:
    """When the first request of a holder in the period, or from then on, was opened; of all of its
    requests, since the blocks of a plan do not depend on those that a report is about."""
    r = requests.c
    provider, account, key = holder
    asked = within(replace(scope, since=since or scope.since), r.opened_at)
    # Compared as they are, so that the index on keys finds each.
    asked += [r.provider == provider, r.account == (account or None)]
    if not account:
        asked.append(r.key_fingerprint == (key or None))
    found: datetime | None = connection.scalar(sa.select(sa.func.min(r.opened_at)).where(*asked))
    return found
