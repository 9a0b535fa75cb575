"""Edge (a package's file). The lists of genai-prices, read without the library.

The library is a module of data, and classes whose import brings pydantic and an HTTP client: 24 MB
for good, and 0.26 s of CPU (measured). So the module of data is run with the classes of this file
in place of the library's: 3 MB, and 0.03 s. They keep what a price needs, under the library's names
and with its rules; a test compares each model with the library.

The rules are those of one file of the library, which releases of new prices leave as it is. If
that file has another digest, or the data another shape, nothing is guessed: then the library itself
is imported, whose objects have the same attributes.
"""

import builtins
import re
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import cache
from hashlib import sha256
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol, cast

LIBRARY = "genai_prices"
KNOWN_RULES = frozenset({"df355ac1604139f35b344bce5c536f7cb52dd1ce3008fd8ae6a65af946be66ce"})
"""SHA-256 of the library's files of rules (`types.py`) that this file follows: 0.2.2 and 0.2.3."""

_DATED = re.compile(r"(-)(20\d{2})(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(?=-|:|$)")
"""`-20251211` in a model's name; the lists have `-2025-12-11`."""


class Match(Protocol):
    """A rule that recognizes names of a model."""

    def is_match(self, text: str) -> bool:
        """Whether the name, in lower case, is one of the model."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A comparison of a name with one text."""

    compare: Callable[[str, str], object]
    text: str

    def is_match(self, text: str) -> bool:
        """Whether the name, in lower case, is one of the model."""
        return bool(self.compare(text, self.text))


@dataclass(frozen=True, slots=True)
class Rules:
    """Some rules, of which one or all must match."""

    combine: Callable[[Any], bool]
    rules: Sequence[Match]

    def is_match(self, text: str) -> bool:
        """Whether the name, in lower case, is one of the model."""
        return self.combine(rule.is_match(text) for rule in self.rules)


@dataclass(frozen=True, slots=True)
class Tier:
    """The price of requests with more input tokens than `start`."""

    start: int
    price: Decimal


@dataclass(frozen=True, slots=True)
class TieredPrices:
    """A price that depends on the size of the request."""

    base: Decimal
    tiers: Sequence[Tier]


class ModelPrice(SimpleNamespace):
    """Prices as attributes, named by the library's keys (`input_mtok`)."""


@dataclass(frozen=True, slots=True)
class StartDate:
    """In force from a day on, UTC."""

    start_date: date

    def active(self, at: datetime) -> bool:
        """Whether it is in force at that moment."""
        return at.astimezone(UTC).date() >= self.start_date


@dataclass(frozen=True, slots=True)
class TimeOfDay:
    """In force at some hours of each day, perhaps across midnight."""

    start_time: time
    end_time: time

    def active(self, at: datetime) -> bool:
        """Whether it is in force at that moment."""
        now, start, end = at.astimezone(UTC).timetz(), _utc(self.start_time), _utc(self.end_time)
        if end < start:
            return now >= start or now < end
        return start <= now < end


type Constraint = StartDate | TimeOfDay


@dataclass(frozen=True, slots=True)
class ConditionalPrice:
    """Prices that are in force while the constraint is."""

    prices: ModelPrice
    constraint: Constraint | None = None


@dataclass(frozen=True, slots=True)
class PriceVariant:
    """Prices that replace the standard ones in a context (a service tier)."""

    when: Mapping[str, str]
    prices: ModelPrice
    constraint: Constraint | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One model of a list."""

    id: str
    match: Match
    prices: ModelPrice | list[ConditionalPrice]
    price_variants: Sequence[PriceVariant]

    def get_prices(self, at: datetime, context: Mapping[str, str] | None = None) -> ModelPrice:
        """The prices in force at a moment; the last entry of a list wins, and the first variant."""
        standard = self._standard(at)
        if not context:
            return standard
        resolved = copy(standard)
        for variant in reversed(self.price_variants):
            if variant.constraint is not None and not variant.constraint.active(at):
                continue
            if all(context.get(key) == value for key, value in variant.when.items()):
                found = vars(variant.prices).items()
                vars(resolved).update({key: price for key, price in found if price is not None})
        return resolved

    def _standard(self, at: datetime) -> ModelPrice:
        if isinstance(self.prices, ModelPrice):
            return self.prices
        for each in reversed(self.prices):
            if each.constraint is None or each.constraint.active(at):
                return each.prices
        return self.prices[0].prices


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One list."""

    id: str
    models: Sequence[Model]
    fallback_model_providers: Sequence[str]
    """The lists that this one borrows models from."""

    def find_model(self, name: str, *, all_providers: Sequence["Provider"]) -> Model | None:
        """The model with that name, here or in the lists that this one borrows from."""
        name = name.lower()
        found = self._match(name, all_providers)
        if found is None and (dated := _DATED.sub(_with_dashes, name)) != name:
            return self._match(dated, all_providers)
        return found

    def _match(self, name: str, all_providers: Sequence["Provider"]) -> Model | None:
        lenders = [each for each in all_providers if each.id in self.fallback_model_providers]
        lenders.sort(key=lambda each: self.fallback_model_providers.index(each.id))
        for provider in (self, *lenders):
            for model in provider.models:
                if model.match.is_match(name):
                    return model
        return None


