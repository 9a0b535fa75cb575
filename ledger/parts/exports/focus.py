"""Pure. Charges as Cost and Usage of FOCUS (FinOps Open Cost and Usage Specification) 1.2 or 1.4.

https://focus.finops.org/focus-specification/v1-2/ and, of 1.4, the columns of Cost and Usage in
https://github.com/FinOps-Open-Cost-and-Usage-Spec/FOCUS_Spec (read 2026-11-23). One row is one line
at one price within one hour. `BilledCost` must not be null, and a cost of 0 would be false, so
lines without a price are left out; the command prints how many. Facts without a column in the
specification are in `x_` columns, after the others, which are in alphabetical order.

The billing account is the provider; the sub account is the API key. List prices are the published
ones and contracted prices the booked ones, so that a negotiated price shows as a saving.
`InvoiceId` comes from the vendors' statements, if they are given.
"""

import json
import re
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from ledger.model.charge import PROVIDER
from ledger.model.exchange import COVERED
from ledger.model.money import usd_of
from ledger.pricing.price_lines import is_token_line
from ledger.text.period import HOUR, month_of

FOCUS_COLUMNS: Mapping[str, str] = {
    "BilledCost": "decimal",
    "BillingAccountId": "text",
    "BillingAccountName": "text",
    "BillingCurrency": "text",
    "BillingPeriodEnd": "second",
    "BillingPeriodStart": "second",
    "ChargeCategory": "text",
    "ChargeClass": "text",
    "ChargeDescription": "text",
    "ChargeFrequency": "text",
    "ChargePeriodEnd": "second",
    "ChargePeriodStart": "second",
    "ConsumedQuantity": "decimal",
    "ConsumedUnit": "text",
    "ContractedCost": "decimal",
    "ContractedUnitPrice": "decimal",
    "EffectiveCost": "decimal",
    "InvoiceId": "text",
    "InvoiceIssuerName": "text",
    "ListCost": "decimal",
    "ListUnitPrice": "decimal",
    "PricingCategory": "text",
    "PricingCurrency": "text",
    "PricingCurrencyContractedUnitPrice": "decimal",
    "PricingCurrencyEffectiveCost": "decimal",
    "PricingCurrencyListUnitPrice": "decimal",
    "PricingQuantity": "decimal",
    "PricingUnit": "text",
    "ProviderName": "text",
    "PublisherName": "text",
    "ServiceCategory": "text",
    "ServiceName": "text",
    "ServiceSubcategory": "text",
    "SkuId": "text",
    "SkuMeter": "text",
    "SkuPriceDetails": "text",
    "SkuPriceId": "text",
    "SubAccountId": "text",
    "SubAccountName": "text",
    "SubAccountType": "text",
    "Tags": "text",
    "x_Billing": "text",
    "x_CostCentre": "text",
    "x_Model": "text",
    "x_Origin": "text",
    "x_PriceSource": "text",
    "x_Project": "text",
    "x_Requests": "integer",
    "x_ServiceTier": "text",
    "x_Team": "text",
}
"""Column -> kind of its values, of FOCUS 1.2."""
REMOVED = ("ProviderName", "PublisherName")
"""By FOCUS 1.4; ServiceProviderName and HostProviderName say who sells and who runs a service."""
ADDED: Mapping[str, str] = dict.fromkeys(
    (
        "AllocatedMethodDetails",
        "AllocatedMethodId",
        "AllocatedResourceId",
        "AllocatedResourceName",
        "AllocatedTags",
        "HostProviderName",
        "InvoiceDetailId",
        "ServiceProviderName",
    ),
    "text",
)
"""By FOCUS 1.3 and 1.4. A row is one key's own use, so none is allocated, and the statements of
vendors name invoices, not their lines."""

