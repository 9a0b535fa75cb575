"""Pure. Charges as FOCUS 1.2 billing data (FinOps Open Cost and Usage Specification).

https://focus.finops.org/focus-specification/v1-2/. One row is one line at one price within one
hour. `BilledCost` must not be null there, and a cost of 0 would be a lie, so lines without a price
are left out; whoever exports says how many. What the specification has no column for stands in
`x_` columns, behind the others, which are in alphabetical order.

The ledger knows no billing account and no invoice: the account is the API key that was used, the
issuer is who answered.
"""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from ledger.reports.explain import is_token_line

COLUMNS: Mapping[str, str] = {
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
    "InvoiceIssuerName": "text",
    "ListCost": "decimal",
    "ListUnitPrice": "decimal",
    "PricingCategory": "text",
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
    "Tags": "text",
    "x_Estimated": "boolean",
    "x_Model": "text",
    "x_Origin": "text",
    "x_PriceSource": "text",
    "x_Requests": "integer",
    "x_ServiceTier": "text",
}
"""Column -> kind of its values."""

HOUR = timedelta(hours=1)
MILLION = 10**6


def row_of(charge: Mapping[str, Any]) -> tuple[Any, ...]:
    """The values of `COLUMNS`, from the sums of one line at one price in one hour."""
    hour: datetime = charge["hour"]
    line, model, provider = charge["line"], charge["model"] or "unknown", charge["provider"]
    is_tokens = is_token_line(line)
    per = MILLION if is_tokens else 1
    cost = _usd(charge["amount_picousd"])
    unit_price = _usd(charge["unit_picousd"] * per)
    sku = f"{provider}/{model}/{line}"
    # FOCUS: keys of its own names only, all others begin with x_.
    details = {"x_Model": model, "x_ServiceTier": charge["service_tier"]}
    values = {
        "BilledCost": cost,
        "BillingAccountId": charge["key_fingerprint"] or provider,
        "BillingAccountName": f"…{charge['key_hint']}" if charge["key_hint"] else None,
        "BillingCurrency": "USD",
        "BillingPeriodEnd": _next_month(hour),
        "BillingPeriodStart": _month(hour),
        "ChargeCategory": "Usage",
        "ChargeClass": None,
        "ChargeDescription": f"{model}: {line.replace('_', ' ')}",
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodEnd": hour + HOUR,
        "ChargePeriodStart": hour,
        "ConsumedQuantity": Decimal(charge["quantity"]),
        "ConsumedUnit": "Tokens" if is_tokens else "Units",
        "ContractedCost": cost,
        "ContractedUnitPrice": unit_price,
        "EffectiveCost": cost,
        "InvoiceIssuerName": provider,
        "ListCost": cost,
        "ListUnitPrice": unit_price,
        "PricingCategory": "Standard",
        "PricingQuantity": Decimal(charge["quantity"]) / per,
        "PricingUnit": f"{MILLION} Tokens" if is_tokens else "Units",
        "ProviderName": provider,
        "PublisherName": provider,
        "ServiceCategory": "AI and Machine Learning",
        "ServiceName": f"{provider} {charge['operation']}",
        "ServiceSubcategory": "Generative AI",
        "SkuId": sku,
        "SkuMeter": line,
        "SkuPriceDetails": json.dumps({k: v for k, v in details.items() if v}),
        "SkuPriceId": f"{sku}/{charge['unit_picousd']}",
        "Tags": charge["tags"],
        "x_Estimated": bool(charge["is_estimated"]),
        "x_Model": charge["model"],
        "x_Origin": charge["origin"],
        "x_PriceSource": charge["price_source"],
        "x_Requests": charge["requests"],
        "x_ServiceTier": charge["service_tier"],
    }
    return tuple(values[name] for name in COLUMNS)


def _usd(picousd: int) -> Decimal:
    return Decimal(picousd).scaleb(-12)


def _month(moment: datetime) -> datetime:
    return moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def _next_month(moment: datetime) -> datetime:
    # The 28th is in every month, and four days after it is the next one.
    return _month(moment.replace(day=28) + timedelta(days=4))