def read() -> list[Provider]:
    """All lists."""
    try:
        folder = _folder()
        if sha256((folder / "types.py").read_bytes()).hexdigest() in KNOWN_RULES:
            return _run_data(folder)
    except (AttributeError, ImportError, KeyError, NameError, OSError, TypeError, ValueError):
        pass  # another shape: the library knows it
    from genai_prices.data import providers

    return cast(list[Provider], providers)


def _folder() -> Path:
    """The library's folder. Raises ImportError if it has none."""
    spec = find_spec(LIBRARY)  # of a package on top, this imports nothing
    folders = spec.submodule_search_locations if spec is not None else None
    if not folders:
        raise ImportError(LIBRARY)
    return Path(folders[0])


def _run_data(folder: Path) -> list[Provider]:
    """Run the library's module of data, with our classes in place of the library's."""
    name = f"{LIBRARY}.data"
    # This reads and writes Python's cache of compiled modules: compiling takes 0.35 s.
    code = SourceFileLoader(name, str(folder / "data.py")).get_code(name)
    assert code is not None
    known = {"types": SimpleNamespace(**_CLASSES), "decimal": SimpleNamespace(Decimal=_decimal)}

    def load(module: str, *arguments: Any, **options: Any) -> Any:
        return known.get(module) or builtins.__import__(module, *arguments, **options)

    names: dict[str, Any] = {"__builtins__": {**vars(builtins), "__import__": load}}
    # Line numbers of so long a module make a coverage tool quadratic: a minute instead of a second.
    exec(code.replace(co_linetable=b""), names)  # noqa: S102  # as an import of the package does
    _decimal.cache_clear()
    providers: list[Provider] = names["providers"]
    return providers


_decimal = cache(Decimal)
"""Equal prices are one object."""


def _provider(
    *,
    id: str,  # noqa: A002  # the library's name, as all of these
    models: Sequence[Model],
    fallback_model_providers: Sequence[str] | None = None,
    **described: object,
) -> Provider:
    known = "name api_pattern pricing_urls description price_comments model_match provider_match"
    _expect(described, f"{known} extractors")
    return Provider(
        id=id,
        models=models,
        fallback_model_providers=fallback_model_providers or (),
    )


def _model(
    *,
    id: str,  # noqa: A002
    match: Match,
    prices: ModelPrice | list[ConditionalPrice],
    price_variants: Sequence[PriceVariant] | None = None,
    **described: object,
) -> Model:
    _expect(described, "name description context_window price_comments deprecated")
    return Model(id=id, match=match, prices=prices, price_variants=price_variants or ())


def _tiered(*, base: Decimal, tiers: Sequence[Tier]) -> TieredPrices:
    return TieredPrices(base, sorted(tiers, key=lambda tier: tier.start))


def _unused(**_: object) -> None:
    """Data that prices do not need: how usage is read from answers."""


def _starts_with(*, starts_with: str) -> Rule:
    return Rule(str.startswith, starts_with.lower())


def _ends_with(*, ends_with: str) -> Rule:
    return Rule(str.endswith, ends_with.lower())


def _contains(*, contains: str) -> Rule:
    return Rule(str.__contains__, contains.lower())


def _equals(*, equals: str) -> Rule:
    return Rule(str.__eq__, equals.lower())


def _regex(*, regex: str) -> Rule:
    return Rule(lambda text, regex: re.search(regex, text), regex)


def _or(*, or_: Sequence[Match]) -> Rules:
    return Rules(any, or_)


def _and(*, and_: Sequence[Match]) -> Rules:
    return Rules(all, and_)


_CLASSES: dict[str, Callable[..., object]] = {
    "Provider": _provider,
    "ModelInfo": _model,
    "ModelPrice": ModelPrice,
    "TieredPrices": _tiered,
    "Tier": Tier,
    "ConditionalPrice": ConditionalPrice,
    "PriceVariant": PriceVariant,
    "StartDateConstraint": StartDate,
    "TimeOfDateConstraint": TimeOfDay,
    "ClauseStartsWith": _starts_with,
    "ClauseEndsWith": _ends_with,
    "ClauseContains": _contains,
    "ClauseEquals": _equals,
    "ClauseRegex": _regex,
    "ClauseOr": _or,
    "ClauseAnd": _and,
    "UsageExtractor": _unused,
    "UsageExtractorMapping": _unused,
    "ArrayMatch": _unused,
}
"""The library's name -> what stands for it."""


def _expect(described: Mapping[str, object], known: str) -> None:
    """TypeError for a field that is not known: it could change a price."""
    if unknown := described.keys() - known.split():
        raise TypeError(f"unknown: {sorted(unknown)}")


def _with_dashes(match: re.Match[str]) -> str:
    year, month, day = (int(match.group(index)) for index in (2, 3, 4))
    try:
        return f"{match.group(1)}{date(year, month, day).isoformat()}"
    except ValueError:
        return match.group(0)


def _utc(clock: time) -> time:
    """A time of day in UTC; one without an offset is."""
    if clock.tzinfo is None:
        return clock.replace(tzinfo=UTC)
    return datetime.combine(date(1970, 1, 1), clock).astimezone(UTC).timetz()
