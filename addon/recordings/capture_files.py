"""Edge (a thread, files). Writes captured exchanges to files, off the event loop.

One gzipped file of JSON lines for each hour and process. Each line is a gzip member of its own, so
a crash costs the last one at most. Redacting, encoding and compressing happen on the thread. Files
are made 0600 and folders 0700.

A capture that cannot be written is dropped, counted and logged once a minute. It is not set aside
in a file, since nothing in it is redacted yet. From then on each row states in `degraded` that
captures fail, until a line is written again: the row of an exchange goes to the ledger before its
capture is written. The thread is supervised like those of the ledger.
"""

from __future__ import annotations

import gzip
import logging
import os
import re
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue

from addon.metering.memory_budget import MemoryBudget
from addon.recordings.capture import Capture, CapturedExchange, line_of
from ledger.store.processes.supervision import SupervisedThread, ThreadHealth

logger = logging.getLogger(__name__)

WAITING_MAX = 10_000
"""Exchanges in the queue; the budget of all exchanges bounds their bytes."""
LOG_SECONDS = 60.0
"""Between two log lines about captures that cannot be written."""
_COMPRESS_LEVEL = 4
"""For a stream of small events, the output of level 4 is 2 % larger than that of 6 and takes half
the time."""
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9.-]")


class CaptureFiles:
    """The folder of captures, and the thread that writes them."""

    def __init__(
        self,
        folder: Path,
        *,
        node: str,
        budget: MemoryBudget,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`budget`: the memory bound of all exchanges together."""
        self.folder = folder
        self.budget = budget
        self.dropped = 0
        """Exchanges that were not written."""
        self.failure: str | None = None
        """Why the last one was not written; None: it was written."""
        self._node = node
        self._now = now
        self._queue: SimpleQueue[tuple[CapturedExchange, Path] | None] = SimpleQueue()
        self._log_after = 0.0
        self._thread: SupervisedThread | None = None

    def begin(self, *, request_bytes: int = 0) -> Capture:
        """A capture for an exchange that begins."""
        return Capture(self.budget, request_bytes=request_bytes)

    def write(self, exchange: CapturedExchange) -> Path:
        """Queue a finished exchange; returns the file that it goes to. Raises OSError if it is
        refused."""
        if self._queue.qsize() >= WAITING_MAX:
            self.budget.give_back(exchange.capture.size)
            self.dropped += 1
            raise OSError(f"{WAITING_MAX} captures wait to be written")
        path = file_for(self.folder, node=self._node, now=self._now())
        self._queue.put((exchange, path))
        if self._thread is None or not self._thread.is_running:
            # With the first exchange, and with the first one after `close`.
            self._thread = SupervisedThread("capture writer", self._run, log=_log)
            self._thread.start()
        return path

    def close(self, seconds: float) -> None:
        """Write the queued captures, within the timeout, and stop."""
        if self._thread is not None:
            self._queue.put(None)
            if not self._thread.join(seconds):
                logger.warning("tokentee: %d captures were not written", self._queue.qsize())

    def health(self) -> ThreadHealth | None:
        """The state of the thread; None: there was nothing to write yet."""
        if self._thread is None:
            return None
        found = self._thread.health()
        return replace(found, set_aside=self.dropped, error=found.error or self.failure)

    def problems(self) -> tuple[str, ...]:
        """One line per problem; empty: there is none."""
        health = self.health()
        stopped = health is not None and not health.is_working
        found = [f"the {health.name} does not work: {health.error}"] if health and stopped else []
        if self.dropped:
            found.append(f"{self.dropped} captures were not written")
        return tuple(found)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            self._write(item)
            del item  # the thread may wait here for hours and must not hold a body

    def _write(self, item: tuple[CapturedExchange, Path]) -> None:
        size = 0
        try:
            exchange, path = item
            size = exchange.capture.size
            append(path, line_of(exchange))
            self.failure = None
        except Exception as error:  # noqa: BLE001  # one exchange must not end the thread
            self.dropped += 1
            known = (error.strerror or str(error)) if isinstance(error, OSError) else None
            self.failure = f"captures cannot be written: {known or type(error).__name__}"
            if time.monotonic() >= self._log_after:
                self._log_after = time.monotonic() + LOG_SECONDS
                logger.warning(
                    "tokentee: %s (%s); %d dropped so far", self.failure, self.folder, self.dropped
                )
        finally:
            self.budget.release(size)


def _log(level: str, line: str) -> None:
    logger.log(logging.getLevelNamesMapping()[level.upper()], "tokentee: %s", line)


def file_for(folder: Path, *, node: str, now: datetime) -> Path:
    """This hour's file of this process."""
    return folder / f"{now:%Y%m%dT%H}-{_NOT_IN_A_NAME.sub('-', node)}.jsonl.gz"


def append(path: Path, line: bytes) -> None:
    """Add a line to a capture file. Raises OSError."""
    make_folder(path.parent)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "ab") as file:
        # Concatenated gzip members form one gzip file, and each is complete by itself.
        file.write(gzip.compress(line, compresslevel=_COMPRESS_LEVEL))


def make_folder(folder: Path) -> None:
    """Create a folder that only its owner can enter, with its parents. Raises OSError."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
