"""Edge (processes). One worker, seen from the supervisor."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable

import msgspec

from addon.run.workers import worker_messages
from addon.run.workers.log import LineSplitter, Log
from addon.run.workers.worker_messages import WorkerJob, WorkerReport

MODULE = __name__.rpartition(".")[0]
"""The package, whose `__main__` is the worker."""
READ_BYTES_MAX = 64 * 2**10


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
                    self.report = worker_messages.report_of(line)
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
