"""Pure. Reads the facts of a request body that the ledger keeps: never a prompt."""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field

from addon.dialects import shapes
from addon.dialects.counts import lookup
from addon.dialects.dialect import Asking, Dialect
from addon.dialects.facts import BILLING_HEADERS, UNREAD, text_of, token_of
from addon.dialects.routes import Route
from addon.framing import json_values, long_json
from ledger.model.usage import SERVICE_TIER, billing_value, count_of

_FORM_NAMES = {b'name="model"': "model", b'name="stream"': "stream", b'name="user"': "user"}
"""Short fields of a multipart form (audio, image edits); the file beside them is not read."""
FORM_HEAD_BYTES_MAX = 1_024
FORM_VALUE_BYTES_MAX = 256
"""Of one field: its headers, and its value."""
FORM_BYTES_READ_MAX = 64 * 1024
"""Bytes read from either end of a form: the fields are before or after the file."""
PARSED_BYTES_MAX = 1024 * 1024
"""Of a longer body (pictures, documents) only the members are read that say something here: a
parser would need thirty times its size in memory for the worst of them."""
RANKED_AT_ONCE = 100
"""Records of one billed query of Google's ranking."""
_CLAUDE_CODE_SESSION = 36
"""Characters of a session in Claude Code's `metadata.user_id`, `user_X_account_Y_session_Z` or
`user_X_account__session_Z`: a UUID."""


class RequestFacts(Struct, frozen=True, kw_only=True):
    """None: the request has no such field."""

    model: str | None = None
    streamed: bool = False
    usage_asked: bool | None = None
    """The client's own `include_usage`."""
    end_user: str | None = None
    session_id: str | None = None
    billing: Mapping[str, str] = field(default_factory=dict)
    """What prices depend on: the service tier and the billing fields. They count if the answer
    reports none."""
    units: Mapping[str, int] = field(default_factory=dict)
    """The request's billable units, used if the answer reports no usage: `input_characters` of
    speech, `search_units` of Google's ranking."""
    prompts: int = 1
    """Of a list of them (Completions)."""
    choices: int = 1
    """The answers to each prompt that are asked for."""
    is_confirmed: bool = False
    """The body has the shape of a request in the route's dialect."""


def read_request(
    route: Route,
    body: bytes,
    headers: Mapping[str, str] = MappingProxyType({}),
    parsed: dict[str, Any] | None = None,
    secrets: tuple[str, ...] = (),
) -> RequestFacts:
    """Read the facts of a request. Never raises: an unreadable body has no facts.

    `body` is decoded. `headers` are by lower-case name. `parsed`: the body as orjson reads it, if
    the caller has that already. What contains one of the `secrets`, the request's credentials, is
    left out.
    """
    values = parsed
    if values is None:
        if body.startswith(b"--"):
            values = _form(body)
        elif len(body) > PARSED_BYTES_MAX:
            values = long_json.read(body, _KEYS)[0] or {}
        else:
            values = json_values.loads(body) or {}
    dialect = route.dialect
    streamed = route.path_streamed
    if streamed is None:
        streamed = values.get("stream", dialect.streams_unless_told) is True
        streamed = streamed or values.get("response_mode") == "streaming"  # Dify
        streamed = streamed or any(lookup(values, path) is True for path in _STREAM_PATHS)
    asked = None
    if "stream_options" in values and dialect.asking is Asking.STREAM_OPTIONS:
        asked = lookup(values, "stream_options.include_usage")
    named = values.get("model")
    if not isinstance(named, str) or not named:
        named = next(filter(None, (text_of(lookup(values, path)) for path in _MODEL_PATHS)), None)
    model = named or headers.get(dialect.model_header) or route.path_model
    user, session = _identity_in(values)
    prompt, choices = values.get("prompt"), count_of(values.get("n", values.get("n_cmpl")))
    # A list with a number is one prompt, of tokens.
    prompts = 1
    if isinstance(prompt, list) and prompt and not any(type(one) is int for one in prompt):
        prompts = len(prompt)
    return RequestFacts(
        model=text_of(model, secrets),
        streamed=streamed,
        usage_asked=asked if isinstance(asked, bool) else None,
        end_user=text_of(user, secrets) if user else None,
        session_id=text_of(session, secrets) if session else None,
        billing=_billing(values, headers),
        units=_units(dialect, values),
        prompts=prompts,
        choices=choices or 1,
        is_confirmed=shapes.fits(dialect.request_shapes, values),
    )


