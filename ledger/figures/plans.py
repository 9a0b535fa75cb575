"""Database. Flat plans by month: what each covered, at list prices, against its price.

The list value is what the same tokens would have cost at list prices. A request belongs to the
first `[[plan]]` of the names file that covers it, or else to its provider's plan, whose price is
not known. A window was hit where an answer said that it was used up, or refused for it; a window
that was hit several times before its reset counts once.

And requests by blocks of five hours, in which plans count use, each account by itself. A block is a
window that an answer stated (`quotas`: 300 minutes before its reset), where there is one. Otherwise
it begins with the first request after the block before it, as log readers guess it; a stated window
ends a guessed one.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ledger.figures.figures import Figures, Report, total_of
from ledger.figures.limits import RESET_TOLERANCE
from ledger.figures.queries import groups, report
from ledger.model.errors import LedgerError
from ledger.model.exchange import PPM
from ledger.model.money import PICOUSD_PER_USD, usd
from ledger.settings.names import GroupFacts
from ledger.store.retention import next_month
from ledger.store.scope import NO_VALUE, Scope, conditions, requests, snapshot, within
from ledger.store.tables import exchanges, quotas
from ledger.text.origins import host_of

METHOD = (
    "ratio: list value of a month / price of the plan; list value: what its tokens cost at list "
    "prices, by the prices of their own day"
)
HALF_A_MINUTE = timedelta(seconds=30)
CENT = Decimal("0.01")
BLOCK_WORD = "block"
BLOCK_MINUTES = 300
BLOCK = timedelta(minutes=BLOCK_MINUTES)
BLOCKS_MAX = 400
"""Blocks of one report: each is a query. About a quarter of a year of one account without a night's
pause."""
STATED, GUESSED = "stated", "guessed"
_BY = ("day", "provider", "key", "origin", "agent")

type _Holder = tuple[str, str, str]
"""Provider, account and, without an account, the key's fingerprint; empty: not known."""
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


def report_by_block(
    engine: Engine,
    scope: Scope,
    *,
    now: datetime | None = None,
) -> Report:
    """The figures of each block with requests, the earliest first, by provider and account (of a
    request without one, its key); each row says whether an answer stated its window (`stated`) or
    it begins with its first request (`guessed`).

    LedgerError if the period has more than `BLOCKS_MAX` blocks.
    """
    found, rows = [], []
    with snapshot(engine) as connection:
        for holder in _holders(connection, scope):
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
    assert total_of(row.figures for row in rows) == whole.total.figures
    by = (BLOCK_WORD, "until", "window", "account")
    return replace(whole, by=by, rows=tuple(rows))


def _holders(connection: Connection, scope: Scope) -> list[_Holder]:
    """Who has windows of their own, of the requests of a scope."""
    r = requests.c
    key = sa.case((r.account.is_(None), r.key_fingerprint))
    holders = sa.select(r.provider, sa.func.coalesce(r.account, ""), sa.func.coalesce(key, ""))
    about = conditions(scope, connection.dialect.name)
    return [tuple(each) for each in connection.execute(holders.where(*about).distinct())]


def _blocks(
    connection: Connection, scope: Scope, holder: _Holder
) -> Iterator[tuple[datetime, datetime, str]]:
    """Start, end and kind of each block of a holder, cut at the ends of the period."""
    stated = _stated(connection, scope, holder)
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


def _stated(
    connection: Connection, scope: Scope, holder: _Holder
) -> list[tuple[datetime, datetime]]:
    """Windows that answers stated of a holder, the earliest first, none over another."""
    q = quotas.c
    provider, account, key = holder
    where = [q.kind == "plan", q.window_minutes == BLOCK_MINUTES, q.resets_at.is_not(None)]
    where += [q.provider == provider, q.holder == (account or key)]
    if scope.since is not None:
        where.append(q.resets_at > scope.since)
    if scope.until is not None:
        where.append(q.resets_at < scope.until + BLOCK)
    found: list[tuple[datetime, datetime]] = []
    for reset in connection.scalars(
        sa.select(q.resets_at).where(*where).distinct().order_by(q.resets_at)
    ):
        begin = reset - BLOCK
        if not found or reset - found[-1][1] >= RESET_TOLERANCE:
            found.append((max(begin, found[-1][1]) if found else begin, reset))
    return found


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
