"""Database. What each cap has spent, holds and refused, as the ledger has it.

The proxy that keeps a cap knows the same in memory. A cap of period `run` or `session` is one for
each process or session: of those only what was refused is shown.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from ledger.budgets import budgets_file
from ledger.caps.caps import NOTHING, Amounts, Cap
from ledger.caps.leases import plus
from ledger.caps.spent import of_cap
from ledger.model.money import money_text, usd
from ledger.reports.layout import Table, TableColumn
from ledger.settings import names_file
from ledger.settings.names import NO_NAMES, Names
from ledger.store.scope import Scope, conditions, requests
from ledger.store.tables import exchanges
from ledger.text.figures import percent, ratio

_MONEY = ("usd", "list_value_usd")


@dataclass(frozen=True, slots=True, kw_only=True)
class CapStatus:
    """A cap in its current period."""

    cap: Cap
    since: datetime | None
    resets_at: datetime | None
    spent: Amounts | None
    """None: it has no period that the ledger knows."""
    held: Amounts | None
    refused: int

    @property
    def warned(self) -> tuple[int, ...]:
        """The per cents of `warn` that are reached."""
        if self.spent is None:
            return ()
        pairs = [
            (amount or 0, limit)
            for amount, limit in zip(self.spent, self.cap.limits, strict=True)
            if limit is not None
        ]
        return tuple(
            each
            for each in sorted(set(self.cap.warn))
            if any(amount * 100 >= limit * each for amount, limit in pairs)
        )

    def left(self, word: str) -> int | None:
        """What is left of one limit beside what is spent and held; None: not known."""
        limit: int | None = getattr(self.cap.limits, word)
        if limit is None or self.spent is None or self.held is None:
            return None
        spent: int = getattr(self.spent, word) + getattr(self.held, word)
        return max(0, limit - spent)


def statuses(engine: Engine, caps: Iterable[Cap], names: Names, now: datetime) -> list[CapStatus]:
    """The status of each cap; a few queries each."""
    return [_status(engine, cap, names, now) for cap in caps]


def _status(engine: Engine, cap: Cap, names: Names, now: datetime) -> CapStatus:
    since, span = cap.since(now), cap.span(now)
    spent = held = None
    if since is not None:
        spent = NOTHING
        for prior in of_cap(engine, cap, names, now):
            spent = plus(spent, prior.amounts)
    scope = Scope(since=since, only=cap.only(), names=names)
    e, r = exchanges.c, requests.c
    columns = (e.hold_picousd, e.hold_list_value_picousd, e.hold_tokens)
    with engine.connect() as connection:
        if since is not None:
            where = conditions(scope, engine.dialect.name, exchanges)
            query = sa.select(*map(sa.func.sum, columns), sa.func.count())
            row = connection.execute(query.where(e.state == "open", *where)).one()
            held = Amounts(*(int(each or 0) for each in row))
        refused = connection.scalar(
            sa.select(sa.func.count()).where(
                r.outcome == "refused",
                r.error_code == cap.name,
                *([] if since is None else [r.opened_at >= since]),
            )
        )
    resets_at = None if span is None else span.end
    return CapStatus(
        cap=cap, since=since, resets_at=resets_at, spent=spent, held=held, refused=refused or 0
    )


def table(found: list[CapStatus]) -> Table:
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
                _shown(word, limit),
                _shown(word, status.spent and getattr(status.spent, word)),
                _shown(word, status.held and getattr(status.held, word)),
                _shown(word, status.left(word)),
                status.refused,
            )
            for status in found
            for word, limit in zip(Amounts._fields, status.cap.limits, strict=True)
            if limit is not None
        ),
    )


def texts_in_force(engine: Engine, now: datetime) -> list[str]:
    """`texts` of the caps of the budgets file. LedgerError for a wrong file."""
    caps = budgets_file.load_caps()
    return texts(statuses(engine, caps, names_file.load(None) if caps else NO_NAMES, now))


def texts(found: list[CapStatus]) -> list[str]:
    """For one line: `cap nightly: 62% of $20.00, $0.31 held, 3 refused`, by the fullest limit."""
    lines = []
    for status in found:
        parts = [f"{status.refused:,} refused"] if status.refused else []
        if status.spent is not None and status.held is not None:
            _, word = max(
                (Decimal(getattr(status.spent, word)) / limit, word)
                for word, limit in zip(Amounts._fields, status.cap.limits, strict=True)
                if limit is not None
            )
            limit, spent = getattr(status.cap.limits, word), getattr(status.spent, word)
            unit = "" if word in _MONEY else f" {word}"
            parts.insert(0, f"{percent(ratio(spent, limit))} of {_shown(word, limit)}{unit}")
            if held := getattr(status.held, word):
                parts.insert(1, f"{_shown(word, held)} held")
        if parts:
            lines.append(f"cap {status.cap.name}: {', '.join(parts)}")
    return lines


def document(found: list[CapStatus]) -> list[dict[str, Any]]:
    """The same for JSON."""
    return [_as_json(status) for status in found]


def _as_json(status: CapStatus) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": status.cap.name,
        "period": status.cap.period,
        "timezone": status.cap.timezone,
        "only": [{"by": word, "value": value} for word, value in status.cap.only()],
        "since": status.since and status.since.isoformat(),
        "resets_at": status.resets_at and status.resets_at.isoformat(),
    }
    for word, limit in zip(Amounts._fields, status.cap.limits, strict=True):
        if limit is None:
            continue
        figures: dict[str, int | None] = {
            "limit": limit,
            "spent": getattr(status.spent, word, None),
            "held": getattr(status.held, word, None),
            "left": status.left(word),
        }
        for name, figure in figures.items():
            document[f"{name}_{word}"] = usd(figure) if word in _MONEY else figure
    return document | {"refused": status.refused, "warned": list(status.warned)}


def _shown(word: str, amount: int | None) -> str | None:
    if amount is None:
        return None
    return money_text(amount) if word in _MONEY else f"{amount:,}"
