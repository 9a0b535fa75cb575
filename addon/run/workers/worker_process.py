"""Edge (processes, stderr). The workers, seen from the supervisor: their log, their processes, and
the health and metrics of all of them."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TextIO

import msgspec

from addon.run.workers import worker_messages
from addon.run.workers.worker_messages import WorkerJob, WorkerReport
from addon.telemetry.endpoint import Endpoint
from addon.telemetry.health import Health, merged
from addon.telemetry.json_log import JsonFormatter
from addon.telemetry.metrics import metrics_of_workers
from ledger.text.figures import seconds_text

MODULE = __name__.rpartition(".")[0]
"""The package, whose `__main__` is the worker."""
READ_BYTES_MAX = 64 * 2**10
LINE_BYTES_MAX = 64 * 2**10
"""A longer line of a log is passed on in pieces of this size."""
SILENT_SECONDS_MAX = 10.0
"""A worker reports every second; one that is silent for this long is stuck."""


class Log:
    """The log of the supervisor and all workers, each line whole. A text line of a worker gets its
    number as a prefix, a JSON line as a member."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr
        self.quiet = False
        """Only warnings are logged."""
        self.as_json = False

    def info(self, text: str) -> None:
        """Log information for the operator."""
        if not self.quiet:
            self._log("info", text)

    def warning(self, text: str) -> None:
        """Log a problem for the operator."""
        self._log("warning", text)

    def line_of_worker(self, number: int, line: bytes) -> None:
        """Pass a worker's line on."""
        text = line.decode("utf-8", "replace")
        if text.startswith('{"time"'):
            self._write(f'{{"worker": {number}, {text[1:]}')
        elif text.strip():
            self._write(f"worker {number}: {text}")

    def _log(self, level: str, text: str) -> None:
        if not self.as_json:
            self._write(f"tokentee: {text}")
            return
        record = {"name": "tokentee.workers", "levelname": level, "msg": text}
        self._write(JsonFormatter().format(logging.makeLogRecord(record)))

    def _write(self, line: str) -> None:
        try:
            self._out.write(f"{line}\n")
            self._out.flush()
        except OSError:
            return  # stderr is closed, so nothing can be logged


class LineSplitter:
    """Splits one worker's output into lines."""

    def __init__(self, log: Log, number: int) -> None:
        self._log = log
        self._number = number
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Add output of the worker."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._log.line_of_worker(self._number, line)
        while len(self._rest) > LINE_BYTES_MAX:
            self._log.line_of_worker(self._number, self._rest[:LINE_BYTES_MAX])
            self._rest = self._rest[LINE_BYTES_MAX:]

    def end(self) -> None:
        """The output has ended; pass on an incomplete last line."""
        if self._rest:
            self._log.line_of_worker(self._number, self._rest)
            self._rest = b""


