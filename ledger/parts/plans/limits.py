"""Database. Limits as answers stated them: how much is used, when it resets, when it is full, and
who used it.

Figures of one limit belong together if provider, account (or else key), kind and window are the
same. A window of a plan begins anew at its reset; figures from before that belong to an earlier
window, and only the last window is looked at.

Shares, where it is not known what a percent buys: the change of the used share from one answer to
the next is shared over the sessions whose requests were answered in that time, by their list
value. So the shares add up to the last figure less the first; what was used before the first answer
belongs to nobody.

Where it is known (`percent_value`), a session's share is what its requests bought, and use that was
not recorded belongs to nobody, too. It also tells the pace between two whole percents.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ledger.model.exchange import ERROR_STATUS_MIN, PPM, RESET_TOLERANCE, window_label
from ledger.model.money import PICOUSD_PER_USD
from ledger.parts.plans import percent_value
from ledger.parts.plans.percent_value import Use
from ledger.store.scope import requests, snapshot
from ledger.store.tables import exchanges, quotas

RATES_SHOWN = timedelta(hours=1)
PLANS_SHOWN = timedelta(days=31)
"""A limit whose last answer is older is not shown."""
FAR = timedelta(days=366)
"""No pace is believed for longer."""
LIMITS_MAX = 1_000
"""Limits that are shown, those of the newest answers."""
ROWS_MAX = 20_000
"""Figures of one limit that are read, the newest first."""
USES_MAX = 100_000
"""Requests beside them that are read, the newest first."""
RECENT = 200
"""Figures from which it is told what a percent buys now: fifteen minutes of a busy window have 20,
and more take more time than `tokentee limits` has."""
PERCENT = PPM // 100


class QuotaFigure(NamedTuple):
    """One figure of a limit."""

    observed_at: datetime
    used_ppm: int | None
    resets_at: datetime | None
    exchange_id: str
    """The exchange whose answer stated it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One limit now. None: not stated, or not known."""

    provider: str
    holder: str
    """Whose it is: the account, or else the key; empty: neither is known."""
    key: str | None
    """Fingerprint of the key of the last answer."""
    key_hint: str | None
    """Its last characters."""
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
            "resets_at": self.resets_at and moment_text(self.resets_at),
            "status": self.status,
            "observed_at": moment_text(self.observed_at),
            "full_at": self.full_at and moment_text(self.full_at),
            "sessions": [
                {"session_id": session, "percent_points": share / 10_000}
                for session, share in self.shares_ppm.items()
            ],
        }


def limits(
    engine: Engine,
    now: datetime,
    *,
    key: str | None = None,
    provider: str | None = None,
    are_shared: bool = True,
) -> list[Limit]:
    """The limits of a ledger, plans first, by provider and length.

    `key`: a fingerprint, its beginning, or the last characters of the key, whose account's limits
    are meant. Without `are_shared`, `full_at` and `shares_ppm` are not worked out, which takes most
    of the time.
    """
    with snapshot(engine) as connection:
        if not sa.inspect(connection).has_table(quotas.name):
            return []
        since = PLANS_SHOWN if are_shared else None
        groups = groups_of(connection, now, key, provider, since=since)
        limits = [_limit(connection, rows, now, are_shared=are_shared) for rows in groups]
    return sorted(
        limits, key=lambda one: (one.kind, one.provider, one.window_minutes or 0, one.window)
    )


def has_any(engine: Engine) -> bool:
    """Whether an answer has stated a limit."""
    with snapshot(engine) as connection:
        return connection.execute(sa.select(quotas.c.kind).limit(1)).first() is not None


def label_of(window: str, minutes: int | None) -> str:
    """The name of a stored window: older rows have `299m` and `10079m` for `5h` and `7d`."""
    length, blank, family = str(window).partition(" ")
    is_length = minutes is not None and length == f"{minutes}m"
    return f"{window_label(minutes)}{blank}{family}" if is_length and minutes else window


def groups_of(
    connection: Connection,
    now: datetime,
    key: str | None,
    provider: str | None,
    *,
    since: timedelta | None,
) -> Iterator[list[Any]]:
    """Rows of each limit that is shown, the earliest first: of a plan those `since` (None: the last
    one), of a rate the last one. Each limit is read for itself, so that none pushes out another."""
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
    lasts: dict[tuple[str, ...], list[Any]] = defaultdict(list)
    for row in connection.execute(
        sa.select(ranked).where(r.place == 1).order_by(r.observed_at.desc()).limit(LIMITS_MAX)
    ):
        label = label_of(row.window, row.window_minutes)
        lasts[row.provider, row.holder, row.kind, label].append(row)
    for (its_provider, holder, kind, _), rows in lasts.items():
        if kind != "plan" or since is None:
            yield rows[:1]
            continue
        stored = connection.execute(
            sa.select(quotas)
            .where(q.kind == kind, q.provider == its_provider, q.holder == holder)
            .where(q.window.in_([row.window for row in rows]), q.observed_at >= now - since)
            .order_by(*newest)
            .limit(ROWS_MAX)
        ).all()
        yield [*reversed(stored)]


def _limit(
    connection: Connection, rows: Sequence[Any], now: datetime, *, are_shared: bool
) -> Limit:
    last = rows[-1]
    windows = windows_of(rows)
    figures = windows[-1] if windows else []
    is_reset = last.resets_at is not None and last.resets_at <= now
    full, shared = None, {}
    if are_shared and last.kind == "plan" and not is_reset and len(figures) > 1:
        recent = rows[-RECENT:][0].observed_at
        begin, end = figures[0].observed_at, figures[-1].observed_at
        uses = requests_beside(connection, last, min(recent, begin))
        its = [use for use in uses if begin.timestamp() < use.arrived_at <= end.timestamp()]
        estimate = percent_value.estimate(
            percents_of(windows, last.window_minutes)[-RECENT:],
            [use for use in uses if use.arrived_at >= recent.timestamp()],
        )
        bought = bought_ppm(estimate, its)
        full = full_at(figures, last.resets_at, now, recorded_ppm=sum(bought.values()))
        shared = bought_shares(figures, bought) if bought else shares(figures, its)
    e = exchanges.c
    of_last = (e.opened_at == last.opened_at, e.id == last.exchange_id)
    return Limit(
        provider=last.provider,
        holder=last.holder,
        key=last.key_fingerprint,
        key_hint=connection.scalar(sa.select(e.key_hint).where(*of_last)),
        window=label_of(last.window, last.window_minutes),
        window_minutes=last.window_minutes,
        kind=last.kind,
        used_ppm=None if is_reset else last.used_ppm,
        limit=last.limit_value,
        remaining=None if is_reset else last.remaining,
        resets_at=last.resets_at,
        status="reset" if is_reset else last.status,
        observed_at=last.observed_at,
        full_at=full,
        shares_ppm=shared,
    )


def windows_of(rows: Sequence[Any]) -> list[list[QuotaFigure]]:
    """The figures by window, the earliest first; those without a share are left out. `rows`: of
    `quotas`, or figures."""
    windows: list[list[QuotaFigure]] = []
    before: QuotaFigure | None = None
    for row in rows:
        if row.used_ppm is None:
            continue
        now = QuotaFigure(row.observed_at, row.used_ppm, row.resets_at, row.exchange_id)
        is_new = before is None
        if before is not None:
            # After its reset, or where the figure fell and the reset moved, if both state one.
            reset, until = before.resets_at, now.resets_at
            moved = bool(reset and until and abs(until - reset) >= RESET_TOLERANCE)
            fell = row.used_ppm < (before.used_ppm or 0)
            is_over = reset is not None and reset <= now.observed_at
            is_new = is_over or (fell and (moved or until is None))
        if is_new:
            windows.append([])
        windows[-1].append(now)
        before = now
    return windows


def percents_of(
    windows: Sequence[Sequence[QuotaFigure]], minutes: int | None
) -> list[percent_value.StatedPercent]:
    """The figures as `percent_value` takes them."""
    found = []
    for window in windows:
        begin, reset = window[0].observed_at, window[0].resets_at
        if reset is not None and minutes is not None:
            begin = min(begin, reset - timedelta(minutes=minutes))
        found += [
            percent_value.StatedPercent(
                each.observed_at.timestamp(), (each.used_ppm or 0) / PERCENT, begin.timestamp()
            )
            for each in window
        ]
    return found


def full_at(
    figures: Sequence[QuotaFigure],
    resets_at: datetime | None,
    now: datetime,
    *,
    recorded_ppm: int = 0,
) -> datetime | None:
    """When the limit is used up at the mean pace since the first of these figures; None: not before
    its reset, or not within a year. A limit that is used up has been so since the last figure.

    `recorded_ppm`: what the recorded requests bought in that time, which counts as far as whole
    percents leave it open; 0: not known."""
    if len(figures) < 2:
        return None
    first, last = figures[0], figures[-1]
    used = (last.used_ppm or 0) - (first.used_ppm or 0)
    if recorded_ppm:
        used = min(max(recorded_ppm, used - PERCENT), used + PERCENT)
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


def shares(figures: Sequence[QuotaFigure], uses: Sequence[Use]) -> dict[str | None, int]:
    """The sessions' shares in millionths of the limit, the largest first.

    `uses`: the requests that were answered from the first figure to the last. An answer without a
    row of its own found the figure as it was: requests up to it have no part in a later change.
    A figure that falls a little, as answers overtake each other, counts as the lower one, but none
    as less than the first. What a division leaves over goes to the largest share.
    """
    # By how much each answer raised the figure above the first, without what fell again later.
    least = (figures[0].used_ppm or 0) if figures else 0
    lowest: list[int] = []
    for each in reversed(figures):
        used = max(each.used_ppm or 0, least)
        lowest.append(min(used, lowest[-1]) if lowest else used)
    lowest.reverse()
    steps = zip(figures[1:], lowest, lowest[1:], strict=False)
    rises = {each.exchange_id: now - before for each, before, now in steps}
    found: dict[str | None, int] = defaultdict(int)
    weights: dict[str | None, int] = defaultdict(int)
    for use in uses:
        weights[use.session] += use.value_picousd
        change = rises.get(use.exchange_id, 0)
        whole = sum(weights.values())
        if change and whole:
            largest = max(weights, key=lambda session: (weights[session], session or ""))
            found[largest] += change
            for session, value in weights.items():
                found[session] += change * value // whole
                found[largest] -= change * value // whole
        elif change:  # nothing that it used has a price
            found[use.session] += change
        if change or use.is_answered:
            weights.clear()
    ranked = sorted(found.items(), key=lambda item: (-item[1], item[0] or ""))
    return {session: share for session, share in ranked if share}


def bought_ppm(estimate: percent_value.Estimate, uses: Sequence[Use]) -> dict[str | None, int]:
    """What the requests of each session bought, in millionths of the limit; empty: not known."""
    found: dict[str | None, float] = defaultdict(float)
    for use in uses:
        value = estimate.models.get(use.model, estimate.value).usd or estimate.value.usd
        if value is None:
            return {}
        found[use.session] += use.value_picousd / PICOUSD_PER_USD / value * PERCENT
    return {session: round(part) for session, part in found.items()}


def bought_shares(
    figures: Sequence[QuotaFigure], bought: Mapping[str | None, int]
) -> dict[str | None, int]:
    """The same, the largest first, and all together no more than whole percents leave open."""
    most = (figures[-1].used_ppm or 0) - (figures[0].used_ppm or 0) + PERCENT
    whole = sum(bought.values())
    parts = {each: part * most // whole if whole > most else part for each, part in bought.items()}
    ranked = sorted(parts.items(), key=lambda item: (-item[1], item[0] or ""))
    return {session: part for session, part in ranked if part > 0}


def requests_beside(connection: Connection, last: Any, since: datetime) -> list[Use]:
    """The requests of a limit's holder that arrived from then until its last figure, the earliest
    first; without their list value by kind of token."""
    r = requests.c
    arrived = sa.func.coalesce(r.first_byte_at, r.settled_at, r.opened_at)
    holder = sa.func.coalesce(r.account, r.key_fingerprint, "")
    rows = connection.execute(
        sa.select(
            arrived.label("arrived"),
            *(r.session_id, r.model, r.list_value_picousd, r.id, r.http_status, r.billing),
        )
        .where(
            r.provider == last.provider,
            holder == last.holder,
            r.opened_at > since - timedelta(days=1),
            r.opened_at <= last.observed_at,
            arrived >= since,
            arrived <= last.observed_at,
        )
        .order_by(arrived.desc(), r.id.desc())
        .limit(USES_MAX)
    ).all()
    found = []
    for row in reversed(rows):
        value, status = (
            each if isinstance(each, int | Decimal) else None
            for each in (row.list_value_picousd, row.http_status)
        )
        is_answered = status is not None and status < ERROR_STATUS_MIN
        # An error uses nothing, and a free request neither.
        is_used = value is not None or (row.billing != "free" and (status is None or is_answered))
        found.append(
            Use(
                arrived_at=row.arrived.timestamp(),
                model=row.model or "",
                usd=int(value or 0) / PICOUSD_PER_USD if value is not None or not is_used else None,
                is_answered=is_answered,
                exchange_id=row.id,
                session=row.session_id,
                value_picousd=int(value or 0),
            )
        )
    return found


def moment_text(moment: datetime) -> str:
    """A moment in UTC as JSON has it."""
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")
