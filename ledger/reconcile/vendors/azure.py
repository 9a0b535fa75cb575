"""Pure. Azure's cost details: CSV of Cost Management exports.

https://learn.microsoft.com/azure/cost-management-billing/dataset-schema/cost-usage-details-ea and
its siblings for other agreements; column names differ in case between them. A meter such as `gpt 4o
0806 Inp glbl Tokens` describes a model in words that no rule maps to its name, so a line is an
item, compared by day. Rows of other services are left out.
"""

import re
from collections.abc import Mapping
from datetime import datetime

from ledger.reconcile.statement import (
    CsvShape,
    Line,
    csv_picousd,
    iso_day,
    line_of,
    require_usd,
)

_LLM = re.compile(
    r"openai|foundry|azure ai|cognitive services|mistral|cohere|llama|grok|deepseek", re.I
)
_CHARGED_IN = ("costinbillingcurrency", "cost", "pretaxcost")


def _row(row: Mapping[str, str]) -> Line | None:
    values = {(name or "").lower(): value for name, value in row.items()}
    product = " ".join(
        values.get(name) or "" for name in ("metercategory", "metersubcategory", "productname")
    )
    if not _LLM.search(product[:512]):
        return None
    require_usd(values.get("billingcurrency") or values.get("billingcurrencycode") or "USD")
    column = next((name for name in _CHARGED_IN if name in values), "")
    return line_of(
        iso_day(_iso(values.get("date") or values.get("usagedatetime") or "")),
        None,
        item=values.get("metername") or values.get("productname"),
        project=values.get("resourcegroup") or values.get("resourcegroupname"),
        invoice=values.get("invoiceid"),
        cost_picousd=csv_picousd(values, column),
    )


def _iso(text: str) -> str:
    """Enterprise exports write `11/02/2026`, month first."""
    try:
        return datetime.strptime(text.strip(), "%m/%d/%Y").date().isoformat()  # noqa: DTZ007  # a day
    except ValueError:
        return text


CSV_SHAPES = tuple(
    CsvShape(
        kind="Azure cost details", provider="azure.ai.openai", known_by=frozenset(names), line=_row
    )
    for names in (
        ("Date", "MeterCategory", "CostInBillingCurrency"),
        ("date", "meterCategory", "costInBillingCurrency"),
        ("UsageDateTime", "MeterCategory", "PreTaxCost"),
    )
)
