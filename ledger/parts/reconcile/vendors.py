"""Pure. Vendors' exports, each a row of a table. Adding one is one row.

OpenAI       https://platform.openai.com/docs/api-reference/usage
Anthropic    https://platform.claude.com/docs/en/api/admin, and CSV of its Console
OpenRouter   https://openrouter.ai/docs/api-reference/analytics, and two CSV exports
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from ledger.model.money import decimal_of, sum_of_known
from ledger.model.usage import COUNT_MAX
from ledger.parts.reconcile.statement import (
    Line,
    UnreadableValue,
    count,
    epoch_day,
    iso_day,
    line_of,
    picousd,
    require_usd,
)

type ExportRow = Mapping[str, Any]
"""A row of CSV, or an object of JSON."""
type Reader = Callable[[ExportRow, ExportRow], Line | None]
"""A time bucket and one of its rows -> a line; None: the row is not about an LLM. Raises
`UnreadableValue`. Without buckets both are the row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """One export of a vendor."""

    kind: str
    provider: str | None
    known_by: frozenset[str]
    """A set of keys or columns that only this export has."""
    line: Reader
    object: str = ""
    """How the `object` of each of its results begins (OpenAI)."""

    def fits(self, row: ExportRow) -> bool:
        """Whether a row is one of this export."""
        is_object = str(row.get("object", "")).startswith(self.object)
        return self.known_by <= row.keys() and is_object


def _columns(
    *,
    day: str,
    day_of: Callable[[object], date] = iso_day,
    model: str = "model",
    items: tuple[str, ...] = (),
    has_items_of_models: bool = False,
    project: str = "",
    key: str = "",
    is_one_request: bool = False,
    cost: tuple[str, ...] = (),
    per_usd: int = 1,
    **counts: tuple[str, ...],
) -> Reader:
    """The reader of an export whose lines are columns. Several columns of one figure are added
    up; an item is the first that is named, of rows without a model."""

    def line(bucket: ExportRow, row: ExportRow) -> Line:
        require_usd(row.get("currency", "USD") if cost else "USD")
        named = row.get(model)
        item = next((row[name] for name in items if row.get(name)), None)
        figures = {
            figure: sum_of_known(count(row, name) for name in names)
            for figure, names in counts.items()
        }
        if is_one_request:
            figures["requests"] = 1
        amounts = [picousd(row.get(name), per_usd=per_usd) for name in cost]
        return line_of(
            day_of(bucket.get(day)),
            named,
            item=item if has_items_of_models or not named else None,
            project=row.get(project),
            key=row.get(key),
            cost_picousd=sum_of_known(amounts),
            **figures,
        )

    return line


def _openai_costs(bucket: ExportRow, result: ExportRow) -> Line:
    amount = result.get("amount")
    if not isinstance(amount, dict):
        raise UnreadableValue("a cost without an amount")
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


_AWS_KINDS = (
    (re.compile(r"cache-read-input-token"), "cache_read_tokens"),
    (re.compile(r"cache-write-input-token"), "cache_write_tokens"),
    (re.compile(r"input-token"), "input_tokens"),
    (re.compile(r"output-token"), "output_tokens"),
)
"""The first pattern that matches a usage type gives the figure."""
_AWS_MODEL = re.compile(
    r"^(?:[A-Z0-9]{2,6}-)?(?P<model>.+?)-(?:mantle-)?"
    r"(?:cache-read-|cache-write-)?(?:input|output)-token"
)
"""`USE1-Claude4.5Sonnet-input-tokens`: region, model, kind."""


