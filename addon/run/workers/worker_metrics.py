"""Edge. Health and metrics of all workers, served by the supervisor.

A worker's counters outlive it (`telemetry/metrics.py`). Its reports hold the number of
exchanges that it could not record; for a worker that has ended, the last report counts.
"""

import time
from collections.abc import Collection
from pathlib import Path

from addon.run.workers.worker_process import WorkerProcess
from addon.telemetry.endpoint import Endpoint
from addon.telemetry.health import Health, merged
from addon.telemetry.metrics import metrics_of_workers
from ledger.text.figures import seconds_text

SILENT_SECONDS_MAX = 10.0
"""A worker reports every second; one that is silent for this long is stuck."""


class GroupMetrics:
    """The metrics and health of all workers, for a scrape."""

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
