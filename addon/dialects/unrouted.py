"""Pure. What passes at hosts that serve LLMs on paths without a route: the dialect of an answer of
an unknown format, and the list of what is no call.

The answer gets a row, so that it is not missed. A usage object in it is kept, and read if its keys
are those of a known family; other figures are not guessed.

What is no call stands in `NO_CALLS`, by the end of its path, in `NO_CALLS_AT`, by the first label
of its host, or is a request without a body whose answer is no stream: it fetches what is kept.
What is paid for and is no message of a model (training, a search) is not in the list.
"""

import re
from collections.abc import Mapping
from typing import Any

from addon.dialects.counts import object_at
from addon.dialects.dialect import Dialect, Mark, SessionProtocol
from addon.dialects.errors import record_error_in
from addon.dialects.facts import Ending, Facts
from addon.dialects.openai import chat as openai_chat
from addon.dialects.openai import responses as openai_responses
from addon.dialects.vendors import anthropic, bedrock, cohere, gemini
from ledger.model.usage import NO_USAGE

NO_CALLS: Mapping[str, tuple[str, ...]] = {
    "models, and counting of tokens": (
        *("/models", "/models/session", "/models/load", "/models/unload"),
        *("/models/download", "/messages/count_tokens", "/responses/input_tokens"),
        *(":countTokens", ":computeTokens", "/count-tokens", "/tokenize", "/detokenize"),
        *("/tokenize-text", "/apply-template", "/tokenizers/{}/{}", "/slots/{}", "/lora-adapters"),
        *("/load_lora_adapter", "/unload_lora_adapter", "/api/show", "/api/pull", "/api/push"),
        *("/api/create", "/api/copy", "/api/delete", "/api/blobs/{}", "/api/me"),
    ),
    "files, and what the provider keeps": (
        *("/files", "/files/{}", "/files/{}/{}", "/files:register", "/uploads", "/uploads/{}"),
        *("/uploads/{}/{}", ":uploadToFileSearchStore", "/containers", "/containers/{}"),
        *("/containers/{}/files", "/skills", "/skills/{}", "/skills/{}/versions"),
        *("/vector_stores", "/vector_stores/{}", "/vector_stores/{}/files"),
        *("/vector_stores/{}/files/{}", "/vector_stores/{}/file_batches"),
        *("/vector_stores/{}/file_batches/{}", "/vector_stores/{}/file_batches/{}/cancel"),
        *("/conversations", "/conversations/{}", "/conversations/{}/items"),
        *("/conversations/{}/items/{}", "/threads", "/threads/{}", "/threads/{}/messages"),
        *("/threads/{}/messages/{}", "/assistants", "/assistants/{}", "/chat/completions/{}"),
        *("/agents", "/environments", "/environments/{}", "/libraries", "/libraries/{}/{}"),
    ),
    "orders whose result has its own row, and their ends": (
        *("/batches", "/batches/{}/cancel", "/batches/{}:cancel", "/batch/jobs"),
        *("/batch/jobs/{}/cancel", ":batchGenerateContent", ":asyncBatchEmbedContent"),
        *(":predictLongRunning", "/videos", "/videos/{}/remix", "/video/generations/jobs"),
        *("/async-invoke", "/video-synthesis", "/image-synthesis", "/completionAsync"),
        *("/responses/{}/cancel", "/threads/{}/runs/{}", "/threads/{}/runs/{}/cancel"),
        *("/predictions/{}/cancel", "/tasks/{}/cancel", "/operations/{}:cancel"),
    ),
    "keys, tokens, and accounts": (
        *("/token", "/oauth/revoke", "/issueToken", "/client_secrets", "/realtime/sessions"),
        *("/realtime/transcription_sessions", "/chatkit/sessions", "/auth_tokens", "/authTokens"),
        *("/device/code", "/deviceauth/{}", "/v1internal:loadCodeAssist", ":onboardUser"),
        *("/v1internal:retrieveUserQuota", ":fetchAdminControls", ":listExperiments"),
        *(":setCodeAssistGlobalUserSetting", "/organization/{}", "/organization/{}/{}"),
        *("/organizations/{}", "/organizations/{}/{}", "/mcp", "/mcp/{}"),
    ),
    "the same over gRPC (xai-sdk)": (
        *("/xai_api.Auth/{}", "/xai_api.Files/{}", "/xai_api.Models/{}", "/xai_api.Tokenize/{}"),
        *("/xai_api.BatchMgmt/{}", "/collections.Collections/{}"),
        *("/xai_api.Chat/StartDeferredCompletion", "/xai_api.Chat/DeleteStoredCompletion"),
        *("/xai_api.Chat/GetStoredCompletion", ".v1.TokenizerService/{}"),
    ),
    "telemetry": (
        *("/event_logging/batch", "/event_logging/{}/batch", "/claude_code/metrics", "/feedback"),
        *("/claude_cli_feedback", "/traces/ingest", "/v1/traces", "/v1/logs", "/v1/metrics"),
        *("/telemetry", "/analytics-events/{}", "/rgstr", "/log_event", "/ces/{}", "/ces/{}/{}"),
        *(":recordCodeAssistMetrics", ":recordClientMetrics", "/metrics"),
    ),
}
"""Ends of paths by what they are for; `{}` is one segment."""
NO_CALLS_AT = frozenset(
    ("auth", "cdn", "community", "developers", "docs", "help", "statsig", "status", "www")
)
"""First labels of hosts below the domain of a provider that are sites, not interfaces."""

