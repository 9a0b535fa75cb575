"""Database. Limits as answers stated them: how much is used, when it resets, when it is full, and
who used it.

Figures of one limit belong together if provider, account (or else key), kind and window are the
same. A window of a plan begins anew at its reset; figures from before that belong to an earlier
window, and only the last window is looked at.

Shares. The change of the used share from one answer to the next is shared over the sessions whose
requests were answered in that time, by their list value. So the shares add up to the last figure
less the first; what was used before the first answer belongs to nobody.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ledger.model.exchange import ERROR_STATUS_MIN, PPM
from ledger.store.scope import requests, snapshot
from ledger.store.tables import exchanges, quotas

RESET_TOLERANCE = timedelta(seconds=5)
"""A reset that moves by less is the same."""
RATES_SHOWN = timedelta(hours=1)
PLANS_SHOWN = timedelta(days=31)
"""A limit whose last answer is older is not shown."""
FAR = timedelta(days=366)
"""No pace is believed for longer."""
LIMITS_MAX = 1_000
"""Limits that are shown, those of the newest answers."""
ROWS_MAX = 20_000
"""Figures of one limit that are read, the newest first."""


class Figure(NamedTuple):
    """One figure of a limit."""

    observed_at: datetime
    used_ppm: int | None
    resets_at: datetime | None
    exchange_id: str
    """The exchange whose answer stated it."""


class Spent(NamedTuple):
    """A request that may have used some of a limit."""

    at: datetime
    """When its answer arrived."""
    session: str | None
    value_picousd: int
    """At list prices."""
    exchange_id: str
    is_answered: bool
    """Whether its answer was no error, so that it stated the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One limit now. None: not stated, or not known."""

    provider: str
    holder: str
    """Whose it is: the account, or else the key; empty: neither is known."""
    key: str | None
    """Fingerprint of the key of the last answer."""
    window: str
    window_minutes: int | None
    kind: str
    used_ppm: int | None
    """None: there was no answer since the reset, or none stated it."""
    limit: int | None
    remaining: int | None
    resets_at: datetime | None
    status: str | None
    """The provider's word; `reset` if there was no answer since the reset."""
    observed_at: datetime
    full_at: datetime | None
    """When it will be used up; None: not before its reset, or not known."""
    shares_ppm: Mapping[str | None, int]
    """By session, of the last window; the largest first."""

    def as_json(self) -> dict[str, object]:
        """The row of `tokentee limits --format json`."""
        return {
            "provider": self.provider,
            "key": self.key,
            "window": self.window,
            "window_minutes": self.window_minutes,
            "kind": self.kind,
            "used_percent": None if self.used_ppm is None else self.used_ppm / 10_000,
            "limit": self.limit,
            "remaining": self.remaining,
            "resets_at": _text(self.resets_at),
            "status": self.status,
            "observed_at": _text(self.observed_at),
            "full_at": _text(self.full_at),
            "sessions": [
                {"session_id": session, "percent_points": share / 10_000}
                for session, share in self.shares_ppm.items()
            ],
        }


def limits(
    engine: Engine, now: datetime, *, key: str | None = None, provider: str | None = None
) -> list[Limit]:
    """The limits of a ledger, plans first, by provider and length.

    `key`: a fingerprint, its beginning, or the last characters of the key, whose account's limits
    are meant.
    """
    with snapshot(engine) as connection:
        if not sa.inspect(connection).has_table(quotas.name):
            return []
        groups = _groups(connection, now, key, provider)
        found = [_limit(connection, rows, now) for rows in groups]
    return sorted(
        found, key=lambda one: (one.kind, one.provider, one.window_minutes or 0, one.window)
    )


def has_any(engine: Engine) -> bool:
    """Whether an answer has stated a limit."""
    with snapshot(engine) as connection:
        return connection.execute(sa.select(quotas.c.kind).limit(1)).first() is not None


