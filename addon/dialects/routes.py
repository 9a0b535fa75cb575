"""Pure. Path -> dialect: the table that a new wire format is a row in.

A path decides by how it ends, so any prefix before it works: `/openai/deployments/x/…`,
`/gemini/v1beta/…`, `/anthropic/v1/messages`, `/api/v1/…` (DESIGN §4). `dialect` says who writes
how, `provider` (providers) who answers; one host may speak several dialects (Chuizi AI: three).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote

from addon.dialects import unknown
from addon.dialects.dialect import Dialect
from addon.dialects.google import generate_content as gemini
from addon.dialects.google import interactions as gemini_interactions
from addon.dialects.openai import chat as openai_chat
from addon.dialects.openai import endpoints as openai_other
from addon.dialects.openai import realtime as openai_realtime
from addon.dialects.openai import responses as openai_responses
from addon.dialects.vendors import anthropic, bedrock, cohere, ollama, replicate
from ledger.model.providers import provider_of

__all__ = ["DIALECTS", "ROWS", "UNKNOWN", "Route", "Row", "match", "match_websocket", "provider_of"]


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


class Row(NamedTuple):
    path: str
    """How the path ends, as a regular expression; a group `model` names the model."""
    dialect: Dialect
    streamed: bool | None = None
    methods: tuple[str, ...] = ("POST",)


_MODEL = r"/(?P<model>.+)"
"""With slashes: `vendor/model` (Chuizi AI), ARNs (Bedrock)."""
ROWS = (
    Row(r"/chat/completions", openai_chat.CHAT),
    Row(r"/agents/completions", openai_chat.CHAT),  # Mistral
    Row(r"api\.writer\.com(?::\d+)?/v1/chat", openai_chat.CHAT),
    Row(r"/completions", openai_chat.COMPLETIONS),
    Row(r"/responses(?:/compact)?", openai_responses.RESPONSES),
    # A response in the background brings its usage when it is fetched.
    Row(r"/responses/resp_[^/]+", openai_responses.RESPONSES, methods=("GET",)),
    Row(r"/threads/[^/]+/runs(?:/[^/]+/submit_tool_outputs)?", openai_other.RUNS),
    Row(r"/threads/runs", openai_other.RUNS),
    Row(r"/images/(?:generations|edits|variations)", openai_other.IMAGES),
    Row(r"/audio/(?:transcriptions|translations|speech)", openai_other.AUDIO),
    Row(r"/moderations", openai_other.MODERATIONS),
    Row(r"(?<!/threads)/v1/messages", anthropic.MESSAGES),
    Row(rf"/publishers/anthropic/models{_MODEL}:rawPredict", anthropic.MESSAGES, False),
    Row(rf"/publishers/anthropic/models{_MODEL}:streamRawPredict", anthropic.MESSAGES, True),
    # Mistral and others on Vertex, in OpenAI's words.
    Row(rf"/publishers/[^/]+/models{_MODEL}:rawPredict", openai_chat.CHAT, False),
    Row(rf"/publishers/[^/]+/models{_MODEL}:streamRawPredict", openai_chat.CHAT, True),
    Row(rf"/(?:models|tunedModels){_MODEL}[:/]generateContent", gemini.GENERATE_CONTENT, False),
    # Chuizi AI writes the method as a path segment of its own.
    Row(
        rf"/(?:models|tunedModels){_MODEL}[:/]streamGenerateContent", gemini.GENERATE_CONTENT, True
    ),
    Row(r"/v1internal:generateContent", gemini.GENERATE_CONTENT, False),  # Code Assist
    Row(r"/v1internal:streamGenerateContent", gemini.GENERATE_CONTENT, True),
    Row(
        rf"/models{_MODEL}:(?:embedContent|batchEmbedContents|embedText|predict)",
        gemini.EMBEDDINGS,
        False,
    ),
    Row(r"/interactions", gemini_interactions.INTERACTIONS),
    Row(r"cohere\.(?:com|ai)(?::\d+)?/v[12]/chat", cohere.CHAT),
    Row(r"/v2/chat", cohere.CHAT),
    Row(r"/v1/generate", cohere.GENERATE),
    Row(r"/v[12]/embed", cohere.EMBED),
    Row(r"cohere\.(?:com|ai)(?::\d+)?/v[12]/rerank", cohere.RERANK),
    Row(r"/v2/rerank", cohere.RERANK),
    Row(r"/rerank", openai_other.RERANK),
    Row(r"/api/chat", ollama.CHAT),
    Row(r"/api/generate", ollama.GENERATE),
    Row(r"/api/embed(?:dings)?", ollama.EMBED),
    Row(r"/embeddings", openai_other.EMBEDDINGS),
    Row(rf"/model{_MODEL}/converse", bedrock.CONVERSE, False),
    Row(rf"/model{_MODEL}/converse-stream", bedrock.CONVERSE, True),
    Row(rf"/model{_MODEL}/invoke", bedrock.INVOKE, False),
    Row(rf"/model{_MODEL}/invoke-with-response-stream", bedrock.INVOKE, True),
    Row(r"/v1(?:/models/[^/]+/[^/]+|/deployments/[^/]+/[^/]+)?/predictions", replicate.PREDICTIONS),
)
"""The first row that fits the end of host and path decides."""
WEBSOCKET_ROWS = (
    Row(r"/realtime", openai_realtime.REALTIME, True),
    Row(r"/responses", openai_responses.RESPONSES, True),
)

DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect
    for dialect in (*(row.dialect for row in (*ROWS, *WEBSOCKET_ROWS)), unknown.UNKNOWN)
}
_DEPLOYMENT = re.compile(r"/deployments/(?P<model>[^/]+)/")


def _compiled(rows: Iterable[Row]) -> tuple[tuple[re.Pattern[str], Row], ...]:
    return tuple((re.compile(f"(?:{row.path})/?$"), row) for row in rows)


_COMPILED = _compiled(ROWS)
_WEBSOCKETS = _compiled(WEBSOCKET_ROWS)


def match(method: str, host: str, path: str) -> Route | None:
    """The route of a request; None for what is no LLM call. `path` has no query."""
    return _match(_COMPILED, method, host, path)


def match_websocket(path: str) -> Route | None:
    """The route of a WebSocket session; None for what is no LLM session."""
    return _match(_WEBSOCKETS, "POST", "", path)


def _match(
    rows: tuple[tuple[re.Pattern[str], Row], ...], method: str, host: str, path: str
) -> Route | None:
    for pattern, row in rows:
        if method not in row.methods:
            continue
        found = pattern.search(host + path)
        if found is None:
            continue
        named = found if "model" in pattern.groupindex else _DEPLOYMENT.search(path)
        return Route(
            dialect=row.dialect,
            path_model=unquote(named["model"]) if named is not None else None,
            path_streamed=row.streamed,
        )
    return None
