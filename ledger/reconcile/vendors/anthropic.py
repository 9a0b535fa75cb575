"""Pure. Anthropic's usage and cost reports: JSON pages of its Admin API, CSV of its Console.

https://platform.claude.com/docs/en/api/admin
"""

from collections.abc import Mapping
from typing import Any

from ledger.reconcile.statement import (
    CsvShape,
    JsonShape,
    Line,
    count,
    csv_count,
    csv_picousd,
    iso_day,
    line_of,
    picousd,
    require_usd,
    sum_of,
)


def _usage(bucket: dict[str, Any], result: dict[str, Any]) -> Line:
    creation = result.get("cache_creation")
    parts = creation if isinstance(creation, dict) else {}
    written = sum_of(
        count(parts, "ephemeral_5m_input_tokens"), count(parts, "ephemeral_1h_input_tokens")
    )
    read_from_cache = count(result, "cache_read_input_tokens")
    return line_of(
        iso_day(bucket.get("starting_at")),
        result.get("model"),
        project=result.get("workspace_id"),
        key=result.get("api_key_id"),
        input_tokens=sum_of(count(result, "uncached_input_tokens"), read_from_cache, written),
        cache_read_tokens=read_from_cache,
        cache_write_tokens=written,
        output_tokens=count(result, "output_tokens"),
    )


def _cost(bucket: dict[str, Any], result: dict[str, Any]) -> Line:
    require_usd(result.get("currency", "USD"))
    model = result.get("model")
    return line_of(
        iso_day(bucket.get("starting_at")),
        model,
        item=None if model else result.get("description") or result.get("cost_type"),
        project=result.get("workspace_id"),
        # "Cost amount in lowest currency units (e.g. cents) as a decimal string": 123.45 is $1.23.
        cost_picousd=picousd(result.get("amount"), per_usd=100),
    )


def _usage_row(row: Mapping[str, str]) -> Line:
    read_from_cache = csv_count(row, "usage_input_tokens_cache_read")
    written = sum_of(
        csv_count(row, "usage_input_tokens_cache_write_5m"),
        csv_count(row, "usage_input_tokens_cache_write_1h"),
    )
    uncached = csv_count(row, "usage_input_tokens_no_cache")
    return line_of(
        iso_day(row["usage_date_utc"]),
        row.get("model_version"),
        project=row.get("workspace"),
        key=row.get("api_key"),
        input_tokens=sum_of(uncached, written, read_from_cache),
        cache_read_tokens=read_from_cache,
        cache_write_tokens=written,
        output_tokens=csv_count(row, "usage_output_tokens"),
    )


def _cost_row(row: Mapping[str, str]) -> Line:
    model = row.get("model")
    return line_of(
        iso_day(row["usage_date_utc"]),
        model,
        item=None if model else row.get("cost_type"),
        project=row.get("workspace"),
        key=row.get("api_key"),
        cost_picousd=csv_picousd(row, "cost_usd"),
    )


JSON_SHAPES = (
    JsonShape(
        kind="Anthropic usage",
        provider="anthropic",
        fits=lambda result: "uncached_input_tokens" in result,
        line=_usage,
    ),
    JsonShape(
        kind="Anthropic cost",
        provider="anthropic",
        fits=lambda result: "amount" in result and "currency" in result,
        line=_cost,
    ),
)
CSV_SHAPES = (
    CsvShape(
        kind="Anthropic usage CSV",
        provider="anthropic",
        known_by=frozenset({"usage_date_utc", "usage_output_tokens"}),
        line=_usage_row,
    ),
    CsvShape(
        kind="Anthropic cost CSV",
        provider="anthropic",
        known_by=frozenset({"usage_date_utc", "cost_usd"}),
        line=_cost_row,
    ),
)
