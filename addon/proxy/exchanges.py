"""Edge. Begins the exchange of a flow, and settles it with its row in the ledger; the same for the
responses of a WebSocket.

A step that fails leaves the flow as it is and notes the reason on the row (`Troubles.attempt`).
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from mitmproxy import http, websocket
from msgspec.structs import replace

from addon.metering.exchange import MeteredExchange, Readable
from addon.metering.opening import open_exchange
from addon.metering.requests.messages import End, Request
from addon.metering.session import MeteredSession
from addon.metering.settlement import Settled, result_unread
from addon.metering.troubles import Troubles
from addon.proxy import capturing, flows, opt_in
from addon.proxy.display import exchange_log
from addon.proxy.options import Log
from addon.proxy.running import Live, Phase, Running, Session
from addon.recordings.metered import without_upstream_bytes
from ledger.model.exchange import Exchange, Source
from ledger.store.writing.jobs import Receipt
from ledger.store.writing.writer import Ledger

logger = logging.getLogger(__name__)

KEY_LENGTH_MAX = 80
"""Characters of an unknown usage key that are logged."""
UNKNOWN_KEYS_MAX = 1_000
"""Unknown usage keys that are logged in one run."""


def begin(
    running: Running,
    flow: http.HTTPFlow,
    request: Request,
    troubles: Troubles,
    readable: Readable | None = None,
) -> None:
    """Open the exchange of a request, if it may be an LLM call, and ask for its usage.

    `readable`: the request's body, shortened, if that took several turns of the event loop.
    """
    exchange = troubles.attempt(_open, running, flow, request, troubles, readable)
    if exchange is None:
        return
    live = running.live[flow.id] = Live(flow=flow, exchange=exchange)
    if exchange.is_handshake or not exchange.is_confirmed:
        return  # its answer may confirm it, which opens its row then
    troubles.attempt(opt_in.ask, running, live)
    troubles.attempt(running.ledger.open, exchange.opened)


def read_rest(exchange: MeteredExchange) -> Generator[None]:
    """Read the rest of a long answer, with a pause after each piece."""
    while exchange.tap is not None and exchange.tap.read_some():
        yield


def settle(running: Running, live: Live, end: End, cause: str | None) -> Receipt | None:
    """Settle an exchange and hand it to the ledger; its receipt, None if it gets no row or is
    settled already."""
    if live.phase is Phase.COMMITTING:
        return None
    live.phase = Phase.COMMITTING
    attempt = live.exchange.troubles.attempt
    outcome = attempt(_settled, running, live, end, cause) or attempt(_unread, live, end)
    if running.notes is not None:
        attempt(running.notes.settled, live.flow)
    if outcome is None or not outcome.has_row:
        attempt(capturing.discard, live)
        return None
    attempt(_tell, running, live, outcome.settled)
    receipt = attempt(running.ledger.settle, *outcome.settled)
    if receipt is None and (outcome := attempt(_unread, live, end)):  # with other values
        receipt = attempt(running.ledger.settle, *outcome.settled)
    return receipt


class _Outcome(NamedTuple):
    settled: Settled
    has_row: bool
    """False: the exchange is no LLM call, or its result is booked already."""


def _settled(running: Running, live: Live, end: End, cause: str | None) -> _Outcome:
    exchange = live.exchange

    def has_row(settled: Settled) -> bool:
        if exchange.route.is_fetch and not running.is_new_result(settled.exchange):
            return False
        return exchange.is_confirmed

    def finish(settled: Settled) -> Settled:
        if not has_row(settled):
            return settled
        exchange.troubles.attempt(opt_in.learn, running, live, settled)
        if exchange.is_recorded and flows.is_of_har(live.flow):
            return Settled(without_upstream_bytes(settled.exchange), settled.reading)
        return capturing.finish(running, live, settled, end, cause)

    settled = exchange.settle(
        end,
        cause=cause,
        now=flows.now(),
        times=flows.times_of(live.flow) if exchange.is_recorded else None,
        finish=finish,
    )
    return _Outcome(settled, has_row(settled))


def _unread(live: Live, end: End) -> _Outcome:
    """Where `_settled` failed: with the least that can fail."""
    exchange = live.exchange
    settled = result_unread(exchange.opened, end=end, status=exchange.status, now=flows.now())
    row = replace(settled.exchange, degraded=exchange.troubles.text)
    return _Outcome(Settled(row, settled.reading), exchange.is_confirmed)


def _tell(running: Running, live: Live, settled: Settled) -> None:
    """Remember and log an exchange that gets a row."""
    if settled.reading.usage_json is not None:
        running.remember_booked(settled.exchange)
    _log_unknown_keys(running, live.exchange)
    if running.settings.log is Log.EXCHANGES:
        logger.info("tokentee: %s", exchange_log.line_of(settled, running.price))


def end_session(running: Running, session: Session, how: End, at: datetime) -> None:
    """Settle the open responses of a WebSocket that has ended, and write its capture."""
    attempt = session.metered.handshake.troubles.attempt
    attempt(lambda: _write(running.ledger, session.metered.end(how, at=at)))
    attempt(capturing.finish_session, running, session, how, at)


def read_message(
    ledger: Ledger, session: MeteredSession, message: websocket.WebSocketMessage, short: bytes
) -> list[Receipt]:
    """Read one message of either side of a WebSocket, which was made `short`; the receipts of the
    responses that it ends."""
    at = datetime.fromtimestamp(message.timestamp, UTC)
    exchanges = session.message(
        message.content, from_client=message.from_client, at=at, short=short
    )
    return _write(ledger, exchanges)


def _write(ledger: Ledger, exchanges: Iterable[Exchange | Settled]) -> list[Receipt]:
    receipts = []
    for each in exchanges:
        if isinstance(each, Settled):
            receipts.append(ledger.settle(each.exchange, each.reading))
        else:
            ledger.open(each)
    return receipts


def _open(
    running: Running,
    flow: http.HTTPFlow,
    request: Request,
    troubles: Troubles,
    readable: Readable | None,
) -> MeteredExchange | None:
    if not flow.live:
        flows.take_own_headers(flow.request.headers)
    return open_exchange(
        request,
        running.rules,
        exchange_id=flows.exchange_id_of(flow, request),
        source=Source.LIVE if flow.live else Source.REPLAY,
        troubles=troubles,
        readable=readable,
    )


def _log_unknown_keys(running: Running, exchange: MeteredExchange) -> None:
    """Log each unknown usage key once; the row keeps it verbatim."""
    if exchange.tap is None:
        return
    for key in exchange.tap.meter.unknown_keys:
        if key not in running.unknown_keys and len(running.unknown_keys) < UNKNOWN_KEYS_MAX:
            running.unknown_keys.add(key)
            logger.debug("tokentee: a usage key not known before: %r", key[:KEY_LENGTH_MAX])
