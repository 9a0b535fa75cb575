"""Pure. Whether this process is recording; the health of several workers is merged. Telemetry, a
part, shows it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ledger.text.figures import seconds_text

if TYPE_CHECKING:
    from addon.recordings.capture import CaptureFiles
    from ledger.store.writing.batches import Price
    from ledger.store.writing.incoming import OnCommit
    from ledger.store.writing.writer import Ledger

SPOOL_AGE_SECONDS_MAX = 3600.0
"""An exchange that waits longer for the shared database makes the process not ready: nothing is
lost, but the operator should check."""
DISK_FREE_BYTES_MIN = 64 * 1024 * 1024
"""Below this a SQLite commit may fail at any moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The state of one recording process. None: does not apply, or is not known."""

    writer_alive: bool
    writer_trouble: str | None = None
    """Why the writer cannot commit now."""
    queued_rows: int = 0
    """Rows that wait for the writer."""
    dropped: int = 0
    """Exchanges that could not be recorded since the start."""
    open_exchanges: int = 0
    shipper_alive: bool | None = None
    shipping_trouble: str | None = None
    waiting_to_ship: int | None = None
    oldest_waiting_seconds: float | None = None
    ledger_bytes: int | None = None
    wal_bytes: int | None = None
    disk_free_bytes: int | None = None
    stopped_threads: tuple[str, ...] = ()
    """Other threads that are not working, each with its last error."""
    cap_shares: tuple[tuple[str, float], ...] = ()
    """Cap -> the share of it that is spent."""
    captures_dropped: int | None = None
    """Captures that could not be written since the start."""
    workers: int | None = None
    """Workers of `tokentee run --workers` that run; None: there is one process."""
    missing_workers: tuple[str, ...] = ()
    """Workers that do not run or do not answer, each with the reason."""
    worker_restarts: int | None = None
    """How often a worker was restarted after it had ended unexpectedly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricFiles:
    """Where a worker counts its metrics (`metrics.py`): the files of an index that one
    living process has at a time."""

    folder: Path
    index: int


class Telemetry(Protocol):
    """What watches a recording. Nothing of it runs on the event loop."""

    def pricing(self, price: "Price") -> "Price":
        """The writer's price function, watched."""

    def on_commit(self, then: "OnCommit | None") -> "OnCommit":
        """The writer's callback for commits: calls `then` first, for clients wait behind it."""

    def start(
        self,
        ledger: "Ledger",
        *,
        open_exchanges: Callable[[], int],
        captures: Callable[[], "CaptureFiles | None"],
        cap_shares: Callable[[], tuple[tuple[str, float], ...]],
    ) -> None:
        """Watch this ledger from now on."""

    def stop(self, timeout_seconds: float) -> None:
        """Export the remaining data within the timeout, and stop."""

    def health(self) -> Health:
        """The state of this process now."""

    @property
    def dropped(self) -> int:
        """Exchanges that it could not count."""


_MERGED: Mapping[str, Callable[[list[Any]], Any]] = {
    **dict.fromkeys(("queued_rows", "dropped", "open_exchanges", "captures_dropped"), sum),
    "shipper_alive": all,
    "shipping_trouble": lambda troubles: troubles[0],
    **dict.fromkeys(("waiting_to_ship", "oldest_waiting_seconds"), max),
    **dict.fromkeys(("ledger_bytes", "wal_bytes"), max),
    "disk_free_bytes": min,
    "cap_shares": lambda shares: tuple(dict(sorted(chain.from_iterable(shares))).items()),
}
"""Field -> the workers' value of those that are known. Figures of each worker are added up. The
workers share the ledger's file, the spool and the disk: there the largest size and the smallest
free space count. Of each cap it is the largest share."""


def merged(
    reports: Mapping[str, Health], *, missing: Iterable[str], dropped_before: int, restarts: int
) -> Health:
    """The merged health of all workers. `reports`: by the name of the worker; `missing`: which
    workers do not run, and why; `dropped_before`: by workers that have ended."""
    healths = list(reports.values())
    values = {
        name: merge(known)
        for name, merge in _MERGED.items()
        if (known := [value for each in healths if (value := getattr(each, name)) is not None])
    }
    values["dropped"] = dropped_before + values.get("dropped", 0)
    troubles = [
        f"{name}: {health.writer_trouble}"
        for name, health in sorted(reports.items())
        if health.writer_trouble is not None
    ]
    return Health(
        **values,
        writer_alive=bool(healths) and all(each.writer_alive for each in healths),
        writer_trouble=next(iter(troubles), None),
        stopped_threads=tuple(
            f"{name}: {thread}"
            for name, health in sorted(reports.items())
            for thread in health.stopped_threads
        ),
        workers=len(healths),
        missing_workers=tuple(missing),
        worker_restarts=restarts,
    )


def problems(health: Health) -> list[str]:
    """Why the process is not ready; empty: it is."""
    found = []
    if not health.writer_alive:
        found.append("the writer thread has ended: nothing is recorded")
    if health.writer_trouble is not None:
        found.append(f"the ledger cannot be written: {health.writer_trouble}")
    if health.shipper_alive is False:
        found.append("the shipper thread has ended: exchanges stay in the spool")
    found += [f"a thread does not work: {thread}" for thread in health.stopped_threads]
    if (age := health.oldest_waiting_seconds) is not None and age > SPOOL_AGE_SECONDS_MAX:
        found.append(f"exchanges wait {seconds_text(age)} for the shared ledger")
    if (free := health.disk_free_bytes) is not None and free < DISK_FREE_BYTES_MIN:
        found.append(f"the disk of the ledger has {free:,} bytes left")
    found += health.missing_workers
    return found
