"""Wiring. Starts the workers, replaces those that die, restarts them in turn, and stops them.

    start      worker 1 alone first: it creates the shared files (the ledger and its schema, the
               certificate authority, secrets), and reports wrong options once. Then the others
    a death    the worker is started again: at once, then after a pause that doubles with each
               death within `STEADY_SECONDS`. A worker that ends `UNREADY_ENDS_MAX` times
               before it accepts, and was not killed from outside, ends everything
    SIGHUP     the settings are read again; then one worker after the other: a new one accepts,
               then the old one retires (`worker.py`), and is killed if it does not end
    SIGTERM,   all workers finish what is under way within seconds, and end; a second signal
    SIGINT     kills them

It looks at its workers every `TICK_SECONDS`, in one thread.
"""

import contextlib
import logging
import math
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any

import msgspec
from mitmproxy.proxy.mode_specs import ReverseMode

from addon.attach import required
from addon.proxy.health import Health, merged
from addon.run import standalone
from addon.run.call.arguments import Call, set_options
from addon.run.command import authorities
from addon.run.leftovers import run_folder
from addon.run.master import parsed_options
from addon.run.seen import SeenTraffic
from addon.run.workers.job import (
    RETIRING_SECONDS_MAX,
    WorkerJob,
    WorkerReport,
    read_report,
    read_seen,
    report_path,
)
from ledger.model.errors import LedgerError, WrongCallError
from ledger.settings.small_files import expanded
from ledger.store.engines.urls import default_url
from ledger.store.processes.supervision import pause_after
from ledger.text import first_minute
from ledger.text.figures import seconds_text
from ledger.text.hints import as_typed

logger = logging.getLogger("tokentee.workers")

