"""Pure. The bills of clouds, of which rows about models are a part: AWS, Azure, Google Cloud."""

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from typing import Any

from ledger.model.money import decimal_of
from ledger.model.usage import COUNT_MAX
from ledger.parts.reconcile.statement import (
    Line,
    UnreadableValue,
    iso_day,
    line_of,
    picousd,
    require_usd,
)

type ExportRow = Mapping[str, Any]
"""A row of CSV, its columns in lower case, or an object of JSON."""

_AWS_TOKENS = re.compile(
    r"(?P<kind>cache[-_]?read|cache[-_]?write(?:[-_]?1h)?|input|output)(?:[-_]?input)?[-_]?tokens?",
    re.I,
)
_AWS_FIGURES = {"cacher": "cache_read_tokens", "cachew": "cache_write_tokens"}
_AWS_REGION = re.compile(r"^[A-Z0-9]{2,6}-")
_AWS_EDITION = re.compile(r"(?P<model>[A-Za-z][\w .-]{0,80}) \(Amazon Bedrock Edition\)")
_AWS_PRODUCT = ("product_servicename", "product_product_name", "product")
_AWS_UNITS = (
    (re.compile(r"1m|million"), 1_000_000),
    (re.compile(r"1k|1000"), 1_000),
    (re.compile(r"tokens"), 1),
)


def aws(_: ExportRow, row: ExportRow) -> Line | None:
    """Amazon Bedrock in AWS Data Exports, Cost and Usage Report 2.0.

    https://docs.aws.amazon.com/bedrock/latest/userguide/cost-mgmt-understanding-cur-data.html and
    https://docs.aws.amazon.com/cur/latest/userguide/table-dictionary-cur2.html. A request has one
    line item for each kind of tokens. The usage type names the kind, and the model in AWS's own
    spelling:

        USE1-Claude4.6Opus-cache-read-input-token-count-cross-region-global
        USW2-anthropic.claude-opus-4-8-mantle-cache-write-tokens-global-standard
        USE1-MP:USE1_CacheWrite1hInputTokenCount_Global-Units

    The last is of a model that is sold through the Marketplace: its product's name is `Claude Opus
    4.6 (Amazon Bedrock Edition)`, its code that or any, its units are millions. Rows of other
    services are left out.
    """
    edition = _AWS_EDITION.search(" ".join((row.get(name) or "")[:512] for name in _AWS_PRODUCT))
    if edition is None and not (row.get("line_item_product_code") or "").startswith(
        "AmazonBedrock"
    ):
        return None
    require_usd(row.get("line_item_currency_code") or "USD")
    usage_type = (row.get("line_item_usage_type") or "")[:256]
    tokens = _AWS_TOKENS.search(usage_type)
    figures: dict[str, int | None] = {}
    model = edition["model"] if edition else None
    if tokens:
        kind = tokens["kind"].lower().replace("-", "").replace("_", "")
        figure = _AWS_FIGURES.get(kind[:6], f"{kind}_tokens")
        figures[figure] = _aws_tokens(row, is_of_marketplace="MP:" in usage_type)
        if figure in _AWS_FIGURES.values():
            # `input_tokens` includes cached input; AWS bills cached input separately.
            figures["input_tokens"] = figures[figure]
        before = _AWS_REGION.sub("", usage_type[: tokens.start()]).rstrip("-_")
        model = model or (None if "MP:" in usage_type else before.removesuffix("-mantle"))
    return line_of(
        iso_day(row.get("line_item_usage_start_date") or ""),
        model if tokens else None,
        item=None if tokens and model else usage_type,
        project=row.get("line_item_usage_account_id"),
        invoice=row.get("bill_invoice_id"),
        cost_picousd=picousd(row.get("line_item_unblended_cost")),
        **figures,
    )


def _aws_tokens(row: ExportRow, *, is_of_marketplace: bool) -> int | None:
    """The tokens of a line item; None: not reported."""
    text = (row.get("line_item_usage_amount") or "").strip()
    if not text:
        return None
    unit = (row.get("pricing_unit") or "").lower()
    of_unit = 1_000_000 if is_of_marketplace else 1
    per = next((per for pattern, per in _AWS_UNITS if pattern.search(unit)), of_unit)
    amount = decimal_of(text, tiny=Decimal(0))
    if amount is None or not 0 <= amount <= COUNT_MAX:
        raise UnreadableValue(f"line_item_usage_amount: {text[:40]!r} is not a count")
    return int((amount * per).to_integral_value())


_AZURE_LLM = re.compile(
    r"openai|foundry|azure ai|cognitive services|mistral|cohere|llama|grok|deepseek", re.I
)
_AZURE_COSTS = ("costinbillingcurrency", "cost", "pretaxcost")


def azure(_: ExportRow, row: ExportRow) -> Line | None:
    """Azure's cost details, CSV of Cost Management exports.

    https://learn.microsoft.com/azure/cost-management-billing/dataset-schema/cost-usage-details-ea
    and its siblings for other agreements; column names differ in case between them. A meter such as
    `gpt 4o 0806 Inp glbl Tokens` describes a model in words, so a line is an item
    (`model_names.py`). Rows of other services are left out.
    """
    product = " ".join(
        row.get(name) or "" for name in ("metercategory", "metersubcategory", "productname")
    )
    if not _AZURE_LLM.search(product[:512]):
        return None
    require_usd(row.get("billingcurrency") or row.get("billingcurrencycode") or "USD")
    column = next((name for name in _AZURE_COSTS if name in row), "")
    day = row.get("date") or row.get("usagedatetime") or ""
    with suppress(ValueError):  # enterprise exports write `11/02/2026`, month first
        day = datetime.strptime(day.strip(), "%m/%d/%Y").date().isoformat()  # noqa: DTZ007  # a day
    return line_of(
        iso_day(day),
        None,
        item=row.get("metername") or row.get("productname"),
        project=row.get("resourcegroup") or row.get("resourcegroupname"),
        invoice=row.get("invoiceid"),
        cost_picousd=picousd(row.get(column)),
    )


_GOOGLE_SERVICES = ("vertex ai", "gemini api", "generative language api", "cloud ai companion")


def google(_: ExportRow, result: ExportRow) -> Line | None:
    """Gemini and Vertex AI in Google Cloud's billing export, JSON lines out of BigQuery.

    https://cloud.google.com/billing/docs/how-to/export-data-bigquery-tables/standard-usage. A SKU
    (`Gemini 2.5 Flash Text Input - Predictions`) names its model in words, so a line is an item,
    compared by day. Rows of other services are left out.
    """
    service = _described(result, "service") or ""
    if not service.lower().startswith(_GOOGLE_SERVICES):
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


def _described(result: ExportRow, name: str) -> str | None:
    """A nested `{"description": …}`, or a column `name.description` of a flattened export."""
    value = result.get(name)
    if isinstance(value, dict):
        value = value.get("description")
    else:
        value = result.get(f"{name}.description", result.get(f"{name}_description"))
    return value if isinstance(value, str) else None