def _aws(_: ExportRow, row: ExportRow) -> Line | None:
    """Amazon Bedrock in AWS Data Exports, Cost and Usage Report 2.0.

    https://docs.aws.amazon.com/bedrock/latest/userguide/cost-mgmt-understanding-cur-data.html and
    https://docs.aws.amazon.com/cur/latest/userguide/table-dictionary-cur2.html. A request has one
    line item for each kind of tokens. The usage type names the kind, and the model in AWS's own
    spelling; rows of other services are left out.
    """
    if row.get("line_item_product_code") != "AmazonBedrock":
        return None
    require_usd(row.get("line_item_currency_code") or "USD")
    usage_type = row.get("line_item_usage_type") or ""
    day = iso_day(row.get("line_item_usage_start_date") or "")
    figure = next(
        (name for pattern, name in _AWS_KINDS if pattern.search(usage_type.lower())), None
    )
    named = _AWS_MODEL.search(usage_type[:256])
    tokens = None
    text = (row.get("line_item_usage_amount") or "").strip()
    if figure is not None and text:
        # Token counts are in millions, thousands or single tokens, depending on `pricing_unit`.
        per = 1_000_000 if "1m" in (unit := (row.get("pricing_unit") or "").lower()) else 1
        per = 1_000 if "1k" in unit or "1000" in unit else per
        amount = decimal_of(text, tiny=Decimal(0))
        if amount is None or not 0 <= amount <= COUNT_MAX:
            raise UnreadableValue(f"line_item_usage_amount: {text[:40]!r} is not a count")
        tokens = int((amount * per).to_integral_value())
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
        cost_picousd=picousd(row.get("line_item_unblended_cost")),
        **figures,
    )


_AZURE_LLM = re.compile(
    r"openai|foundry|azure ai|cognitive services|mistral|cohere|llama|grok|deepseek", re.I
)
_AZURE_COSTS = ("costinbillingcurrency", "cost", "pretaxcost")


def _azure(_: ExportRow, row: ExportRow) -> Line | None:
    """Azure's cost details, CSV of Cost Management exports.

    https://learn.microsoft.com/azure/cost-management-billing/dataset-schema/cost-usage-details-ea
    and its siblings for other agreements; column names differ in case between them. A meter such as
    `gpt 4o 0806 Inp glbl Tokens` describes a model in words that no rule maps to its name, so a
    line is an item, compared by day. Rows of other services are left out.
    """
    values = {(name or "").lower(): value for name, value in row.items()}
    product = " ".join(
        values.get(name) or "" for name in ("metercategory", "metersubcategory", "productname")
    )
    if not _AZURE_LLM.search(product[:512]):
        return None
    require_usd(values.get("billingcurrency") or values.get("billingcurrencycode") or "USD")
    column = next((name for name in _AZURE_COSTS if name in values), "")
    day = values.get("date") or values.get("usagedatetime") or ""
    with suppress(ValueError):  # enterprise exports write `11/02/2026`, month first
        day = datetime.strptime(day.strip(), "%m/%d/%Y").date().isoformat()  # noqa: DTZ007  # a day
    return line_of(
        iso_day(day),
        None,
        item=values.get("metername") or values.get("productname"),
        project=values.get("resourcegroup") or values.get("resourcegroupname"),
        invoice=values.get("invoiceid"),
        cost_picousd=picousd(values.get(column)),
    )


_GOOGLE_SERVICES = ("vertex ai", "gemini api", "generative language api", "cloud ai companion")


def _google(_: ExportRow, result: ExportRow) -> Line | None:
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


_CACHE = "usage_input_tokens_cache"
_ANTHROPIC_WRITES = tuple(
    f"cache_creation.ephemeral_{lifetime}_input_tokens" for lifetime in ("5m", "1h")
)
_ANTHROPIC_CSV_WRITES = (f"{_CACHE}_write_5m", f"{_CACHE}_write_1h")
_OPENROUTER_ACTIVITY = _columns(
    day="date",
    requests=("requests",),
    input_tokens=("prompt_tokens",),
    output_tokens=("completion_tokens",),
    cost=("usage", "byok_usage_inference"),
)