VERSIONS: Mapping[str, Mapping[str, str]] = {
    "1.2": FOCUS_COLUMNS,
    "1.4": {
        name: {**FOCUS_COLUMNS, **ADDED}[name]
        for name in sorted(
            (FOCUS_COLUMNS.keys() | ADDED.keys()) - {*REMOVED},
            key=lambda name: (name.startswith("x_"), name),
        )
    },
}
"""Version -> its columns: those of the specification in alphabetical order, then the others."""
DEVELOPERS = (
    ("claude", "Anthropic", "Claude"),
    ("gpt", "OpenAI", "GPT"),
    ("o1", "OpenAI", "o-series"),
    ("o3", "OpenAI", "o-series"),
    ("o4", "OpenAI", "o-series"),
    ("text-embedding", "OpenAI", "Embedding"),
    ("gemini", "Google", "Gemini"),
    ("gemma", "Google", "Gemma"),
    ("mistral", "Mistral AI", "Mistral"),
    ("ministral", "Mistral AI", "Mistral"),
    ("magistral", "Mistral AI", "Mistral"),
    ("codestral", "Mistral AI", "Mistral"),
    ("devstral", "Mistral AI", "Mistral"),
    ("pixtral", "Mistral AI", "Mistral"),
    ("llama", "Meta", "Llama"),
    ("deepseek", "DeepSeek", "DeepSeek"),
    ("grok", "xAI", "Grok"),
    ("qwen", "Alibaba Cloud", "Qwen"),
    ("command", "Cohere", "Command"),
    ("nova", "Amazon", "Nova"),
    ("titan", "Amazon", "Titan"),
    ("glm", "Z.ai", "GLM"),
    ("kimi", "Moonshot AI", "Kimi"),
)
"""How the names of models begin, behind a vendor's or router's prefix -> developer and family."""
_CACHEABLE = ("uncached_input", "input_audio", "input_image")
"""Lines of input of which the cached tokens have a line of their own."""
_VERSION = re.compile(r"(?<!\d)[1-9]\d?(?:[.-]\d{1,2}(?![\dbkx]))?o?(?![\dbkx])")
"""The first number of a name that is no date, no size and no context: 4.1, 4-5, 4o."""

MILLION = 10**6


def row_of(charge: Mapping[str, Any], version: str = "1.2") -> tuple[Any, ...]:
    """The values of a version's columns, from the sums of one line at one price in one hour.

    `charge` holds the columns of the export's query, and `list_unit_picousd` (the published price
    of one unit; None: none is published, and the list price is the booked one), `invoice_id`,
    `key_name`, `team`, `cost_centre` (each None where it is not known), `day` of its rate.
    """
    hour: datetime = charge["hour"]
    month = month_of(hour)
    line, model, provider = charge["line"], charge["model"] or "unknown", charge["provider"]
    is_tokens = is_token_line(line)
    per = MILLION if is_tokens else 1
    # What a plan covers, or what is free, has a list cost alone.
    is_billed = charge["billing"] not in COVERED
    amount = usd_of(charge["amount_picousd"])
    cost = amount if is_billed else Decimal(0)
    unit = charge["unit_picousd"]
    contracted = usd_of(unit * per) if is_billed else Decimal(0)
    listed = charge["list_unit_picousd"]
    if not is_billed and charge["price_source"] == PROVIDER:
        listed = 0  # a provider's own figure is no list price
    list_price = usd_of((unit if listed is None else listed) * per)
    list_cost = amount if listed is None else usd_of(listed * charge["quantity"])
    sku = f"{provider}/{model}/{line}"
    # FOCUS reserves plain key names for itself; all other keys begin with x_.
    details = {"x_Model": model, "x_ServiceTier": charge["service_tier"]}
    if version != "1.2":
        has_cache_figures = bool(charge["has_cache_figures"])
        details = {**_model_details(model, line, has_cache_figures), **details}
    values = {
        "BilledCost": cost,
        "BillingAccountId": provider,
        "BillingAccountName": _ascii(provider),
        "BillingCurrency": "USD",
        "BillingPeriodEnd": month.end,
        "BillingPeriodStart": month.start,
        "ChargeCategory": "Usage",
        "ChargeClass": None,
        "ChargeDescription": f"{model}: {line.replace('_', ' ')}",
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodEnd": hour + HOUR,
        "ChargePeriodStart": hour,
        "ConsumedQuantity": Decimal(charge["quantity"]),
        "ConsumedUnit": "Tokens" if is_tokens else "Units",
        "ContractedCost": cost,
        "ContractedUnitPrice": contracted,
        "EffectiveCost": cost,
        "InvoiceId": charge["invoice_id"],
        "InvoiceIssuerName": _ascii(provider),
        "ListCost": list_cost,
        "ListUnitPrice": list_price,
        "PricingCategory": "Standard",
        "PricingCurrency": "USD",
        "PricingCurrencyContractedUnitPrice": contracted,
        "PricingCurrencyEffectiveCost": cost,
        "PricingCurrencyListUnitPrice": list_price,
        "PricingQuantity": Decimal(charge["quantity"]) / per,
        "PricingUnit": f"{MILLION} Tokens" if is_tokens else "Units",
        "ProviderName": _ascii(provider),
        "PublisherName": _ascii(provider),
        **dict.fromkeys(ADDED),
        "HostProviderName": _ascii(provider),
        "ServiceProviderName": _ascii(provider),
        "ServiceCategory": "AI and Machine Learning",
        "ServiceName": _ascii(f"{provider} {charge['operation']}"),
        "ServiceSubcategory": "Generative AI",
        "SkuId": sku,
        "SkuMeter": line,
        "SkuPriceDetails": json.dumps({k: v for k, v in details.items() if v}),
        "SkuPriceId": f"{sku}/{unit}",
        **_sub_account(charge),
        "Tags": charge["tags"],
        "x_Billing": charge["billing"],
        "x_CostCentre": charge["cost_centre"],
        "x_Model": charge["model"],
        "x_Origin": charge["origin"],
        "x_PriceSource": charge["price_source"],
        "x_Project": charge["project"],
        "x_Requests": charge["requests"],
        "x_ServiceTier": charge["service_tier"],
        "x_Team": charge["team"],
    }
    return tuple(values[name] for name in VERSIONS[version])