_STREAM_PATHS = ("Stream", "completionOptions.stream", "chatRequest.isStream")
"""Where requests of Tencent, Yandex and Oracle ask for a stream."""
_MODEL_PATHS = ("model_id", "modelUri", "Model", "servingMode.modelId")
"""Where requests of watsonx, Yandex, Tencent and Oracle name their model."""
_BILLING_PATHS = {
    SERVICE_TIER: ("service_tier.type", "service_tier", "serviceTier.type", "serviceTier"),
    # https://platform.claude.com/docs/en/manage-claude/data-residency, …/about-claude/pricing
    "inference_geo": ("inference_geo",),
    "speed": ("speed",),
    # https://docs.perplexity.ai/getting-started/pricing
    "search_context_size": ("web_search_options.search_context_size",),
    "search_type": ("web_search_options.search_type",),
    "disable_search": ("disable_search",),
    # https://docs.aws.amazon.com/bedrock/latest/userguide/latency-optimized-inference.html
    "latency_mode": ("performanceConfig.latency",),
    # https://docs.mistral.ai/inference/pricing: annotated pages have a price of their own
    "annotation_format": ("document_annotation_format", "bbox_annotation_format"),
}
"""Where requests say what prices depend on."""
_KEYS = frozenset(
    key
    for path in (
        *("model", "stream", "response_mode", "stream_options.include_usage"),
        *("input", "text", "prompt", "n", "n_cmpl"),
        *("user", "safety_identifier", "metadata.session_id", "metadata.user_id"),
        *("session_id", "prompt_cache_key", "previous_response_id", "messages", "contents"),
        *("max_tokens", "role", "anthropic_version", "parts", "content", "type", "instances"),
        *("inputs", "query", "records", *_STREAM_PATHS, *_MODEL_PATHS),
        *(path for paths in _BILLING_PATHS.values() for path in paths),
    )
    for key in path.split(".")
)
"""What is read of a long request."""
_BILLING_KEYS = frozenset(
    path.partition(".")[0] for each in _BILLING_PATHS.values() for path in each
)


def _billing(values: dict[str, Any], headers: Mapping[str, str]) -> dict[str, str]:
    """The service tier and the billing fields. A number is none: speech has a speed, too."""
    found = {field: headers[name] for name, field in BILLING_HEADERS.items() if name in headers}
    if _BILLING_KEYS.isdisjoint(values):  # as in nearly all requests
        return found
    for name, paths in _BILLING_PATHS.items():
        for path in paths:
            value = lookup(values, path)
            if isinstance(value, dict):
                value = value.get("type", UNREAD)
            if value not in (None, "") and type(value) not in (int, float):
                found[name] = token_of(billing_value(value)) or UNREAD
                break
    return found


def _units(dialect: Dialect, values: dict[str, Any]) -> dict[str, int]:
    """Count what is billed and stands in the request alone: the characters of speech, and Google's
    ranking queries, each of up to 100 records
    (https://cloud.google.com/generative-ai-app-builder/pricing)."""
    if dialect.operation == "rerank" and isinstance(records := values.get("records"), list):
        return {"search_units": max(1, math.ceil(len(records) / RANKED_AT_ONCE))}
    if dialect.operation != "text_to_speech":
        return {}
    spoken = values.get("input") or values.get("text")  # xAI
    if isinstance(spoken, str) and spoken:
        return {"input_characters": len(spoken)}
    return {}


def _identity_in(values: dict[str, Any]) -> tuple[object, object]:
    """The end user and the session that a client names, from the fields in use.

    OpenAI `user`, later `safety_identifier`; Anthropic `metadata.user_id`. The session is from the
    metadata of any client, or from Codex' cache key, which identifies its conversation.
    """
    user = values.get("user") or values.get("safety_identifier")
    metadata = values.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    session = metadata.get("session_id") or values.get("session_id")
    named = metadata.get("user_id")
    if isinstance(named, str) and named:
        inside = json_values.loads(named.encode()) if named.startswith("{") else None
        account, claude_code, its_session = named.rpartition("_session_")
        if inside is not None:
            named = inside.get("account_uuid") or inside.get("device_id")
            session = session or inside.get("session_id")
        elif claude_code and named.startswith("user_") and len(its_session) == _CLAUDE_CODE_SESSION:
            named = account.removesuffix("_account_")
            session = session or its_session
    return user or named, session or values.get("prompt_cache_key")


def _form(body: bytes) -> dict[str, Any]:
    """The short fields of a multipart form, as JSON would have them (RFC 7578). Linear: each part
    is cut out once."""
    if len(body) > 2 * FORM_BYTES_READ_MAX:
        body = body[:FORM_BYTES_READ_MAX] + body[-FORM_BYTES_READ_MAX:]
    boundary = body[: body.find(b"\r\n") + 2] or body
    fields: dict[str, Any] = {}
    for part in body.split(boundary):
        head, _, content = part[: FORM_HEAD_BYTES_MAX + FORM_VALUE_BYTES_MAX].partition(b"\r\n\r\n")
        value, line_end, _ = content.partition(b"\r\n")
        if value and line_end and len(value) <= FORM_VALUE_BYTES_MAX:
            for mark, name in _FORM_NAMES.items():
                if mark in head[:FORM_HEAD_BYTES_MAX]:
                    fields[name] = value.decode("utf-8", "replace")
    if "stream" in fields:
        fields["stream"] = fields["stream"].lower() == "true"
    return fields
