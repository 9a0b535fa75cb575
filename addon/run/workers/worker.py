"""Edge. A worker's tasks beside recording.

    started    everything records: it listens, and its first report goes out
    retiring   SIGHUP: it accepts nothing more. A request that still comes on a connection is
               answered with `connection: close`; a connection that is silent for
               `IDLE_SECONDS_MAX` is closed. With the last one it stops, or after
               `RETIRING_SECONDS_MAX`
    stopping   SIGTERM, or the supervisor is gone: as every proxy does (`proxy/lifecycle.py`)

A client may send a request on a kept connection at the moment when it is closed. So a busy
connection is not closed but gets `connection: close` in an answer. HTTP/2 has no such header: those
connections are closed when they are idle.
"""

import asyncio
import contextlib
import io
import os
import signal
import socket
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
from mitmproxy import ctx, http
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.connection import Client
from mitmproxy.proxy.mode_servers import ProxyConnectionHandler

from addon.proxy.health import MetricFiles
from addon.proxy.recorder import Recorder
from addon.run.master import RecordingMaster, run_master
from addon.run.seen import SeenTraffic
from addon.run.workers.job import (
    RETIRING_SECONDS_MAX,
    WorkerJob,
    WorkerReport,
    write_report,
    write_seen,
)

REPORT_SECONDS = 1.0
IDLE_SECONDS_MAX = 5.0
"""For a kept connection while its worker retires."""
POLL_SECONDS = 0.1
LINE_CHARACTERS_MAX = 64 * 2**10
"""A longer line of the log is cut into pieces of this size."""
TUNNEL = "tunnel"


def run_worker(line: bytes) -> int:
    """Do the job in a line of JSON until the worker must end; returns the exit code."""
    job = msgspec.json.decode(line, type=WorkerJob)
    sys.stderr = NumberedLines(job.number)
    recorder = Recorder(
        tags={"run": job.run_id},
        metric_files=MetricFiles(folder=Path(job.folder), index=job.index),
    )
    worker = WorkerAddon(job, recorder)
    run_master(
        lambda opts: RecordingMaster(
            opts,
            job.words,
            recorder,
            first=(worker,),
            last=(worker.traffic,),
            on_started=worker.started,
        ),
        job.words,
        {"ssl_verify_upstream_trusted_ca": job.trusted},
    )
    return 0


class NumberedLines(io.TextIOBase):
    """Standard error with the worker's number in each line, as a prefix or as a member of a JSON
    line. A line is one write, so that lines of several workers stay whole."""

    def __init__(self, number: int, descriptor: int = 2) -> None:
        self._number = number
        self._descriptor = descriptor
        self._rest = ""

    def write(self, text: str) -> int:
        """Write the lines that are complete."""
        *lines, self._rest = (self._rest + text).split("\n")
        if len(self._rest) > LINE_CHARACTERS_MAX:
            lines, self._rest = [*lines, self._rest], ""
        for line in filter(str.strip, lines):
            is_json = line.startswith('{"time"')
            start = f'{{"worker": {self._number}, ' if is_json else f"worker {self._number}: "
            numbered = f"{start}{line[is_json:]}\n".encode(errors="replace")
            with contextlib.suppress(OSError):  # nobody reads the log any more
                os.write(self._descriptor, numbered)
        return len(text)


class SharedPorts:
    """The ports of this process, which others listen on, too. mitmproxy opens them with the loop's
    `create_server`, before its addons run; they listen from `open` on."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Share what the loop opens from now on."""
        self._servers: list[tuple[Any, asyncio.Server]] = []
        self._accepting: set[asyncio.Task[Any]] = set()
        create = loop.create_server

        async def create_server(factory: Any, *address: Any, **more: Any) -> asyncio.Server:
            server = await create(factory, *address, **more, reuse_port=True, start_serving=False)
            self._servers.append((factory, server))
            return server

        loop.create_server = create_server  # type: ignore[method-assign, assignment]

    async def open(self) -> None:
        """Listen."""
        for _, server in self._servers:
            await server.start_serving()

    def close(self) -> None:
        """Stop listening. The kernel resets connections that wait in the queue of a closed socket,
        so they are accepted first."""
        loop = asyncio.get_running_loop()
        for factory, server in self._servers:
            for listening in server.sockets:
                queue = socket.socket(fileno=os.dup(listening.fileno()))
                queue.setblocking(False)
                with queue, contextlib.suppress(OSError):  # it is empty
                    while True:
                        connection, _ = queue.accept()
                        connection.setblocking(False)
                        accepted = loop.connect_accepted_socket(factory, connection)
                        self._accepting.add(task := loop.create_task(accepted))
                        task.add_done_callback(self._accepting.discard)
            server.close()
        self._servers.clear()


