"""Pure. Reads the facts of a request body that the ledger keeps: never a prompt."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from addon.dialects import shapes
from addon.dialects.counts import lookup
from addon.dialects.dialect import Asking, Dialect
from addon.dialects.facts import clean
from addon.dialects.routes import Route
from addon.framing import json_values
from addon.framing.large_json import shortened

_FORM_FIELD = re.compile(
    rb'name="(model|stream|user)"(?:\r\n[^\r\n]{1,200})*\r\n\r\n([^\r\n]{1,256})\r\n'
)
"""A short field of a multipart form (audio, image edits); the file beside it is not read."""
_FORM_BYTES_LOOKED_AT = 64 * 1024
"""Bytes read from either end of a form: the fields are before or after the file."""
PARSED_BYTES_MAX = 1024 * 1024
"""A longer body (pictures, documents) is shortened first: a parser would need thirty times its
size in memory for the worst of them."""
TOKENS_MAX = 40_000
"""Brackets and keys to scan in a body that is shortened, 100 ms at worst, with pauses in live
traffic; a body with more is not read."""
_CLAUDE_CODE_USER = re.compile(r"(user_.+?)(?:_account_)?_session_([0-9a-f-]{36})")
"""Claude Code's format of `metadata.user_id`: the account and the session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFacts:
    """None: the request has no such field."""

    model: str | None = None
    streamed: bool = False
    usage_asked: bool | None = None
    """The client's own `include_usage`."""
    end_user: str | None = None
    session_id: str | None = None
    service_tier: str | None = None
    """The requested tier; the response reports the served one."""
    units: Mapping[str, int] = field(default_factory=dict)
    """The request's billable units, used if the answer reports no usage: `input_characters` of
    speech."""
    is_confirmed: bool = False
    """The body has the shape of a request in the route's dialect."""


def read_request(
    route: Route, body: bytes, headers: Mapping[str, str] = MappingProxyType({})
) -> RequestFacts:
    """Read the facts of a request. Never raises: an unreadable body has no facts.

    `headers` are by lower-case name.
    """
    if is_shortened(body):
        body = shortened(body, tokens_max=TOKENS_MAX)
    said = _form(body) if body.startswith(b"--") else json_values.loads(body) or {}
    dialect = route.dialect
    streamed = route.path_streamed
    if streamed is None:
        streamed = _asks_for_stream(said, dialect)
    asked = lookup(said, "stream_options.include_usage")
    asks = dialect.asking is Asking.STREAM_OPTIONS
    user, session = _whose(said)
    return RequestFacts(
        model=_model(said) or _text(headers.get(dialect.model_header)) or route.path_model,
        streamed=streamed,
        usage_asked=asked if asks and isinstance(asked, bool) else None,
        end_user=user,
        session_id=session,
        service_tier=_text(said.get("service_tier")),
        units=_units(dialect, said),
        is_confirmed=shapes.fits(dialect.request_shapes, said),
    )


def is_shortened(body: bytes) -> bool:
    """Whether a decoded body is shortened before it is parsed."""
    return len(body) > PARSED_BYTES_MAX and not body.startswith(b"--")


_MODEL_PATHS = ("model", "model_id", "modelUri", "Model", "servingMode.modelId")
"""Where requests name their model; the others are watsonx, Yandex, Tencent and Oracle."""


def _model(said: dict[str, Any]) -> str | None:
    return next((name for path in _MODEL_PATHS if (name := _text(lookup(said, path)))), None)


def _asks_for_stream(said: dict[str, Any], dialect: Dialect) -> bool:
    """Whether a request asks for a stream, in the spellings in use: OpenAI's, Tencent's, Dify's,
    Yandex', Oracle's."""
    if said.get("stream", dialect.streams_unless_told) is True or said.get("Stream") is True:
        return True
    return (
        said.get("response_mode") == "streaming"
        or lookup(said, "completionOptions.stream") is True
        or lookup(said, "chatRequest.isStream") is True
    )


def _units(dialect: Dialect, said: dict[str, Any]) -> dict[str, int]:
    """Count input characters for speech, which is billed by them: its answer is sound alone."""
    spoken = said.get("input")
    if dialect.operation == "text_to_speech" and isinstance(spoken, str) and spoken:
        return {"input_characters": len(spoken)}
    return {}


def _whose(said: dict[str, Any]) -> tuple[str | None, str | None]:
    """The end user and the session that a client names, from the fields in use.

    OpenAI `user`, later `safety_identifier`; Anthropic `metadata.user_id`. The session is from the
    metadata of any client, or from Codex' cache key, which identifies its conversation.
    """
    user = _text(said.get("user")) or _text(said.get("safety_identifier"))
    session = _text(lookup(said, "metadata.session_id")) or _text(said.get("session_id"))
    named = _text(lookup(said, "metadata.user_id"))
    if named is not None:
        inside = json_values.loads(named.encode()) if named.startswith("{") else None
        claude_code = _CLAUDE_CODE_USER.fullmatch(named)
        if inside is not None:
            named = _text(inside.get("account_uuid")) or _text(inside.get("device_id"))
            session = session or _text(inside.get("session_id"))
        elif claude_code is not None:
            named = claude_code[1]
            session = session or claude_code[2]
    return user or named, session or _text(said.get("prompt_cache_key"))


def _form(body: bytes) -> dict[str, Any]:
    """The short fields of a multipart form, as JSON would have them."""
    if len(body) > 2 * _FORM_BYTES_LOOKED_AT:
        body = body[:_FORM_BYTES_LOOKED_AT] + body[-_FORM_BYTES_LOOKED_AT:]
    fields: dict[str, Any] = {
        name.decode(): value.decode("utf-8", "replace") for name, value in _FORM_FIELD.findall(body)
    }
    if "stream" in fields:
        fields["stream"] = fields["stream"].lower() == "true"
    return fields


def _text(value: object) -> str | None:
    return clean(value, 256) if isinstance(value, str) and value else None
