"""Edge. Telemetry of this process: built from the options, fed by the ledger, stopped with it.

The server of health and metrics is imported only if an option asks for it: that saves start time.
"""

from __future__ import annotations

import logging
import shutil
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from addon.parts.telemetry.observer import Observer, Sink
from addon.proxy.health import Health, MetricFiles
from ledger.model.errors import LedgerError
from ledger.settings.extras import needs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from addon.parts.telemetry.endpoint import Endpoint
    from addon.recordings.capture import CaptureFiles
    from ledger.store.spool import SpoolStatus
    from ledger.store.writing.writer import Ledger

logger = logging.getLogger(__name__)

SPOOL_CHECK_SECONDS = 5.0
"""How long the state of a spool is cached: a scrape each second costs no query each second."""


class Watching:
    """The telemetry of one process. Nothing of it runs on the event loop."""

    def __init__(
        self,
        *,
        metrics: tuple[str, int] | None = None,
        otlp: str | None = None,
        metric_files: MetricFiles | None = None,
    ) -> None:
        """Raises LedgerError if a port is taken or a package is missing.

        `metrics`: host and port of `/healthz`, `/readyz`, `/metrics`; `otlp`: base URL of a
        receiver; `metric_files`: of a worker, which counts there; its supervisor serves them.
        """
        self._open_exchanges: Callable[[], int] = lambda: 0
        self._captures: Callable[[], CaptureFiles | None] = lambda: None
        self._cap_shares: Callable[[], tuple[tuple[str, float], ...]] = lambda: ()
        self._ledger: Ledger | None = None
        self._spool: tuple[float, SpoolStatus] | None = None
        sinks: list[Sink] = []
        self._endpoint: Endpoint | None = None
        if metrics is not None and metric_files is not None:
            from addon.parts.telemetry.metrics import metrics_of_worker

            sinks.append(
                metrics_of_worker(
                    metric_files,
                    self.health,
                    dropped_observations=lambda: self.observer.dropped,
                )
            )
        elif metrics is not None:
            from addon.parts.telemetry.endpoint import Endpoint
            from addon.parts.telemetry.metrics import Metrics

            counted = Metrics(self.health, dropped_observations=lambda: self.observer.dropped)
            sinks.append(counted)
            self._endpoint = Endpoint(*metrics, health=self.health, registry=counted.registry)
        if otlp is not None:
            try:
                from addon.parts.telemetry.otlp import Otlp
            except ModuleNotFoundError as error:
                raise LedgerError(f"tee_otlp: {needs('opentelemetry')}") from error
            sinks.append(Otlp(otlp))
        self.observer = Observer(sinks)
        self.pricing, self.on_commit = self.observer.pricing, self.observer.on_commit

    def start(
        self,
        ledger: Ledger,
        *,
        open_exchanges: Callable[[], int],
        captures: Callable[[], CaptureFiles | None] = lambda: None,
        cap_shares: Callable[[], tuple[tuple[str, float], ...]] = lambda: (),
    ) -> None:
        """Start to observe the commits of the ledger, and to answer scrapes."""
        self._ledger = ledger
        self._captures = captures
        self._cap_shares = cap_shares
        self._open_exchanges = open_exchanges
        self.observer.start()
        if self._endpoint is not None:
            self._endpoint.start()
            logger.info("tokentee: health and metrics on http://%s:%d", *self._endpoint.address)

    @property
    def dropped(self) -> int:
        """Exchanges that could not be counted."""
        return self.observer.dropped

    def stop(self, timeout_seconds: float) -> None:
        """Export the remaining data within the timeout, and close the port."""
        self.observer.stop(timeout_seconds)
        if self._endpoint is not None:
            self._endpoint.stop()

    def health(self) -> Health:
        """The state of this process now."""
        ledger = self._ledger
        if ledger is None:
            return Health(writer_alive=False)
        found = ledger.health()
        threads = {thread.name: thread for thread in (*found.threads, self.observer.health())}
        captures = self._captures()
        capturing = captures.health() if captures is not None else None
        if capturing is not None:
            threads[capturing.name] = capturing
        writer, shipper = threads.get("writer"), threads.get("shipper")
        path = ledger.file
        status = self._status(path) if shipper is not None else None
        waited = None
        if status is not None:
            age = datetime.now(UTC) - status.oldest if status.oldest else timedelta()
            waited = max(0.0, age.total_seconds())
        return Health(
            writer_alive=writer is None or writer.is_working,
            writer_trouble=found.trouble,
            queued_rows=found.queued_rows,
            dropped=found.dropped,
            open_exchanges=self._open_exchanges(),
            cap_shares=self._cap_shares(),
            shipper_alive=shipper.is_working if shipper is not None else None,
            shipping_trouble=status.trouble if status is not None else None,
            waiting_to_ship=status.waiting if status is not None else None,
            oldest_waiting_seconds=waited,
            ledger_bytes=_size(path),
            wal_bytes=_size(path.with_name(f"{path.name}-wal")),
            disk_free_bytes=_free(path),
            stopped_threads=tuple(
                f"{thread.name}: {thread.error}"
                for thread in threads.values()
                if thread not in (writer, shipper) and not thread.is_working
            ),
            captures_dropped=captures.dropped if captures is not None else None,
        )

    def _status(self, path: Path) -> SpoolStatus | None:
        from ledger.store import spool

        now = time.monotonic()
        if self._spool is None or now - self._spool[0] > SPOOL_CHECK_SECONDS:
            try:
                self._spool = (now, spool.status_of(path))
            except LedgerError:
                return None
        return self._spool[1]


def watching_of(options: Mapping[str, Any], metric_files: MetricFiles | None) -> Watching | None:
    """What watches this process by these options of the proxy; None: nothing was asked for."""
    metrics, otlp = options.get("tee_metrics"), options.get("tee_otlp")
    if metrics is None and otlp is None:
        return None
    return Watching(metrics=metrics, otlp=otlp, metric_files=metric_files)


def workers_endpoint_of(
    options: Mapping[str, Any],
    folder: Path,
    *,
    health: Callable[[], Health],
    dropped: Callable[[], int],
) -> WorkersEndpoint | None:
    """The endpoint of all workers by these options of the proxy; None: none was asked for.
    LedgerError: its address is taken."""
    if (address := options.get("tee_metrics")) is None:
        return None
    host, port = address
    return WorkersEndpoint((host, port), folder, health=health, dropped=dropped)


class WorkersEndpoint:
    """Health and metrics of all workers, until it is stopped."""

    def __init__(
        self,
        address: tuple[str, int],
        folder: Path,
        *,
        health: Callable[[], Health],
        dropped: Callable[[], int],
    ) -> None:
        """`folder`: where the workers count; `dropped`: exchanges that they could not count."""
        from addon.parts.telemetry.endpoint import Endpoint
        from addon.parts.telemetry.metrics import metrics_of_workers

        registry = metrics_of_workers(folder, health, dropped_observations=dropped)
        self._endpoint = Endpoint(*address, health=health, registry=registry)
        self._endpoint.start()
        where = "http://{}:{}".format(*self._endpoint.address)
        logger.info("tokentee: health and metrics of all workers on %s", where)
        self.stop = self._endpoint.stop


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _free(path: Path) -> int | None:
    try:
        return shutil.disk_usage(path.parent).free
    except OSError:
        return None
