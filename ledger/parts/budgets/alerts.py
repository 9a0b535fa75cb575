"""Edge. Alerts: which are due, each once per limit, period and threshold, and one POST of JSON.

Several proxies may watch one ledger. A row of the table `alerts` is claimed before its alert is
sent, and marked as sent afterwards. Another process may claim it again, up to ATTEMPTS_MAX times,
if its claim is older than CLAIM_SECONDS and not marked: who held it died, or no address took it.
"""

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from ledger.attach import attached
from ledger.model.errors import LedgerError
from ledger.model.exchange import RESET_TOLERANCE
from ledger.parts.budgets.book import shown
from ledger.parts.budgets.budgets_file import Budgets, Destination
from ledger.parts.budgets.status import Status, as_json, statuses
from ledger.settings.names import Names
from ledger.store import db
from ledger.store.processes.supervision import Log
from ledger.store.tables import alerts
from ledger.text.figures import counted, used_share
from ledger.text.printable import printable

CLAIM_SECONDS = 600
"""Longer than sending takes."""
ATTEMPTS_MAX = 5
"""After that it is dropped; `tokentee budget` still shows it."""
POST_SECONDS_MAX = 10


class Alert(NamedTuple):
    """A threshold that a cap, a budget or a provider's limit reached."""

    name: str
    """With the period and the threshold, what it is claimed by."""
    period_start: datetime
    threshold: int
    text: str
    data: Mapping[str, Any]


def send_due(
    engine: Engine, budgets: Budgets, names: Names, now: datetime, log: Log
) -> tuple[int, int]:
    """Send the alerts that are due and that no other process sends: how many were, and were taken.
    Of several thresholds that one limit reached since the last time, only the highest is sent."""
    both = (*budgets.budgets, *budgets.caps)
    found = list(statuses(engine, both, names, now))
    reached = [one for status in found for one in (_of(status, now), _of_refusal(status, now))]
    stated = attached("limits") if budgets.quotas else ()
    reached += [
        _of_limit(engine, budgets, limit) for limits in stated for limit in limits(engine, now)
    ]
    due = taken = 0
    for of_one in reached:
        claimed = [each for each in of_one if _claim(engine, each, now)]
        if claimed:
            due += 1
            if _send(claimed[-1], budgets.destinations, log):
                taken += 1
            else:
                claimed.pop()
        with db.writing(engine) as connection:
            for each in claimed:
                connection.execute(sa.update(alerts).where(*_is(each)).values(sent_at=now))
    return due, taken


def waiting(engine: Engine, now: datetime) -> int:
    """How many alerts no address took, and are not due again before `CLAIM_SECONDS` are over."""
    a = alerts.c
    query = sa.select(sa.func.count()).where(
        a.sent_at.is_(None), a.claimed_at > now - timedelta(seconds=CLAIM_SECONDS)
    )
    with engine.connect() as connection:
        return connection.scalar(query) or 0


def _send(alert: Alert, destinations: tuple[Destination, ...], log: Log) -> bool:
    """Whether an address took it. An address is a secret, which errors of libraries repeat."""
    if not destinations:
        log("warn", f"tokentee: {alert.text}")
    body = {**alert.data, "threshold": alert.threshold, "text": alert.text}
    is_taken = not destinations
    for number, destination in enumerate(destinations, 1):
        try:
            request = urllib.request.Request(  # noqa: S310  # http and https only
                destination.address(),
                data=json.dumps(body, default=str).encode(),
                headers={"content-type": "application/json", "user-agent": "tokentee"},
            )
            with urllib.request.build_opener(_NoRedirect).open(request, timeout=POST_SECONDS_MAX):
                is_taken = True
        except (LedgerError, OSError, ValueError, http.client.HTTPException) as error:
            why = str(error) if isinstance(error, LedgerError) else type(error).__name__
            if isinstance(error, urllib.error.HTTPError):
                why = f"HTTP {error.code}"
                error.close()
            log("error", f"tokentee: alert {number} was not delivered: {why}")
    return is_taken


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _of(status: Status, now: datetime) -> Iterator[Alert]:
    """An alert for each threshold, the lowest first."""
    cap, data, word = status.cap, as_json(status), status.fullest
    start = _day(now) if status.span is None else status.span.start
    kind = "cap" if cap.stops else "budget"
    name = f"cap {cap.name}" if cap.stops else cap.name
    spent = f"{shown(word, getattr(status.spent, word, 0))} of {shown(word, status.limit(word))}"
    for threshold in status.warned:
        text = f"{kind} {printable(cap.name)}, {status.period_text}: {spent} ({threshold}%)"
        yield Alert(name, start, threshold, text, data)


