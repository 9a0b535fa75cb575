"""Wiring. Starts the workers, replaces those that die, restarts them in turn, and stops them.

    start      worker 1 alone first: it creates the shared files (the ledger and its schema, the
               certificate authority, secrets), and reports wrong options once. Then the others
    a death    the worker is started again: at once, then after a pause that doubles with each
               death within `STEADY_SECONDS`. A worker that ends `UNREADY_DEATHS_MAX` times
               before it accepts, and was not killed from outside, ends everything
    SIGHUP     the settings are read again; then one worker after the other: a new one accepts,
               then the old one retires (`worker_addon.py`)
    SIGTERM,   all workers finish what is under way within seconds, and end; a second signal
    SIGINT     kills them

All accept from the same sockets, which stay open as long as the supervisor lives (`listeners.py`).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mitmproxy.proxy.mode_specs import ReverseMode

from addon.run import standalone
from addon.run.call.arguments import Address, Call
from addon.run.command import authorities
from addon.run.master import parsed_options
from addon.run.workers.listeners import ConnectionCounts, Listeners
from addon.run.workers.worker_messages import WorkerJob
from addon.run.workers.worker_process import GroupMetrics, Log, WorkerProcess, ending_of
from ledger.model.errors import LedgerError, WrongCallError
from ledger.text.figures import seconds_text

PAUSE_SECONDS = 0.5
PAUSE_SECONDS_MAX = 30.0
"""A worker that dies repeatedly is restarted at most twice a minute."""
STEADY_SECONDS = 60.0
"""A worker that has run for this long has recovered."""
UNREADY_DEATHS_MAX = 3
START_SECONDS_MAX = 100.0
"""From a worker's start until it accepts, on a busy machine, with a schema to migrate."""
STOP_SECONDS_MAX = 25.0
"""A worker's own bounds, together: 5 s for open answers, 4 s each for captures and the ledger, 1 s
for telemetry; and as much again for a busy machine."""
KILL_SECONDS_MAX = 30.0
"""A killed process ends at once, unless it waits for a disk."""
PROCESSES_FOR_SLOT_MAX = 3
"""One that accepts, one that retires, and one that is being started."""
FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM)
"""Signals with which others end a process, such as a kernel without memory. They do not mean that
the start failed."""
TCP_SCHEMES = ("http", "https", "tls", "tcp")
"""Schemes of reverse proxies whose connections several processes can accept."""
SAVING = ("-w", "--save-stream-file")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlan:
    """The parameters that are the same for all workers."""

    words: tuple[str, ...]
    addresses: tuple[Address, ...]
    trusted: Path
    notes: tuple[str, ...]
    """Lines for the log."""
    quiet: bool


def plan_of(call: Call, folder: Path) -> WorkerPlan:
    """The plan. `folder`: for the file of authorities. Raises WrongCallError for an option that
    several workers cannot support, or that mitmproxy refuses.

    mitmproxy's own parser reads the words and its configuration file, so that the supervisor
    listens at the addresses where each worker would.
    """
    words = standalone.words_of(call)
    opts, quiet = parsed_options(words)
    if "save_stream_file" in opts.deferred or any(word.startswith(SAVING) for word in words):
        raise WrongCallError(
            "save_stream_file (-w) does not go with --workers: all workers would write one file; "
            "--set tee_capture=FOLDER keeps whole exchanges of all workers"
        )
    if not opts.server:
        raise WrongCallError("--no-server does not go with --workers: there is nothing to share")
    addresses = []
    for mode, address in standalone.modes_of(opts).items():
        if isinstance(mode, ReverseMode):
            accepts_tcp = mode.scheme in TCP_SCHEMES
        else:
            accepts_tcp = mode.transport_protocol == "tcp"
        if address is None or not accepts_tcp:
            raise WrongCallError(
                f"--mode {mode.full_spec} does not go with --workers: only regular, reverse, "
                "upstream, socks5 and transparent proxies over TCP can share their address"
            )
        addresses.append(address)
    trusted, troubles = authorities.write_trusted(folder, os.environ)
    return WorkerPlan(
        words=words,
        addresses=tuple(addresses),
        trusted=trusted,
        notes=(*standalone.warnings(opts), *troubles),
        quiet=quiet,
    )


class WorkerCannotStartError(Exception):
    """A worker ended before it accepted, or did not accept in time."""

    def __init__(self, exit_code: int, *, is_late: bool = False) -> None:
        super().__init__(f"it ended before it was ready ({ending_of(exit_code)})")
        self.exit_code = exit_code
        self.is_own_fault = is_late or exit_code not in FROM_OUTSIDE


