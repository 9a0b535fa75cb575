"""Edge. A request that goes upstream -> a live exchange."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from mitmproxy import http

from addon.dialects import routes
from addon.dialects.request import RequestFacts, read_request
from addon.metering import attribution
from addon.proxy import options
from addon.proxy.live import Live, attempt, plain
from addon.proxy.options import Settings
from ledger.model.records import Exchange, Source

PATH_LENGTH_MAX = 512
HEADER_LENGTH_MAX = 256


def open_exchange(
    settings: Settings,
    secret: bytes,
    flow: http.HTTPFlow,
    troubles: list[str],
    *,
    node: str,
    is_llm: bool = False,
) -> Live | None:
    """The exchange of a request to an LLM; None for any other traffic. `secret` is the ledger's.

    A request whose path says nothing is one if its host was configured, or if the caller knows
    (`is_llm`); it is then recorded under dialect `unknown`.

    Takes our own headers out of every request: they are for us, not for upstream. What cannot be
    read is left out and noted in `troubles`.
    """
    request = flow.request
    headers = plain(request.headers)
    session = headers.get(attribution.SESSION_HEADER)
    header_tags: list[str] = []
    if attribution.TAG_HEADER in headers:
        header_tags = request.headers.get_all(attribution.TAG_HEADER)
        del request.headers[attribution.TAG_HEADER]
    if session is not None:
        del request.headers[attribution.SESSION_HEADER]
    path = request.path.split("?", 1)[0]
    upstream = settings.upstream(request.host, request.port)
    is_handshake = headers.get("upgrade", "").lower() == "websocket"
    if is_handshake:
        route = routes.match_websocket(path)
        if route is None:
            return None
    else:
        route = routes.match(request.method, request.host, path)
    if route is None:
        if request.method != "POST" or (upstream is None and not is_llm):
            return None
        route = routes.UNKNOWN
    body = attempt(troubles, request.get_content) or b""
    facts = attempt(troubles, read_request, route, body) or RequestFacts()
    fingerprint, hint = attempt(troubles, _key_of, secret, request, headers) or (None, None)
    own_tags = attempt(troubles, options.parse_tags_leniently, header_tags) or {}
    session_id = session[:HEADER_LENGTH_MAX] if session else facts.session_id
    provider = upstream.provider if upstream is not None else None
    opened = Exchange(
        id=flow.id,
        origin=f"{request.scheme}://{request.host}:{request.port}",
        provider=provider or routes.provider_of(request.host, path),
        dialect=route.dialect.name,
        operation=route.dialect.operation,
        path=path[:PATH_LENGTH_MAX],
        # The flow's own time, saved with it: a saved flow is read back onto its own row.
        opened_at=datetime.fromtimestamp(request.timestamp_start, UTC),
        request_model=facts.model,
        streamed=facts.streamed,
        request_bytes=len(request.raw_content or b""),
        usage_asked=facts.usage_asked,
        key_fingerprint=fingerprint,
        key_hint=hint,
        user_agent=headers.get("user-agent", "")[:HEADER_LENGTH_MAX] or None,
        end_user=facts.end_user,
        session_id=session_id,
        tags={**settings.tags, **own_tags},
        source=Source.LIVE if flow.live else Source.REPLAY,
        node=node,
    )
    return Live(
        flow=flow,
        opened=opened,
        route=route,
        request=facts,
        is_handshake=is_handshake,
        troubles=troubles,
    )


def _key_of(
    secret: bytes, request: http.Request, headers: Mapping[str, str]
) -> tuple[str | None, str | None]:
    """Fingerprint and hint of the API key that a request carries."""
    key = attribution.api_key_of(headers, request.path)
    return attribution.fingerprint_of(key, secret) if key else (None, None)
