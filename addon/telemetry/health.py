"""Pure. Whether this process is recording, in the words of `/readyz`."""

from dataclasses import dataclass

SPOOL_AGE_SECONDS_MAX = 3600.0
"""An exchange that waits longer for the shared database makes the process not ready: nothing is
lost, but somebody should look."""
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
    """Other threads that do not work now, each with its last error."""
    captures_dropped: int | None = None
    """Captures that could not be written since the start."""


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
        found.append(f"exchanges wait {age:.0f} s for the shared ledger")
    if (free := health.disk_free_bytes) is not None and free < DISK_FREE_BYTES_MIN:
        found.append(f"the disk of the ledger has {free:,} bytes left")
    return found
