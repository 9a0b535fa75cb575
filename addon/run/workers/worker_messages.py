"""Pure. The messages between the supervisor and a worker: JSON lines on a pair of sockets.

supervisor -> worker    one Job at the start, then perhaps RETIRE
worker -> supervisor    Reports: the first when it accepts, then one every second
"""

from dataclasses import dataclass

import msgspec

from addon.run.call.arguments import Address
from addon.telemetry.health import Health

RETIRE = b"retire\n"
LINE_BYTES_MAX = 2**20
"""A job holds the whole command line; a report is less than 2 KB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerJob:
    """The task of a worker."""

    number: int
    words: tuple[str, ...]
    """For mitmproxy's parser."""
    trusted: str
    """The file of the authorities that verify upstreams."""
    listeners: tuple[tuple[Address, tuple[int, ...]], ...]
    """Each address as mitmproxy knows it, with the descriptors of its sockets."""
    folder: str
    """The folder of the connection counts and the metrics files, which all workers share."""
    index: int
    """The worker's index in those files, unique among living processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """The state of a worker. The first report means that it accepts connections."""

    metrics: tuple[str, int] | None = None
    """The address for metrics from the options."""
    log_as_json: bool = False
    health: Health | None = None
    """None: metrics are off."""
    dropped_observations: int = 0


def line_of(message: WorkerJob | WorkerReport) -> bytes:
    """The message encoded as a line."""
    return msgspec.json.encode(message) + b"\n"