@dataclass(slots=True, kw_only=True, eq=False)
class Slot:
    """The place of one worker, which successive processes fill."""

    number: int
    current: WorkerProcess | None = None
    retiring: set[WorkerProcess] = field(default_factory=set)
    deaths: int = 0
    """Consecutive deaths, each soon after the start."""
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a process is started for it."""


class Supervisor:
    """The workers of one call."""

    def __init__(
        self, count: int, *, make_call: Callable[[], Call], log: Log, folder: Path
    ) -> None:
        """`make_call`: returns the call with the current settings; `folder`: for files that the
        workers share, removed at the end."""
        self._make_call = make_call
        self._log = log
        self._folder = folder
        self._slots = [Slot(number=number) for number in range(1, count + 1)]
        self._listeners = Listeners()
        self._plan: WorkerPlan
        self._processes: set[WorkerProcess] = set()
        self._tasks: set[asyncio.Task[object]] = set()
        self._stopping = asyncio.Event()
        self._rolling = asyncio.Lock()
        self._exit_code = 0
        self._had_terminal = sys.stderr.isatty()
        self._shared = folder / "shared"
        self._shared.mkdir()
        self._processes_max = PROCESSES_FOR_SLOT_MAX * count
        self._counts = ConnectionCounts(self._shared, processes_max=self._processes_max)
        self._metrics = GroupMetrics(self._shared, self._processes, count=count)

    async def run(self) -> int:
        """Run until a signal ends it; returns the exit code. Raises LedgerError before anything
        has started."""
        self._plan = plan_of(self._make_call(), self._folder)
        self._log.quiet = self._plan.quiet
        opts, _ = parsed_options(self._plan.words)
        standalone.check_addresses(opts)
        self._listeners.open(self._plan.addresses)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_stop)
        loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
        for line in self._plan.notes:
            self._log.warning(line)
        try:
            starting = self._spawn(self._start_all())
            stopped = self._spawn(self._stopping.wait())
            await asyncio.wait([starting, stopped], return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
            await self._stopping.wait()
        except WorkerCannotStartError as error:
            self._exit_code = error.exit_code if error.exit_code > 0 else 1
        finally:
            await self._stop_all()
        return self._exit_code

    # Starting

    async def _start_all(self) -> None:
        first, *others = self._slots
        first.current = await self._started(first, self._plan)
        report = first.current.report
        assert report is not None
        self._log.as_json = report.log_as_json
        if report.metrics is not None:
            address = self._metrics.serve(*report.metrics)
            self._log.info(f"health and metrics of all workers on http://{address}")
        await asyncio.gather(*(self._fill(slot) for slot in others))
        if self._stopping.is_set():
            return
        where = ", ".join(self._listeners.shown())
        self._log.info(f"{len(self._slots)} workers listening at {where}")

    async def _started(self, slot: Slot, plan: WorkerPlan) -> WorkerProcess:
        """A process for the slot that accepts connections. Raises CannotStartError."""
        taken = {each.index for each in self._processes}
        job = WorkerJob(
            number=slot.number,
            words=plan.words,
            trusted=str(plan.trusted),
            listeners=self._listeners.descriptors(plan.addresses),
            folder=str(self._shared),
            index=next(index for index in range(self._processes_max) if index not in taken),
        )
        process = WorkerProcess(job, self._log, self._on_exit)
        try:
            await process.start()
        except OSError as error:
            self._log.warning(f"worker {slot.number} cannot be started: {error.strerror}")
            raise WorkerCannotStartError(1) from error
        self._processes.add(process)
        done, _ = await asyncio.wait([process.ready], timeout=START_SECONDS_MAX)
        if not done:
            self._log.warning(
                f"worker {slot.number} is not ready after {seconds_text(START_SECONDS_MAX)} "
                "and is killed"
            )
            process.kill()
            await process.ended.wait()
        if not done or not process.ready.result():
            raise WorkerCannotStartError(process.exit_code or 0, is_late=not done)
        return process

    async def _fill(self, slot: Slot) -> None:
        """Start a process for an empty slot, with retries."""
        unready = 0
        while not self._stopping.is_set():
            if slot.deaths > 1:
                pause_seconds = min(PAUSE_SECONDS * 2 ** (slot.deaths - 2), PAUSE_SECONDS_MAX)
                pause = seconds_text(pause_seconds)
                self._log.warning(f"worker {slot.number} is started again in {pause}")
                await asyncio.wait([self._spawn(self._stopping.wait())], timeout=pause_seconds)
            async with slot.changing:
                if self._stopping.is_set() or slot.current is not None:
                    return
                try:
                    process = await self._started(slot, self._plan)
                except WorkerCannotStartError as error:
                    unready += error.is_own_fault
                    slot.deaths += 1
                    if self._stopping.is_set():
                        return
                    if unready == UNREADY_DEATHS_MAX:
                        self._log.warning(
                            f"worker {slot.number} does not start: {error}, {unready} times in "
                            "turn. All workers are stopped; its own lines above say why"
                        )
                        self._exit_code = 1
                        self._stopping.set()
                        return
                    self._log.warning(f"worker {slot.number} does not start: {error}")
                    continue
                if process.exit_code is None:
                    slot.current = process
                    return

    def _on_exit(self, process: WorkerProcess) -> None:
        """Handle the end of a process, requested or not."""
        self._processes.discard(process)
        self._metrics.keep_counts_of(process)
        self._counts.clear(process.index)
        slot = self._slots[process.number - 1]
        assert process.exit_code is not None
        if process in slot.retiring:
            slot.retiring.discard(process)
            ending = f" with {ending_of(process.exit_code)}" if process.exit_code else ""
            self._log.info(f"the old worker {process.number} has finished{ending}")
            return
        if process is not slot.current:
            return  # it was starting, and the starter notices its end
        slot.current = None
        if self._stopping.is_set():
            return
        lived = asyncio.get_running_loop().time() - process.started_at
        slot.deaths = 1 if lived >= STEADY_SECONDS else slot.deaths + 1
        self._metrics.restarts += 1
        self._log.warning(
            f"worker {process.number} (process {process.pid}) ended with "
            f"{ending_of(process.exit_code)} and is started again"
        )
        self._spawn(self._fill(slot))

    # Signals

    def _on_stop(self) -> None:
        if self._stopping.is_set():
            for process in self._processes:
                process.kill()
        self._stopping.set()

    def _on_hangup(self) -> None:
        # A closing terminal sends this signal, too.
        if self._had_terminal and not os.isatty(sys.stderr.fileno()):
            self._on_stop()
        else:
            self._spawn(self._roll())

    async def _roll(self) -> None:
        """Replace one worker after the other, with the current settings."""
        async with self._rolling:
            try:
                plan = plan_of(self._make_call(), self._folder)
                self._listeners.open(plan.addresses)
            except LedgerError as error:
                self._log.warning(f"the workers go on as they are: {error}")
                return
            for slot in self._slots:
                async with slot.changing:
                    if self._stopping.is_set() or not await self._replace(slot, plan):
                        return
            self._plan = plan
            self._listeners.keep_only(plan.addresses)
            self._log.info(f"{len(self._slots)} workers were replaced")

    async def _replace(self, slot: Slot, plan: WorkerPlan) -> bool:
        """Start a new process in the slot, and retire the old one; whether that succeeded."""
        try:
            new = await self._started(slot, plan)
        except WorkerCannotStartError as error:
            self._log.warning(
                f"the new worker {slot.number} does not start: {error}; those before go on"
            )
            return False
        # Retiring workers end within seconds, too, also after several replacements.
        for process in list(slot.retiring):
            process.stop()
            await process.ended.wait()
        old, slot.current, slot.deaths = slot.current, new, 0
        if old is not None:
            slot.retiring.add(old)
            old.retire()
        return True

    # Stopping

    async def _stop_all(self) -> None:
        self._stopping.set()
        self._listeners.close()
        for task in self._tasks:  # no worker is started or replaced from here on
            task.cancel()
        for process in self._processes:
            process.stop()
        waits = [asyncio.ensure_future(each.ended.wait()) for each in self._processes]
        if waits:
            _, late = await asyncio.wait(waits, timeout=STOP_SECONDS_MAX)
            if late:
                self._log.warning(f"{len(late)} workers did not end in time and are killed")
                for process in self._processes:
                    process.kill()
                await asyncio.wait(late, timeout=KILL_SECONDS_MAX)
        self._metrics.close()

    def _spawn(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def run_workers(count: int, make_call: Callable[[], Call]) -> int:
    """Run the workers until a signal ends them; returns the exit code."""
    if sys.platform == "win32":
        raise WrongCallError(
            "--workers does not work on Windows, where processes cannot share a listening "
            "socket; start several proxies on ports of their own"
        )
    log = Log()
    with tempfile.TemporaryDirectory(prefix="tokentee-") as name:

        async def run() -> int:
            supervisor = Supervisor(count, make_call=make_call, log=log, folder=Path(name))
            return await supervisor.run()

        return asyncio.run(run())
