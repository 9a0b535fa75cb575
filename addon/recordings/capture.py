"""Edge. Writing captures: whole exchanges, opt-in, credentials redacted.

One gzipped file of JSON lines for each hour and process, in the format that `tokentee replay`
reads: `{"name", "id", "started_at", "request": {method, url, headers, body_b64}, "response":
{status, headers, body_b64, encoded, chunks}}`. Bodies are as they were on the wire towards
upstream and from it; `chunks` are the lengths in which the answer came and the microseconds
between them. A line is written when its exchange ends, and is a gzip member of its own: what a
crash cuts short is at most the last one.
"""

from __future__ import annotations

import base64
import gzip
import re
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path

import orjson
from mitmproxy import http

CAPTURE_BYTES_MAX = 32 * 1024 * 1024
"""Of one answer: beyond, the capture is left out and the row says nothing of it. An answer is in
memory until its exchange ends, and this is what a proxy can spare for each."""

_CREDENTIALS = re.compile(
    r"auth|cookie|key|token|secret|credential|signature|session", re.IGNORECASE
)
"""Header names whose values are never written; too wide on purpose."""
_QUERY_CREDENTIALS = re.compile(
    r"([?&](?:[^=&]*(?:key|token|secret|signature|credential)[^=&]*)=)[^&]*", re.IGNORECASE
)
REDACTED = "<redacted>"


type StreamCallable = Callable[[bytes], bytes | list[bytes]]


class Capture:
    """What is kept of one exchange while it runs."""

    __slots__ = ("_bytes", "chunks", "overflowed", "started")

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.chunks: list[tuple[float, bytes]] = []
        self._bytes = 0
        self.overflowed = False

    def around(self, tap: StreamCallable) -> StreamCallable:
        """The tap's callable, with each chunk kept as upstream sent it."""

        def captured(data: bytes) -> bytes | list[bytes]:
            self.add(data)
            return tap(data)

        return captured

    def add(self, chunk: bytes) -> None:
        """A chunk of the answer, as upstream sent it."""
        if self.overflowed or not chunk:
            return
        self._bytes += len(chunk)
        if self._bytes > CAPTURE_BYTES_MAX:
            self.overflowed = True
            self.chunks.clear()
            return
        self.chunks.append((time.monotonic(), chunk))

    def line(self, flow: http.HTTPFlow, *, started_at: datetime) -> bytes:
        """The exchange as one JSON line: the request as it went upstream, the answer as it came."""
        body = b"".join(chunk for _, chunk in self.chunks)
        before = self.started
        cuts = []
        for at, chunk in self.chunks:
            cuts.append([len(chunk), round((at - before) * 1_000_000)])
            before = at
        value = {
            "name": flow.id,
            "id": flow.id,
            "started_at": started_at.isoformat(),
            "request": {
                "method": flow.request.method,
                "url": redact_url(flow.request.url),
                "headers": redact(flow.request.headers.items(multi=True)),
                "body_b64": base64.b64encode(flow.request.raw_content or b"").decode("ascii"),
            },
            "response": {
                "status": flow.response.status_code if flow.response else None,
                "headers": redact(flow.response.headers.items(multi=True)) if flow.response else {},
                "body_b64": base64.b64encode(body).decode("ascii"),
                "encoded": True,
                "chunks": cuts,
            },
        }
        return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)


def redact(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Headers without the values of any that may hold a credential."""
    return {name: REDACTED if _CREDENTIALS.search(name) else value for name, value in headers}


def redact_url(url: str) -> str:
    """A URL without keys in its query (Gemini's `?key=`, FIELD 45) and without a user in it."""
    return _QUERY_CREDENTIALS.sub(rf"\1{REDACTED}", re.sub(r"//[^/@]*@", "//", url))


def file_for(directory: Path, *, node: str, now: datetime) -> Path:
    """This hour's file of this process."""
    return directory / f"{now:%Y%m%dT%H}-{re.sub(r'[^A-Za-z0-9.-]', '-', node)}.jsonl.gz"


def append(path: Path, line: bytes) -> None:
    """Add a line to a capture file, made 0600 with its folder. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)
    with path.open("ab") as file:
        # Members one after the other are one gzip file, and each is whole on its own.
        file.write(gzip.compress(line, compresslevel=6))
