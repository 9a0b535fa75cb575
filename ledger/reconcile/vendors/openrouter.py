"""Pure. OpenRouter's activity: JSON of its API, and two CSV exports.

https://openrouter.ai/docs/api-reference/analytics
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
    sum_of,
)


def _activity(_: dict[str, Any], result: dict[str, Any]) -> Line:
    return line_of(
        iso_day(result.get("date")),
        result.get("model"),
        requests=count(result, "requests"),
        input_tokens=count(result, "prompt_tokens"),
        output_tokens=count(result, "completion_tokens"),
        cost_picousd=sum_of(
            picousd(result.get("usage")), picousd(result.get("byok_usage_inference"))
        ),
    )


def _generation_row(row: Mapping[str, str]) -> Line:
    return line_of(
        iso_day(row["created_at"]),
        row.get("model_permaslug"),
        key=row.get("api_key_name"),
        requests=1,
        input_tokens=csv_count(row, "tokens_prompt"),
        cache_read_tokens=csv_count(row, "tokens_cached"),
        output_tokens=csv_count(row, "tokens_completion"),
        cost_picousd=sum_of(
            csv_picousd(row, "cost_total"), csv_picousd(row, "byok_usage_inference")
        ),
    )


def _day_row(row: Mapping[str, str]) -> Line:
    return line_of(
        iso_day(row["date"]),
        row["model"],
        requests=csv_count(row, "requests"),
        input_tokens=csv_count(row, "prompt_tokens"),
        output_tokens=csv_count(row, "completion_tokens"),
        cost_picousd=sum_of(csv_picousd(row, "usage"), csv_picousd(row, "byok_usage_inference")),
    )


JSON_SHAPES = (
    JsonShape(
        kind="OpenRouter activity",
        provider="openrouter",
        fits=lambda result: {"date", "model", "usage"} <= result.keys(),
        line=_activity,
    ),
)
CSV_SHAPES = (
    CsvShape(
        kind="OpenRouter activity CSV",
        provider="openrouter",
        known_by=frozenset({"generation_id", "created_at", "cost_total"}),
        line=_generation_row,
    ),
    CsvShape(
        kind="OpenRouter activity CSV",
        provider="openrouter",
        known_by=frozenset({"date", "model", "usage", "prompt_tokens"}),
        line=_day_row,
    ),
)