def _of_refusal(status: Status, now: datetime) -> Iterator[Alert]:
    """An alert if a cap has refused."""
    if status.refused:
        start = _day(now) if status.span is None else status.span.start
        text = f"cap {status.cap.name}: {counted(status.refused, 'request')} refused"
        yield Alert(f"cap {status.cap.name} refused", start, 100, text, as_json(status))


def _of_limit(engine: Engine, budgets: Budgets, limit: Any) -> Iterator[Alert]:
    """The same for a provider's limit, in its present window."""
    rules = [each for each in budgets.quotas if each.is_for(limit.provider, limit.window)]
    used = limit.used_ppm
    if used is None or not rules:
        return
    name = f"quota {limit.provider} {limit.window} {limit.holder}"
    start = _window_of(engine, name, limit)
    data = {key: value for key, value in limit.as_json().items() if key != "sessions"}
    text = f"limit {printable(limit.window)} of {printable(limit.provider)}: {used_share(used)}"
    for threshold in sorted({share for rule in rules for share in rule.above}):
        if used >= threshold * 10_000:
            yield Alert(name, start, threshold, f"{text} used ({threshold}%)", data)


def _window_of(engine: Engine, name: str, limit: Any) -> datetime:
    """What tells this window from the one before: its reset, as the first alert had it, since some
    providers state it as a wait and it moves by seconds; without a reset, the day."""
    if limit.resets_at is None:
        return _day(limit.observed_at)
    near = max(RESET_TOLERANCE, timedelta(minutes=limit.window_minutes or 0) / 2)
    known = sa.select(sa.func.max(alerts.c.period_start)).where(
        alerts.c.budget == name,
        alerts.c.period_start > limit.resets_at - near,
        alerts.c.period_start < limit.resets_at + near,
    )
    with engine.connect() as connection:
        found: datetime | None = connection.scalar(known)
        reset: datetime = limit.resets_at
        return found or reset


def _claim(engine: Engine, alert: Alert, now: datetime) -> bool:
    """Whether it is this process that sends an alert."""
    a = alerts.c
    first = {"claimed_at": now, "attempts": 1, "period_start": alert.period_start}
    named = {"budget": alert.name, "threshold": alert.threshold}
    again = sa.update(alerts).where(
        *_is(alert),
        a.sent_at.is_(None),
        a.claimed_at <= now - timedelta(seconds=CLAIM_SECONDS),
        a.attempts < ATTEMPTS_MAX,
    )
    try:
        with db.writing(engine) as connection:
            if connection.scalar(sa.select(sa.func.count()).where(*_is(alert))):
                claim = again.values(claimed_at=now, attempts=a.attempts + 1)
                return connection.execute(claim).rowcount == 1
            connection.execute(sa.insert(alerts).values(**first, **named))
            return True
    except sa.exc.IntegrityError:
        return False  # another process was first


def _is(alert: Alert) -> tuple[sa.ColumnElement[bool], ...]:
    a = alerts.c
    period = a.period_start == alert.period_start
    return a.budget == alert.name, period, a.threshold == alert.threshold


def _day(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
