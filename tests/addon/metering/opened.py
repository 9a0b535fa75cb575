"""Exchanges and sessions as their requests open them."""

from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from addon.framing.long_json import without_pauses
from addon.metering.exchange import Event, MeteredExchange, exchange_of
from addon.metering.messages import Body, Request, Response
from addon.metering.opening import RunRules
from addon.metering.session import MeteredSession
from addon.metering.tap import Tap
from ledger.model.exchange import Billing, Exchange, Source

BODY = b'{"model":"gpt-4o","stream":true,"messages":[{"role":"user","content":"hi"}]}'
REQUEST = Request(
    method="POST",
    scheme="https",
    host="api.openai.com",
    port=443,
    path="/v1/chat/completions?x=1",
    headers={"authorization": "Bearer sk-0123456789abcdef", "user-agent": "test/1"},
    body=Body(BODY),
    began_at=datetime(2026, 11, 20, tzinfo=UTC),
)
STREAM = (
    b'data: {"id":"c1","model":"m","choices":[{"delta":{"content":"hi"}}]}\n\n'
    b'data: {"id":"c1","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n'
    b"data: [DONE]\n\n"
)
RULES = RunRules(node="here", secret=b"secret", tags={"team": "search"})


def failing_rule(_: Exchange) -> Billing:
    """A rule of the operator with a fault."""
    raise ZeroDivisionError


def maybe_opened(
    request: Request = REQUEST,
    rules: RunRules = RULES,
    *,
    source: Source = Source.LIVE,
    **more: Any,
) -> MeteredExchange | None:
    """None: it is no exchange."""
    exchange = exchange_of(request, rules, exchange_id="e", source=source, **more)
    if exchange is not None:
        without_pauses(exchange.read_request(request))
        exchange.moves(Event.SENT)
    return exchange


def opened(request: Request = REQUEST, rules: RunRules = RULES, **more: Any) -> MeteredExchange:
    exchange = maybe_opened(request, rules, **more)
    assert exchange is not None
    return exchange


def tapped(
    exchange: MeteredExchange,
    body: bytes,
    kind: str = "application/json",
    status: int = 200,
    **more: Any,
) -> Tap:
    """The tap through which an answer has passed, at once."""
    headers = {"content-type": kind, **more.pop("headers", {})}
    given = {"edits": False, "clock": lambda: 0.0, **more}
    tap = exchange.answer(Response(status=status, headers=headers), **given)
    tap.callable(body)
    return tap


def session_of(
    request: Request, path: str = "/v1/responses", rules: RunRules = RULES, **more: Any
) -> MeteredSession:
    """The session of a handshake that upstream has accepted."""
    headers = {**request.headers, "upgrade": "websocket"}
    handshake = opened(replace(request, path=path, headers=headers), rules, **more)
    handshake.response = Response(status=101, headers={})
    return MeteredSession(handshake)
