"""Edge (clock, thread, files). Captures: whole exchanges as lines, opt-in, credentials redacted.

While an exchange runs, its `Capture` buffers its bytes. When it ends, `CapturedExchange` holds them
as values, and `line_of` makes the line that `tokentee replay` reads (`formats.lines` has the
format). Bodies are as they were on the wire towards upstream and from it; `chunks` are the lengths
in which the answer came and the microseconds between them.

`CaptureFiles` writes them off the event loop: one gzipped file of JSON lines for each hour and
process. Each line is a gzip member of its own, so a crash costs the last one at most. Redacting,
encoding and compressing happen on the thread. Files are made 0600 and folders 0700.

A capture that cannot be written is dropped, counted and logged once a minute. It is not set aside
in a file, since nothing in it is redacted yet. From then on each row states in `degraded` that
captures fail, until a line is written again: the row of an exchange goes to the ledger before its
capture is written. The thread is supervised like those of the ledger.
"""

from __future__ import annotations

import base64
import gzip
import json
import logging
import os
import re
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import SimpleQueue

import orjson

from addon.metering.memory_budget import CAPTURES_LEAVE_BYTES, MemoryBudget
from addon.metering.messages import End
from addon.recordings.allow_list import redacted_headers, redacted_url
from addon.recordings.echoes import Echoes
from addon.recordings.formats.recorded import Message, RequestEdit
from ledger.store.processes.supervision import (
    SupervisedThread,
    ThreadHealth,
    ThrottledLog,
    log_into,
)

logger = logging.getLogger(__name__)

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
WAITING_MAX = 10_000
"""Exchanges in the queue; the budget of all exchanges bounds their bytes."""
_COMPRESS_LEVEL = 4
"""For a stream of small events, the output of level 4 is 2 % larger than that of 6 and takes half
the time."""
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9.-]")


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
    client_edit: RequestEdit | None = None
    """What makes the client's own body of it; None: it is the client's."""
    status: int | None
    response_headers: Sequence[tuple[str, str]]
    capture: Capture


