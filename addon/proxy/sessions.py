"""Edge. One open WebSocket: the rows of its responses, and what the caps say of them."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from mitmproxy import websocket

from addon.metering.messages import End
from addon.metering.session import MeteredSession
from addon.metering.settlement import Settled
from addon.proxy.authorising import OpenSocket
from addon.proxy.live import Clock, Live
from addon.recordings.capture import CaptureFiles
from ledger.model.exchange import Exchange
from ledger.store.writing.incoming import Receipt
from ledger.store.writing.writer import Ledger


class LiveSession(MeteredSession):
    """An open WebSocket that passes mitmproxy."""

    __slots__ = ("_clock", "_ledger", "_live", "caps", "is_over", "messages_under_way")

    def __init__(self, live: Live, *, ledger: Ledger, caps: OpenSocket) -> None:
        super().__init__(live)
        self._live = live
        self._clock = live.clock
        """Of the responses that are open; while none is, each message begins a new one."""
        self._ledger = ledger
        self.caps = caps
        self.messages_under_way = 0
        """Those that are read, or wait for the commit of the response that they end."""
        self.is_over = False

    @property
    def is_busy(self) -> bool:
        """Whether something is under way. Without an open response nothing is."""
        return self.is_open or self.messages_under_way > 0

    def receive(self, message: websocket.WebSocketMessage) -> list[Receipt]:
        """Read one message of either side; the receipts of the responses that it ends."""
        if not self._open:
            self._clock = Clock(time.time(), time.monotonic())
        at = self._instant(message.timestamp)
        if self._live.capture is not None:
            self._live.capture.add_message(
                message.content, from_client=message.from_client, is_text=message.is_text, at=at
            )
        return self._write(self.message(message.content, from_client=message.from_client, at=at))

    def close(self, how: End, stated: float | None, captures: CaptureFiles | None) -> None:
        """Settle the open responses, and write the capture. `stated`: when mitmproxy saw the end,
        in seconds since the epoch; None: it did not."""
        self.is_over = True
        at = self._instant(stated)
        self._write(self.end(how, at=at))
        self.caps.close()
        if captures is not None and self._live.capture is not None:
            self._live.write_capture(captures, end=how, cause=None, at=at)

    def _instant(self, stated: float | None) -> datetime:
        """Now, as the open responses count it; of a saved flow, what it states."""
        if self._live.is_recorded and stated is not None:
            return datetime.fromtimestamp(stated, UTC)
        return self._clock.now()

    def _write(self, exchanges: list[Exchange | Settled]) -> list[Receipt]:
        receipts = []
        for each in exchanges:
            if isinstance(each, Settled):
                remarks = self.caps.settled(*each)
                receipts.append(self._ledger.settle(*each.remarked(remarks)))
            else:
                self._ledger.open(self.caps.opened(each))
        return receipts