def _groups(
    connection: Connection, now: datetime, key: str | None, provider: str | None
) -> Iterator[list[Any]]:
    """Rows of each limit that is shown, the earliest first: of a plan those of its last window, of
    a rate the last one. Each limit is read for itself, so that none pushes out another."""
    q = quotas.c
    # A key states its rates with every answer: only the last ones are read.
    is_shown = sa.or_(
        sa.and_(q.kind == "plan", q.observed_at >= now - PLANS_SHOWN),
        sa.and_(q.kind == "rate", q.opened_at >= now - RATES_SHOWN),
    )
    conditions = [is_shown]
    if provider is not None:
        conditions.append(q.provider == provider)
    if key is not None:
        # Those that the key used, also if its own answers changed no figure: an account's keys
        # share its limits.
        e = exchanges.c
        has_key = e.key_fingerprint.startswith(key, autoescape=True)
        used = sa.select(e.provider, sa.func.coalesce(e.account, e.key_fingerprint)).where(
            e.opened_at >= now - PLANS_SHOWN - timedelta(days=1),
            sa.or_(has_key, e.key_hint == key.lstrip("…")),
        )
        conditions.append(sa.tuple_(q.provider, q.holder).in_(used))
    newest = (q.observed_at.desc(), q.exchange_id.desc())
    names = (q.provider, q.holder, q.kind, q.window)
    place = sa.func.row_number().over(partition_by=names, order_by=newest)
    ranked = sa.select(quotas, place.label("place")).where(*conditions).subquery()
    r = ranked.c
    lasts = connection.execute(
        sa.select(ranked).where(r.place == 1).order_by(r.observed_at.desc()).limit(LIMITS_MAX)
    ).all()
    for last in lasts:
        if last.kind != "plan":
            yield [last]
            continue
        begin = now - PLANS_SHOWN
        if last.resets_at is not None and last.window_minutes is not None:
            window = timedelta(minutes=last.window_minutes) + RESET_TOLERANCE
            begin = max(begin, min(last.resets_at - window, last.observed_at))
        is_same = [
            name == getattr(last, name.name) for name in (q.kind, q.provider, q.holder, q.window)
        ]
        rows = connection.execute(
            sa.select(quotas)
            .where(*is_same, q.observed_at >= begin)
            .order_by(*newest)
            .limit(ROWS_MAX)
        ).all()
        yield [*reversed(rows)]


def _limit(connection: Connection, rows: Sequence[Any], now: datetime) -> Limit:
    last = rows[-1]
    is_plan = last.kind == "plan"
    figures = window_of(
        [Figure(row.observed_at, row.used_ppm, row.resets_at, row.exchange_id) for row in rows]
    )
    is_reset = last.resets_at is not None and last.resets_at <= now
    spent = _spent(connection, last, figures) if is_plan and len(figures) > 1 else []
    return Limit(
        provider=last.provider,
        holder=last.holder,
        key=last.key_fingerprint,
        window=last.window,
        window_minutes=last.window_minutes,
        kind=last.kind,
        used_ppm=None if is_reset else last.used_ppm,
        limit=last.limit_value,
        remaining=None if is_reset else last.remaining,
        resets_at=last.resets_at,
        status="reset" if is_reset else last.status,
        observed_at=last.observed_at,
        full_at=None if is_reset or not is_plan else full_at(figures, last.resets_at, now),
        shares_ppm={} if is_reset else shares(figures, spent),
    )


def window_of(figures: Sequence[Figure]) -> list[Figure]:
    """The figures since the last reset, the earliest first; those without a share left out."""
    known = [each for each in figures if each.used_ppm is not None]
    begin = 0
    for at in range(1, len(known)):
        before, now = known[at - 1], known[at]
        has_reset = before.resets_at is not None and before.resets_at <= now.observed_at
        fell = (now.used_ppm or 0) < (before.used_ppm or 0)
        moved = (
            before.resets_at is not None
            and now.resets_at is not None
            and abs(now.resets_at - before.resets_at) >= RESET_TOLERANCE
        )
        if has_reset or (fell and (moved or now.resets_at is None)):
            begin = at
    return known[begin:]


