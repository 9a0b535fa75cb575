"""Pure. Gemini and Vertex AI in Google Cloud's billing export: JSON lines out of BigQuery.

https://cloud.google.com/billing/docs/how-to/export-data-bigquery-tables/standard-usage. A SKU
(`Gemini 2.5 Flash Text Input - Predictions`) names its model in words, so a line is an item,
compared by day. Rows of other services are left out.
"""

from typing import Any

from ledger.reconcile.statement import JsonShape, Line, iso_day, line_of, picousd, require_usd

_SERVICES = ("vertex ai", "gemini api", "generative language api", "cloud ai companion")


def _line(_: dict[str, Any], result: dict[str, Any]) -> Line | None:
    service = _described(result, "service") or ""
    if not service.lower().startswith(_SERVICES):
        return None
    require_usd(result.get("currency", "USD"))
    project = result.get("project")
    return line_of(
        iso_day(result.get("usage_start_time")),
        None,
        item=_described(result, "sku"),
        project=project.get("id") if isinstance(project, dict) else None,
        cost_picousd=picousd(result.get("cost")),
    )


def _described(result: dict[str, Any], name: str) -> str | None:
    """A nested `{"description": …}`, or a column `name.description` of a flattened export."""
    value = result.get(name)
    if isinstance(value, dict):
        value = value.get("description")
    else:
        value = result.get(f"{name}.description", result.get(f"{name}_description"))
    return value if isinstance(value, str) else None


JSON_SHAPES = (
    JsonShape(
        kind="Google Cloud billing export",
        provider="gcp.vertex_ai",
        fits=lambda result: {"usage_start_time", "cost"} <= result.keys(),
        line=_line,
    ),
)
