"""Edge. Writes the responses in WebSocket messages of mitmproxy's flows into the ledger."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from mitmproxy import http, websocket

from addon.metering.requests.messages import End
from addon.metering.session import MeteredSession
from addon.metering.settlement import Settled
from ledger.model.exchange import Exchange
from ledger.store.writing.jobs import Receipt
from ledger.store.writing.writer import Ledger


def read_message(
    ledger: Ledger, session: MeteredSession, message: websocket.WebSocketMessage, short: bytes
) -> list[Receipt]:
    """Read one message of either side, which was made `short`; the receipts of the responses that
    it ends."""
    at = datetime.fromtimestamp(message.timestamp, UTC)
    exchanges = session.message(
        message.content, from_client=message.from_client, at=at, short=short
    )
    return _write(ledger, exchanges)


def end_session(ledger: Ledger, session: MeteredSession, how: End, at: datetime) -> list[Receipt]:
    """End a session; the receipts of the responses that end with it."""
    return _write(ledger, session.end(how, at=at))


def drop_read_messages(flow: http.HTTPFlow) -> None:
    """Delete all messages but the last. mitmproxy keeps every message until the connection ends
    (#6620), which is hours of audio; addons behind this one still find the last."""
    if flow.websocket is not None:
        del flow.websocket.messages[:-1]


def _write(ledger: Ledger, exchanges: Iterable[Exchange | Settled]) -> list[Receipt]:
    receipts = []
    for each in exchanges:
        if isinstance(each, Settled):
            receipts.append(ledger.settle(each.exchange, each.reading))
        else:
            ledger.open(each)
    return receipts
