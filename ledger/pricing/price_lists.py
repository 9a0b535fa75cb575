"""Pure. Whose price list applies: origin, provider and model name -> lists to ask, in order.

A price list is known by its id in genai-prices (`openai`, `aws`, `openrouter` …) or, for those it
lacks, by LiteLLM's provider name (`dashscope`). A host that bills by a list of its own is asked
for under that list alone. A gateway without a published list sells other vendors' models: then the
vendor's list is the nearest thing known, and a charge made from it says `for <host>`, because the
gateway may bill something else.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

VENDOR = "vendor"
"""In place of a list: the list of whoever made the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a price is asked for: who was asked, and what models stand in request and answer."""

    origin: str
    provider: str
    path: str = ""
    request_model: str | None = None
    response_model: str | None = None

    @property
    def host(self) -> str:
        return urlsplit(self.origin).hostname or self.origin

    @property
    def model(self) -> str | None:
        return self.response_model or self.request_model


@dataclass(frozen=True, slots=True)
class Candidate:
    """One place where the price may stand."""

    list_id: str
    model: str
    own: bool
    """The list is what this host bills by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """An operator's own row of the table below (override file, `[[gateway]]`)."""

    host: str
    """A glob."""
    prices: str
    """A list's id, or `vendor`."""
    models: Mapping[str, str] = field(default_factory=dict)
    """The name on the wire -> the name in the list."""


HOSTS: tuple[tuple[str, str], ...] = (
    ("api.openai.com", "openai"),
    ("*.api.openai.com", "openai"),
    ("api.anthropic.com", "anthropic"),
    ("*.openai.azure.com", "azure"),
    ("*.cognitiveservices.azure.com", "azure"),
    ("*.services.ai.azure.com", "azure"),
    ("*.azure-api.net", "azure"),
    ("*.googleapis.com", "google"),
    ("bedrock-runtime*.amazonaws.com*", "aws"),
    ("bedrock-mantle.*.api.aws", "aws"),
    ("openrouter.ai", "openrouter"),
    ("*.openrouter.ai", "openrouter"),
    ("api.groq.com", "groq"),
    ("api.mistral.ai", "mistral"),
    ("api.x.ai", "x-ai"),
    ("*.api.x.ai", "x-ai"),
    ("api.deepseek.com", "deepseek"),
    ("api.cohere.com", "cohere"),
    ("api.cohere.ai", "cohere"),
    ("api.perplexity.ai", "perplexity"),
    ("api.together.xyz", "together"),
    ("api.together.ai", "together"),
    ("api.fireworks.ai", "fireworks"),
    ("api.cerebras.ai", "cerebras"),
    ("api.novita.ai", "novita"),
    ("api.avian.io", "avian"),
    ("api.arcee.ai", "arcee"),
    ("inference.baseten.co", "baseten"),
    ("api.doubleword.ai", "doubleword"),
    ("api.githubcopilot.com", "github-copilot"),
    ("*.githubcopilot.com", "github-copilot"),
    ("api.cloudflare.com", "cloudflare"),
    ("*.cloud.databricks.com", "databricks"),
    ("*.azuredatabricks.net", "databricks"),
    ("*.gcp.databricks.com", "databricks"),
    ("api.meta.ai", "meta"),
    ("api.minimax*.*", "minimax"),
    ("api.moonshot.*", "moonshotai"),
    ("oai.endpoints.kepler.ai.cloud.ovh.net", "ovhcloud"),
    ("api.voyageai.com", "voyageai"),
    ("api.z.ai", "zai"),
    ("open.bigmodel.cn", "zhipuai"),
    # What only LiteLLM's list speaks of.
    ("dashscope*.aliyuncs.com", "dashscope"),
    ("*.snowflakecomputing.com", "snowflake"),
    ("*.ml.cloud.ibm.com", "watsonx"),
    ("api.ai21.com", "ai21"),
    ("api.deepinfra.com", "deepinfra"),
    ("api.sambanova.ai", "sambanova"),
    # Gateways whose own prices no list has.
    ("api.aivene.com", VENDOR),
    ("api.chuizi.ai", VENDOR),
    ("ai-gateway.vercel.sh", VENDOR),
    ("api.portkey.ai", VENDOR),
    ("gateway.pydantic.dev", VENDOR),
    ("gateway.ai.cloudflare.com", VENDOR),
    ("*.inference.heroku.com", VENDOR),
    ("router.requesty.ai", VENDOR),
    ("api.venice.ai", VENDOR),
)
"""Host glob -> list, first match wins; the operator's own rows come before."""

PROVIDERS: Mapping[str, str] = {
    "aivene": VENDOR,
    "chuizi": VENDOR,
    "opentoken": VENDOR,
    "sansa": VENDOR,
    "azure.ai.openai": "azure",
    "azure.ai.inference": "azure",
    "aws.bedrock": "aws",
    "gcp.gemini": "google",
    "gcp.vertex_ai": "google",
    "mistral_ai": "mistral",
    "x_ai": "x-ai",
}
"""What the ledger calls a provider -> list, for a host that is not in the table; a provider that
is not in this table either is taken for a list's id."""

