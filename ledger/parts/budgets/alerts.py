"""Edge. Alerts: which are due, each once per limit, period and threshold, and one POST of JSON.

Several proxies may watch one ledger. A row of the table `alerts` is claimed before its alert is
sent, and marked as sent afterwards. Another process may claim it again, up to ATTEMPTS_MAX times,
if its claim is older than CLAIM_SECONDS and not marked: who held it died, or no address took it.
"""

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Engine

from ledger.attach import attached
from ledger.model.errors import LedgerError
from ledger.model.exchange import RESET_TOLERANCE
from ledger.parts.budgets.book import shown
from ledger.parts.budgets.budgets_file import Budgets, Destination, QuotaRule
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


class ReachedLimit(NamedTuple):
    """What a cap, a budget or a provider's limit tells in its present period."""

    name: str
    """With the period and a threshold, what an alert is claimed by."""
    period_start: datetime
    texts: Mapping[int, str]
    """Of each threshold that it has reached, the lowest first."""
    data: Mapping[str, Any]


def send_due(
    engine: Engine, budgets: Budgets, names: Names, now: datetime, log: Log
) -> tuple[int, int]:
    """Send the alerts that are due and that no other process sends: how many were, and were taken.
    Of several thresholds that one limit reached since the last time, only the highest is sent."""
    both = (*budgets.budgets, *budgets.caps)
    reached = [one for status in statuses(engine, both, names, now) for one in _of(status, now)]
    for limits in attached("limits") if budgets.quotas else ():
        reached += [_of_limit(engine, budgets.quotas, limit) for limit in limits(engine, now)]
    due = taken = 0
    for one in reached:
        claimed = [each for each in one.texts if _claim(engine, one, each, now)]
        if not claimed:
            continue
        due += 1
        if _send(one, claimed[-1], budgets.destinations, log):
            taken += 1
        else:
            claimed.pop()
        a = alerts.c
        sent = sa.update(alerts).where(a.budget == one.name, a.period_start == one.period_start)
        with db.writing(engine) as connection:
            connection.execute(sent.where(a.threshold.in_(claimed)).values(sent_at=now))
    return due, taken


def waiting(engine: Engine, now: datetime) -> int:
    """How many alerts no address took, and are not due again before `CLAIM_SECONDS` are over."""
    a = alerts.c
    query = sa.select(sa.func.count()).where(
        a.sent_at.is_(None), a.claimed_at > now - timedelta(seconds=CLAIM_SECONDS)
    )
    with engine.connect() as connection:
        return connection.scalar(query) or 0


def _send(one: ReachedLimit, threshold: int, destinations: Sequence[Destination], log: Log) -> bool:
    """Whether an address took it. An address is a secret, which errors of libraries repeat."""
    text = one.texts[threshold]
    if not destinations:
        log("warn", f"tokentee: {text}")
    body = {**one.data, "threshold": threshold, "text": text}
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


def _of(status: Status, now: datetime) -> Iterator[ReachedLimit]:
    """What a cap or a budget tells: how much is spent, and that a cap has refused."""
    cap, data, word = status.cap, as_json(status), status.fullest
    start = _day(now) if status.span is None else status.span.start
    kind = "cap" if cap.stops else "budget"
    name = f"cap {cap.name}" if cap.stops else cap.name
    spent = f"{shown(word, getattr(status.spent, word, 0))} of {shown(word, status.limit(word))}"
    text = f"{kind} {printable(cap.name)}, {status.period_text}: {spent}"
    yield ReachedLimit(name, start, {share: f"{text} ({share}%)" for share in status.warned}, data)
    if status.refused:
        text = f"cap {cap.name}: {counted(status.refused, 'request')} refused"
        yield ReachedLimit(f"cap {cap.name} refused", start, {100: text}, data)


def _of_limit(engine: Engine, rules: Sequence[QuotaRule], limit: Any) -> ReachedLimit:
    """The same of a provider's limit, in its present window: told from the one before by its reset,
    as the first alert had it, since some providers state it as a wait and it moves by seconds; by
    the day, if it has none."""
    shares = {s for rule in rules if rule.is_for(limit.provider, limit.window) for s in rule.above}
    used = limit.used_ppm or 0
    name = f"quota {limit.provider} {limit.window} {limit.holder}"
    text = (
        f"limit {printable(limit.window)} of {printable(limit.provider)}: {used_share(used)} used"
    )
    texts = {share: f"{text} ({share}%)" for share in sorted(shares) if used >= share * 10_000}
    data = {key: value for key, value in limit.as_json().items() if key != "sessions"}
    start = limit.resets_at or _day(limit.observed_at)
    if texts and limit.resets_at is not None:
        near = max(RESET_TOLERANCE, timedelta(minutes=limit.window_minutes or 0) / 2)
        moment = alerts.c.period_start
        known = sa.select(sa.func.max(moment)).where(
            alerts.c.budget == name, moment > start - near, moment < start + near
        )
        with engine.connect() as connection:
            start = connection.scalar(known) or start
    return ReachedLimit(name, start, texts, data)


def _claim(engine: Engine, one: ReachedLimit, threshold: int, now: datetime) -> bool:
    """Whether it is this process that sends an alert."""
    dialect, a = postgresql if engine.dialect.name == "postgresql" else sqlite, alerts.c
    first = dialect.insert(alerts).values(
        budget=one.name,
        period_start=one.period_start,
        threshold=threshold,
        claimed_at=now,
        attempts=1,
    )
    stale = now - timedelta(seconds=CLAIM_SECONDS)
    claim = first.on_conflict_do_update(
        index_elements=alerts.primary_key,
        set_={"claimed_at": now, "attempts": a.attempts + 1},
        where=a.sent_at.is_(None) & (a.claimed_at <= stale) & (a.attempts < ATTEMPTS_MAX),
    )
    with db.writing(engine) as connection:
        return connection.execute(claim.returning(a.attempts)).first() is not None


def _day(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
