"""Pure. Published prices from genai-prices: a model's data, looked up once and converted to our
rates.

The library treats an unknown service tier as the standard one, and a model without prices as free.
So we take the prices of a model from it (`ModelInfo.get_prices`), and the arithmetic and the checks
of these two cases are ours. Importing it brings pydantic and an HTTP client (24 MB, 0.3 s of CPU),
so it is imported when the first price is looked up.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from fnmatch import fnmatchcase
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from ledger.model.aliases import words_of
from ledger.model.money import PICOUSD_PER_USD
from ledger.pricing.price_lines import NO_TIME, Rate

if TYPE_CHECKING:
    from genai_prices.types import ConditionalPrice, ModelInfo, PriceVariant, Provider

MTOK = 1_000_000

PRICE_KEYS: dict[str, tuple[str, int]] = {
    "uncached_input": ("input_mtok", MTOK),
    "cache_read": ("cache_read_mtok", MTOK),
    "cache_write": ("cache_write_mtok", MTOK),
    "cache_write_5m": ("cache_write_5m_mtok", MTOK),
    "cache_write_1h": ("cache_write_1h_mtok", MTOK),
    "input_audio": ("input_audio_mtok", MTOK),
    "input_image": ("input_image_mtok", MTOK),
    "input_video": ("input_video_mtok", MTOK),
    "cache_read_audio": ("cache_audio_read_mtok", MTOK),
    "cache_read_image": ("cache_image_read_mtok", MTOK),
    "output": ("output_mtok", MTOK),
    "reasoning": ("output_reasoning_mtok", MTOK),
    "citation": ("output_citation_mtok", MTOK),
    "output_audio": ("output_audio_mtok", MTOK),
    "output_image": ("output_image_mtok", MTOK),
    "output_video": ("output_video_mtok", MTOK),
    "web_searches": ("web_searches_kcount", 1000),
    "x_searches": ("social_searches_kcount", 1000),
    "file_searches": ("storage_searches_kcount", 1000),
    "document_searches": ("storage_searches_kcount", 1000),
    "code_executions": ("code_executions_kcount", 1000),
    "search_units": ("rerank_searches_kcount", 1000),
    "requests": ("requests_kcount", 1000),
    "document_pages": ("input_document_kpages", 1000),
    "input_characters": ("input_mchars", 1_000_000),
    "audio_milliseconds": ("audio_hours", 3_600_000),
}
"""Our line -> the library's price key, and how many of our units its price is for."""

STANDARD_TIERS = frozenset(
    {"", "default", "standard", "standard_only", "on_demand", "auto", "unspecified"}
)
"""`auto` is an echo of the request: an answer with it has reported no tier."""

_TIER_PREFIXES = ("service_tier_", "on_demand_")
"""Of the same tiers at Google: `SERVICE_TIER_FLEX`, and Vertex' `ON_DEMAND_FLEX`."""

SAME_PRICE = ("ft:*", "*@default", "*-customtools", "*-extended-thinking", "*-vision-exp")
"""Names with a word more than the model whose price they have: of the operator's own, or stated by
the provider's page."""


@dataclass(frozen=True, slots=True)
class Published:
    """One model in one list."""

    list_id: str
    model: "ModelInfo"
    is_borrowed: bool
    """The list copies it from its vendor's list (Azure from OpenAI's)."""
    label: str = ""
    """Where the list is from: library and version, or the digest of a snapshot."""

    @property
    def source(self) -> str:
        """The source of a price: where the list is from, list and model."""
        return f"{self.label} {self.list_id}/{self.model.id}"


@dataclass(frozen=True, slots=True)
class Lists:
    """All lists of one edition of genai-prices."""

    label: str
    providers: "Mapping[str, Provider]"

    def find(self, list_id: str, model: str) -> Published | None:
        """The model in that list, or in the list that one borrows from."""
        provider = self.providers.get(list_id)
        if provider is None:
            return None
        every = list(self.providers.values())
        found = provider.find_model(model, all_providers=every)
        if found is None or not _is_named(found, model):
            return None
        if all(found is not own for own in provider.models):
            owner = next(each for each in every if any(found is own for own in each.models))
            return Published(owner.id, found, True, self.label)
        return Published(list_id, found, False, self.label)

    def figures(self, at: datetime) -> dict[str, dict[str, object]]:
        """The prices of each model in force at a moment, by list and id."""
        found: dict[str, dict[str, object]] = {}
        for list_id, provider in self.providers.items():
            for model in provider.models:
                prices = {"": model.get_prices(at)}
                for variant in model.price_variants or ():
                    if variant.constraint is None or variant.constraint.active(at):
                        prices[" ".join(variant.when.values()) + " "] = variant.prices
                found[f"{list_id}/{model.id}"] = {
                    tier + key: _figure(value)
                    for tier, each in prices.items()
                    for key, value in vars(each).items()
                    if value is not None
                }
        return found


