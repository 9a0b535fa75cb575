"""Pure. Prices, and what repricing changes, as tables."""

from collections.abc import Iterator, Mapping

from ledger.maintenance.reprice import Change
from ledger.model.money import usd_text
from ledger.pricing.price_lines import Rate, Sheet
from ledger.reports.explain import is_token_line
from ledger.reports.render import Cell, Column, Table, short_usd


def sheet_table(sheet: Sheet) -> Table:
    """Each line of a sheet: its price, its price in long contexts, where it stands."""
    rates = sheet.rates if sheet.rest is None else {**sheet.rates, "every other line": sheet.rest}
    return Table(
        columns=(
            Column(name="line", heading="Line", is_number=False),
            Column(name="usd", heading="USD"),
            Column(name="per", heading="per", is_number=False),
            Column(name="above", heading="Longer inputs", is_number=False),
            Column(name="source", heading="Price from", is_number=False),
        ),
        rows=tuple((line, *_price(line, rate), _source(rate)) for line, rate in rates.items()),
    )


def difference(changes: Mapping[str | None, Change]) -> Table:
    """What repricing changes, model by model, what changes most first."""
    total = sum(changes.values(), Change())
    by_size = sorted(
        changes.items(), key=lambda item: (-abs(_difference(item[1]) or 0), item[0] or "")
    )
    names = ("Model", "Requests", "Lines", "Before", "After", "Difference")
    return Table(
        columns=tuple(Column(name=name, heading=name, is_number=name != "Model") for name in names),
        rows=tuple((model or "(none)", *_cells(change)) for model, change in by_size),
        total=("Total", *_cells(total)),
    )


def _price(line: str, rate: Rate) -> Iterator[Cell]:
    scale, per = (10**6, "1M") if is_token_line(line) else (1, "1")
    yield usd_text(rate.picousd * scale)
    yield per
    yield ", ".join(
        f"above {start:,} tokens {usd_text(picousd * scale)}" for start, picousd in rate.above
    )


def _source(rate: Rate) -> str:
    return f"{rate.source}; {rate.note}" if rate.note else rate.source


def _cells(change: Change) -> Iterator[Cell]:
    yield change.requests
    yield change.lines
    yield short_usd(change.before_picousd) or "unpriced"
    yield short_usd(change.after_picousd) or "unpriced"
    yield short_usd(_difference(change))


def _difference(change: Change) -> int | None:
    if change.before_picousd is None and change.after_picousd is None:
        return None
    return (change.after_picousd or 0) - (change.before_picousd or 0)