GOOGLE = Export(
    kind="Google Cloud billing export",
    provider="gcp.vertex_ai",
    known_by=frozenset({"usage_start_time", "cost"}),
    line=_google,
)
JSON_EXPORTS = (
    Export(
        kind="OpenAI usage",
        provider="openai",
        known_by=frozenset({"object"}),
        object="organization.usage.",
        line=_columns(
            day="start_time",
            day_of=epoch_day,
            project="project_id",
            key="api_key_id",
            requests=("num_model_requests",),
            input_tokens=("input_tokens",),
            cache_read_tokens=("input_cached_tokens",),
            cache_write_tokens=("input_cache_write_tokens",),
            output_tokens=("output_tokens",),
        ),
    ),
    Export(
        kind="OpenAI costs",
        provider="openai",
        known_by=frozenset({"object"}),
        object="organization.costs.result",
        line=_openai_costs,
    ),
    Export(
        kind="Anthropic usage",
        provider="anthropic",
        known_by=frozenset({"uncached_input_tokens"}),
        line=_columns(
            day="starting_at",
            project="workspace_id",
            key="api_key_id",
            input_tokens=("uncached_input_tokens", "cache_read_input_tokens", *_ANTHROPIC_WRITES),
            cache_read_tokens=("cache_read_input_tokens",),
            cache_write_tokens=_ANTHROPIC_WRITES,
            output_tokens=("output_tokens",),
        ),
    ),
    Export(
        kind="Anthropic cost",
        provider="anthropic",
        known_by=frozenset({"amount", "currency"}),
        line=_columns(
            day="starting_at",
            items=("description", "cost_type"),
            project="workspace_id",
            # "Cost amount in lowest currency units (e.g. cents)": 123.45 is $1.23.
            cost=("amount",),
            per_usd=100,
        ),
    ),
    Export(
        kind="OpenRouter activity",
        provider="openrouter",
        known_by=frozenset({"date", "model", "usage"}),
        line=_OPENROUTER_ACTIVITY,
    ),
    GOOGLE,
)
CSV_EXPORTS = (
    Export(
        kind="Anthropic usage CSV",
        provider="anthropic",
        known_by=frozenset({"usage_date_utc", "usage_output_tokens"}),
        line=_columns(
            day="usage_date_utc",
            model="model_version",
            project="workspace",
            key="api_key",
            input_tokens=(
                "usage_input_tokens_no_cache",
                f"{_CACHE}_read",
                *_ANTHROPIC_CSV_WRITES,
            ),
            cache_read_tokens=(f"{_CACHE}_read",),
            cache_write_tokens=_ANTHROPIC_CSV_WRITES,
            output_tokens=("usage_output_tokens",),
        ),
    ),
    Export(
        kind="Anthropic cost CSV",
        provider="anthropic",
        known_by=frozenset({"usage_date_utc", "cost_usd"}),
        line=_columns(
            day="usage_date_utc",
            items=("cost_type",),
            project="workspace",
            key="api_key",
            cost=("cost_usd",),
        ),
    ),
    Export(
        kind="OpenRouter activity CSV",
        provider="openrouter",
        known_by=frozenset({"generation_id", "created_at", "cost_total"}),
        line=_columns(
            day="created_at",
            model="model_permaslug",
            key="api_key_name",
            is_one_request=True,
            input_tokens=("tokens_prompt",),
            cache_read_tokens=("tokens_cached",),
            output_tokens=("tokens_completion",),
            cost=("cost_total", "byok_usage_inference"),
        ),
    ),
    Export(
        kind="OpenRouter activity CSV",
        provider="openrouter",
        known_by=frozenset({"date", "model", "usage", "prompt_tokens"}),
        line=_OPENROUTER_ACTIVITY,
    ),
    Export(
        kind="AWS Cost and Usage Report",
        provider="aws.bedrock",
        known_by=frozenset(
            {"line_item_product_code", "line_item_usage_type", "line_item_unblended_cost"}
        ),
        line=_aws,
    ),
    *(
        Export(
            kind="Azure cost details",
            provider="azure.ai.openai",
            known_by=frozenset(names),
            line=_azure,
        )
        for names in (
            ("Date", "MeterCategory", "CostInBillingCurrency"),
            ("date", "meterCategory", "costInBillingCurrency"),
            ("UsageDateTime", "MeterCategory", "PreTaxCost"),
        )
    ),
    Export(
        kind="CSV",
        provider=None,
        known_by=frozenset({"day", "model"}),
        line=_columns(
            day="day",
            items=("item",),
            has_items_of_models=True,
            project="project",
            key="key",
            cost=("cost_usd",),
            requests=("requests",),
            input_tokens=("input_tokens",),
            cache_read_tokens=("cache_read_tokens",),
            cache_write_tokens=("cache_write_tokens",),
            output_tokens=("output_tokens",),
        ),
    ),
)
"""Every known export; the first that fits is used, and the plain CSV comes last."""
