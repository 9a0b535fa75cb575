"""Edge. WebSocket sessions (OpenAI Responses and Realtime): one exchange per response.

The handshake is an exchange like any other if it is refused. Once it is accepted it stands for
nothing billable, and each response of the session becomes an exchange of its own, attributed as
the handshake was: id `<flow id>/<number>`, opened when it was asked for or began.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

from mitmproxy import http, websocket

from addon.metering.settlement import NOTHING_PASSED, End, settle
from addon.metering.websocket import Closed, Happening, Opened, WebSocketSession
from addon.proxy.live import Live, Running, Session
from ledger.store.writing.writer import Receipt


def begin(live: Live) -> Session:
    """The session that an accepted handshake begins."""
    query = parse_qs(urlsplit(live.flow.request.path).query)
    model = live.opened.request_model or next(iter(query.get("model", [])), None)
    wire = WebSocketSession(live.route, provider=live.opened.provider, model=model)
    return Session(handshake=live, wire=wire)


def take(running: Running, session: Session, message: websocket.WebSocketMessage) -> list[Receipt]:
    """Read one message of either side; the receipts of the responses that it ends."""
    if message.from_client:
        happenings: Iterable[Happening] = session.wire.client_message(message.content)
    else:
        happenings = session.wire.server_message(message.content)
    at = datetime.fromtimestamp(message.timestamp, UTC)
    return _apply(running, session, happenings, End.FINISHED, at)


def end(running: Running, session: Session, how: End, at: datetime) -> list[Receipt]:
    """The connection is over: what was under way ends with it."""
    return _apply(running, session, session.wire.end(), how, at)


def let_go_of_messages(flow: http.HTTPFlow) -> None:
    """mitmproxy keeps every message until the connection ends (#6620), which is hours of audio;
    addons behind this one still find the last."""
    if flow.websocket is not None:
        del flow.websocket.messages[:-1]


def _apply(
    running: Running, session: Session, happenings: Iterable[Happening], how: End, at: datetime
) -> list[Receipt]:
    receipts = []
    for happening in happenings:
        match happening:
            case Opened(key=key, request=request):
                opened = replace(
                    session.handshake.opened,
                    id=f"{session.handshake.opened.id}/{key}",
                    opened_at=at,
                    request_model=request.model or session.handshake.opened.request_model,
                    streamed=True,
                    end_user=request.end_user or session.handshake.opened.end_user,
                    session_id=session.handshake.opened.session_id or request.session_id,
                )
                session.open[key] = opened
                running.ledger.open(opened)
            case Closed(key=key, meter=meter):
                exchange, reading = settle(
                    session.open.pop(key),
                    end=how,
                    status=session.handshake.status,
                    meter=meter,
                    passed=NOTHING_PASSED,
                    estimate_input=lambda: None,
                    cause=None,
                    now=at,
                )
                receipts.append(running.ledger.settle(exchange, reading))
    return receipts
