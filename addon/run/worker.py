"""Edge. One of several proxies on a port: `python -m ...run.worker`, with its job on stdin.

started    everything records: it listens, and reports to the supervisor on stdout
retiring   SIGHUP: it accepts nothing more, and tells each client in its next answer that the
           connection ends. With the last connection it stops
stopping   SIGTERM, or the supervisor is gone: as every proxy does (`proxy/lifecycle.py`)
"""

import asyncio
import contextlib
import os
import signal
import sys
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from mitmproxy import ctx, http
from mitmproxy.proxy.mode_specs import ProxyMode

from addon.proxy.health import Health, MetricFiles
from addon.proxy.recorder import Recorder
from addon.proxy.shown import say_what_is_next
from addon.run.master import RecordingMaster, run_master
from addon.run.ports import ListeningPort, Ports
from addon.run.seen import SeenTraffic
from ledger.text.first_minute import PassedTraffic

REPORT_SECONDS = 1.0
POLL_SECONDS = 0.1


class WorkerJob(msgspec.Struct, frozen=True, kw_only=True):
    """One line of JSON on stdin, which ends with the supervisor."""

    run_id: str
    words: tuple[str, ...]
    """For mitmproxy's parser."""
    trusted: str
    """The file of the authorities that verify upstreams."""
    folder: str
    """For metrics."""
    ports: tuple[ListeningPort, ...]
    is_first: bool
    """It tells what clients have to set."""


class WorkerReport(msgspec.Struct, frozen=True, kw_only=True):
    """A line of JSON every second; the first means that the worker accepts connections."""

    of_parts: dict[str, Any]
    """The values of the options of parts."""
    health: Health | None
    """None: metrics are off."""
    dropped_observations: int
    seen: PassedTraffic
    first_opened_at: datetime
    """No exchange of the worker was opened earlier."""
    unrecorded: str = ""
    """What the ledger lacks at the end; empty: nothing is known to be missing."""


class WorkerAddon:
    """What a worker does beside recording. Its ports listen from the start on."""

    name = "tokentee-worker"

    def __init__(self, job: WorkerJob, recorder: Recorder, reports: BinaryIO, ports: Ports) -> None:
        self.traffic = SeenTraffic()
        self._job = job
        self._recorder = recorder
        self._reports = reports
        self._ports = ports
        self._is_retiring = False
        self._tasks: set[asyncio.Task[Any]] = set()

    def load(self, _: object) -> None:
        """mitmproxy's hook."""
        loop = asyncio.get_running_loop()
        # The supervisor never writes again: what can be read is the end.
        loop.add_reader(0, lambda: (loop.remove_reader(0), ctx.master.shutdown()))

    def configure(self, updated: set[str]) -> None:
        """mitmproxy's hook. Workers share TCP ports alone: a reverse proxy of `https://` listens
        for HTTP/3, too, on a UDP port that only one process can have."""
        if "mode" not in updated:
            return
        for spec in ctx.options.mode:
            with contextlib.suppress(ValueError):  # mitmproxy says so
                mode = ProxyMode.parse(spec)  # each text has one
                if mode.transport_protocol == "both":
                    # A property only of the abstract class.
                    mode.transport_protocol = "tcp"  # type: ignore[misc]

    def started(self) -> None:
        """Every addon has started without errors."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self._retire)
        self._tasks.add(loop.create_task(self._live()))

    async def _live(self) -> None:
        await self._ports.serve()
        if self._job.is_first:
            say_what_is_next(ctx.master)
        while True:
            await asyncio.to_thread(self._report)  # it reads files
            await asyncio.sleep(REPORT_SECONDS)

    def _report(self, *, is_last: bool = False) -> None:
        running = self._recorder.recording
        assert running is not None, "a recorder that cannot start ends the start"
        ledger, watching = running.ledger, running.watching
        if not is_last:
            ledger.refresh_lessons()
        report = WorkerReport(
            of_parts=dict(running.settings.of_parts),
            health=watching.health() if watching is not None else None,
            dropped_observations=watching.dropped if watching is not None else 0,
            seen=self.traffic.seen,
            first_opened_at=ledger.first_opened_at,
            unrecorded=ledger.health().unrecorded() if is_last else "",
        )
        with contextlib.suppress(OSError):  # the supervisor is gone
            self._reports.write(msgspec.json.encode(report) + b"\n")

    def report_end(self) -> None:
        """The last report, when the ledger is closed."""
        if self._tasks:  # it had started
            self._report(is_last=True)

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        """Tell a client that its connection ends with this answer; HTTP/2 has no word for it."""
        response, request = flow.response, flow.request
        is_closable = not (request.is_http2 or request.is_http3)
        if self._is_retiring and is_closable and response and response.status_code != 101:
            response.headers["connection"] = "close"

    def _retire(self) -> None:
        async def stop_with_the_last_connection() -> None:
            for _ in range(10):  # connections are being accepted, which takes turns of the loop
                await asyncio.sleep(POLL_SECONDS / 10)
            while ctx.master.addons.get("proxyserver").connections:
                await asyncio.sleep(POLL_SECONDS)
            ctx.master.shutdown()

        if not self._is_retiring:
            self._is_retiring = True
            self._ports.close()
            loop = asyncio.get_running_loop()
            self._tasks.add(loop.create_task(stop_with_the_last_connection()))


def main() -> int:
    """Do the job until the supervisor or a signal ends it; returns the exit code."""
    reports = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what a script prints is no report
    with open(0, "rb", buffering=0, closefd=False) as supervisor:
        job = msgspec.json.decode(supervisor.readline(), type=WorkerJob)
    files = MetricFiles(folder=Path(job.folder), index=os.getpid())
    recorder = Recorder(tags={"run": job.run_id}, metric_files=files)
    ports = Ports(job.ports)
    worker = WorkerAddon(job, recorder, reports, ports)
    run_master(
        lambda opts: RecordingMaster(
            opts, job.words, recorder, first=(ports, worker), last=(worker.traffic,),
            on_started=worker.started,
        ),
        job.words,
        {"ssl_verify_upstream_trusted_ca": job.trusted},
    )  # fmt: skip
    worker.report_end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