class WorkerProcess:
    """A process that was started with a job, and its state until it has ended."""

    def __init__(
        self, job: WorkerJob, log: Log, on_exit: Callable[["WorkerProcess"], None]
    ) -> None:
        self.number = job.number
        self.index = job.index
        self.report: WorkerReport | None = None
        """The last one; None: it does not accept yet."""
        self.reported_at = time.monotonic()
        self.started_at = time.monotonic()
        self.exit_code: int | None = None
        """None while it runs; -N: signal N ended it."""
        self.ready: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """True when it accepts; False if it has ended before."""
        self.ended = asyncio.Event()
        self._job = job
        self._lines = LineSplitter(log, job.number)
        self._on_exit = on_exit
        self._process: asyncio.subprocess.Process
        self._control: asyncio.StreamWriter
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    async def start(self) -> None:
        """Start the process and give it its job. Raises OSError."""
        ours, theirs = socket.socketpair()
        descriptors = [each for _, sockets in self._job.listeners for each in sockets]
        try:
            # Isolated from the current folder, whose files could shadow modules. In its own process
            # group: the terminal sends Ctrl-C only to the supervisor, which stops all workers in
            # order.
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                MODULE,
                str(theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                pass_fds=(theirs.fileno(), *descriptors),
                process_group=0,
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        reader, self._control = await asyncio.open_connection(
            sock=ours, limit=worker_messages.LINE_BYTES_MAX
        )
        self._control.write(worker_messages.line_of(self._job))
        loop = asyncio.get_running_loop()
        reading = [loop.create_task(self._read_log()), loop.create_task(self._read_reports(reader))]
        self._tasks = [*reading, loop.create_task(self._wait(reading))]

    def retire(self) -> None:
        """Make it stop accepting, finish all running exchanges without a short limit, and end."""
        self._control.write(worker_messages.RETIRE)

    def stop(self) -> None:
        """Make it finish running exchanges within seconds, and end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it at once."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    async def _read_log(self) -> None:
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(READ_BYTES_MAX):
            self._lines.feed(data)
        self._lines.end()

    async def _read_reports(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError, ValueError):
            while line := await reader.readline():
                with contextlib.suppress(msgspec.DecodeError):  # the last report, cut by a kill
                    self.report = msgspec.json.decode(line, type=WorkerReport)
                    self.reported_at = time.monotonic()
                if not self.ready.done():
                    self.ready.set_result(True)

    async def _wait(self, reading: list[asyncio.Task[None]]) -> None:
        self.exit_code = await self._process.wait()
        # Read its last output; a child process of the worker may keep the pipe open for longer.
        await asyncio.wait(reading, timeout=1.0)
        for task in reading:
            task.cancel()
        self._control.close()
        if not self.ready.done():
            self.ready.set_result(False)
        self.ended.set()
        self._on_exit(self)


def ending_of(exit_code: int) -> str:
    """A text for how a process ended."""
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return signal.Signals(-exit_code).name
    except ValueError:
        return f"signal {-exit_code}"


class GroupMetrics:
    """The metrics and health of all workers, for a scrape.

    A worker's counters outlive it (`telemetry/metrics.py`). Its reports hold the number of
    exchanges that it could not record; for a worker that has ended, the last report counts.
    """

    def __init__(self, folder: Path, processes: Collection[WorkerProcess], *, count: int) -> None:
        """`processes`: of the supervisor, who adds and removes them; `count`: of workers."""
        self._folder = folder
        self.restarts = 0
        self._count = count
        self._processes = processes
        self._dropped_before = 0
        self._observations_dropped_before = 0
        self._endpoint: Endpoint | None = None

    def serve(self, host: str, port: int) -> str:
        """Start serving; returns the address. Raises LedgerError if it cannot be listened on."""
        metrics = metrics_of_workers(
            self._folder, self.health, dropped_observations=self.dropped_observations
        )
        self._endpoint = Endpoint(host, port, health=self.health, metrics=metrics)
        self._endpoint.start()
        shown, port = self._endpoint.address
        return f"{shown}:{port}"

    def keep_counts_of(self, process: WorkerProcess) -> None:
        """Keep what a worker that has ended counted."""
        report = process.report
        if report is not None:
            self._observations_dropped_before += report.dropped_observations
            if report.health is not None:
                self._dropped_before += report.health.dropped

    def health(self) -> Health:
        """The merged health of all workers. Called from the endpoint's threads."""
        reporting = [each for each in list(self._processes) if each.report is not None]
        now = time.monotonic()
        silent = {
            each: now - each.reported_at
            for each in reporting
            if now - each.reported_at > SILENT_SECONDS_MAX
        }
        missing = [
            f"worker {number} does not run"
            for number in range(1, self._count + 1)
            if all(each.number != number for each in reporting)
        ]
        missing += [
            f"worker {each.number} has not reported for {seconds_text(seconds)}"
            for each, seconds in silent.items()
        ]
        healths = {
            f"worker {each.number} (process {each.pid})": each.report.health
            for each in reporting
            if each.report is not None and each.report.health is not None
        }
        return merged(
            healths, missing=missing, dropped_before=self._dropped_before, restarts=self.restarts
        )

    def dropped_observations(self) -> int:
        """Observations that no worker could count, since the start."""
        reports = [each.report for each in list(self._processes)]
        return self._observations_dropped_before + sum(
            each.dropped_observations for each in reports if each is not None
        )

    def close(self) -> None:
        """Stop serving."""
        if self._endpoint is not None:
            self._endpoint.stop()