def full_at(
    figures: Sequence[Figure], resets_at: datetime | None, now: datetime
) -> datetime | None:
    """When the limit is used up at the mean pace since the first of these figures; None: not before
    its reset, or not within a year. A limit that is used up has been so since the last figure."""
    if len(figures) < 2:
        return None
    first, last = figures[0], figures[-1]
    used = (last.used_ppm or 0) - (first.used_ppm or 0)
    passed = now - first.observed_at
    left = PPM - (last.used_ppm or 0)
    if used <= 0 or passed <= timedelta():
        return None
    if left <= 0:
        return last.observed_at
    wait = passed * (left / used)
    if wait > (FAR if resets_at is None else resets_at - now):
        return None
    return now + wait


def shares(figures: Sequence[Figure], spent: Sequence[Spent]) -> dict[str | None, int]:
    """The sessions' shares in millionths of the limit, the largest first.

    `spent` has the requests that were answered from the first figure to the last. An answer without
    a row of its own found the figure as it was: requests up to it have no part in a later change.
    A figure that falls a little, as answers overtake each other, counts as the lower one, but none
    as less than the first. What a division leaves over goes to the largest share.
    """
    rises = _rises(figures)
    found: dict[str | None, int] = defaultdict(int)
    weights: dict[str | None, int] = defaultdict(int)
    for each in spent:
        weights[each.session] += each.value_picousd
        change = rises.get(each.exchange_id, 0)
        if change:
            for session, part in _parts(change, weights, each.session).items():
                found[session] += part
        if change or each.is_answered:
            weights.clear()
    ranked = sorted(found.items(), key=lambda item: (-item[1], item[0] or ""))
    return {session: share for session, share in ranked if share}


def _rises(figures: Sequence[Figure]) -> dict[str, int]:
    """By how much each answer raised the figure above the first, without what fell again later."""
    least = (figures[0].used_ppm or 0) if figures else 0
    lowest: list[int] = []
    for each in reversed(figures):
        used = max(each.used_ppm or 0, least)
        lowest.append(min(used, lowest[-1]) if lowest else used)
    lowest.reverse()
    steps = zip(figures[1:], lowest, lowest[1:], strict=False)
    return {each.exchange_id: now - before for each, before, now in steps}


def _parts(
    change: int, weights: Mapping[str | None, int], session: str | None
) -> dict[str | None, int]:
    """A change shared by list value; without any, it belongs to the session that stated it."""
    whole = sum(weights.values())
    if not whole:
        return {session: change}
    parts = {each: change * value // whole for each, value in weights.items()}
    largest = max(weights, key=lambda each: (weights[each], each or ""))
    parts[largest] += change - sum(parts.values())
    return parts


def _spent(connection: Connection, last: Any, figures: Sequence[Figure]) -> list[Spent]:
    """The requests of the limit's holder between its first figure and its last."""
    r = requests.c
    arrived = sa.func.coalesce(r.first_byte_at, r.settled_at, r.opened_at)
    holder = sa.func.coalesce(r.account, r.key_fingerprint, "")
    begin, end = figures[0].observed_at, figures[-1].observed_at
    rows = connection.execute(
        sa.select(arrived, r.session_id, r.list_value_picousd, r.id, r.http_status)
        .where(
            r.provider == last.provider,
            holder == last.holder,
            r.opened_at > begin - timedelta(days=1),
            r.opened_at <= end,
            arrived > begin,
            arrived <= end,
        )
        .order_by(arrived, r.id)
    )
    return [
        Spent(at, session, int(value or 0), one, status is not None and status < ERROR_STATUS_MIN)
        for at, session, value, one, status in rows
    ]


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="seconds").replace("+00:00", "Z")
