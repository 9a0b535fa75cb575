"""Edge. `/healthz`, `/readyz` and `/metrics` over HTTP, on a port and threads of their own.

/healthz   200 while the process answers
/readyz    200 while it records, 503 with the reasons when it does not
/metrics   Prometheus' text format, by prometheus-client's own application
"""

import contextlib
import json
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict
from socket import SHUT_RDWR, socket
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from addon.proxy.health import Health, problems
from ledger.model.errors import LedgerError

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

READ_SECONDS_MAX = 5.0
"""A connection that is silent for longer is closed."""
CONNECTIONS_MAX = 16
"""Enough for a scraper, a load balancer and a person. A further connection takes the place of the
oldest, so that slow clients keep nobody else away."""


class Endpoint:
    """The HTTP server of one process, or of all workers."""

    def __init__(
        self, host: str, port: int, *, health: Callable[[], Health], registry: CollectorRegistry
    ) -> None:
        """Raises LedgerError if the address cannot be listened on. Port 0: any free one."""
        try:
            self._server = make_server(
                host, port, _application(health, registry), _Server, handler_class=_Handler
            )
        except OSError as error:
            raise LedgerError(
                f"tee_metrics: cannot listen on {host}:{port}: {error.strerror}; name another port"
            ) from error
        self._thread = threading.Thread(
            # Looks this often whether it is to stop.
            target=lambda: self._server.serve_forever(0.1),
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


def _application(health: Callable[[], Health], registry: CollectorRegistry) -> "WSGIApplication":
    scrape: WSGIApplication = make_wsgi_app(registry)

    def application(environ: "WSGIEnvironment", start: "StartResponse") -> Iterable[bytes]:
        path, text = environ["PATH_INFO"], "text/plain; charset=utf-8"
        if environ["REQUEST_METHOD"] == "HEAD":
            application({**environ, "REQUEST_METHOD": "GET"}, start)
            return []
        if path == "/metrics" or environ["REQUEST_METHOD"] != "GET":
            return scrape(environ, start)  # it refuses other methods
        if path == "/healthz":
            status, kind, body = "200 OK", text, b"ok\n"
        elif path == "/readyz":
            now = health()
            reasons = problems(now)
            status, kind = "503 Service Unavailable" if reasons else "200 OK", "application/json"
            answer = {"ready": not reasons, "problems": reasons, **asdict(now)}
            body = json.dumps(answer).encode() + b"\n"
        else:
            status, kind, body = "404 Not Found", text, b"/healthz, /readyz or /metrics\n"
        start(status, [("Content-Type", kind), ("Cache-Control", "no-store")])
        return [body]

    return application


class _Server(ThreadingWSGIServer):
    def __init__(self, *args: Any) -> None:
        self._latest: deque[socket] = deque(maxlen=CONNECTIONS_MAX)
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread; one too many takes the place of the oldest."""
        if len(self._latest) == CONNECTIONS_MAX:
            with contextlib.suppress(OSError):  # it is over
                self._latest[0].shutdown(SHUT_RDWR)
        self._latest.append(request)
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignored: a client that disconnects is not our error."""


class _Handler(WSGIRequestHandler):
    timeout = READ_SECONDS_MAX

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class's
        """Scrapes are not worth a log line."""
