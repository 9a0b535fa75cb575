"""Edge (the clock). Captures: whole exchanges as lines, opt-in, credentials redacted.

While an exchange runs, its `Capture` buffers its bytes. When it ends, `CapturedExchange` holds them
as values, and `line_of` makes the line that `tokentee replay` reads (`formats.lines` has the
format). Bodies are as they were on the wire towards upstream and from it; `chunks` are the lengths
in which the answer came and the microseconds between them.
"""

from __future__ import annotations

import base64
import json
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import orjson

from addon.metering.memory_budget import CAPTURES_LEAVE_BYTES, MemoryBudget
from addon.metering.requests.messages import End
from addon.recordings.allow_list import redacted_headers, redacted_url
from addon.recordings.formats.recorded import Edit, Message

EXCHANGE_BYTES_MAX = 32 * 1024 * 1024
"""Of one exchange, request and answer together. A longer one is not captured, and its row states
this: an exchange is in memory until it ends, and a proxy can spare this much for one."""
CHUNK_BYTES = 16
"""What a chunk takes beside its bytes: its end and its time, 8 each."""
CHUNKS_MAX = 100_000
"""Of one exchange: later ones count as parts of the last one. To write a chunk takes ten times as
much memory as to keep it."""
MESSAGE_BYTES = 320
"""What Python needs for a message of a WebSocket beside its bytes."""


class Capture:
    """The buffered bytes of one running exchange.

    The bytes are in one buffer: an object for each chunk takes a hundred bytes, and upstream may
    send chunks of one.
    """

    __slots__ = (
        "_budget",
        "_ends",
        "_times",
        "body",
        "head",
        "messages",
        "overflow",
        "size",
        "started",
    )

    def __init__(self, budget: MemoryBudget, *, request_bytes: int = 0) -> None:
        self._budget = budget
        self.started = time.monotonic()
        self.body = bytearray()
        """The answer, as upstream sent it."""
        self._ends = array("q")
        self._times = array("d")
        self.head: tuple[int, Sequence[tuple[str, str]]] | None = None
        """Status and headers of the answer, as upstream sent them; None: none came."""
        self.messages: list[Message] | None = None
        """Messages of a WebSocket; None: not a WebSocket."""
        self.size = 0
        self.overflow: str | None = None
        """Why the capture was dropped; None: it was not."""
        self._count(request_bytes)

    def add(self, chunk: bytes) -> None:
        """Add a chunk of the answer, as upstream sent it."""
        if chunk and self._count(len(chunk) + CHUNK_BYTES):
            self.body += chunk
            if len(self._ends) < CHUNKS_MAX:
                self._ends.append(len(self.body))
                self._times.append(time.monotonic())
            else:
                self._ends[-1] = len(self.body)

    @property
    def cuts(self) -> list[list[int]]:
        """The bytes of each chunk of the answer, and the microseconds since the one before."""
        before, start, cuts = self.started, 0, []
        for end, at in zip(self._ends, self._times, strict=True):
            cuts.append([end - start, max(0, round((at - before) * 1_000_000))])
            before, start = at, end
        return cuts

    def add_message(
        self, content: bytes, *, from_client: bool, is_text: bool, at: datetime
    ) -> None:
        """Add a whole message of a WebSocket."""
        if self.messages is None:
            self.messages = []
        if self._count(len(content) + MESSAGE_BYTES):
            self.messages.append(
                Message(from_client=from_client, is_text=is_text, content=content, at=at)
            )

    def drop(self, why: str) -> None:
        """Drop the capture of this exchange, for this reason."""
        if self.overflow is None:
            self.overflow = why
            self.body.clear()
            del self._ends[:], self._times[:]
            if self.messages is not None:
                self.messages.clear()
            self._budget.give_back(self.size)
            self.size = 0

    def _count(self, size: int) -> bool:
        if self.overflow is not None:
            return False
        if self.size + size > EXCHANGE_BYTES_MAX:
            self.drop(f"not captured: larger than {EXCHANGE_BYTES_MAX >> 20} MiB")
        elif not self._budget.take(size, leaving=CAPTURES_LEAVE_BYTES):
            self.drop("not captured: all exchanges together keep as much in memory as they may")
        else:
            self.size += size
        return self.overflow is None


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedExchange:
    """A finished exchange, ready to be written. Nothing in it is redacted yet."""

    id: str
    started_at: datetime
    ended_at: datetime
    end: End
    cause: str | None
    usage_injected: bool
    method: str
    url: str
    request_headers: Sequence[tuple[str, str]]
    request_body: bytes
    """As it went upstream."""
    client_edit: Edit | None = None
    """What makes the client's own body of it; None: it is the client's."""
    status: int | None
    response_headers: Sequence[tuple[str, str]]
    capture: Capture


def line_of(exchange: CapturedExchange) -> bytes:
    """The exchange as one JSON line: the request as it went upstream, the answer as it came."""
    capture = exchange.capture
    edit = exchange.client_edit
    request: dict[str, object] = {
        "method": exchange.method,
        "url": redacted_url(exchange.url),
        "headers": redacted_headers(exchange.request_headers),
        "body_b64": _base64(exchange.request_body),
    }
    if edit is not None:
        request["client"] = [edit.start, edit.end, _base64(edit.between)]
    value: dict[str, object] = {
        "name": exchange.id,
        "id": exchange.id,
        "started_at": exchange.started_at.isoformat(),
        "ended_at": exchange.ended_at.isoformat(),
        "end": exchange.end.value,
        "cause": exchange.cause,
        "usage_injected": exchange.usage_injected,
        "request": request,
        "response": {
            "status": exchange.status,
            "headers": redacted_headers(exchange.response_headers),
            "body_b64": _base64(capture.body),
            "encoded": True,
            "chunks": capture.cuts,
        },
    }
    if capture.messages is not None:
        value["websocket"] = {
            "closed_by_client": exchange.end is End.CLIENT_LEFT,
            "messages": [_message(one, exchange.started_at) for one in capture.messages],
        }
    try:
        return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        # A lone surrogate: headers and URLs hold whatever bytes were sent.
        text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        return text + b"\n"


def _message(message: Message, started_at: datetime) -> list[object]:
    after = message.at - started_at
    return [
        "client" if message.from_client else "server",
        "text" if message.is_text else "binary",
        max(0, (after.days * 86_400 + after.seconds) * 1_000_000 + after.microseconds),
        _base64(message.content),
    ]


def _base64(data: bytes | bytearray) -> str:
    return base64.b64encode(data).decode("ascii")
