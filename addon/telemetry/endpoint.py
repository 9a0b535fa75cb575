"""Edge. `/healthz`, `/readyz` and `/metrics` over HTTP, on a port and threads of their own.

/healthz   200 while the process answers
/readyz    200 while it records, 503 with the reasons when it does not
/metrics   Prometheus' text format

Only GET and HEAD are served, nothing of a request's body is read. A connection has
`CONNECTION_SECONDS_MAX` from its first byte to its last, and at most `CONNECTIONS_MAX` are open: a
further one takes the place of the oldest, so that slow clients keep nobody else away.
"""

import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SHUT_RDWR, socket
from typing import Any

from addon.telemetry.health import Health, problems
from addon.telemetry.metrics import CONTENT_TYPE
from ledger.model.errors import LedgerError

logger = logging.getLogger(__name__)

STOP_SECONDS = 0.1
"""Between two checks whether the endpoint is to stop. The default of 0.5 would delay each stop."""
CONNECTION_SECONDS_MAX = 5.0
CONNECTIONS_MAX = 16
"""Enough for a scraper, a load balancer and a person."""


class Endpoint:
    """The HTTP server of one process, or of all workers."""

    def __init__(
        self, host: str, port: int, *, health: Callable[[], Health], metrics: Callable[[], bytes]
    ) -> None:
        """Raises LedgerError if the address cannot be listened on. Port 0: any free one. `metrics`
        returns the text for a scrape."""
        try:
            self._server = _Server((host, port), health, metrics)
        except OSError as error:
            raise LedgerError(
                f"tee_metrics: cannot listen on {host}:{port}: {error.strerror}; name another port"
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            args=(STOP_SECONDS,),
            name="tokentee-endpoint",
            daemon=True,
        )

    @property
    def address(self) -> tuple[str, int]:
        """The listening host and port."""
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    def start(self) -> None:
        """Start serving."""
        self._thread.start()

    def stop(self) -> None:
        """Stop serving, and close the port."""
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(
        self, address: tuple[str, int], health: Callable[[], Health], metrics: Callable[[], bytes]
    ) -> None:
        self.health = health
        self.metrics = metrics
        self._open: dict[socket, float] = {}
        """Connection -> when it is over, the oldest first."""
        self._lock = threading.Lock()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._open) >= CONNECTIONS_MAX:
                self._cut(next(iter(self._open)))
            self._open[request] = time.monotonic() + CONNECTION_SECONDS_MAX
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._open.pop(request, None)

    def service_actions(self) -> None:
        """Called every `STOP_SECONDS`: cut the connections whose time is over."""
        with self._lock:
            for each, ends in list(self._open.items()):
                if ends <= time.monotonic():
                    self._cut(each)

    def _cut(self, connection: socket) -> None:
        """End a connection; its thread sees the end and closes it."""
        del self._open[connection]
        with contextlib.suppress(OSError):
            connection.shutdown(SHUT_RDWR)

    def handle_error(self, request: socket | tuple[bytes, socket], client_address: Any) -> None:
        """Ignored: a client that disconnects is not our error."""


class _Handler(BaseHTTPRequestHandler):
    timeout = CONNECTION_SECONDS_MAX
    server: _Server
    server_version = "tokentee"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer one of the three paths."""
        match self.path.partition("?")[0]:
            case "/healthz":
                self._send(HTTPStatus.OK, "text/plain; charset=utf-8", b"ok\n")
            case "/readyz":
                health = self.server.health()
                reasons = problems(health)
                status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
                body = {"ready": not reasons, "problems": reasons, **asdict(health)}
                self._send(status, "application/json", json.dumps(body).encode() + b"\n")
            case "/metrics":
                self._send(HTTPStatus.OK, CONTENT_TYPE, self.server.metrics())
            case _:
                self._send(
                    HTTPStatus.NOT_FOUND,
                    "text/plain; charset=utf-8",
                    b"/healthz, /readyz or /metrics\n",
                )

    do_HEAD = do_GET  # noqa: N815  # the base class looks methods up by this name

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class names it
        """Scrapes are not worth a log line."""

    def _send(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