def _model_details(model: str, line: str, has_cache_figures: bool) -> dict[str, str]:
    """Who made the model, and which tokens are charged, as the draft of FOCUS 1.5 names them
    ("SKU Price Details", read 2026-11-26). `Uncached` claims that nothing was read from a cache or
    written into one: where the provider does not report both apart, `TokenCacheAction` is left
    out."""
    kind = line.rpartition(".")[2]
    found = {"ModelId": model}
    named = model.rpartition("/")[2].lower()
    parts = [part for part in named.replace(":", ".").split(".") if part]
    for begins, developer, family in DEVELOPERS:
        if any(part.startswith(begins) for part in (named, *parts)):
            found |= {"ModelDeveloper": developer, "ModelFamily": family}
            if version := _VERSION.search(named):
                found["ModelVersion"] = version[0].replace("-", ".")
            break
    if is_token_line(line):
        is_output = kind.startswith(("output", "reasoning", "citation"))
        found["TokenDirection"] = "Output" if is_output else "Input"
        if kind.startswith("cache_"):
            found["TokenCacheAction"] = "Write" if kind.startswith("cache_write") else "Read"
        elif has_cache_figures and kind in _CACHEABLE:
            found["TokenCacheAction"] = "Uncached"
    return dict(sorted(found.items()))


def _sub_account(charge: Mapping[str, Any]) -> dict[str, str | None]:
    """The API key: its fingerprint, and its name or last characters."""
    fingerprint = charge["key_fingerprint"]
    if fingerprint is None:
        return {"SubAccountId": None, "SubAccountName": None, "SubAccountType": None}
    name = charge["key_name"] or (f"...{charge['key_hint']}" if charge["key_hint"] else None)
    return {
        "SubAccountId": fingerprint,
        "SubAccountName": _ascii(name or fingerprint[:8]),
        "SubAccountType": "API key",
    }


def _ascii(text: str) -> str:
    """FOCUS requires names in ASCII; other characters become question marks."""
    return text.encode("ascii", "replace").decode("ascii")
