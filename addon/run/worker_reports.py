"""Edge. What the workers of a port report, and what of it is shown: health and metrics of all, the
bill at the end."""

import logging
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from addon.attach import attached
from addon.proxy.health import Health, merged
from addon.run.seen import SeenTraffic
from ledger.text.figures import seconds_text
from ledger.text.first_minute import PassedTraffic

SILENT_SECONDS_MAX = 10.0
"""A worker reports every second; one that is silent for this long is stuck."""


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
    """What the ledger lacks; empty: nothing is known to be missing."""


@dataclass(frozen=True, slots=True)
class _Latest:
    number: int
    report: WorkerReport
    at: float
    """By the monotonic clock."""


class WorkerReports:
    """The reports of all workers, by the name of each process."""

    def __init__(self, folder: Path, count: int) -> None:
        """`folder`: where workers count their metrics; `count`: of the workers."""
        self.restarts = 0
        """How often a worker was started again after it had ended unexpectedly."""
        self._folder = folder
        self._count = count
        self._running: dict[str, _Latest] = {}
        self._ended: list[WorkerReport] = []
        self._endpoint: Any = None

    def take(self, number: int, name: str, line: bytes) -> None:
        """A line of a worker; the first one starts what the options ask for. Raises LedgerError
        for an address for metrics that is taken."""
        report = msgspec.json.decode(line, type=WorkerReport)
        self._running[name] = _Latest(number, report, time.monotonic())
        for make in attached("log format"):
            if (formatter := make(report.of_parts)) is not None:
                logging.getLogger("tokentee.workers").handlers[0].setFormatter(formatter)
        for serve in attached("endpoint of workers") if self._endpoint is None else ():
            self._endpoint = serve(
                report.of_parts, self._folder, health=self.health, dropped=self.dropped_observations
            )

    def end(self, name: str) -> None:
        """The worker has ended."""
        if (latest := self._running.pop(name, None)) is not None:
            self._ended.append(latest.report)

    def close(self) -> None:
        """Stop serving health and metrics."""
        if self._endpoint is not None:
            self._endpoint.stop()

    def health(self) -> Health:
        """The merged health of all workers. Called by the endpoint's threads."""
        running = dict(self._running)
        numbers = {latest.number for latest in running.values()}
        missing = [
            f"worker {number} does not run"
            for number in range(1, self._count + 1)
            if number not in numbers
        ]
        for latest in running.values():
            silent = time.monotonic() - latest.at
            if silent > SILENT_SECONDS_MAX:
                text = f"worker {latest.number} has not reported for {seconds_text(silent)}"
                missing.append(text)
        return merged(
            {
                name: latest.report.health
                for name, latest in running.items()
                if latest.report.health is not None
            },
            missing=missing,
            dropped_before=sum(each.health.dropped for each in self._ended if each.health),
            restarts=self.restarts,
        )

    def dropped_observations(self) -> int:
        """Observations that no worker could count, since the start."""
        running = [latest.report for latest in dict(self._running).values()]
        return sum(each.dropped_observations for each in (*self._ended, *running))

    def show_bill(self, url: str, run_id: str, *, since: datetime) -> None:
        """What all workers recorded since the start, when they have ended."""
        traffic = SeenTraffic()
        for report in self._ended:
            traffic.seen.add(report.seen)
            since = min(since, report.first_opened_at)
        lacking = "; ".join(report.unrecorded for report in self._ended if report.unrecorded)
        traffic.show_bill(url, run_id, since=since, unrecorded=lacking)
