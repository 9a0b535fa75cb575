"""Edge. `tokentee run --workers N`: N proxies on one port, and their supervisor.

the port   its socket is the supervisor's and all workers accept from it, so that no connection is
           lost with a worker that dies or retires: what it did not accept, another one does. With
           a socket for each (SO_REUSEPORT), what waits at one is reset when that one is closed
start      worker 1 alone first: it creates the shared files (the ledger and its schema, the
           certificate authority, secrets), and reports wrong options once. Then the others
a death    the worker is started again. One that ends by itself before it accepts ends
           everything; its own lines say why
SIGHUP     the settings are read again; then one worker after the other: a new one accepts, then
           the old one retires (`worker.py`)
SIGTERM,   all workers finish what is under way within seconds, and end; a second signal kills
SIGINT     them
"""

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from addon.attach import attached
from addon.proxy.health import Health, merged
from addon.run import standalone
from addon.run.call.arguments import Call, set_options
from addon.run.command import authorities
from addon.run.leftovers import run_folder
from addon.run.master import parsed_options
from addon.run.ports import ListeningPort
from addon.run.seen import SeenTraffic
from addon.run.worker import WorkerJob, WorkerReport
from ledger.model.errors import LedgerError, WrongCallError
from ledger.store.engines.urls import default_url
from ledger.text.figures import seconds_text

logger = logging.getLogger("tokentee.workers")

MODULE = f"{__name__.rpartition('.')[0]}.worker"
PAUSE_SECONDS = 1.0
"""After a death that follows another one."""
START_SECONDS_MAX = 100.0
"""From a worker's start until it accepts, on a busy machine, with a schema to migrate."""
STOP_SECONDS_MAX = 25.0
"""A worker's own bounds, together: 5 s for open answers, 4 s each for captures and the ledger, 1 s
for telemetry; and as much again for a busy machine."""
RETIRING_SECONDS_MAX = 3_600.0
"""A long answer takes minutes; a Realtime session may last for an hour. mitmproxy closes a
connection that is silent for ten minutes."""
REPORT_BYTES_MAX = 4 * 2**20
SILENT_SECONDS_MAX = 10.0
"""A worker reports every second; one that is silent for this long is stuck."""