_ENDS = (
    "[^/]+".join(map(re.escape, path.split("{}"))) for ends in NO_CALLS.values() for path in ends
)
_NO_CALL = re.compile(rf"(?:{'|'.join(_ENDS)})/?$")
_FAMILIES: tuple[tuple[frozenset[str], Dialect], ...] = (
    (frozenset(("prompt_tokens", "completion_tokens")), openai_chat.CHAT),
    (frozenset(("promptTokenCount", "candidatesTokenCount")), gemini.GENERATE_CONTENT),
    (frozenset(("cache_read_input_tokens", "cache_creation_input_tokens")), anthropic.MESSAGES),
    (frozenset(("input_tokens", "output_tokens")), openai_responses.RESPONSES),
    (frozenset(("inputTokens", "outputTokens")), bedrock.CONVERSE),
    (frozenset(("billed_units", "tokens")), cohere.CHAT),
)
"""Keys of which a usage object has one -> whose it is; the first that fits."""
_USAGE_KEYS = ("usage", "usageMetadata")
_HOLDERS = ("response", "message", "payload", "data", "result", "output")
"""Members of an event that may have them: Responses, Messages, DashScope over a WebSocket, and what
gateways put around an answer."""


def is_no_call(host: str, path: str, *, is_listed: bool) -> bool:
    """Whether a request without a route is no call. `is_listed`: the table of providers names the
    host, not the operator."""
    if is_listed and host.partition(".")[0] in NO_CALLS_AT:
        return True
    return _NO_CALL.search(path.partition("#")[0]) is not None


def family_of(usage: Mapping[str, Any]) -> Dialect | None:
    """The dialect whose usage object this is, by its keys; None: of none that is known."""
    for keys, dialect in _FAMILIES:
        if not keys.isdisjoint(usage):
            return dialect
    return None


def read_unknown(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read a likely error, id, model or usage.

    A `status` beside `object` is the state of an object (files are `processed`, batches
    `validating`), not a finish reason. Figures of one stream are merged by key, as Anthropic's are.
    """
    facts.token_seen = True
    held = (inner for key in _HOLDERS if (inner := object_at(body, key)) is not None)
    for holder in (body, *held):
        facts.record_id(holder.get("id"))
        facts.record_model(holder.get("model") or holder.get("modelVersion"))
        for key in _USAGE_KEYS:
            usage = object_at(holder, key)
            if usage:
                before = facts.usage
                if before is not None and not before.keys().isdisjoint(usage):
                    usage = before | {key: each for key, each in usage.items() if each is not None}
                facts.record_usage(usage, final=facts.is_document)
    if "object" not in body:
        facts.record_finish(body.get("status"))
    record_error_in(facts, event, body)


UNKNOWN = Dialect(
    name="unknown",
    operation="unknown",
    read=read_unknown,
    usage_of=lambda _usage, _facts: NO_USAGE,
    marks=(
        Mark(b'"error"', (b'"error":null', b'"error": null')),
        Mark(b'"usage"', (b'"usage":null', b'"usage": null')),
        Mark(b'"usageMetadata"', latest=True),
    ),
    ending=Ending.CLOSE,
    session=SessionProtocol.CONNECTION,
    family=family_of,
)
"""An answer of a format that no route names."""
