"""Database. How far each cap and budget is used, as the ledger has it: the one place that adds up.

A cap counts what was spent, and what open requests hold; of period `run` or `session` it is one for
each process or session, so only what it refused is shown. A cap that only warns counts what reports
show, whatever brought the requests. Estimated cost is not counted, as in every total.

The forecast is linear: the spending divided by the part of the period that has passed. Before a
tenth of the period has passed there is no forecast, because one early request would determine it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from ledger.figures.queries import totals
from ledger.model.money import usd
from ledger.parts.budgets import budgets_file
from ledger.parts.budgets.book import shown
from ledger.parts.budgets.caps import NOTHING, Amounts, Cap, fits_in, plus
from ledger.parts.budgets.spent import total_of_cap
from ledger.reports.layout import Amount, Table, TableColumn, amount_of
from ledger.settings import names_file
from ledger.settings.names import NO_NAMES, Names
from ledger.store.scope import Scope, requests
from ledger.text.figures import counted, money, percent
from ledger.text.period import TimeSpan, zone_of

FORECAST_FROM = Decimal("0.1")
"""The part of a period that must have passed."""
FORECAST_METHOD = (
    "forecast: spent so far / share of the period that has passed; none in its first tenth"
)
_MONEY = ("usd", "list_value_usd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A cap or a budget in its current period."""

    cap: Cap
    now: datetime
    span: TimeSpan | None
    since: datetime | None
    spent: Amounts | None
    """None: it has no period that the ledger knows."""
    held: Amounts = NOTHING
    refused: int = 0
    estimated_picousd: int = 0
    """Never part of what is spent."""
    covered_value_picousd: int = 0
    """What plans cover, at list prices: never part of what is spent."""
    requests_without_price: int = 0

    @property
    def words(self) -> tuple[str, ...]:
        """The kinds of its limits."""
        pairs = zip(Amounts._fields, self.cap.limits, strict=True)
        return tuple(word for word, limit in pairs if limit is not None)

    def limit(self, word: str) -> int:
        """One of its limits."""
        return int(getattr(self.cap.limits, word))

    def left(self, word: str) -> int | None:
        """What is left of one limit beside what is spent and held; None: not known."""
        if self.spent is None:
            return None
        return max(0, self.limit(word) - int(getattr(plus(self.spent, self.held), word)))

    @property
    def fullest(self) -> str:
        """The limit that is used most."""
        spent = self.spent or NOTHING
        return max(self.words, key=lambda word: Decimal(getattr(spent, word)) / self.limit(word))

    @property
    def used_percent(self) -> Decimal | None:
        """What is spent of its fullest limit."""
        if self.spent is None:
            return None
        return Decimal(getattr(self.spent, self.fullest)) * 100 / self.limit(self.fullest)

    @property
    def warned(self) -> tuple[int, ...]:
        """The per cents at which it warns that are reached."""
        used = self.used_percent
        return () if used is None else tuple(each for each in self.cap.per_cents if used >= each)

    @property
    def is_over(self) -> bool:
        """Whether more is spent than a limit allows."""
        return self.spent is not None and not fits_in(self.spent, self.cap.limits)

    @property
    def limit_picousd(self) -> int | None:
        """Of money that is billed."""
        limit: int | None = self.cap.limits.usd
        return limit

    @property
    def spent_picousd(self) -> int:
        """What is billed."""
        return (self.spent or NOTHING).usd or 0

    @property
    def forecast_picousd(self) -> int | None:
        """The spending at the end of the period at the current rate."""
        if self.span is None or self.spent is None:
            return None
        whole = (self.span.end - self.span.start).total_seconds()
        passed = Decimal((self.now - self.span.start).total_seconds()) / Decimal(whole)
        if passed < FORECAST_FROM:
            return None
        return int(self.spent_picousd / min(passed, Decimal(1)))

    @property
    def state(self) -> str:
        """`over`, `over soon` by the forecast, `near` from its lowest threshold on, or `ok`."""
        if self.is_over:
            return "over"
        forecast, limit = self.forecast_picousd, self.limit_picousd
        if forecast is not None and limit is not None and forecast > limit:
            return "over soon"
        return "near" if self.warned else "ok"

    @property
    def period_text(self) -> str:
        """`2026-11`, `2026-11-20`, `week of 2026-11-16`, or the period's name."""
        if self.span is None:
            return self.cap.period
        start = self.span.start
        if self.cap.period == "week":
            return f"week of {start:%Y-%m-%d}"
        return f"{start:%Y-%m}" if self.cap.period == "month" else f"{start:%Y-%m-%d}"


