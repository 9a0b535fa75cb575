"""Pure. The seat of a worker, which counts its metrics there (`shared_metrics.py`)."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A number that one living process has at a time, and the files of that number."""

    folder: Path
    number: int