@dataclass(frozen=True, slots=True)
class PricePeriod:
    """Rates in force from one moment to another; `absent`: why a missing line has no price."""

    rates: dict[str, Rate]
    absent: str
    since: datetime
    until: datetime
    missing_tier: str | None = None
    """The service tier, if the list has no price for it: then the rates are the standard ones."""
    partial: str = ""
    """Why the rates may not be this seller's: a list copies them from the vendor's, which changed
    them, and each seller changes its prices at its own time."""
    list_id: str = ""
    model_id: str = ""


def tier_name(tier: str | None) -> str | None:
    """A service tier as price lists and rules name it; None: the standard one."""
    name = (tier or "").lower()
    for prefix in _TIER_PREFIXES:
        name = name.removeprefix(prefix)
    return None if name in STANDARD_TIERS else name


def prices(published: Published, *, tier: str | None, at: datetime, source: str) -> PricePeriod:
    """The model's rates at a moment, and the span around it in which nothing changes."""
    model, name = published.model, tier_name(tier)
    since, until = _span(model, at)
    context = dict.fromkeys(("service_tier", "processing", "speed"), name) if name else {}
    # The library would use the standard price where the list has none for the tier.
    has_tier = not published.is_borrowed and any(
        all(context.get(key) == value for key, value in variant.when.items())
        for variant in model.price_variants or ()
        if variant.constraint is None or variant.constraint.active(at)
    )
    missing = None if has_tier else name
    price = model.get_prices(at, None if missing else context or None)
    rates: dict[str, Rate] = {}
    for line, (key, units) in PRICE_KEYS.items():
        value: Any = getattr(price, key, None)
        if value is None and key == "audio_hours":
            value = getattr(price, "input_audio_hours", None)
        if (tiers := getattr(value, "tiers", None)) is not None:
            above = tuple((tier.start, picousd_of_price(tier.price, units)) for tier in tiers)
            rates[line] = Rate(picousd_of_price(value.base, units), source, above)
        elif value is not None:
            rates[line] = Rate(picousd_of_price(value, units), source)
    what = f"{published.list_id}/{model.id}"
    absent = f"{what} is listed without {'this line' if rates else 'a price'}"
    partial = ""
    if published.is_borrowed and isinstance(model.prices, list):
        partial = f"{what} changed its price over time; when this seller did is not published"
    return PricePeriod(rates, absent, since, until, missing, partial, published.list_id, model.id)


def picousd_of_price(price: Decimal, units: int) -> int:
    """The price of one unit in whole pico-USD.

    Exact for every price per million tokens of up to six decimals. Other prices (an hour of sound
    in milliseconds, a float in the source) are rounded half even, by less than a millionth of any
    price in use.
    """
    return int((price * PICOUSD_PER_USD / units).to_integral_value(ROUND_HALF_EVEN))


def _span(model: "ModelInfo", at: datetime) -> tuple[datetime, datetime]:
    """The span around a moment in which no constraint begins or ends."""
    dated: list[ConditionalPrice | PriceVariant] = list(model.price_variants or ())
    if isinstance(model.prices, list):
        dated += model.prices
    today = at.astimezone(UTC).date()
    moments: set[datetime] = set()
    for each in dated:
        constraint = each.constraint
        if constraint is not None and hasattr(constraint, "start_date"):
            moments.add(datetime.combine(constraint.start_date, time(), UTC))
        elif constraint is not None:
            for day in (today - timedelta(days=1), today, today + timedelta(days=1)):
                for moment in (constraint.start_time, constraint.end_time):
                    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
                    moments.add(datetime.combine(day, aware).astimezone(UTC))
    since = max((moment for moment in moments if moment <= at), default=NO_TIME[0])
    until = min((moment for moment in moments if moment > at), default=NO_TIME[1])
    return since, until


def _is_named(found: "ModelInfo", name: str) -> bool:
    """Whether the list has this name, and not one that it only begins or ends as: a word more
    (`-cyber`) is another model, unless the list says the word."""
    name = name.lower()
    if any(fnmatchcase(name, glob) for glob in SAME_PRICE):
        return True
    said = frozenset().union(*map(words_of, (found.id, *_texts(found.match))))
    return words_of(name) <= said


def _texts(clause: Any) -> Iterator[str]:
    """The texts that a clause of the library compares names with."""
    for value in vars(clause).values():
        if isinstance(value, str):
            yield value
        else:
            for each in value if isinstance(value, list) else [value]:
                yield from _texts(each)


def _figure(value: Any) -> object:
    """A price, or its base and the prices above each step, for comparison."""
    tiers = getattr(value, "tiers", None)
    return value if tiers is None else (value.base, *((tier.start, tier.price) for tier in tiers))


@cache
def installed() -> Lists:
    """The lists of the installed library."""
    from genai_prices.data_snapshot import get_snapshot

    label = f"genai-prices {version('genai-prices')}"
    return Lists(label, {provider.id: provider for provider in get_snapshot().providers})
