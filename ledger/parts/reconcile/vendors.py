"""Pure. Vendors' exports, each a row of a table. Adding one is one row.

OpenAI       https://platform.openai.com/docs/api-reference/usage
Anthropic    https://platform.claude.com/docs/en/api/beta/organization/analytics, the reports
             before it (https://platform.claude.com/docs/en/api/admin), and CSV of its Console
OpenRouter   https://openrouter.ai/docs/api-reference/analytics, and two CSV exports
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, timedelta

from ledger.model.money import sum_of_known
from ledger.parts.reconcile import cloud_bills
from ledger.parts.reconcile.cloud_bills import ExportRow
from ledger.parts.reconcile.statement import (
    LIST_COST,
    STATEMENT_FIGURES,
    Line,
    UnreadableValue,
    count,
    epoch_day,
    iso_day,
    line_of,
    picousd,
    require_usd,
    value_at,
)

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
    needs: frozenset[str] = frozenset()
    """Further columns of CSV without which its figures would be wrong."""
    needs_one_of: tuple[str, ...] = ()
    looks_for: str = "rows"
    """What of it is read, for a statement of which nothing is."""

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
    session: str = "",
    key: str = "",
    is_one_request: bool = False,
    currency: str = "currency",
    cost: tuple[str, ...] = (),
    list_cost: str = "",
    per_usd: int = 1,
    **counts: tuple[str, ...],
) -> Reader:
    """The reader of an export whose lines are columns, or paths of JSON. Several columns of one
    figure are added up; an item is the first that is named, of rows without a model."""

    def line(bucket: ExportRow, row: ExportRow) -> Line:
        require_usd((value_at(row, currency) or "USD") if cost else "USD")
        named = value_at(row, model)
        item = next((value_at(row, name) for name in items if value_at(row, name)), None)
        figures = {
            figure: sum_of_known(count(row, name) for name in names)
            for figure, names in counts.items()
        }
        if is_one_request:
            figures["requests"] = 1
        amounts = [picousd(value_at(row, name), per_usd=per_usd) for name in cost]
        figures[LIST_COST] = picousd(value_at(row, list_cost), per_usd=per_usd)
        return line_of(
            day_of(bucket.get(day)),
            named,
            item=item if has_items_of_models or not named else None,
            project=value_at(row, project),
            session=value_at(row, session),
            key=value_at(row, key),
            cost_picousd=sum_of_known(amounts),
            **figures,
        )

    return line


def _anthropic(read: Reader) -> Reader:
    """The reader of Anthropic's analytics, whose rows have periods of their own: time buckets, or
    the range that was asked for.

    `/v1/organizations/analytics/usage` and `/cost`, as in `anthropic` 2.14.0,
    types/beta/organization/analytics: `BetaAnalyticsUsageItem`, `BetaAnalyticsCostItem`.
    """

    def line(bucket: ExportRow, row: ExportRow) -> Line:
        starts, ends = str(row.get("starting_at")), str(row.get("ending_at"))
        first, end = iso_day(row.get("starting_at")), iso_day(row.get("ending_at"))
        last = end - timedelta(days=1) if _MIDNIGHT in ends else end
        if last > first and not (_MIDNIGHT in starts and _MIDNIGHT in ends):
            text = f"a row from {starts[:30]} to {ends[:30]} has parts of days"
            raise UnreadableValue(f"{text}; ask with time_bucket_width=1d, or for whole days")
        if end < first:
            raise UnreadableValue(f"a row from {starts[:30]} to {ends[:30]} ends before it starts")
        if (last - first).days >= SPAN_DAYS_MAX:
            raise UnreadableValue(f"the row from {starts[:30]} to {ends[:30]} is too long")
        found = read(bucket, row)
        assert found is not None
        item = found.item if found.item != "tokens" else None
        return replace(found, item=item, through=last if last > first else None)

    return _disjoint("group.rbac_group_id", line)


def _disjoint(group: str, read: Reader) -> Reader:
    """A reader that refuses Anthropic's rows by group of users: "named-group rows overlap and their
    sum can exceed the org total"."""

    def line(bucket: ExportRow, row: ExportRow) -> Line | None:
        if value_at(row, group):
            raise UnreadableValue("rows by rbac_group_id overlap; ask without that group_by[]")
        return read(bucket, row)

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


