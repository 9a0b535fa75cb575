"""Pure. What a request body says that the ledger keeps: never a prompt."""

from dataclasses import dataclass

from addon.dialects import json_door
from addon.dialects.counts import lookup
from addon.dialects.dialect import Asking
from addon.dialects.facts import clean
from addon.dialects.routes import Route


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFacts:
    """None: the request does not say."""

    model: str | None = None
    streamed: bool = False
    usage_asked: bool | None = None
    """The client's own `include_usage`."""
    end_user: str | None = None
    session_id: str | None = None
    service_tier: str | None = None
    """The tier asked for; what was served is the response's to say (FIELD 33)."""
    estimated_input_tokens: int | None = None


def read_request(route: Route, body: bytes) -> RequestFacts:
    """Never raises: a body that cannot be read says nothing."""
    said = json_door.loads(body) or {}
    path_streamed = route.path_streamed
    asked = lookup(said, "stream_options.include_usage")
    return RequestFacts(
        model=_text(said.get("model")) or route.path_model,
        streamed=path_streamed if path_streamed is not None else said.get("stream") is True,
        usage_asked=asked
        if route.dialect.asking is Asking.STREAM_OPTIONS and isinstance(asked, bool)
        else None,
        end_user=_text(said.get("user")) or _text(lookup(said, "metadata.user_id")),
        session_id=_text(lookup(said, "metadata.session_id")),
        service_tier=_text(said.get("service_tier")),
    )


def _text(value: object) -> str | None:
    return clean(value, 256) if isinstance(value, str) and value else None