MODULE = __name__.rpartition(".")[0]
"""The package, whose `__main__` is the worker."""
TICK_SECONDS = 0.1
PAUSE_SECONDS = 0.5
PAUSE_SECONDS_MAX = 30.0
"""A worker that dies repeatedly is restarted at most twice a minute."""
STEADY_SECONDS = 60.0
"""A worker that has run for this long has recovered."""
UNREADY_ENDS_MAX = 3
START_SECONDS_MAX = 100.0
"""From a worker's start until it accepts, on a busy machine, with a schema to migrate."""
STOP_SECONDS_MAX = 25.0
"""A worker's own bounds, together: 5 s for open answers, 4 s each for captures and the ledger, 1 s
for telemetry; and as much again for a busy machine."""
KILL_SECONDS_MAX = 30.0
"""A killed process ends at once, unless it waits for a disk."""
SILENT_SECONDS_MAX = 10.0
"""A worker reports every second; one that is silent for this long is stuck."""
FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM)
"""Signals with which others end a process, such as a kernel without memory. They do not mean that
the start failed."""
TCP_SCHEMES = ("http", "https", "tls", "tcp")
"""Schemes of reverse proxies whose connections several processes can accept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlan:
    """The parameters that are the same for all workers."""

    words: tuple[str, ...]
    addresses: tuple[str, ...]
    trusted: Path
    """The file of the authorities that verify upstreams."""
    quiet: bool
    """Only warnings are logged."""
    first_lines: tuple[str, ...]
    """What clients have to set, and what to type next."""
    ledger_url: str


def plan_of(call: Call, folder: Path, *, held: tuple[str, ...] = ()) -> WorkerPlan:
    """The plan. `folder`: for the file of authorities; `held`: addresses that workers listen on.
    Raises WrongCallError for an option that several workers cannot support, or that mitmproxy
    refuses; LedgerError for an address that another program has."""
    words = standalone.words_of(call)
    opts, quiet = parsed_options(words)

    def is_given(option: str, *flags: str) -> bool:
        return option in opts.deferred or any(word.startswith(flags) for word in words)

    if is_given("save_stream_file", "-w", "--save-stream-file"):
        raise WrongCallError(
            "save_stream_file (-w) does not go with --workers: all workers would write one file; "
            "--capture FOLDER keeps whole exchanges of all workers"
        )
    if not opts.server:
        raise WrongCallError("--no-server does not go with --workers: there is nothing to share")
    addresses, listeners = [], []
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
        if not address[1]:
            raise WrongCallError("port 0 does not go with --workers, which share one; name a port")
        addresses.append(standalone.shown_address(address))
        listeners.append((mode.full_spec, *address))
    standalone.check_addresses(opts, held=held)
    trusted, troubles = authorities.write_trusted(folder, os.environ)
    for line in () if held else (*standalone.warnings(opts), *troubles):
        sys.stderr.write(f"tokentee: {line}\n")
    authority = str(expanded(opts.confdir) / "mitmproxy-ca-cert.pem")
    return WorkerPlan(
        words=words,
        addresses=tuple(addresses),
        trusted=trusted,
        quiet=quiet,
        first_lines=tuple(
            first_minute.lines_at_start(
                listeners, authority=authority, asks_password=is_given("proxyauth", "--proxyauth")
            )
        ),
        ledger_url=set_options(words).get("ledger_url") or default_url(),
    )


class WorkerState(Enum):
    """Of a process: STARTING until its first report, LATE if it was killed for want of one,
    RETIRING from SIGHUP."""

    STARTING = auto()
    LATE = auto()
    ACCEPTING = auto()
    RETIRING = auto()


@dataclass(slots=True, eq=False)
class WorkerPlace:
    """The place of one worker, which successive processes fill."""

    number: int
    deaths: int = 0
    """Consecutive ones, each soon after the start."""
    unready: int = 0
    """Ends before it accepted, which were its own fault."""
    due_at: float = 0.0
    """When it may be started again, on the monotonic clock."""


@dataclass(slots=True, kw_only=True, eq=False)
class Worker:
    """A process, until its end was handled."""

    place: WorkerPlace
    index: int
    """Of its files, unique among living processes."""
    process: "subprocess.Popen[bytes]"
    started_at: float
    """On the monotonic clock."""
    replaces: bool
    """It was started at SIGHUP, while another one accepts."""
    killed_at: float
    """When it is killed unless its state has changed, on the monotonic clock."""
    state: WorkerState = WorkerState.STARTING


class Supervisor:
    """The workers of one call."""

    def __init__(self, count: int, *, make_call: Callable[[], Call], folder: Path) -> None:
        """`make_call`: returns the call with the current settings; `folder`: for files that the
        workers share, removed at the end."""
        self._places = [WorkerPlace(number) for number in range(1, count + 1)]
        self.run_id = secrets.token_hex(4)
        self._make_call = make_call
        self._folder = folder
        self._plan = self._next_plan = plan_of(make_call(), folder)
        logger.setLevel(logging.WARNING if self._plan.quiet else logging.INFO)
        self._to_replace: list[WorkerPlace] = []
        self._workers: list[Worker] = []
        self._signals: list[int] = []
        self._all_listen = False
        self._exit_code: int | None = None
        """Not None: everything is stopped."""
        self._endpoint: Any = None
        """Of all workers; None: not asked for, or no worker is ready."""
        self._restarts = 0
        self._dropped = self._observations_dropped = 0
        """By workers that have ended."""

    @property
    def ledger_url(self) -> str:
        """Of the current settings."""
        return self._plan.ledger_url

    def run(self) -> int:
        """Run until a signal ends it; returns the exit code."""
        had_terminal = os.isatty(2)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, _: self._signals.append(number))
        try:
            while self._exit_code is None:
                taken, self._signals = self._signals, []
                for received in taken:
                    # A closing terminal sends SIGHUP, too.
                    if received != signal.SIGHUP or os.isatty(2) != had_terminal:
                        self._exit_code = 0
                        continue
                    held = self._plan.addresses
                    try:
                        self._next_plan = plan_of(self._make_call(), self._folder, held=held)
                        self._to_replace = list(self._places)
                    except LedgerError as error:
                        logger.warning(
                            "tokentee: the workers keep their settings: %s",
                            error,
                        )
                for worker in list(self._workers):
                    self._look_at(worker, time.monotonic())
                if self._exit_code is None:
                    self._start_due(time.monotonic())
                    time.sleep(TICK_SECONDS)
        finally:
            self._stop_all()
        return self._exit_code

    # Processes

    def _start_due(self, now: float) -> None:
        """Start the processes that are missing, and the next one that replaces another."""
        filled = {each.place for each in self._workers if each.state is not WorkerState.RETIRING}
        is_first_ready = self._all_listen or self._accepting(self._places[0]) is not None
        for place in self._places if is_first_ready else self._places[:1]:
            if place not in filled and now >= place.due_at:
                self._start(place, self._plan, replaces=False)
        if any(each.state is WorkerState.STARTING for each in self._workers):
            return
        if self._to_replace:
            self._start(self._to_replace[0], self._next_plan, replaces=True)
        elif not self._all_listen and len(filled) == len(self._places):
            self._all_listen = True
            where = ", ".join(self._plan.addresses)
            logger.info("tokentee: %d workers listening at %s", len(filled), where)
            for line in self._plan.first_lines:
                logger.info("tokentee: %s", as_typed(line, os.environ))

    def _start(self, place: WorkerPlace, plan: WorkerPlan, *, replaces: bool) -> None:
        taken = {each.index for each in self._workers}
        index = next(index for index in range(len(taken) + 1) if index not in taken)
        report_path(self._folder, index).unlink(missing_ok=True)
        job = WorkerJob(
            number=place.number,
            index=index,
            run_id=self.run_id,
            words=plan.words,
            trusted=str(plan.trusted),
            folder=str(self._folder),
        )
        # Isolated from the current folder, whose files could shadow modules. In its own process
        # group: the terminal sends Ctrl-C only to the supervisor, which stops all in order.
        process = subprocess.Popen(  # noqa: S603  # our own module
            [sys.executable, "-P", "-m", MODULE], stdin=subprocess.PIPE, process_group=0
        )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            os.write(process.stdin.fileno(), msgspec.json.encode(job) + b"\n")
        now = time.monotonic()
        self._workers.append(
            Worker(
                place=place,
                index=index,
                process=process,
                started_at=now,
                killed_at=now + START_SECONDS_MAX,
                replaces=replaces,
            )
        )

    def _accepting(self, place: WorkerPlace) -> Worker | None:
        """The worker in a place that accepts."""
        same = (each for each in self._workers if each.place is place)
        return next((each for each in same if each.state is WorkerState.ACCEPTING), None)

    def _look_at(self, worker: Worker, now: float) -> None:
        if (code := worker.process.poll()) is not None:
            self._workers.remove(worker)
            self._handle_end(worker, code, now)
            return
        is_starting = worker.state is WorkerState.STARTING
        if is_starting and (report := read_report(self._folder, worker.index)):
            self._handle_ready(worker, report, now)
        elif now > worker.killed_at:
            worker.process.kill()
            worker.killed_at = math.inf
            if is_starting:
                late = seconds_text(START_SECONDS_MAX)
                text = "tokentee: worker %d is not ready after %s and is killed"
                logger.warning(text, worker.place.number, late)
                worker.state = WorkerState.LATE
            else:
                text = "tokentee: the old worker %d did not end in time and is killed"
                logger.warning(text, worker.place.number)

    def _handle_ready(self, worker: Worker, report: WorkerReport, now: float) -> None:
        """A worker accepts; the one before it retires."""
        place = worker.place
        place.unready = 0
        if worker.replaces:
            place.deaths = 0
            for each in self._workers:
                # Retiring workers end within seconds after several replacements.
                if each.place is place and each.state is WorkerState.RETIRING:
                    each.process.terminate()
                    each.killed_at = min(each.killed_at, now + STOP_SECONDS_MAX)
            if old := self._accepting(place):
                old.state = WorkerState.RETIRING
                old.killed_at = now + RETIRING_SECONDS_MAX + STOP_SECONDS_MAX
                old.process.send_signal(signal.SIGHUP)
            self._to_replace.remove(place)
            if not self._to_replace:
                self._plan = self._next_plan
                logger.info("tokentee: %d workers were replaced", len(self._places))
        worker.state, worker.killed_at = WorkerState.ACCEPTING, math.inf
        if self._endpoint is None and report.metrics is not None:
            serve = required("endpoint of workers", option="tee_metrics")
            self._endpoint = serve(
                report.metrics,
                self._folder,
                health=self.health,
                dropped=self.dropped_observations,
            )
        if report.log_as_json:
            logger.handlers[0].setFormatter(required("log format", option="tee_log_format")())

    def _handle_end(self, worker: Worker, code: int, now: float) -> None:
        """A process has ended, requested or not."""
        place, number = worker.place, worker.place.number
        assert worker.process.stdin is not None
        worker.process.stdin.close()
        if report := read_report(self._folder, worker.index):
            self._observations_dropped += report.dropped_observations
            self._dropped += report.health.dropped if report.health is not None else 0
        reason = f"it ended before it was ready ({ending_of(code)})"
        if worker.state is WorkerState.RETIRING:
            ending = f" with {ending_of(code)}" if code else ""
            logger.info("tokentee: the old worker %d has finished%s", number, ending)
            return
        if worker.state is WorkerState.ACCEPTING:
            is_steady = now - worker.started_at >= STEADY_SECONDS
            place.deaths = 1 if is_steady else place.deaths + 1
            self._restarts += 1
            who = f"worker {number} (process {worker.process.pid})"
            logger.warning("tokentee: %s ended with %s and is started again", who, ending_of(code))
        elif worker.replaces:
            self._to_replace.clear()
            text = "tokentee: the new worker %d does not start: %s; the old workers keep running"
            logger.warning(text, number, reason)
            return
        elif not self._all_listen and number == 1:
            self._exit_code = code if code > 0 else 1  # its own lines say why
            return
        else:
            place.deaths += 1
            is_late = worker.state is WorkerState.LATE
            place.unready += is_late or code not in FROM_OUTSIDE
            if place.unready == UNREADY_ENDS_MAX:
                reason += f", {UNREADY_ENDS_MAX} times in a row. All workers are stopped"
                self._exit_code = 1
            logger.warning("tokentee: worker %d does not start: %s", number, reason)
        if place.deaths > 1 and self._exit_code is None:
            seconds = pause_after(
                place.deaths - 1, first_seconds=PAUSE_SECONDS, seconds_max=PAUSE_SECONDS_MAX
            )
            place.due_at = now + seconds
            pause = seconds_text(seconds)
            logger.warning("tokentee: worker %d is started again in %s", number, pause)

    def _stop_all(self) -> None:
        """Stop the workers within the bound, or at a second signal; then kill them."""
        for worker in self._workers:
            worker.process.terminate()
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while running := [each for each in self._workers if each.process.poll() is None]:
            if time.monotonic() > deadline:
                count = len(running)
                logger.warning("tokentee: %d workers did not end in time and are killed", count)
            elif not self._signals:
                time.sleep(TICK_SECONDS)
                continue
            for worker in running:
                worker.process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                for worker in running:
                    worker.process.wait(KILL_SECONDS_MAX)
            break
        for worker in self._workers:
            assert worker.process.stdin is not None
            worker.process.stdin.close()
        if self._endpoint is not None:
            self._endpoint.stop()

    # Health and metrics of all workers, for the endpoint's threads

    def health(self) -> Health:
        """The merged health of all workers."""
        reports = self._reports()
        running = {worker.place for worker, _ in reports}
        missing = [
            f"worker {place.number} does not run" for place in self._places if place not in running
        ]
        missing += [
            f"worker {worker.place.number} has not reported for {seconds_text(report.age_seconds)}"
            for worker, report in reports
            if report.age_seconds > SILENT_SECONDS_MAX
        ]
        healths = {
            f"worker {worker.place.number} (process {worker.process.pid})": report.health
            for worker, report in reports
            if report.health is not None
        }
        return merged(
            healths, missing=missing, dropped_before=self._dropped, restarts=self._restarts
        )

    def dropped_observations(self) -> int:
        """Observations that no worker could count, since the start."""
        living = sum(report.dropped_observations for _, report in self._reports())
        return self._observations_dropped + living

    def _reports(self) -> list[tuple[Worker, WorkerReport]]:
        reports = [(each, read_report(self._folder, each.index)) for each in list(self._workers)]
        return [(worker, report) for worker, report in reports if report is not None]


def ending_of(exit_code: int) -> str:
    """A text for how a process ended."""
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return signal.Signals(-exit_code).name
    except ValueError:
        return f"signal {-exit_code}"


def run_workers(count: int, make_call: Callable[[], Call]) -> int:
    """Run the workers until a signal ends them; returns the exit code. Raises LedgerError before
    anything has started."""
    if sys.platform != "linux":
        raise WrongCallError(
            "--workers needs Linux, which distributes the connections of one port over processes; "
            "start several proxies on ports of their own, behind a load balancer"
        )
    logger.addHandler(logging.StreamHandler())
    with run_folder() as folder:
        supervisor = Supervisor(count, make_call=make_call, folder=folder.path)
        code = supervisor.run()
        traffic = SeenTraffic()
        for counts in read_seen(folder.path):
            traffic.seen.add(counts)
    if code == 0:
        traffic.show_bill(supervisor.ledger_url, supervisor.run_id)
    return code