@dataclass(slots=True, kw_only=True, eq=False)
class Worker:
    """One process."""

    number: int
    process: Process
    started: asyncio.Future[bool] = field(default_factory=asyncio.Future)
    """Whether it came to accept connections; done when it does, or has ended."""
    is_replaced: bool = False
    report: WorkerReport | None = None
    """Its last one."""
    reported_at: float = 0.0
    """By the monotonic clock."""

    @property
    def is_ready(self) -> bool:
        """Whether it has come to accept connections."""
        return self.started.done() and self.started.result()

    @property
    def name(self) -> str:
        """As it is shown."""
        return f"worker {self.number} (process {self.process.pid})"

    @property
    def ending(self) -> str:
        """How its process ended."""
        code = self.process.returncode or 0
        return f"exit code {code}" if code >= 0 else signal.Signals(-code).name

    def send(self, number: int) -> None:
        """Send a signal, if it lives."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    async def end(self, number: int, seconds_max: float) -> None:
        """Send a signal; kill it if it does not end in time."""
        self.send(number)
        try:
            await asyncio.wait_for(self.process.wait(), seconds_max)
        except TimeoutError:
            logger.warning("tokentee: worker %d did not end in time and is killed", self.number)
            self.send(signal.SIGKILL)


class Supervisor:
    """The workers of one call."""

    def __init__(self, count: int, *, make_call: Callable[[], Call], folder: Path) -> None:
        """`make_call`: returns the call with the current settings; `folder`: for files that the
        workers share, removed at the end. Raises LedgerError for a call that cannot be run."""
        self._make_call = make_call
        self._folder = folder
        self._run_id = secrets.token_hex(4)
        self._started_at = datetime.now(UTC)
        self.words = standalone.words_of(make_call())
        standalone.shared_addresses(self.words)
        opts, is_quiet = parsed_options(self.words)
        logger.setLevel(logging.WARNING if is_quiet else logging.INFO)
        self.listening = standalone.listen(opts)
        self._trusted, troubles = authorities.write_trusted(folder, os.environ)
        for line in (*standalone.warnings(opts), *troubles):
            sys.stderr.write(f"tokentee: {line}\n")
        self.workers: list[Worker] = []
        """Those that live."""
        self._ended: list[WorkerReport] = []
        """The last report of each other one."""
        self._restarts = 0
        self._endpoint: Any = None
        self._changing = {number: asyncio.Lock() for number in range(1, count + 1)}
        """Number of each worker; held while one is started."""
        self._replacing = asyncio.Lock()

    async def run(self) -> int:
        """Run until a signal ends it; returns the exit code. Raises LedgerError."""
        loop, had_terminal = asyncio.get_running_loop(), os.isatty(2)
        self._exit_code: asyncio.Future[int] = loop.create_future()

        def stop() -> None:
            if not self._exit_code.done():
                self._exit_code.set_result(0)
                return
            for worker in self.workers:
                worker.send(signal.SIGKILL)

        def hang_up() -> None:
            # A closing terminal sends SIGHUP, too.
            if os.isatty(2) != had_terminal or self._exit_code.done():
                stop()
            else:
                self._tasks.create_task(self._replace_all())

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        loop.add_signal_handler(signal.SIGHUP, hang_up)
        try:
            async with asyncio.TaskGroup() as self._tasks:
                self._tasks.create_task(self._start_all())
                await asyncio.wait([self._exit_code])
                standalone.close(self.listening)
                for worker in self.workers:
                    self._tasks.create_task(worker.end(signal.SIGTERM, STOP_SECONDS_MAX))
        finally:
            for worker in self.workers:  # none, unless the supervisor has failed
                worker.send(signal.SIGTERM)
            if self._endpoint is not None:
                self._endpoint.stop()
        return self._exit_code.result()

    async def _start_all(self) -> None:
        first, *others = self._changing
        await self._fill(first, is_first=True)
        await asyncio.gather(*map(self._fill, others))
        if not self._exit_code.done():
            where = ", ".join(map(standalone.shown_address, self.listening))
            logger.info("tokentee: %d workers listening at %s", len(self._changing), where)

    async def _fill(self, number: int, *, is_first: bool = False) -> None:
        """Start a worker, again and again until one accepts."""
        async with self._changing[number]:
            while not self._exit_code.done():
                same = [each for each in self.workers if each.number == number]
                if any(each.is_ready and not each.is_replaced for each in same):
                    return
                worker = await self._start(number, self.words, is_first=is_first)
                if worker.is_ready or self._exit_code.done():
                    return
                reason = f"it ended before it was ready ({worker.ending})"
                code = worker.process.returncode or 0
                if is_first or code >= 0:
                    reason += "; all workers are stopped"
                    self._exit_code.set_result(max(code, 1))
                logger.warning("tokentee: worker %d does not start: %s", number, reason)
                await asyncio.wait([self._exit_code], timeout=PAUSE_SECONDS)

    async def _start(
        self, number: int, words: tuple[str, ...], *, is_first: bool = False
    ) -> Worker:
        """Start a worker; return it when it accepts, or has ended."""
        # Isolated from the current folder, whose files could shadow modules. In its own process
        # group: the terminal sends Ctrl-C only to the supervisor, which stops all in order.
        ports = tuple(
            ListeningPort(
                host=host, port=port, descriptors=tuple(each.fileno() for each in sockets)
            )
            for (host, port), sockets in self.listening.items()
            if (host, port) in standalone.shared_addresses(words)
        )
        process = await create_subprocess_exec(
            sys.executable, "-P", "-m", MODULE,
            stdin=PIPE, stdout=PIPE, limit=REPORT_BYTES_MAX, process_group=0,
            pass_fds=[each for port in ports for each in port.descriptors],
        )  # fmt: skip
        worker = Worker(number=number, process=process)
        self.workers.append(worker)
        self._tasks.create_task(self._watch(worker))
        job = WorkerJob(
            run_id=self._run_id,
            words=words,
            trusted=str(self._trusted),
            folder=str(self._folder),
            ports=ports,
            is_first=is_first,
        )
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(job) + b"\n")
        if self._exit_code.done():  # in the meantime
            await worker.end(signal.SIGTERM, STOP_SECONDS_MAX)
        await asyncio.wait([worker.started], timeout=START_SECONDS_MAX)
        if not worker.started.done():
            text = "tokentee: worker %d is not ready after %s and is killed"
            logger.warning(text, number, seconds_text(START_SECONDS_MAX))
            worker.send(signal.SIGKILL)
            await worker.started
        return worker

    async def _watch(self, worker: Worker) -> None:
        """Take a worker's reports; when it has ended, start another one if none replaced it."""
        assert worker.process.stdout is not None
        async for line in worker.process.stdout:
            worker.report = report = msgspec.json.decode(line, type=WorkerReport)
            worker.reported_at = time.monotonic()
            if not worker.started.done():
                worker.started.set_result(True)
            try:
                self._follow_options(report.of_parts)
            except LedgerError as error:  # such as an address that is taken
                if not self._exit_code.done():
                    self._exit_code.set_exception(error)
        await worker.process.wait()
        if not worker.started.done():
            worker.started.set_result(False)
        self.workers.remove(worker)
        if worker.report is not None:
            self._ended.append(worker.report)
        if worker.is_replaced:
            logger.info("tokentee: the old worker %d has finished", worker.number)
        elif worker.is_ready and not self._exit_code.done():
            self._restarts += 1
            text = "tokentee: %s ended with %s and is started again"
            logger.warning(text, worker.name, worker.ending)
            await self._fill(worker.number)

    async def _replace_all(self) -> None:
        """Read the settings again, and replace one worker after the other."""
        async with self._replacing:
            try:
                words = standalone.words_of(self._make_call())
                standalone.shared_addresses(words)
                opts, _ = parsed_options(words)
                self.listening |= standalone.listen(opts, held=self.listening)
            except LedgerError as error:
                logger.warning("tokentee: the workers keep their settings: %s", error)
                return
            replaced = 0
            for number, lock in self._changing.items():
                async with lock:
                    if not await self._replace(number, words):
                        break
                    replaced += 1
            standalone.close(self.listening, but=standalone.shared_addresses(self.words))
            if replaced == len(self._changing):
                logger.info("tokentee: %d workers were replaced", replaced)

    async def _replace(self, number: int, words: tuple[str, ...]) -> bool:
        """Whether a new worker accepts; the old one retires then."""
        if self._exit_code.done():
            return False
        before = [each for each in self.workers if each.number == number]
        new = await self._start(number, words)
        if not new.is_ready:
            logger.warning(
                "tokentee: the new worker %d does not start: it ended before it was ready (%s); "
                "the old workers keep running", number, new.ending,
            )  # fmt: skip
            return False
        self.words = words
        for old in before:
            if old.is_replaced:  # by an earlier one
                ending = old.end(signal.SIGTERM, STOP_SECONDS_MAX)
            else:
                ending = old.end(signal.SIGHUP, RETIRING_SECONDS_MAX)
            old.is_replaced = True
            self._tasks.create_task(ending)
        return True

    def _follow_options(self, of_parts: Mapping[str, Any]) -> None:
        """Log and serve as the options of the workers ask for. Raises LedgerError for an address
        for metrics that is taken."""
        for make in attached("log format"):
            if (formatter := make(of_parts)) is not None:
                logger.handlers[0].setFormatter(formatter)
        for serve in attached("endpoint of workers") if self._endpoint is None else ():
            self._endpoint = serve(
                of_parts, self._folder, health=self.health, dropped=self.dropped_observations
            )

    def health(self) -> Health:
        """The merged health of all workers. Called by the endpoint's threads."""
        running = [each for each in [*self.workers] if each.report is not None]
        numbers = {each.number for each in running}
        missing = [f"worker {n} does not run" for n in self._changing if n not in numbers]
        for worker in running:
            silent = time.monotonic() - worker.reported_at
            if silent > SILENT_SECONDS_MAX:
                text = f"worker {worker.number} has not reported for {seconds_text(silent)}"
                missing.append(text)
        return merged(
            {
                each.name: each.report.health
                for each in running
                if each.report and each.report.health
            },
            missing=missing,
            dropped_before=sum(each.health.dropped for each in self._ended if each.health),
            restarts=self._restarts,
        )

    def dropped_observations(self) -> int:
        """Observations that no worker could count, since the start."""
        running = [each.report for each in [*self.workers] if each.report is not None]
        return sum(each.dropped_observations for each in (*self._ended, *running))

    def show_bill(self) -> None:
        """What all workers recorded since the start, when they have ended."""
        traffic, since = SeenTraffic(), self._started_at
        for report in self._ended:
            traffic.seen.add(report.seen)
            since = min(since, report.first_opened_at)
        lacking = "; ".join(report.unrecorded for report in self._ended if report.unrecorded)
        url = set_options(self.words).get("ledger_url") or default_url()
        traffic.show_bill(url, self._run_id, since=since, unrecorded=lacking)


def run_workers(count: int, make_call: Callable[[], Call]) -> int:
    """Run the workers until a signal ends them; returns the exit code. Raises LedgerError before
    anything has started."""
    if sys.platform != "linux":
        raise WrongCallError(
            "--workers needs Linux; start several proxies on ports of their own, behind a load "
            "balancer"
        )
    logger.addHandler(logging.StreamHandler())
    with run_folder() as folder:
        supervisor = Supervisor(count, make_call=make_call, folder=folder.path)
        code = asyncio.run(supervisor.run())
    if code == 0:
        supervisor.show_bill()
    return code
