"""Pure. OpenAI's usage and costs reports, as JSON pages of its API.

https://platform.openai.com/docs/api-reference/usage
"""

from typing import Any

from ledger.reconcile.statement import (
    JsonShape,
    Line,
    Unreadable,
    count,
    epoch_day,
    line_of,
    picousd,
    require_usd,
)


def _usage(bucket: dict[str, Any], result: dict[str, Any]) -> Line:
    return line_of(
        epoch_day(bucket.get("start_time")),
        result.get("model"),
        project=result.get("project_id"),
        key=result.get("api_key_id"),
        requests=count(result, "num_model_requests"),
        input_tokens=count(result, "input_tokens"),
        cache_read_tokens=count(result, "input_cached_tokens"),
        cache_write_tokens=count(result, "input_cache_write_tokens"),
        output_tokens=count(result, "output_tokens"),
    )


def _costs(bucket: dict[str, Any], result: dict[str, Any]) -> Line:
    amount = result.get("amount")
    if not isinstance(amount, dict):
        raise Unreadable("a cost without an amount")
    require_usd(amount.get("currency", "usd"))
    # Grouped by line item, an item reads `gpt-5-2025-08-07, cached input`; some name no model.
    item = str(result.get("line_item") or "")
    model, separator, _ = item.rpartition(", ")
    return line_of(
        epoch_day(bucket.get("start_time")),
        model if separator else None,
        item=None if separator else item,
        project=result.get("project_id"),
        key=result.get("api_key_id"),
        cost_picousd=picousd(amount.get("value")),
    )


JSON_SHAPES = (
    JsonShape(
        kind="OpenAI usage",
        provider="openai",
        fits=lambda result: str(result.get("object", "")).startswith("organization.usage."),
        line=_usage,
    ),
    JsonShape(
        kind="OpenAI costs",
        provider="openai",
        fits=lambda result: result.get("object") == "organization.costs.result",
        line=_costs,
    ),
)
