"""Pure. Amazon Bedrock in AWS Data Exports: Cost and Usage Report 2.0, CSV.

https://docs.aws.amazon.com/bedrock/latest/userguide/cost-mgmt-understanding-cur-data.html and
https://docs.aws.amazon.com/cur/latest/userguide/table-dictionary-cur2.html. A request has one line
item for each kind of tokens. The usage type names the kind, and the model in AWS's own spelling;
rows of other services are left out.
"""

import re
from collections.abc import Mapping

from ledger.model.usage import COUNT_MAX
from ledger.reconcile.statement import (
    CsvShape,
    Line,
    Unreadable,
    bounded_decimal,
    csv_picousd,
    iso_day,
    line_of,
    require_usd,
)

_KINDS = (
    (re.compile(r"cache-read-input-token"), "cache_read_tokens"),
    (re.compile(r"cache-write-input-token"), "cache_write_tokens"),
    (re.compile(r"input-token"), "input_tokens"),
    (re.compile(r"output-token"), "output_tokens"),
)
"""The first pattern that matches a usage type gives the figure."""
_MODEL = re.compile(
    r"^(?:[A-Z0-9]{2,6}-)?(?P<model>.+?)-(?:mantle-)?"
    r"(?:cache-read-|cache-write-)?(?:input|output)-token"
)
"""`USE1-Claude4.5Sonnet-input-tokens`: region, model, kind."""


def _row(row: Mapping[str, str]) -> Line | None:
    if row.get("line_item_product_code") != "AmazonBedrock":
        return None
    require_usd(row.get("line_item_currency_code") or "USD")
    usage_type = row.get("line_item_usage_type") or ""
    day = iso_day(row.get("line_item_usage_start_date") or "")
    figure = next((name for pattern, name in _KINDS if pattern.search(usage_type.lower())), None)
    named = _MODEL.search(usage_type[:256])
    tokens = _tokens(row) if figure is not None else None
    figures = {figure: tokens} if figure is not None else {}
    if figure in ("cache_read_tokens", "cache_write_tokens"):
        # `input_tokens` includes cached input; AWS bills cached input separately.
        figures["input_tokens"] = tokens
    return line_of(
        day,
        named["model"] if named else None,
        item=None if named else usage_type,
        project=row.get("line_item_usage_account_id"),
        invoice=row.get("bill_invoice_id"),
        cost_picousd=csv_picousd(row, "line_item_unblended_cost"),
        **figures,
    )


def _tokens(row: Mapping[str, str]) -> int | None:
    """Token counts are in thousands or in single tokens, depending on `pricing_unit`."""
    text = (row.get("line_item_usage_amount") or "").strip()
    if not text:
        return None
    per = 1_000_000 if "1m" in (unit := (row.get("pricing_unit") or "").lower()) else 1
    per = 1_000 if "1k" in unit or "1000" in unit else per
    amount = bounded_decimal(text)
    if amount is None or not 0 <= amount <= COUNT_MAX:
        raise Unreadable(f"line_item_usage_amount: {text[:40]!r} is not a count")
    return int((amount * per).to_integral_value())


CSV_SHAPES = (
    CsvShape(
        kind="AWS Cost and Usage Report",
        provider="aws.bedrock",
        known_by=frozenset(
            {"line_item_product_code", "line_item_usage_type", "line_item_unblended_cost"}
        ),
        line=_row,
    ),
)
