"""Database. Flat plans by month: what each covered, at list prices, against its price.

The list value is what the same tokens would have cost at list prices. A request belongs to the
first `[[plan]]` of the names file that covers it, or else to its provider's plan, whose price is
not known. A window was hit where an answer said that it was used up, or refused for it; a window
that was hit several times before its reset counts once.
"""

from collections import Counter
from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ledger.figures.figures import Figures
from ledger.figures.queries import groups
from ledger.model.exchange import PPM
from ledger.model.money import PICOUSD_PER_USD, usd
from ledger.settings.names import GroupFacts
from ledger.store.retention import next_month
from ledger.store.scope import Scope, snapshot, within
from ledger.store.tables import exchanges, quotas
from ledger.text.origins import host_of

METHOD = (
    "ratio: list value of a month / price of the plan; list value: what its tokens cost at list "
    "prices, by the prices of their own day"
)
HALF_A_MINUTE = timedelta(seconds=30)
CENT = Decimal("0.01")
_BY = ("day", "provider", "key", "origin", "agent")

type _Month = tuple[str, str]
"""Plan and month, `2026-11`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanMonth:
    """One plan in one month."""

    plan: str
    month: str
    picousd_per_month: int | None
    """None: the names file gives no price."""
    list_value_picousd: int | None
    """None: nothing that it covered has a price."""
    is_lower_bound: bool
    """Something that it covered has no price."""
    requests: int
    windows_hit: int

    @property
    def ratio(self) -> Decimal | None:
        """List value per price; None if either is unknown, or the price is 0."""
        if not self.picousd_per_month or self.list_value_picousd is None:
            return None
        return Decimal(self.list_value_picousd) / self.picousd_per_month

    def as_json(self) -> dict[str, Any]:
        """The document for machines; amounts are exact."""
        return {
            "plan": self.plan,
            "month": self.month,
            "usd_per_month": usd(self.picousd_per_month),
            "list_value_usd": usd(self.list_value_picousd),
            "ratio": None if self.ratio is None else self.ratio.quantize(CENT),
            "requests": self.requests,
            "windows_hit": self.windows_hit,
        }


def plan_months(engine: Engine, scope: Scope) -> list[PlanMonth]:
    """Each plan of a scope by month, in the order of names and months. A month between the first
    and the last with requests has a row without them while its plan is in force."""
    scope = replace(scope, only=(*scope.only, ("billing", "plan")), zone=None)
    found: dict[_Month, Figures] = {}
    known = {plan.name: plan for plan in reversed(scope.names.plans)}
    prices = {
        name: int(Decimal(plan.usd_per_month) * PICOUSD_PER_USD)
        for name, plan in known.items()
        if plan.usd_per_month is not None
    }
    with snapshot(engine) as connection:
        for key, group in groups(connection, _BY, scope).items():
            day, provider, fingerprint, origin, agent = key
            plan = scope.names.plan_of(_facts(str(day), fingerprint, group.hint, origin, agent))
            row = (plan.name if plan else str(provider), str(day)[:7])
            found[row] = found.get(row, Figures()) + group.figures
        hit = _windows_hit(connection, scope)
    for name in {name for name, _ in found} & known.keys():
        its = sorted(month for each, month in found if each == name)
        since, until = known[name].since or date.min, known[name].until or date.max
        month = date.fromisoformat(f"{its[0]}-01")
        while f"{month:%Y-%m}" < its[-1]:
            first, month = month, next_month(month)
            if first < until and since < month:  # in force on some day of it
                found.setdefault((name, f"{first:%Y-%m}"), Figures())
    return [
        PlanMonth(
            plan=name,
            month=month,
            picousd_per_month=prices.get(name),
            list_value_picousd=figures.covered_value_picousd,
            is_lower_bound=bool(figures.unlisted),
            requests=figures.requests,
            windows_hit=hit[name, month],
        )
        for (name, month), figures in sorted(found.items())
    ]


def _facts(
    day: str, fingerprint: str | None, hint: str | None, origin: str | None, agent: str | None
) -> GroupFacts:
    return GroupFacts(
        key=fingerprint,
        key_hint=hint,
        host=host_of(origin or ""),
        agent=agent,
        day=date.fromisoformat(day[:10]),
    )


def _windows_hit(connection: Connection, scope: Scope) -> Counter[_Month]:
    """Windows that were used up, by plan and month."""
    q, e = quotas.c, exchanges.c
    rows = connection.execute(
        sa.select(
            q.observed_at,
            q.holder,
            q.window,
            q.resets_at,
            *(e[name] for name in ("provider", "key_fingerprint", "key_hint", "origin", "agent")),
        )
        .select_from(quotas.join(exchanges, (e.opened_at == q.opened_at) & (e.id == q.exchange_id)))
        .where(
            q.kind == "plan",
            sa.or_(q.used_ppm >= PPM, q.status == "rejected"),
            *within(scope, q.opened_at),
        )
    )
    seen: set[tuple[str, str, str, str]] = set()
    found: Counter[_Month] = Counter()
    for row in rows:
        day = str(row.observed_at.date())
        facts = _facts(day, row.key_fingerprint, row.key_hint, row.origin, row.agent)
        plan = scope.names.plan_of(facts)
        name = plan.name if plan else row.provider
        # Answers round the reset: it moves by seconds and is the same.
        reset = f"{row.resets_at + HALF_A_MINUTE:%Y-%m-%d %H:%M}" if row.resets_at else day
        window = (name, row.holder, row.window, reset)
        if window not in seen:
            seen.add(window)
            found[name, day[:7]] += 1
    return found