VENDORS: Mapping[str, str] = {
    "openai": "openai",
    "azure": "openai",
    "anthropic": "anthropic",
    "google": "google",
    "gemini": "google",
    "vertex": "google",
    "x-ai": "x-ai",
    "xai": "x-ai",
    "mistralai": "mistral",
    "mistral": "mistral",
    "deepseek": "deepseek",
    "deepseek-ai": "deepseek",
    "moonshotai": "moonshotai",
    "moonshot": "moonshotai",
    "z-ai": "zai",
    "zai": "zai",
    "zai-org": "zai",
    "minimax": "minimax",
    "minimaxai": "minimax",
    "cohere": "cohere",
    "perplexity": "perplexity",
    "arcee-ai": "arcee",
    "voyage": "voyageai",
    "voyageai": "voyageai",
}
"""The `vendor/` before a model's name -> the vendor's own list."""

CLOSED_MODELS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), list_id)
    for pattern, list_id in (
        (
            r"(ft:)?(gpt-(?!oss)|chatgpt-|o\d(-|$)|codex-|davinci-|babbage-|text-embedding-)",
            "openai",
        ),
        (r"(dall-e-|whisper-1|tts-1|sora-)", "openai"),
        (r"claude-", "anthropic"),
        (r"gemini-", "google"),
        (r"grok-", "x-ai"),
    )
)
"""Models that only their vendor makes, by their bare name: whoever serves one buys it there."""

OPEN_MODELS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), list_id)
    for pattern, list_id in (
        (r"deepseek-", "deepseek"),
        (r"(kimi-|moonshot-)", "moonshotai"),
        (r"glm-", "zai"),
        (r"(mistral-|ministral-|magistral-|codestral|devstral-|pixtral-|voxtral-)", "mistral"),
        (r"minimax-", "minimax"),
        (r"(command-|c4ai-|embed-|rerank-)", "cohere"),
        (r"sonar", "perplexity"),
    )
)
"""Models that others may host as well: their vendor's list is asked for a known gateway only,
never for a host that may be running them on hardware of its own."""

ROUTING_SUFFIXES = frozenset({"nitro", "floor", "online", "exacto", "extended"})
"""What may stand after a model's name to choose a route (OpenRouter); the list has the model."""


def candidates(question: Question, gateways: tuple[Gateway, ...] = ()) -> Iterator[Candidate]:
    """Where to look, best first. Nothing for a host and a model that no list speaks of."""
    host = question.host
    for gateway in gateways:
        if fnmatchcase(host, gateway.host.lower()):
            yield from _listed(question, gateway.prices, gateway.models)
            return
    list_id = _list_of_host(question, host)
    if list_id is not None:
        yield from _listed(question, list_id, {})
        return
    list_id = PROVIDERS.get(question.provider, question.provider)
    for name in _names(question, list_id):
        if list_id != VENDOR:
            yield Candidate(list_id, name, own=False)
        yield from _of_vendor(name, is_gateway=list_id == VENDOR)


def _listed(question: Question, list_id: str, models: Mapping[str, str]) -> Iterator[Candidate]:
    for name in _names(question, list_id):
        listed = models.get(name, name)
        if list_id == VENDOR:
            yield from _of_vendor(listed, is_gateway=True)
        else:
            yield Candidate(list_id, listed, own=True)


def _list_of_host(question: Question, host: str) -> str | None:
    if host == "router.huggingface.co":
        return _huggingface_list(question)
    for pattern, list_id in HOSTS:
        if fnmatchcase(host, pattern):
            return list_id
    return None


def _huggingface_list(question: Question) -> str:
    """The router bills what the chosen provider takes: `/groq/openai/v1/…`, or `/v1/…` and a
    model named `org/name:groq`. Which one it chose itself it does not say."""
    first = question.path.lstrip("/").partition("/")[0]
    _, _, suffix = (question.request_model or "").partition(":")
    return f"huggingface_{suffix if first == 'v1' else first}"


def _names(question: Question, list_id: str) -> Iterator[str]:
    """The model's name as a list may spell it.

    Bedrock bills the model or inference profile that was asked for, while an answer passed on
    from the model itself names it without the region that decides the price.
    """
    models = [question.response_model, question.request_model]
    if list_id == "aws":
        models.reverse()
    else:
        models = [question.model]
    for model in models:
        if model:
            # publishers/google/models/…, models/…, accounts/fireworks/models/…
            name = model.rpartition("models/")[2]
            yield name
            bare, separator, suffix = name.rpartition(":")
            if separator and (suffix in ROUTING_SUFFIXES or list_id.startswith("huggingface_")):
                yield bare


def _of_vendor(model: str, *, is_gateway: bool) -> Iterator[Candidate]:
    """The list of whoever made the model, by its prefix or its name."""
    vendor, separator, bare = model.rpartition("/")
    vendor = vendor.rpartition("/")[2]
    name = bare.lower()
    families = CLOSED_MODELS + OPEN_MODELS if is_gateway else CLOSED_MODELS
    by_name = next((list_id for pattern, list_id in families if pattern.match(name)), None)
    if separator and (is_gateway or by_name) and vendor.lower() in VENDORS:
        yield Candidate(VENDORS[vendor.lower()], bare, own=False)
    elif by_name is not None:
        yield Candidate(by_name, bare, own=False)
