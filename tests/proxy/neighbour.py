"""A neighbour who sends small LLM requests through a proxy, one after the other.

It and its upstream are one process with one thread, so that neither waits for the attack's client or
upstream. What counts is how long a request and its answer are on their way through the proxy: from
the moment at which the neighbour sends one to the moment at which the proxy has passed it on, and the
same for the answer. `scripts/turns.py` tells the second moments, so a neighbour that gets no processor
takes nothing for the proxy's doing. What lies between is counted as `own_time` says.
"""

import contextlib
import json
import os
import selectors
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tests.proxy.own_time import Moment, Reader, own_ms

NETWORK = "127.1."
"""Both of its ends are bound to addresses in it, which is how the proxy knows them. Each request has
an address of its own, because a port may come back within a second."""
UPSTREAM = NETWORK + "255.1"
PAUSE_SECONDS = 0.004
REQUESTS_AFTER_MIN = 5
"""So many it sends when it is told to stop, and so meets what goes on behind an attack's end."""
SECONDS_MAX = 120
"""Bound on an answer."""
READING_NS_MAX = 1_000_000
"""Ten times what reading the counters takes."""
TARGET = "/v1/chat/completions"
REQUEST = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
ANSWER = (
    b'{"id":"chatcmpl-1","object":"chat.completion","model":"m","choices":[{"index":0,'
    b'"message":{"content":"ok"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}'
)


@dataclass(frozen=True, kw_only=True)
class Passed:
    """One request that went through a proxy, as its client and its upstream saw it."""

    sent: Moment
    """Before the neighbour sent the request, and the upstream its answer: the proxy's counters."""
    answered: Moment
    up: str
    """The connection on which the proxy passed the request on: its own port, and the peer."""
    down: str
    """The same for the answer."""

    def wait_ms(self, writes: dict[str, Moment]) -> float:
        """Of both ways through the proxy."""
        return own_ms(self.sent, writes[self.up]) + own_ms(self.answered, writes[self.down])


@dataclass(frozen=True, kw_only=True)
class Report:
    passed: list[Passed]
    failure: str | None


class Neighbour:
    """Drives the process; between `begin` and `end` it sends requests."""

    def __enter__(self) -> "Neighbour":
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.url = f"http://{UPSTREAM}:{int(self._line())}"
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        self._process.communicate()  # it ends with its input

    def begin(self, pid: int, address: tuple[str, int]) -> None:
        """Send requests through the proxy of this process id, which listens there."""
        self._tell(f"{pid} {address[0]} {address[1]}")

    def end(self) -> Report:
        self._tell("")
        value = json.loads(self._line())
        passed = [
            Passed(sent=Moment(*sent), answered=Moment(*answered), up=up, down=down)
            for sent, answered, up, down in value.pop("passed")
        ]
        return Report(passed=passed, **value)

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


def connection_name(proxy: tuple[str, int], neighbour: tuple[str, int]) -> str:
    return f"{proxy[1]}>{neighbour[0]}:{neighbour[1]}"


def main() -> None:
    """The process: a line names a proxy, an empty one asks for what was seen since then."""
    with socket.create_server((UPSTREAM, 0), backlog=64) as listening:
        listening.settimeout(SECONDS_MAX)
        print(listening.getsockname()[1], flush=True)
        while line := _unbuffered_line():
            pid, host, port = line.split()
            print(json.dumps(_report(listening, Reader(int(pid)), (host, int(port)))), flush=True)


def _unbuffered_line() -> str:
    """Nothing is read ahead: the selector must see the next line."""
    return b"".join(iter(lambda: os.read(0, 1).strip(b"\n"), b"")).decode()


def _report(
    listening: socket.socket, reader: Reader, address: tuple[str, int]
) -> dict[str, object]:
    passed: list[tuple[Moment, Moment, str, str]] = []
    failure = None
    left = REQUESTS_AFTER_MIN
    with selectors.DefaultSelector() as told, contextlib.closing(reader):
        told.register(sys.stdin, selectors.EVENT_READ)
        while left and failure is None:
            left -= bool(told.select(PAUSE_SECONDS))
            try:
                passed.append(_request(len(passed), listening, reader, address))
            except (OSError, AssertionError) as error:
                failure = repr(error)
    _unbuffered_line()
    return {"passed": passed, "failure": failure}


def _request(
    number: int, listening: socket.socket, reader: Reader, address: tuple[str, int]
) -> tuple[Moment, Moment, str, str]:
    """A request, its answer, and the proxy's counters before each of them."""
    length = b"content-type: application/json\r\ncontent-length: %d\r\n\r\n"
    head = b"POST %s HTTP/1.1\r\nhost: x\r\nconnection: close\r\n" % TARGET.encode()
    source = f"{NETWORK}{number // 250}.{number % 250 + 1}"
    with socket.create_connection(address, SECONDS_MAX, source_address=(source, 0)) as client:
        sent = _sent(client, reader, head + length % len(REQUEST) + REQUEST)
        down = connection_name(client.getpeername(), client.getsockname())
        upstream, _ = listening.accept()
        with upstream:
            upstream.settimeout(SECONDS_MAX)
            assert _body(upstream) == REQUEST, "another request"
            up = connection_name(upstream.getpeername(), upstream.getsockname())
            line = b"HTTP/1.1 200 OK\r\n"
            answered = _sent(upstream, reader, line + length % len(ANSWER) + ANSWER)
            assert _body(client) == ANSWER, "another answer"
    return sent, answered, up, down


def _sent(connection: socket.socket, reader: Reader, data: bytes) -> Moment:
    """When this was sent. Again if other processes came between the counters and the sending."""
    for _ in range(100):
        began = time.monotonic_ns()
        before = reader.now()
        if time.monotonic_ns() - began < READING_NS_MAX:
            break
    connection.sendall(data)
    return before


def _body(connection: socket.socket) -> bytes:
    """The body of a message with a content-length."""
    received = b""
    while True:
        head, _, body = received.partition(b"\r\n\r\n")
        for line in head.lower().split(b"\r\n"):
            if body and line.startswith(b"content-length:") and len(body) == int(line[15:]):
                return body
        data = connection.recv(65_536)
        assert data, f"ended: {received!r}"
        received += data


if __name__ == "__main__":
    main()
