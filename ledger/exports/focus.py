"""Pure. Charges as FOCUS 1.2 billing data (FinOps Open Cost and Usage Specification).

https://focus.finops.org/focus-specification/v1-2/. One row is one line at one price within one
hour. `BilledCost` must not be null there, and a cost of 0 would be false, so lines without a price
are left out; the command prints how many. Facts without a column in the specification are in `x_`
columns, after the others, which are in alphabetical order.

The billing account is the provider; the sub account is the API key. List prices are the published
ones and contracted prices the booked ones, so that a negotiated price shows as a saving.
`InvoiceId` comes from the vendors' statements, if they are given.
"""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from ledger.model.charge import PROVIDER
from ledger.model.money import usd_of
from ledger.pricing.price_lines import is_token_line

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
"""Column -> kind of its values."""

HOUR = timedelta(hours=1)
MILLION = 10**6


def row_of(charge: Mapping[str, Any]) -> tuple[Any, ...]:
    """The values of `COLUMNS`, from the sums of one line at one price in one hour.

    `charge` holds the columns of the export's query, and `list_unit_picousd` (the published price
    of one unit; None: none is published, and the list price is the booked one), `invoice_id`,
    `key_name`, `team`, `cost_centre` (each None where it is not known).
    """
    hour: datetime = charge["hour"]
    line, model, provider = charge["line"], charge["model"] or "unknown", charge["provider"]
    is_tokens = is_token_line(line)
    per = MILLION if is_tokens else 1
    # What a plan covers, or what is free, has a list cost alone.
    is_billed = charge["billing"] not in ("plan", "free")
    amount = usd_of(charge["amount_picousd"])
    cost = amount if is_billed else Decimal(0)
    unit = charge["unit_picousd"]
    contracted = usd_of(unit * per) if is_billed else Decimal(0)
    listed = charge["list_unit_picousd"]
    if not is_billed and charge["price_source"] == PROVIDER:
        listed = 0  # a provider's own figure is no list price
    list_cost = amount if listed is None else usd_of(listed * charge["quantity"])
    sku = f"{provider}/{model}/{line}"
    # FOCUS reserves plain key names for itself; all other keys begin with x_.
    details = {"x_Model": model, "x_ServiceTier": charge["service_tier"]}
    values = {
        "BilledCost": cost,
        "BillingAccountId": provider,
        "BillingAccountName": _ascii(provider),
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
        "ContractedUnitPrice": contracted,
        "EffectiveCost": cost,
        "InvoiceId": charge["invoice_id"],
        "InvoiceIssuerName": _ascii(provider),
        "ListCost": list_cost,
        "ListUnitPrice": usd_of((unit if listed is None else listed) * per),
        "PricingCategory": "Standard",
        "PricingCurrency": "USD",
        "PricingCurrencyContractedUnitPrice": contracted,
        "PricingCurrencyEffectiveCost": cost,
        "PricingCurrencyListUnitPrice": usd_of((unit if listed is None else listed) * per),
        "PricingQuantity": Decimal(charge["quantity"]) / per,
        "PricingUnit": f"{MILLION} Tokens" if is_tokens else "Units",
        "ProviderName": _ascii(provider),
        "PublisherName": _ascii(provider),
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
    return tuple(values[name] for name in COLUMNS)


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


def _month(moment: datetime) -> datetime:
    return moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def _next_month(moment: datetime) -> datetime:
    # The 28th is in every month, and four days after it is the next one.
    return _month(moment.replace(day=28) + timedelta(days=4))
