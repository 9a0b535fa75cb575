"""Database. What one percent of each plan's window buys: reads the figures and the requests beside
them, `percent_value` makes the estimate."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ledger.figures import limits, percent_value
from ledger.figures.percent_value import KINDS, Estimate, Use, Value
from ledger.model.money import PICOUSD_PER_USD
from ledger.store.adding_up import charged
from ledger.store.schema.charged import sum_of
from ledger.store.scope import requests, snapshot
from ledger.store.tables import current_charges, quotas

HISTORY = timedelta(weeks=13)
"""What is older is not looked at."""
LIMITS_MAX = 50
"""Limits that are estimated, those of the newest answers."""
_KIND_OF = {
    "cache_read": 1,
    "cache_write": 2,
    "cache_write_5m": 2,
    "cache_write_1h": 2,
    "cache_write_12h": 2,
    "output": 3,
    "reasoning": 3,
}
"""Line of a charge -> its place in `KINDS`; uncached input is 0. Other lines are of no kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitValue:
    """What is known of one limit of an account."""

    provider: str
    holder: str
    """The account, or else the key's fingerprint; empty: neither is known."""
    window: str
    observed_at: datetime
    estimate: Estimate
    uses: tuple[Use, ...]
    full_at: datetime | None
    """As `limits` has it; None: not asked for, either."""

    def as_json(self) -> list[dict[str, object]]:
        """The rows of `tokentee limits --value --format json`: over all models, then of each."""
        known = self.estimate
        over_all = self._row(None, known.value, known.recorded) | {
            "unrecorded_percent": self.unrecorded_percent,
            "unrecorded": [
                {
                    "from": _text(each.since),
                    "until": _text(each.until),
                    "percent": _round(each.percent),
                }
                for each in known.unrecorded
            ],
            "changes": [
                {"at": _text(each.at), "before": _round(each.before), "after": _round(each.after)}
                for each in known.changes
            ],
            "full_at": self.full_at and limits.moment_text(self.full_at),
        }
        by_model = sorted(known.models.items(), key=lambda item: -known.percent_of_model[item[0]])
        return [over_all] + [
            self._row(model, value, known.percent_of_model[model]) for model, value in by_model
        ]

    def _row(self, model: str | None, value: Value, recorded: float | None) -> dict[str, object]:
        return {
            "provider": self.provider,
            "account": self.holder,
            "window": self.window,
            "model": model,
            "usd_per_percent": _round(value.usd),
            "low": _round(value.low),
            "high": _round(value.high),
            "intervals": self.estimate.intervals,
            "recorded_percent": _round(recorded),
            "unrecorded_percent": None,
            "unrecorded": [],
            "changes": [],
            "tokens_per_percent": self.tokens_per_percent(model, value),
            "full_at": None,
        }

    @property
    def unrecorded_percent(self) -> float | None:
        """None: not known, as the value is not."""
        if self.estimate.recorded is None:
            return None
        return _round(sum(each.percent for each in self.estimate.unrecorded))

    def tokens_per_percent(self, model: str | None, value: Value) -> dict[str, int | None]:
        """At the mix since the last change; None: not known, or not reported."""
        since = self.estimate.since
        uses = [
            use
            for use in self.uses
            if use.arrived_at >= since and use.usd and (model is None or use.model == model)
        ]
        usd = sum(use.usd or 0.0 for use in uses)
        found: dict[str, int | None] = {}
        for at, kind in enumerate(KINDS):
            reported = [tokens for use in uses if (tokens := use.tokens[at]) is not None]
            is_known = bool(reported) and value.usd is not None
            found[kind] = round(sum(reported) / usd * value.usd) if is_known and value.usd else None
        return found


def limit_values(
    engine: Engine,
    now: datetime,
    *,
    key: str | None = None,
    provider: str | None = None,
    has_full_at: bool = False,
) -> list[LimitValue]:
    """The limits of plans whose answers stated a used share in the last month, by provider, account
    and window. `key`: as `limits` takes it."""
    shown = limits.limits(engine, now, key=key, provider=provider) if has_full_at else []
    full = {
        (each.provider, each.holder, each.window): each.full_at
        for each in shown
        if each.kind == "plan"
    }
    found: list[LimitValue] = []
    with snapshot(engine) as connection:
        if not sa.inspect(connection).has_table(quotas.name):
            return []
        for rows in limits.groups_of(connection, now, key, provider, since=HISTORY):
            last = rows[-1]
            windows = limits.windows_of(rows)
            if last.kind != "plan" or not windows or len(found) == LIMITS_MAX:
                continue
            since = windows[0][0].observed_at - timedelta(minutes=last.window_minutes or 0)
            beside = limits.requests_beside(connection, last, since)
            first = datetime.fromtimestamp(beside[0].arrived_at, UTC) if beside else since
            kinds = _kinds(connection, last, first) if beside else {}
            uses = tuple(
                use._replace(usd_of_kind=kinds.get(use.exchange_id, limits.NO_AMOUNTS))
                for use in beside
            )
            label = limits.label_of(last.window, last.window_minutes)
            found.append(
                LimitValue(
                    provider=last.provider,
                    holder=last.holder,
                    window=label,
                    observed_at=last.observed_at,
                    estimate=percent_value.estimate(
                        limits.percents_of(windows, last.window_minutes), uses
                    ),
                    uses=uses,
                    full_at=full.get((last.provider, last.holder, label)),
                )
            )
    return sorted(found, key=lambda each: (each.provider, each.holder, each.window))


def _kinds(connection: Connection, last: Any, since: datetime) -> dict[str, tuple[float, ...]]:
    """The list value in USD of each request of a limit's holder from then until its last figure, by
    kind of token."""
    r, c = requests.c, current_charges.c
    amount = sa.literal_column(sum_of("current_charges.amount_picousd"), sa.BigInteger)
    rows = connection.execute(
        sa.select(r.id, c.line, amount)
        .select_from(charged())
        .where(r.provider == last.provider, r.opened_at > since - timedelta(days=1))
        .where(r.opened_at <= last.observed_at)
        .where(sa.func.coalesce(r.account, r.key_fingerprint, "") == last.holder)
        .where(c.line.in_([*_KIND_OF, "uncached_input"]), c.amount_picousd.is_not(None))
        .group_by(r.id, c.line)
    )
    found: dict[str, list[float]] = {}
    for name, line, amount in rows:
        kinds = found.setdefault(name, [0.0] * len(KINDS))
        kinds[_KIND_OF.get(line, 0)] += int(amount or 0) / PICOUSD_PER_USD
    return {name: tuple(kinds) for name, kinds in found.items()}


def _round(number: float | None) -> float | None:
    """To six digits, which is more than is known."""
    return None if number is None else float(f"{number:.6g}")


def _text(moment: float) -> str:
    return limits.moment_text(datetime.fromtimestamp(round(moment), UTC))
