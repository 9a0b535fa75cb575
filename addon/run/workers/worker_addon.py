"""Edge. The worker's tasks beside proxying: it reports, closes its listeners, and retires.

    started    it begins to accept, and the first report goes out
    retiring   it accepts nothing more. A request that still comes on a connection is answered
               with `connection: close`; a connection without one is closed after
               `IDLE_SECONDS_MAX`. When none is left, or after `RETIRING_SECONDS_MAX`, it stops
    stopping   as every proxy does (`proxy/lifecycle.py`), with its listeners closed first

A client may send a request on a kept connection at the moment when it is closed. So a busy
connection is not closed but gets `connection: close` in an answer; only a connection that was
silent for seconds is closed. mitmproxy cannot send such a notice over HTTP/2: those connections are
closed when they are idle.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from mitmproxy import ctx, http
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.connection import Client
from mitmproxy.proxy.mode_servers import ProxyConnectionHandler

from addon.proxy.host.given_sockets import GivenSockets
from addon.proxy.host.sources import UnknownSourceError
from addon.proxy.recorder import Recorder
from addon.run.master import RecordingMaster, run_master
from addon.run.workers import worker_messages
from addon.run.workers.listeners import ConnectionCounts
from addon.run.workers.worker_messages import WorkerJob, WorkerReport
from addon.telemetry.health import MetricFiles

REPORT_SECONDS = 1.0
UNSENT_BYTES_MAX = 64 * 2**10
"""Unsent reports, if the supervisor does not read; beyond this no reports are made."""
IDLE_SECONDS_MAX = 5.0
"""For a kept connection while its worker retires."""
RETIRING_SECONDS_MAX = 3_600.0
"""A long answer takes minutes; a Realtime session may last for an hour."""
POLL_SECONDS = 0.1


def run_worker(job: WorkerJob, control: socket.socket) -> int:
    """Do the job until the worker must end; returns the exit code."""
    recorder = Recorder(metric_files=MetricFiles(folder=Path(job.folder), index=job.index))
    worker = WorkerAddon(job, control, recorder)
    try:
        worker.given.install()
    except UnknownSourceError as unknown:
        os.write(2, f"tokentee: --workers is not made for this mitmproxy: {unknown}\n".encode())
        return 1
    run_master(
        lambda opts: RecordingMaster(
            opts, job.words, recorder, first=(worker,), on_started=worker.started
        ),
        job.words,
        {"ssl_verify_upstream_trusted_ca": job.trusted},
    )
    return 0


class WorkerAddon:
    """What a worker does beside recording."""

    name = "tokentee-worker"

    def __init__(self, job: WorkerJob, control: socket.socket, recorder: Recorder) -> None:
        self._recorder = recorder
        self._counts = ConnectionCounts(Path(job.folder))
        self._index = job.index
        self.given = GivenSockets(
            dict(job.listeners),
            yields=lambda: not self._counts.is_least(job.index),
            count=self.count,
        )
        self._connections = 0
        self._accepts = False
        self._control = control
        self._writer: asyncio.StreamWriter | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._under_way: Counter[str] = Counter()
        """Exchanges and WebSockets, by the id of the client's connection."""
        self._tunnels: set[str] = set()
        """Connections whose last request was CONNECT."""
        self._retiring = False

    # Hooks

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        """A request begins."""
        self._under_way[flow.client_conn.id] += 1
        self._tunnels.discard(flow.client_conn.id)

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        """Tell a client that its connection ends with this answer."""
        response = flow.response
        if self._retiring and response is not None and response.status_code != 101:
            # HTTP/2 has no such header.
            if flow.request.is_http2 or flow.request.is_http3:
                return
            response.headers["connection"] = "close"

    def response(self, flow: http.HTTPFlow) -> None:
        """It is over: its answer is complete, but may still wait for a commit (`_is_busy`)."""
        name = flow.client_conn.id
        if self._under_way[name] > 1:
            self._under_way[name] -= 1
        else:
            del self._under_way[name]

    error = response
    """It broke off."""
    websocket_end = response
    """A WebSocket is closed."""

    def websocket_start(self, flow: http.HTTPFlow) -> None:
        """A WebSocket is open."""
        self._under_way[flow.client_conn.id] += 1

    def http_connect(self, flow: http.HTTPFlow) -> None:
        """A tunnel begins; it may or may not carry visible requests."""
        self._tunnels.add(flow.client_conn.id)

    def client_disconnected(self, client: Client) -> None:
        """Forget a connection."""
        self.count(-1)
        name = client.id
        self._under_way.pop(name, None)
        self._tunnels.discard(name)

    def done(self) -> None:
        """Accept no more connections: they would not be answered."""
        self.given.close()
        self._accepts = False
        self._counts.clear(self._index)

    # Life

    def count(self, change: int) -> None:
        """Publish the number of connections to all workers."""
        self._connections += change
        if self._accepts:
            self._counts.write(self._index, self._connections)

    def started(self) -> None:
        """Every addon has started without errors."""
        self._spawn(self._live())

    async def _live(self) -> None:
        reader, self._writer = await asyncio.open_connection(sock=self._control)
        self.given.open()
        self._accepts = True
        self.count(0)
        self._spawn(self._send_reports())
        with contextlib.suppress(OSError):
            while line := await reader.readline():
                if line == worker_messages.RETIRE and not self._retiring:
                    self._retiring = True
                    self._spawn(self._retire())
        # The supervisor is gone, so no process would replace this worker.
        ctx.master.shutdown()

    async def _send_reports(self) -> None:
        assert self._writer is not None
        while not self._writer.is_closing():
            if self._writer.transport.get_write_buffer_size() < UNSENT_BYTES_MAX:
                # It reads files and other processes' lessons, so it must not run on the event loop.
                report = await asyncio.to_thread(self._report)
                self._writer.write(worker_messages.line_of(report))
            await asyncio.sleep(REPORT_SECONDS)

    def _report(self) -> WorkerReport:
        running = self._recorder.running_state
        if running is None:
            return WorkerReport()
        running.ledger.refresh_lessons()
        watching, settings = running.watching, running.settings
        return WorkerReport(
            metrics=settings.metrics,
            log_as_json=settings.log_as_json,
            health=watching.health() if watching is not None else None,
            dropped_observations=watching.observer.dropped if watching is not None else 0,
        )

    async def _retire(self) -> None:
        self.done()
        began = time.time()
        server = ctx.master.addons.get("proxyserver")
        assert isinstance(server, Proxyserver)
        while server.connections and time.time() - began < RETIRING_SECONDS_MAX:
            for handler in list(server.connections.values()):
                silent_since = max(handler.timeout_watchdog.last_activity, began)
                if not self._is_busy(handler) and time.time() - silent_since > IDLE_SECONDS_MAX:
                    _close(handler)
            await asyncio.sleep(POLL_SECONDS)
        ctx.master.shutdown()

    def _is_busy(self, handler: ProxyConnectionHandler) -> bool:
        name = handler.client.id
        # `blocker`: a hook is running for this connection, such as the wait for a commit.
        return (
            self._under_way[name] > 0
            or name in self._tunnels
            or handler.timeout_watchdog.blocker > 0
        )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _close(handler: ProxyConnectionHandler) -> None:
    """Close a client's connection as its timeout would."""
    io = handler.transports.get(handler.client)
    if io is not None and io.handler is not None:
        io.handler.cancel("the worker retires")
