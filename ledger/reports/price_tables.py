"""Pure. Prices, and the changes of repricing, as tables."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal

from ledger.maintenance.reprice import RepriceChange
from ledger.model.money import usd_text
from ledger.pricing.price_lines import Rate, Sheet, is_token_line
from ledger.reports.explain import common_source
from ledger.reports.layout import Amount, Cell, Column, Table, without_empty
from ledger.text.printable import printable


def sheet_table(sheet: Sheet) -> Table:
    """Each line of a sheet: its price, its price in long contexts, its source. A source that all
    lines share is in `sheet_title` instead."""
    rates = _rates(sheet)
    common = common_source(rate.source for rate in rates.values())
    table = Table(
        columns=(
            Column(name="line", heading="Line", is_number=False),
            Column(name="usd", heading="USD"),
            Column(name="per", heading="per", is_number=False),
            Column(name="above", heading="Longer inputs", is_number=False),
            Column(name="source", heading="Price from", is_number=False, wraps=True),
        ),
        rows=tuple(
            (line, *_price(line, rate), _source(rate, common)) for line, rate in rates.items()
        ),
    )
    return without_empty(without_empty(table, "above"), "source")


def sheet_title(sheet: Sheet, model: str, at: datetime) -> str:
    """The title of the prices, with the source that all share, if any."""
    common = common_source(rate.source for rate in _rates(sheet).values())
    of = f"Prices of {printable(model)} at {at:%Y-%m-%d %H:%M} UTC"
    return f"{of}, from {common}" if common else of


def difference(changes: Mapping[str | None, RepriceChange]) -> Table:
    """The changes of repricing by model, the largest first."""
    total = sum(changes.values(), RepriceChange())
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
    scale, per = (10**6, "1M tokens") if is_token_line(line) else (1, "1")
    yield None if rate.is_unknown else Decimal(usd_text(rate.picousd * scale))
    yield per
    yield ", ".join(
        f"above {start:,} tokens {usd_text(picousd * scale)}" for start, picousd in rate.above
    )


def _rates(sheet: Sheet) -> Mapping[str, Rate]:
    return sheet.rates if sheet.rest is None else {**sheet.rates, "every other line": sheet.rest}


def _source(rate: Rate, common: str) -> str:
    return "; ".join(part for part in ("" if common else rate.source, rate.note) if part)


def _cells(change: RepriceChange) -> Iterator[Cell]:
    yield change.requests
    yield change.lines
    yield _amount(change.before_picousd) or "unpriced"
    yield _amount(change.after_picousd) or "unpriced"
    yield _amount(_difference(change))


def _amount(picousd: int | None) -> Amount | None:
    return None if picousd is None else Amount(picousd=picousd)


def _difference(change: RepriceChange) -> int | None:
    if change.before_picousd is None and change.after_picousd is None:
        return None
    return (change.after_picousd or 0) - (change.before_picousd or 0)