def line_of(exchange: CapturedExchange) -> bytes:
    """The exchange as one JSON line: the request as it went upstream, the answer as it came, but
    for credentials in it. Raises OSError if it is too large to mask them."""
    capture = exchange.capture
    edit = exchange.client_edit
    echoes = Echoes(exchange.request_headers, exchange.url)
    request: dict[str, object] = {
        "method": exchange.method,
        "url": echoes.masked_text(redacted_url(exchange.url)),
        "headers": redacted_headers(echoes.masked_fields(exchange.request_headers)),
        "body_b64": _base64(exchange.request_body),
    }
    if edit is not None:
        request["client"] = [edit.start, edit.end, _base64(edit.between)]
    echoes.found = False  # up to here in the request
    headers = echoes.masked_fields(exchange.response_headers)
    body: bytes | bytearray = capture.body
    decoded = None
    if echoes.secrets:
        encoding = ", ".join(one for name, one in headers if name.lower() == "content-encoding")
        if encoding:
            decoded = echoes.decoded(capture.body, encoding, bytes_max=EXCHANGE_BYTES_MAX)
        body = echoes.masked(body if decoded is None else decoded)
    messages = [
        (one, one.content if one.from_client else echoes.masked(one.content))
        for one in capture.messages or ()
    ]
    value: dict[str, object] = {
        "name": exchange.id,
        "id": exchange.id,
        "started_at": exchange.started_at.isoformat(),
        "ended_at": exchange.ended_at.isoformat(),
        "end": exchange.end.value,
        "cause": exchange.cause and echoes.masked_text(exchange.cause),
        "usage_injected": exchange.usage_injected,
        "request": request,
        "response": {
            "status": exchange.status,
            "headers": redacted_headers(headers),
            "body_b64": _base64(body),
            "encoded": decoded is None,
            "chunks": capture.cuts,
        },
    }
    if echoes.found:
        value["masked"] = True
    if capture.messages is not None:
        microsecond = timedelta(microseconds=1)
        value["websocket"] = {
            "closed_by_client": exchange.end is End.CLIENT_LEFT,
            "messages": [
                [
                    "client" if one.from_client else "server",
                    "text" if one.is_text else "binary",
                    max(0, (one.at - exchange.started_at) // microsecond),
                    _base64(content),
                ]
                for one, content in messages
            ],
        }
    try:
        return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        # A lone surrogate: headers and URLs hold whatever bytes were sent.
        text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        return text + b"\n"


def _base64(data: bytes | bytearray) -> str:
    return base64.b64encode(data).decode("ascii")


class CaptureFiles:
    """The folder of captures, and the thread that writes them."""

    def __init__(
        self,
        folder: Path,
        *,
        node: str,
        budget: MemoryBudget,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`budget`: the memory bound of all exchanges together."""
        self.folder = folder
        self.budget = budget
        self.dropped = 0
        """Exchanges that were not written."""
        self.failure: str | None = None
        """Why the last one was not written; None: it was written."""
        self._node = node
        self._now = now
        self._queue: SimpleQueue[tuple[CapturedExchange, Path] | None] = SimpleQueue()
        self._log = ThrottledLog(log_into(logger))
        self._thread: SupervisedThread | None = None

    def begin(self, *, request_bytes: int = 0) -> Capture:
        """A capture for an exchange that begins."""
        return Capture(self.budget, request_bytes=request_bytes)

    def write(self, exchange: CapturedExchange) -> Path:
        """Queue a finished exchange; returns the file that it goes to. Raises OSError if it is
        refused."""
        if self._queue.qsize() >= WAITING_MAX:
            self.budget.give_back(exchange.capture.size)
            self.dropped += 1
            raise OSError(f"{WAITING_MAX} captures wait to be written")
        path = file_for(self.folder, node=self._node, now=self._now())
        self._queue.put((exchange, path))
        if self._thread is None or not self._thread.is_running:
            # With the first exchange, and with the first one after `close`.
            self._thread = SupervisedThread("capture writer", self._run, log=log_into(logger))
            self._thread.start()
        return path

    def close(self, seconds: float) -> None:
        """Write the queued captures, within the timeout, and stop."""
        if self._thread is not None:
            self._queue.put(None)
            if not self._thread.join(seconds):
                logger.warning("tokentee: %d captures were not written", self._queue.qsize())

    def health(self) -> ThreadHealth | None:
        """The state of the thread; None: there was nothing to write yet."""
        if self._thread is None:
            return None
        found = self._thread.health()
        return replace(found, set_aside=self.dropped, error=found.error or self.failure)

    def problems(self) -> tuple[str, ...]:
        """One line per problem; empty: there is none."""
        health = self.health()
        stopped = health is not None and not health.is_working
        found = [f"the {health.name} does not work: {health.error}"] if health and stopped else []
        if self.dropped:
            found.append(f"{self.dropped} captures were not written")
        return tuple(found)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            exchange, path = item
            try:
                append(path, line_of(exchange))
                self.failure = None
            except Exception as error:  # noqa: BLE001  # one exchange must not end the thread
                self.dropped += 1
                known = (error.strerror or str(error)) if isinstance(error, OSError) else None
                self.failure = f"captures cannot be written: {known or type(error).__name__}"
                count = f"{self.dropped} dropped so far"
                self._log("warning", f"{self.failure} ({self.folder}); {count}")
            finally:
                self.budget.release(exchange.capture.size)
            del item, exchange  # the thread may wait here for hours and must not hold a body


def file_for(folder: Path, *, node: str, now: datetime) -> Path:
    """This hour's file of this process."""
    return folder / f"{now:%Y%m%dT%H}-{_NOT_IN_A_NAME.sub('-', node)}.jsonl.gz"


def append(path: Path, line: bytes) -> None:
    """Add a line to a capture file. Raises OSError."""
    make_folder(path.parent)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "ab") as file:
        # Concatenated gzip members form one gzip file, and each is complete by itself.
        file.write(gzip.compress(line, compresslevel=_COMPRESS_LEVEL))


def make_folder(folder: Path) -> None:
    """Create a folder that only its owner can enter, with its parents. Raises OSError."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
