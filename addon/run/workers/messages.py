"""Pure. What the supervisor and a worker tell each other: JSON lines on a pair of sockets.

supervisor -> worker    one Job at the start, then perhaps RETIRE
worker -> supervisor    Reports: the first when it accepts, then one every second
"""

from dataclasses import dataclass

import msgspec

from addon.telemetry.health import Health

RETIRE = b"retire\n"
LINE_BYTES_MAX = 2**20
"""A job holds the whole command line; a report is less than 2 KB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """An address as mitmproxy knows it, and the descriptors of its sockets."""

    host: str
    port: int
    descriptors: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a worker is to do."""

    number: int
    words: tuple[str, ...]
    """For mitmproxy's parser."""
    set_names: tuple[str, ...]
    """The options that the words set by name."""
    with_proxyauth: bool
    trusted: str
    """The file of the authorities that upstreams are checked with."""
    listeners: tuple[Listener, ...]
    folder: str
    """For the board and the files of metrics, which all workers share."""
    seat: int
    """Unlike any other living process's: its place in those files."""
    seats: int
    """How many there are at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How a worker does. It accepts connections when it has sent one."""

    metrics: tuple[str, int] | None = None
    """Where the options want metrics to be served."""
    log_as_json: bool = False
    health: Health | None = None
    """None: nobody asked for metrics."""
    dropped_observations: int = 0


def line_of(message: Job | Report) -> bytes:
    """The message as a line."""
    return msgspec.json.encode(message) + b"\n"


def job_of(line: bytes) -> Job:
    """The job that a line holds."""
    return msgspec.json.decode(line, type=Job)


def report_of(line: bytes) -> Report:
    """The report that a line holds."""
    return msgspec.json.decode(line, type=Report)
