"""The fake providers: a TLS server for all hosts, which keeps every request."""

import json
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import zstandard

from tests.clients.answers import LONG, answer_to

ADDRESS = "127.0.0.77"
MARK_PORT = 8077
NONE: Mapping[str, str] = {}
ACCOUNT = "7f9d0c2e-0000-4000-8000-000000000001"
ACCOUNTS = {
    "account_ordering": [ACCOUNT],
    "accounts": [
        {
            "id": ACCOUNT,
            "plan_type": "pro",
            "workspace_backend_origin": "https://chatgpt.com",
            "account_routing_override": "NO_CONSTRAINT",
        }
    ],
}
"""What Codex asks before its first call."""
FIVE_HOURS_END, WEEK_END = int(time.time()) + 3_600, int(time.time()) + 86_400
PERCENT_PICOUSD = 41_000_000_000
"""What one percent of five hours buys, to clients that are LONG: $0.041."""
WINDOW_CALLS = 8
"""Calls of such a client after which the provider begins another window."""
PRICES = {"claude-sonnet-4-5": (3_000_000, 15_000_000), "gpt-5": (1_250_000, 10_000_000)}
"""Pico-USD for a token of input and of output, as published."""


def limits_of(path: str, authorization: str, percent: int, window: int) -> Mapping[str, str]:
    """What a plan's answers state: so much of five hours is used, and 40 % of a week."""
    end = FIVE_HOURS_END + window * 5 * 3_600
    if authorization.startswith("Bearer sk-ant-oat"):
        unified = "anthropic-ratelimit-unified"
        return {
            f"{unified}-status": "allowed",
            f"{unified}-5h-utilization": str(percent / 100),
            f"{unified}-5h-reset": str(end),
            f"{unified}-5h-status": "allowed",
            f"{unified}-7d-utilization": "0.4",
            f"{unified}-7d-reset": str(WEEK_END),
            f"{unified}-7d-status": "allowed",
        }
    if path.startswith("/backend-api/codex/"):
        return {
            "x-codex-primary-used-percent": str(percent),
            "x-codex-primary-window-minutes": "300",
            "x-codex-primary-reset-at": str(end),
            "x-codex-secondary-used-percent": "40",
            "x-codex-secondary-window-minutes": "10080",
            "x-codex-secondary-reset-at": str(WEEK_END),
        }
    return NONE


class Kept:
    """What was asked, under the name of the client whose turn it is."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.client = ""
        self._answered: dict[str, int] = {}
        self._spent_picousd: dict[tuple[str, int], int] = {}
        self._lock = threading.Lock()

    def add(self, request: dict[str, Any]) -> dict[str, Any]:
        """Keep it."""
        kept = {**request, "client": self.client}
        with self._lock:
            self.requests.append(kept)
        return kept

    def number(self) -> int:
        """How many of this client's requests have been answered: the same in every run."""
        with self._lock:
            self._answered[self.client] = self._answered.get(self.client, 0) + 1
            return self._answered[self.client]

    def percent(self, model: str, tokens: tuple[int, int]) -> tuple[int, int]:
        """How much of its five hours the client has used, after an answer of these tokens, and in
        which of its windows."""
        if not self.client.startswith(LONG):
            return tokens[1], 0  # another figure with each answer
        cost = sum(price * count for price, count in zip(PRICES[model], tokens, strict=True))
        with self._lock:
            window = (self._answered[self.client] - 1) // WINDOW_CALLS
            place = self.client, window
            self._spent_picousd[place] = self._spent_picousd.get(place, 0) + cost
            return self._spent_picousd[place] // PERCENT_PICOUSD, window


def handler(kept: Kept) -> type[BaseHTTPRequestHandler]:
    """A handler class, as `http.server` wants one."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path.startswith("/mark/"):
                kept.client = self.path.removeprefix("/mark/")
            elif "/info/refs" in self.path:
                self._send(200, "application/x-git-upload-pack-advertisement", [_advertised()])
                return
            else:
                self._keep(b"")
            if self.path == "/backend-api/wham/accounts/check":
                self._send(200, "application/json", [json.dumps(ACCOUNTS).encode()])
                return
            is_known = "/mark/" in self.path or self.path == "/page"
            status = 200 if is_known else 404
            if self.headers.get("upgrade") == "websocket":
                status = HTTPStatus.UPGRADE_REQUIRED  # Codex goes on over HTTP
            self._send(status, "application/json", [b"{}"])

        def do_POST(self) -> None:
            length = self.headers.get("content-length")
            body = b"".join(self._chunks()) if length is None else self.rfile.read(int(length))
            if self.headers.get("content-encoding") == "zstd":
                body = zstandard.ZstdDecompressor().decompressobj().decompress(body)
            request = self._keep(body)
            path = self.path.partition("?")[0]
            try:
                asked = json.loads(body)
                answer = answer_to(path, asked, kept.client, kept.number)
            except (ValueError, AttributeError):
                answer = None
            if answer is None:
                self._send(404, "application/json", [b'{"error":{"message":"not here"}}'])
                return
            request["answer"] = [answer.response_id, *answer.tokens]
            percent, window = kept.percent(asked.get("model"), answer.tokens)
            sent = self.headers.get("authorization", "")
            limits = limits_of(path, sent, percent, window)
            request["limits"] = [["5h", percent], ["7d", 40]] if limits else []
            self._send(200, answer.content_type, list(answer.pieces), limits)

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_PUT(self) -> None:
            self.do_GET()

        def _keep(self, body: bytes) -> dict[str, Any]:
            return kept.add(
                {
                    "method": self.command,
                    "host": self.headers.get("host"),
                    "path": self.path,
                    "headers": [[name, value] for name, value in self.headers.items()],
                    "body": body.decode("utf-8", "replace"),
                }
            )

        def _chunks(self) -> Iterator[bytes]:
            if self.headers.get("transfer-encoding", "").lower() != "chunked":
                return
            while size := int(self.rfile.readline().split(b";")[0], 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()

        def _send(
            self,
            status: int,
            content_type: str,
            pieces: list[bytes],
            limits: Mapping[str, str] = NONE,
        ) -> None:
            self.send_response(status)
            for name, value in limits.items():
                self.send_header(name, value)
            self.send_header("content-type", content_type)
            self.send_header("x-request-id", "req_1")
            if len(pieces) == 1:
                self.send_header("content-length", str(len(pieces[0])))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(pieces[0])
                return
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for piece in pieces:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def _advertised() -> bytes:
    """A git repository with one branch and nothing in it that can be fetched: for ls-remote."""
    service = b"# service=git-upload-pack\n"
    ref = b"1234567890123456789012345678901234567890 refs/heads/main\0agent=test\n"
    lines = [b"%04x%s" % (len(service) + 4, service), b"0000", b"%04x%s" % (len(ref) + 4, ref)]
    return b"".join(lines) + b"0000"


@contextmanager
def serving(certificate: Path) -> Iterator[Kept]:
    """Serve on port 443 of every address there is, and marks on a port of `ADDRESS`."""
    kept = Kept()
    made = handler(kept)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.set_alpn_protocols(["http/1.1"])
    secure = _Server(("0.0.0.0", 443), made)
    secure.socket = context.wrap_socket(
        secure.socket, server_side=True, do_handshake_on_connect=False
    )
    marks = _Server((ADDRESS, MARK_PORT), made)
    for server in (secure, marks):
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield kept
    finally:
        for server in (secure, marks):
            server.shutdown()
            server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Clients break off connections; that is theirs to report."""