def statuses(engine: Engine, caps: Iterable[Cap], names: Names, now: datetime) -> list[Status]:
    """The status of each in the period that contains `now`; a few queries each."""
    return [_status(engine, cap, names, now) for cap in caps]


def _status(engine: Engine, cap: Cap, names: Names, now: datetime) -> Status:
    since, span = cap.since(now), cap.span(now)
    local = now.astimezone(zone_of(cap.timezone))
    if not cap.stops and span is not None:
        scope = Scope(since=span.start, until=span.end, only=cap.only(), names=names)
        found = totals(engine, scope)
        tokens = (found.input_tokens or 0) + (found.output_tokens or 0)
        return Status(
            cap=cap,
            now=local,
            span=span,
            since=since,
            spent=Amounts(
                found.cost_picousd or 0, found.list_value_picousd or 0, tokens, found.requests
            ),
            estimated_picousd=found.estimated_cost_picousd or 0,
            covered_value_picousd=found.covered_value_picousd or 0,
            requests_without_price=found.without_price,
        )
    r = requests.c
    refused = sa.select(sa.func.count()).where(
        r.outcome == "refused",
        r.error_code == cap.name,
        *([] if since is None else [r.opened_at >= since]),
    )
    spent, held = None, NOTHING
    with engine.connect() as connection:
        if since is not None:
            spent, held = total_of_cap(connection, cap, names, now)
        count = connection.scalar(refused) or 0
    return Status(cap=cap, now=local, span=span, since=since, spent=spent, held=held, refused=count)


def texts_of_file(engine: Engine, now: datetime) -> list[str]:
    """`texts` of the caps of the budgets file. LedgerError for a wrong file."""
    caps = budgets_file.load(None).caps
    return texts(statuses(engine, caps, names_file.load(None) if caps else NO_NAMES, now))


def texts(found: Iterable[Status]) -> list[str]:
    """For one line: `cap nightly: 62% of $20.00, $0.31 held, 3 refused`, by the fullest limit."""
    lines = []
    for status in found:
        parts = [f"{status.refused:,} refused"] if status.refused else []
        used = status.used_percent
        if used is not None:
            word = status.fullest
            unit = "" if word in _MONEY else f" {word}"
            parts.insert(0, f"{percent(used / 100)} of {shown(word, status.limit(word))}{unit}")
            if held := getattr(status.held, word):
                parts.insert(1, f"{shown(word, held)} held")
        if parts:
            lines.append(f"cap {status.cap.name}: {', '.join(parts)}")
    return lines


def table(found: Sequence[Status]) -> Table:
    """One line per budget."""
    return Table(
        columns=(
            TableColumn(name="budget", heading="Budget", is_number=False),
            TableColumn(name="period", heading="TimeSpan", is_number=False, drop=1),
            TableColumn(name="limit", heading="Limit"),
            TableColumn(name="spent", heading="Spent"),
            TableColumn(name="used", heading="Used"),
            TableColumn(name="forecast", heading="Forecast", drop=2),
            TableColumn(name="state", heading="State", is_number=False),
        ),
        rows=tuple(
            (
                status.cap.name,
                status.period_text,
                *_limit_and_spent(status),
                percent((status.used_percent or Decimal(0)) / 100),
                amount_of(status.forecast_picousd, "~"),
                status.state,
            )
            for status in found
        ),
    )


