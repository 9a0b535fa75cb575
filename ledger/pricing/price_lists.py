"""Pure. Which price lists apply: origin, provider and model name -> lists to search, in order.

The table of providers (`ledger.model`) maps hosts, providers and vendors to lists. A list is named
by its id in genai-prices (`openai`, `aws`, `openrouter` …) or, for those it lacks, by LiteLLM's
provider name (`dashscope`). For a host with a list of its own, only that list is searched. A
gateway without a published list sells other vendors' models: then the vendor's list is the best
approximation, and a charge from it is marked `for <host>`, because the gateway may bill another
price.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from ledger.model import provider_table
from ledger.model.providers import VENDOR


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceQuestion:
    """A lookup of a price: the upstream, and the models of request and answer."""

    origin: str
    provider: str
    path: str = ""
    request_model: str | None = None
    response_model: str | None = None
    is_covered: bool = False
    """By a plan, or free: then the price is what the vendor's list has for the same tokens."""

    @property
    def host(self) -> str:
        """The origin's host; the origin itself if it is not a URL."""
        try:
            return urlsplit(self.origin).hostname or self.origin
        except ValueError:
            return self.origin

    @property
    def model(self) -> str | None:
        """The model that answered, or the requested one."""
        return self.response_model or self.request_model


@dataclass(frozen=True, slots=True)
class Candidate:
    """One list and name under which the price may be found."""

    list_id: str
    model: str
    own: bool
    """Whether this is the host's own list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """An operator's own row, checked before the table of providers (override file,
    `[[gateway]]`)."""

    host: str
    """A glob."""
    prices: str
    """A list's id, or `vendor`."""
    models: Mapping[str, str] = field(default_factory=dict)
    """The name on the wire -> the name in the list."""


_FIREWORKS = "accounts/fireworks/models/"
PLAN_LISTS = frozenset({"github-copilot"})
"""Lists of what a plan counts against its allowance: no list value."""
ROUTING_SUFFIXES = frozenset({"nitro", "floor", "online", "exacto", "extended"})
"""Suffixes of a model's name that choose a route (OpenRouter); the list has the name without
them."""


def candidates(question: PriceQuestion, gateways: tuple[Gateway, ...] = ()) -> Iterator[Candidate]:
    """The candidates, best first; empty if no list has the host or the model."""
    host = question.host
    for gateway in gateways:
        if fnmatchcase(host, gateway.host.lower()):
            yield from _listed(question, gateway.prices, gateway.models)
            return
    list_id = provider_table.TABLE.price_list_at(host) or None
    if host == "router.huggingface.co":
        # The router bills the price of the chosen provider: `/groq/openai/v1/…`, or `/v1/…` and a
        # model named `org/name:groq`. If the router chooses, it does not report which one.
        first = question.path.lstrip("/").partition("/")[0]
        suffix = (question.request_model or "").partition(":")[2]
        list_id = f"huggingface_{suffix if first == 'v1' else first}"
    if question.is_covered and list_id in PLAN_LISTS:
        list_id = VENDOR
    if list_id is not None:
        yield from _listed(question, list_id, {})
        return
    row = provider_table.TABLE.named(question.provider)
    list_id = (row.prices if row is not None else "") or question.provider
    for name in _names(question, list_id):
        if list_id != VENDOR:
            yield Candidate(list_id, name, own=False)
        yield from _of_vendor(name, is_gateway=list_id == VENDOR)


def _listed(
    question: PriceQuestion, list_id: str, models: Mapping[str, str]
) -> Iterator[Candidate]:
    for name in _names(question, list_id):
        listed = models.get(name, name)
        if list_id == VENDOR:
            yield from _of_vendor(listed, is_gateway=True)
        else:
            yield Candidate(list_id, listed, own=True)


def _names(question: PriceQuestion, list_id: str) -> Iterator[str]:
    """The spellings of a model's name that a list may use.

    Bedrock bills the requested model or inference profile; the answer names the model without the
    region that decides the price.
    """
    models = [question.response_model, question.request_model]
    if list_id == "aws":
        models.reverse()
    else:
        models = [question.model]
    for model in models:
        if model:
            # publishers/google/models/…, models/…: lists have the name alone. Fireworks' list has
            # accounts/fireworks/models/…, and …/routers/… for other prices of the same model.
            name = model.rpartition("models/")[2]
            if list_id == "fireworks":
                yield model if model.startswith("accounts/") else f"{_FIREWORKS}{name}"
                continue
            yield name
            vendor, _, own = name.rpartition("/")
            if own != name and provider_table.TABLE.price_list_of_vendor(vendor) == list_id:
                yield own  # Vertex' chat: google/gemini-…
            bare, separator, suffix = name.rpartition(":")
            if separator and (suffix in ROUTING_SUFFIXES or list_id.startswith("huggingface_")):
                yield bare


def _of_vendor(model: str, *, is_gateway: bool) -> Iterator[Candidate]:
    """The list of the vendor that made the model, by its prefix or its name.

    A model that others may also host is looked up by its name only at a gateway: any other host may
    run it on its own hardware.
    """
    vendor, separator, bare = model.rpartition("/")
    vendor = vendor.rpartition("/")[2]
    name = bare.lower()
    by_name = provider_table.TABLE.price_list_of_model(name, with_open=is_gateway)
    by_prefix = provider_table.TABLE.price_list_of_vendor(vendor.lower()) if separator else None
    if by_prefix is not None and (is_gateway or by_name):
        yield Candidate(by_prefix, bare, own=False)
    elif by_name is not None:
        yield Candidate(by_name, bare, own=False)
