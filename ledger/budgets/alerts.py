"""Database. Which alerts are due, each once per budget or limit, period and threshold.

Several proxies may watch one ledger. A row of the table `alerts` is claimed before its alert is
sent, and marked as sent afterwards. Another process may claim an alert again, up to ATTEMPTS_MAX
times, if its claim is older than CLAIM_SECONDS and not marked: the process that held it died, or
its destinations failed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from ledger.attach import attached
from ledger.budgets import cap_status
from ledger.budgets.budgets import Budgets, QuotaRule
from ledger.budgets.status import BudgetStatus, document, statuses
from ledger.caps.caps import Cap
from ledger.model.exchange import RESET_TOLERANCE
from ledger.settings.names import Names
from ledger.store import db
from ledger.store.tables import alerts
from ledger.text.figures import counted, money, percent, used_share
from ledger.text.printable import printable

CLAIM_SECONDS = 600
"""Longer than all retries to all destinations take."""
ATTEMPTS_MAX = 5
"""After that an alert that no destination accepts is dropped; `tokentee budget` still shows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """A threshold that a budget or a limit reached."""

    name: str
    """With the period and the threshold, what an alert is claimed by."""
    period_start: datetime
    threshold: int
    """In per cent of the limit."""
    text: str
    """One line for people."""
    data: Mapping[str, Any]
    """For commands."""


def claim_alerts(engine: Engine, budgets: Budgets, names: Names, now: datetime) -> list[Alert]:
    """The alerts that this process must send now; no other process sends them.

    If a budget or a limit reached several thresholds since the last check, only the highest is
    sent; the lower ones are marked as sent with it.
    """
    reached = [_of_budget(each) for each in statuses(engine, budgets.budgets, names, now)]
    reached += _of_caps(engine, budgets.caps, names, now)
    if budgets.quotas:
        reached += _of_limits(engine, budgets.quotas, now)
    due = []
    for alerts_of_one in reached:
        claimed = [each for each in alerts_of_one if _claim(engine, each, now)]
        due += claimed[-1:]
        mark_sent(engine, claimed[:-1], now)
    return due


def mark_sent(engine: Engine, delivered: Iterable[Alert], now: datetime) -> None:
    """Record that alerts reached a destination, so that no process sends them again."""
    for alert in delivered:
        with db.writing(engine) as connection:
            connection.execute(sa.update(alerts).where(*_is(alert)).values(sent_at=now))


def _of_budget(status: BudgetStatus) -> list[Alert]:
    """An alert for each threshold that a budget reached, the lowest first."""
    forecast = status.forecast_picousd
    end = f"; at this rate ~{money(forecast)} at its end" if forecast is not None else ""
    (data,) = document([status])["budgets"]
    return [
        Alert(
            name=status.budget.name,
            period_start=status.span.start,
            threshold=threshold,
            text=f"budget {printable(status.budget.name)}, {status.period_text}: "
            f"{percent(status.used_percent / 100)} used, {money(status.spent_picousd)} of "
            f"{money(status.budget.limit_picousd)} (threshold {threshold}%){end}",
            data=data,
        )
        for threshold in status.reached
    ]


def _of_caps(
    engine: Engine, caps: Sequence[Cap], names: Names, now: datetime
) -> Iterator[list[Alert]]:
    """An alert for each share of a cap that is spent, and one if it has refused."""
    day = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    for status in cap_status.statuses(engine, caps, names, now):
        span = status.cap.span(now)
        name, start = status.cap.name, day if span is None else span.start
        (data,) = cap_status.document([status])
        yield [
            Alert(
                name=f"cap {name}",
                period_start=start,
                threshold=threshold,
                text=f"cap {name}: {threshold}% spent",
                data=data,
            )
            for threshold in status.warned
        ]
        if status.refused:
            text = f"cap {name}: {counted(status.refused, 'request')} refused"
            yield [
                Alert(
                    name=f"cap {name} refused",
                    period_start=start,
                    threshold=100,
                    text=text,
                    data=data,
                )
            ]


def _of_limits(engine: Engine, rules: Sequence[QuotaRule], now: datetime) -> Iterator[list[Alert]]:
    """The same for each limit, in its present window."""
    for limit in (limit for limits in attached("limits") for limit in limits(engine, now)):
        shares = {
            share
            for rule in rules
            if rule.is_for(limit.provider, limit.window)
            for share in rule.above
        }
        used = limit.used_ppm
        if used is None or not shares:
            continue
        resets = f", resets at {limit.resets_at:%Y-%m-%d %H:%M} UTC" if limit.resets_at else ""
        full = f", full at {limit.full_at:%H:%M} at this pace" if limit.full_at else ""
        name = f"quota {limit.provider} {limit.window} {limit.holder}"
        start = _window_of(engine, name, limit)
        yield [
            Alert(
                name=name,
                period_start=start,
                threshold=threshold,
                text=f"limit {printable(limit.window)} of {printable(limit.provider)}: "
                f"{used_share(used)} used (threshold {threshold}%){resets}{full}",
                data={key: value for key, value in limit.as_json().items() if key != "sessions"},
            )
            for threshold in sorted(shares)
            if used >= threshold * 10_000
        ]


def _window_of(engine: Engine, name: str, limit: Any) -> datetime:
    """What tells this window from the one before: its reset, as the first alert had it, since some
    providers state it as a wait and it moves by seconds; without a reset, the day."""
    if limit.resets_at is None:
        day: datetime = limit.observed_at.replace(hour=0, minute=0, second=0, microsecond=0)
        return day
    reset: datetime = limit.resets_at
    near = max(RESET_TOLERANCE, timedelta(minutes=limit.window_minutes or 0) / 2)
    with engine.connect() as connection:
        known = connection.scalar(
            sa.select(sa.func.max(alerts.c.period_start)).where(
                alerts.c.budget == name,
                alerts.c.period_start > reset - near,
                alerts.c.period_start < reset + near,
            )
        )
    return known or reset


def _claim(engine: Engine, alert: Alert, now: datetime) -> bool:
    a = alerts.c
    with engine.connect() as connection:
        row = connection.execute(
            sa.select(a.claimed_at, a.sent_at, a.attempts).where(*_is(alert))
        ).one_or_none()
    if row is None:
        first = {"period_start": alert.period_start, "claimed_at": now, "attempts": 1}
        values = {"budget": alert.name, "threshold": alert.threshold, **first}
        try:
            with db.writing(engine) as connection:
                connection.execute(sa.insert(alerts).values(values))
        except sa.exc.IntegrityError:
            return False  # another process was first
        return True
    is_held = row.claimed_at > now - timedelta(seconds=CLAIM_SECONDS)
    if row.sent_at is not None or is_held or row.attempts >= ATTEMPTS_MAX:
        return False
    with db.writing(engine) as connection:
        result = connection.execute(
            sa.update(alerts)
            .where(*_is(alert), a.sent_at.is_(None), a.attempts == row.attempts)
            .values(claimed_at=now, attempts=row.attempts + 1)
        )
    return result.rowcount == 1


def _is(alert: Alert) -> tuple[sa.ColumnElement[bool], ...]:
    a = alerts.c
    return (
        a.budget == alert.name,
        a.period_start == alert.period_start,
        a.threshold == alert.threshold,
    )
