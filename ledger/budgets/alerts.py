"""Database. Which alerts are due, each once per budget, period and threshold.

Several proxies may watch one ledger. A row of the table `alerts` is claimed before its alert is
sent, and marked as sent afterwards. Another process may claim an alert again, up to ATTEMPTS_MAX
times, if its claim is older than CLAIM_SECONDS and not marked: the process that held it died, or
its destinations failed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from ledger.budgets.budgets import Budgets
from ledger.budgets.spending import statuses
from ledger.budgets.status import Status, period_text
from ledger.reports.layout import short_usd
from ledger.settings.names import Names
from ledger.store import db
from ledger.store.tables import alerts
from ledger.text.printable import printable

CLAIM_SECONDS = 600
"""Longer than all retries to all destinations take."""
ATTEMPTS_MAX = 5
"""After that an alert that no destination accepts is dropped; `tokentee budget` still shows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """A threshold that a budget reached."""

    status: Status
    threshold: int
    """In per cent of the limit."""

    @property
    def text(self) -> str:
        """One line for people."""
        status = self.status
        forecast = status.forecast_picousd
        end = f"; at this rate ~{short_usd(forecast)} at its end" if forecast is not None else ""
        return (
            f"budget {printable(status.budget.name)}, {period_text(status)}: "
            f"{status.used_percent:.0f}% used, {short_usd(status.spent_picousd)} of "
            f"{short_usd(status.budget.limit_picousd)} (threshold {self.threshold}%){end}"
        )


def claim_alerts(engine: Engine, budgets: Budgets, names: Names, now: datetime) -> list[Alert]:
    """The alerts that this process must send now; no other process sends them.

    If a budget reached several thresholds since the last check, only the highest is sent; the lower
    ones are marked as sent with it.
    """
    due = []
    for status in statuses(engine, budgets.budgets, names, now):
        claimed = [each for each in status.reached if _claim(engine, status, each, now)]
        if claimed:
            due.append(Alert(status=status, threshold=claimed[-1]))
            for lower in claimed[:-1]:
                _mark(engine, status, lower, now)
    return due


def mark_sent(engine: Engine, delivered: Iterable[Alert], now: datetime) -> None:
    """Record that alerts reached a destination, so that no process sends them again."""
    for alert in delivered:
        _mark(engine, alert.status, alert.threshold, now)


def _claim(engine: Engine, status: Status, threshold: int, now: datetime) -> bool:
    a = alerts.c
    with engine.connect() as connection:
        row = connection.execute(
            sa.select(a.claimed_at, a.sent_at, a.attempts).where(*_is(status, threshold))
        ).one_or_none()
    if row is None:
        return _insert(engine, status, threshold, now)
    is_held = row.claimed_at > now - timedelta(seconds=CLAIM_SECONDS)
    if row.sent_at is not None or is_held or row.attempts >= ATTEMPTS_MAX:
        return False
    with db.writing(engine) as connection:
        result = connection.execute(
            sa.update(alerts)
            .where(*_is(status, threshold), a.sent_at.is_(None), a.attempts == row.attempts)
            .values(claimed_at=now, attempts=row.attempts + 1)
        )
    return result.rowcount == 1


def _insert(engine: Engine, status: Status, threshold: int, now: datetime) -> bool:
    try:
        with db.writing(engine) as connection:
            connection.execute(
                sa.insert(alerts).values(
                    budget=status.budget.name,
                    period_start=status.span.start,
                    threshold=threshold,
                    claimed_at=now,
                    attempts=1,
                )
            )
    except sa.exc.IntegrityError:
        return False  # another process was first
    return True


def _mark(engine: Engine, status: Status, threshold: int, now: datetime) -> None:
    with db.writing(engine) as connection:
        connection.execute(sa.update(alerts).where(*_is(status, threshold)).values(sent_at=now))


def _is(status: Status, threshold: int) -> tuple[sa.ColumnElement[bool], ...]:
    a = alerts.c
    return (
        a.budget == status.budget.name,
        a.period_start == status.span.start,
        a.threshold == threshold,
    )