def _limit_and_spent(status: Status) -> tuple[Amount | str, Amount | str]:
    """Both as money, or in the unit of the fullest limit."""
    if (limit := status.limit_picousd) is not None:
        mark = "≥ " if status.requests_without_price else ""
        return Amount(picousd=limit), Amount(picousd=status.spent_picousd, mark=mark)
    word = status.fullest
    spent = getattr(status.spent or NOTHING, word)
    return f"{shown(word, status.limit(word))} {word}", shown(word, spent)


def caps_table(found: Sequence[Status]) -> Table:
    """One line for each limit of each cap."""
    return Table(
        columns=(
            TableColumn(name="cap", heading="Cap", is_number=False),
            TableColumn(name="period", heading="Period", is_number=False, drop=1),
            TableColumn(name="kind", heading="Of", is_number=False),
            TableColumn(name="limit", heading="Limit"),
            TableColumn(name="spent", heading="Spent"),
            TableColumn(name="held", heading="Held", drop=2),
            TableColumn(name="left", heading="Left", drop=3),
            TableColumn(name="refused", heading="Refused"),
        ),
        rows=tuple(
            (
                status.cap.name,
                status.cap.period,
                word,
                shown(word, status.limit(word)),
                status.spent and shown(word, getattr(status.spent, word)),
                status.spent and shown(word, getattr(status.held, word)),
                status.spent and shown(word, status.left(word)),
                status.refused,
            )
            for status in found
            for word in status.words
        ),
    )


def document(found: Sequence[Status]) -> dict[str, Any]:
    """All of it as a document for JSON."""
    of_budgets = [status for status in found if not status.cap.stops]
    return {
        "is_over": any(status.is_over for status in of_budgets),
        "budgets": [as_json(status) for status in of_budgets],
        "caps": [as_json(status) for status in found if status.cap.stops],
    }


def as_json(status: Status) -> dict[str, Any]:
    """One of them: the keys of a budget are those of a cap, with what it tells beside them."""
    cap, span = status.cap, status.span
    one: dict[str, Any] = {
        "name": cap.name,
        "stops": cap.stops,
        "period": cap.period,
        "timezone": cap.timezone,
        "only": [{"by": word, "value": value} for word, value in cap.only()],
        "since": status.since and status.since.isoformat(),
        "resets_at": None if span is None else span.end.isoformat(),
    }
    for word in status.words:
        figures: dict[str, int | None] = {
            "limit": status.limit(word),
            "spent": getattr(status.spent, word, None),
            "held": None if status.spent is None else getattr(status.held, word),
            "left": status.left(word),
        }
        for name, figure in figures.items():
            one[f"{name}_{word}"] = usd(figure) if word in _MONEY else figure
    used = status.used_percent
    one |= {
        "used_percent": None if used is None else used.quantize(Decimal("0.1")),
        "refused": status.refused,
        "warned": list(status.warned),
    }
    if not cap.stops:
        one |= {
            "estimated_usd": usd(status.estimated_picousd),
            "covered_list_value_usd": usd(status.covered_value_picousd),
            "forecast_usd": usd(status.forecast_picousd),
            "requests_without_price": status.requests_without_price,
            "state": status.state,
        }
    return one


def notes(found: Sequence[Status]) -> list[str]:
    """Warnings that the reader needs to judge the figures."""
    told = [FORECAST_METHOD] if any(each.forecast_picousd is not None for each in found) else []
    told += [
        f"{status.cap.name}: {counted(status.requests_without_price, 'request')} without a "
        "price, so what is spent is a lower bound"
        for status in found
        if status.requests_without_price
    ]
    told += [
        f"{status.cap.name}: plans cover another {money(status.covered_value_picousd)} at "
        "list prices, which no budget counts"
        for status in found
        if status.covered_value_picousd
    ]
    return [*told, "budgets are advisory: they never stop traffic"] if found else told
