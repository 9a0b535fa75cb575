"""Database. What one percent of each plan's window buys: reads the figures and the requests beside
them, `percent_value` makes the estimate."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from ledger.parts.plans import limits, percent_value
from ledger.parts.plans.percent_value import Estimate
from ledger.store.scope import snapshot
from ledger.store.tables import quotas

HISTORY = timedelta(weeks=13)
"""What is older is not looked at."""
LIMITS_MAX = 50
"""Limits that are estimated, those of the newest answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitValue:
    """What is known of one limit of an account."""

    provider: str
    holder: str
    """The account, or else the key's fingerprint; empty: neither is known."""
    window: str
    observed_at: datetime
    estimate: Estimate
    full_at: datetime | None
    """As `limits` has it; None: not asked for, either."""

    def as_json(self) -> list[dict[str, object]]:
        """The rows of `tokentee limits --value --format json`: over all models, then of each."""
        known = self.estimate
        rows: list[dict[str, object]] = [
            {
                "provider": self.provider,
                "account": self.holder,
                "window": self.window,
                "model": model,
                "usd_per_percent": _round(value.usd),
                "low": _round(value.low),
                "high": _round(value.high),
                "intervals": known.intervals,
                "recorded_percent": _round(recorded),
                "unrecorded_percent": None,
                "changes": [],
                "full_at": None,
            }
            for model, value, recorded in known.rows()
        ]
        rows[0] |= {
            "unrecorded_percent": _round(known.unrecorded),
            "changes": [
                {
                    "at": limits.moment_text(datetime.fromtimestamp(round(each.at), UTC)),
                    "before": _round(each.before),
                    "after": _round(each.after),
                }
                for each in known.changes
            ],
            "full_at": self.full_at and limits.moment_text(self.full_at),
        }
        return rows


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
            uses = limits.requests_beside(connection, last, since)
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
                    full_at=full.get((last.provider, last.holder, label)),
                )
            )
    return sorted(found, key=lambda each: (each.provider, each.holder, each.window))


def _round(number: float | None) -> float | None:
    """To six digits, which is more than is known."""
    return None if number is None else float(f"{number:.6g}")