class WorkerAddon:
    """What a worker does beside recording."""

    name = "tokentee-worker"

    def __init__(self, job: WorkerJob, recorder: Recorder) -> None:
        self._job = job
        self._recorder = recorder
        self.traffic = SeenTraffic()
        self._ports: SharedPorts
        self._busy: defaultdict[str, set[str]] = defaultdict(set)
        """Id of a client's connection -> ids of its flows that are under way, or `TUNNEL`, if its
        last request was CONNECT."""
        self._retiring = False
        self._tasks: list[asyncio.Task[None]] = []

    # Hooks

    def load(self, _: object) -> None:
        """Before mitmproxy opens its ports."""
        loop = asyncio.get_running_loop()
        self._ports = SharedPorts(loop)
        # The supervisor never writes again: what can be read is the end.
        loop.add_reader(0, lambda: (loop.remove_reader(0), ctx.master.shutdown()))

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        """A request begins."""
        self._busy[flow.client_conn.id].discard(TUNNEL)
        self._busy[flow.client_conn.id].add(flow.id)

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        """Tell a client that its connection ends with this answer."""
        response, request = flow.response, flow.request
        is_closable = not (request.is_http2 or request.is_http3)
        if self._retiring and is_closable and response is not None and response.status_code != 101:
            response.headers["connection"] = "close"

    def response(self, flow: http.HTTPFlow) -> None:
        """Its answer is complete, but may still wait for a commit (`_is_busy`)."""
        if flow.websocket is None:
            self.error(flow)

    def error(self, flow: http.HTTPFlow) -> None:
        """It is over."""
        self._busy[flow.client_conn.id].discard(flow.id)

    websocket_end = error

    def http_connect(self, flow: http.HTTPFlow) -> None:
        """A tunnel begins; it may or may not carry visible requests."""
        self._busy[flow.client_conn.id].add(TUNNEL)

    def client_disconnected(self, client: Client) -> None:
        """Forget a connection."""
        self._busy.pop(client.id, None)

    def done(self) -> None:
        """Accept no more connections: they would not be answered."""
        self._ports.close()
        with contextlib.suppress(OSError):  # a full disk; only the words at the end need it
            write_seen(Path(self._job.folder), self.traffic.seen)

    # Life

    def started(self) -> None:
        """Every addon has started without errors."""
        self._tasks.append(asyncio.get_running_loop().create_task(self._live()))

    async def _live(self) -> None:
        await self._ports.open()
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._retire)
        folder, index = Path(self._job.folder), self._job.index
        while True:
            # It reads files and other processes' lessons, so it must not run on the event loop.
            with contextlib.suppress(OSError):  # a full disk; the next report may be written
                await asyncio.to_thread(lambda: write_report(folder, index, self._report()))
            await asyncio.sleep(REPORT_SECONDS)

    def _report(self) -> WorkerReport:
        running = self._recorder.recording
        if running is None:
            return WorkerReport(monotonic=time.monotonic())
        running.ledger.refresh_lessons()
        watching, settings = running.watching, running.settings
        return WorkerReport(
            monotonic=time.monotonic(),
            metrics=settings.metrics,
            log_as_json=settings.log_as_json,
            health=watching.health() if watching is not None else None,
            dropped_observations=watching.dropped if watching is not None else 0,
        )

    def _retire(self) -> None:
        if not self._retiring:
            self._retiring = True
            self._ports.close()
            self._tasks.append(asyncio.get_running_loop().create_task(self._close_idle()))

    async def _close_idle(self) -> None:
        server = ctx.master.addons.get("proxyserver")
        assert isinstance(server, Proxyserver)
        began, deadline = time.time(), time.monotonic() + RETIRING_SECONDS_MAX
        await asyncio.sleep(POLL_SECONDS)  # connections of the queue are being accepted
        while server.connections and time.monotonic() < deadline:
            for handler in list(server.connections.values()):
                # mitmproxy's clock of activity is the wall clock.
                silent_since = max(handler.timeout_watchdog.last_activity, began)
                io = handler.transports.get(handler.client)
                is_idle = time.time() - silent_since > IDLE_SECONDS_MAX
                if is_idle and not self._is_busy(handler) and io is not None and io.handler:
                    io.handler.cancel("the worker retires")  # as its timeout would
            await asyncio.sleep(POLL_SECONDS)
        ctx.master.shutdown()

    def _is_busy(self, handler: ProxyConnectionHandler) -> bool:
        # `blocker`: a hook is running for this connection, such as the wait for a commit.
        return bool(self._busy.get(handler.client.id)) or handler.timeout_watchdog.blocker > 0
