"""Pure. A plain CSV: the columns day and model, and some of requests, input_tokens,
cache_read_tokens, cache_write_tokens, output_tokens, cost_usd, project, key.
"""

from collections.abc import Mapping

from ledger.reconcile.statement import (
    FIGURES,
    CsvShape,
    Line,
    csv_count,
    csv_picousd,
    iso_day,
    line_of,
)


def _row(row: Mapping[str, str]) -> Line:
    figures = {name: csv_count(row, name) for name in FIGURES if name != "cost_picousd"}
    return line_of(
        iso_day(row["day"]),
        row["model"],
        item=row.get("item"),
        project=row.get("project"),
        key=row.get("key"),
        cost_picousd=csv_picousd(row, "cost_usd"),
        **figures,
    )


CSV_SHAPES = (CsvShape(kind="CSV", provider=None, known_by=frozenset({"day", "model"}), line=_row),)
