"""Edge. What a worker gets from its supervisor, and its reports, which are files."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from addon.proxy.health import Health
from ledger.text.first_minute import PassedTraffic

RETIRING_SECONDS_MAX = 3_600.0
"""A long answer takes minutes; a Realtime session may last for an hour."""


class WorkerJob(msgspec.Struct, frozen=True, kw_only=True):
    """The job of a worker: one line of JSON on its stdin, which ends with the supervisor."""

    number: int
    index: int
    """The worker's index among the files of the folder, unique among living processes."""
    run_id: str
    """The tag `run` of all rows."""
    words: tuple[str, ...]
    """For mitmproxy's parser."""
    trusted: str
    """The file of the authorities that verify upstreams."""
    folder: str
    """The folder that all workers share."""


class WorkerReport(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a worker. The first report means that it accepts connections."""

    monotonic: float
    """When it was made; the clock is the same in all processes."""
    metrics: tuple[str, int] | None = None
    """The address for metrics from the options."""
    log_as_json: bool = False
    health: Health | None = None
    """None: metrics are off."""
    dropped_observations: int = 0

    @property
    def age_seconds(self) -> float:
        """Since it was made."""
        return time.monotonic() - self.monotonic


def report_path(folder: Path, index: int) -> Path:
    """The file of a worker's last report."""
    return folder / f"report-{index}.json"


def write_report(folder: Path, index: int, report: WorkerReport) -> None:
    """Replace the last report. Raises OSError."""
    path = report_path(folder, index)
    path.with_suffix(".new").write_bytes(msgspec.json.encode(report))
    path.with_suffix(".new").replace(path)


def read_report(folder: Path, index: int) -> WorkerReport | None:
    """The last report; None: there is none yet."""
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(report_path(folder, index).read_bytes(), type=WorkerReport)
    return None


def write_seen(folder: Path, seen: PassedTraffic) -> None:
    """Leave what this process has seen, at its end. Raises OSError."""
    (folder / f"seen-{os.getpid()}.json").write_bytes(msgspec.json.encode(seen))


def read_seen(folder: Path) -> Iterator[PassedTraffic]:
    """What each process has left; one that was killed may have left nothing."""
    for path in folder.glob("seen-*.json"):
        with contextlib.suppress(OSError, msgspec.DecodeError):
            yield msgspec.json.decode(path.read_bytes(), type=PassedTraffic)