_MIDNIGHT = "T00:00:00"
SPAN_DAYS_MAX = 366
"""Days of one row; Anthropic's reports have 31."""
_CACHE = "usage_input_tokens_cache"
_ANTHROPIC_WRITES = tuple(
    f"cache_creation.ephemeral_{lifetime}_input_tokens" for lifetime in ("5m", "1h")
)
_ANTHROPIC_INPUT = ("uncached_input_tokens", "cache_read_input_tokens", *_ANTHROPIC_WRITES)
_ANTHROPIC_CSV_WRITES = (f"{_CACHE}_write_5m", f"{_CACHE}_write_1h")
_ANTHROPIC_CSV_INPUT = (
    "usage_input_tokens_no_cache",
    f"{_CACHE}_read",
    *_ANTHROPIC_CSV_WRITES,
)
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
    line=cloud_bills.google,
    looks_for="rows whose service begins with Vertex AI, Gemini API or Generative Language API",
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
        known_by=frozenset({"starting_at", "ending_at", "group", "usage"}),
        line=_anthropic(
            _columns(
                day="starting_at",
                model="group.model",
                project="group.workspace_id",
                session="group.session_id",
                key="group.api_key_id",
                requests=("usage.requests",),
                input_tokens=tuple(f"usage.{name}" for name in _ANTHROPIC_INPUT),
                cache_read_tokens=("usage.cache_read_input_tokens",),
                cache_write_tokens=tuple(f"usage.{name}" for name in _ANTHROPIC_WRITES),
                output_tokens=("usage.output_tokens",),
            )
        ),
    ),
    Export(
        kind="Anthropic cost",
        provider="anthropic",
        known_by=frozenset({"starting_at", "ending_at", "group", "cost"}),
        # Its `requests` are those of the usage report once more.
        line=_anthropic(
            _columns(
                day="starting_at",
                model="group.model",
                items=("group.cost_type",),
                has_items_of_models=True,
                project="group.workspace_id",
                session="group.session_id",
                key="group.api_key_id",
                currency="cost.currency",
                cost=("cost.amount",),
                list_cost="cost.list_amount",
                per_usd=100,
            )
        ),
    ),
    Export(
        kind="Anthropic usage",
        provider="anthropic",
        known_by=frozenset({"uncached_input_tokens"}),
        line=_disjoint(
            "rbac_group_id",
            _columns(
                day="starting_at",
                project="workspace_id",
                key="api_key_id",
                requests=("requests",),
                input_tokens=_ANTHROPIC_INPUT,
                cache_read_tokens=("cache_read_input_tokens",),
                cache_write_tokens=_ANTHROPIC_WRITES,
                output_tokens=("output_tokens",),
            ),
        ),
    ),
    Export(
        kind="Anthropic cost",
        provider="anthropic",
        known_by=frozenset({"amount", "currency"}),
        line=_disjoint(
            "rbac_group_id",
            _columns(
                day="starting_at",
                items=("description", "cost_type"),
                project="workspace_id",
                # "Cost amount in lowest currency units (e.g. cents)": 123.45 is $1.23.
                cost=("amount",),
                list_cost="list_amount",
                per_usd=100,
            ),
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
        needs=frozenset({*_ANTHROPIC_CSV_INPUT, "model_version"}),
        line=_columns(
            day="usage_date_utc",
            model="model_version",
            project="workspace",
            key="api_key",
            input_tokens=_ANTHROPIC_CSV_INPUT,
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
        needs=frozenset({"tokens_prompt", "tokens_completion", "model_permaslug"}),
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
        needs=frozenset({"completion_tokens"}),
        line=_OPENROUTER_ACTIVITY,
    ),
    Export(
        kind="AWS Cost and Usage Report",
        provider="aws.bedrock",
        known_by=frozenset(
            {"line_item_product_code", "line_item_usage_type", "line_item_unblended_cost"}
        ),
        needs=frozenset({"line_item_usage_start_date", "line_item_usage_amount"}),
        line=cloud_bills.aws,
        looks_for="rows whose line_item_product_code begins with AmazonBedrock, or whose product "
        "is an Amazon Bedrock Edition",
    ),
    *(
        Export(
            kind="Azure cost details",
            provider="azure.ai.openai",
            known_by=frozenset(names),
            line=cloud_bills.azure,
            looks_for="rows of OpenAI, Foundry, Azure AI, Cognitive Services or a vendor of models",
        )
        for names in (
            ("date", "metercategory", "costinbillingcurrency"),
            ("usagedatetime", "metercategory", "pretaxcost"),
        )
    ),
    Export(
        kind="CSV",
        provider=None,
        known_by=frozenset({"day", "model"}),
        needs_one_of=(*STATEMENT_FIGURES[:-1], "cost_usd"),
        line=_columns(
            day="day",
            items=("item",),
            has_items_of_models=True,
            project="project",
            session="session",
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
