"""Pure. Path -> dialect, host -> provider: the two tables a new provider is a row in.

A path decides by how it ends, so any prefix before it works: `/openai/deployments/x/…`,
`/gemini/v1beta/…`, `/anthropic/v1/messages`, `/api/v1/…` (DESIGN §4). `dialect` says who writes
how, `provider` who answers; one host may speak several dialects (Chuizi AI: three).
"""

import re
from dataclasses import dataclass
from urllib.parse import unquote

from addon.dialects import anthropic, gemini, openai_chat, unknown
from addon.dialects.dialect import Dialect

DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect
    for dialect in (
        openai_chat.CHAT,
        openai_chat.COMPLETIONS,
        anthropic.MESSAGES,
        gemini.GENERATE_CONTENT,
        unknown.UNKNOWN,
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What a request's path alone says."""

    dialect: Dialect
    path_model: str | None = None
    """The model or deployment named in the path (Gemini, Bedrock, Azure)."""
    path_streamed: bool | None = None
    """Whether the path asks for a stream; None where the body says it."""


UNKNOWN = Route(dialect=unknown.UNKNOWN)
"""For a configured host whose path says nothing."""


def _rows(
    *rows: tuple[str, Dialect, bool | None],
) -> list[tuple[re.Pattern[str], Dialect, bool | None]]:
    return [(re.compile(f"(?:{path})/?$"), dialect, streamed) for path, dialect, streamed in rows]


_PATHS = _rows(
    (r"/chat/completions", openai_chat.CHAT, None),
    (r"/completions", openai_chat.COMPLETIONS, None),
    (r"(?<!/threads)/v1/messages", anthropic.MESSAGES, None),
    (r"/models/(?P<model>[^/]+):generateContent", gemini.GENERATE_CONTENT, False),
    (r"/models/(?P<model>[^/]+):streamGenerateContent", gemini.GENERATE_CONTENT, True),
)
_DEPLOYMENT = re.compile(r"/deployments/(?P<model>[^/]+)/")


def match(method: str, host: str, path: str) -> Route | None:  # noqa: ARG001  # rows by host come
    """The route of a request; None for what is no LLM call. `path` has no query."""
    if method != "POST":
        return None
    for pattern, dialect, streamed in _PATHS:
        found = pattern.search(path)
        if found is None:
            continue
        named = found if "model" in pattern.groupindex else _DEPLOYMENT.search(path)
        model = unquote(named["model"]) if named is not None else None
        return Route(dialect=dialect, path_model=model, path_streamed=streamed)
    return None


_PROVIDERS = {
    "api.openai.com": "openai",
    "openai.azure.com": "azure.ai.openai",
    "cognitiveservices.azure.com": "azure.ai.openai",
    "services.ai.azure.com": "azure.ai.inference",
    "inference.ai.azure.com": "azure.ai.inference",
    "amazonaws.com": "aws.bedrock",
    "api.aws": "aws.bedrock",
    "api.anthropic.com": "anthropic",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "aiplatform.googleapis.com": "gcp.vertex_ai",
    "firebasevertexai.googleapis.com": "gcp.vertex_ai",
    "api.cohere.com": "cohere",
    "api.cohere.ai": "cohere",
    "api.mistral.ai": "mistral_ai",
    "api.deepseek.com": "deepseek",
    "api.groq.com": "groq",
    "api.x.ai": "x_ai",
    "api.perplexity.ai": "perplexity",
    "openrouter.ai": "openrouter",
    "api.aivene.com": "aivene",
    "api.chuizi.ai": "chuizi",
}
"""Host suffix -> provider; OpenTelemetry's `gen_ai.provider.name` where it has one
(https://opentelemetry.io/docs/specs/semconv/registry/attributes/gen-ai/)."""


def provider_of(host: str, path: str) -> str:
    """Who answers at a host; the host itself if it is not in the table."""
    host = host.lower().rstrip(".")
    if host.endswith("services.ai.azure.com") and "/openai/" in path:
        return "azure.ai.openai"  # one resource answers for both, by path
    suffix = host
    while suffix:
        provider = _PROVIDERS.get(suffix)
        if provider is not None:
            return provider
        suffix = suffix.partition(".")[2]
    return host
