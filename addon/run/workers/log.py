"""Edge (stderr). The supervisor's log and the lines of all workers, each line whole.

A text line gets the number of its worker as a prefix, a JSON line as a member.
"""

import logging
import sys
from typing import TextIO

from addon.telemetry.json_log import JsonFormatter

LINE_BYTES_MAX = 64 * 2**10
"""A longer line is passed on in pieces of this size."""


class Log:
    """The log of the supervisor and all workers."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr
        self.quiet = False
        """Only warnings are logged."""
        self.as_json = False

    def info(self, text: str) -> None:
        """Log information for the operator."""
        if not self.quiet:
            self._log("info", text)

    def warning(self, text: str) -> None:
        """Log a problem for the operator."""
        self._log("warning", text)

    def line_of_worker(self, number: int, line: bytes) -> None:
        """Pass a worker's line on."""
        text = line.decode("utf-8", "replace")
        if text.startswith('{"time"'):
            self._write(f'{{"worker": {number}, {text[1:]}')
        elif text.strip():
            self._write(f"worker {number}: {text}")

    def _log(self, level: str, text: str) -> None:
        if not self.as_json:
            self._write(f"tokentee: {text}")
            return
        record = {"name": "tokentee.workers", "levelname": level, "msg": text}
        self._write(JsonFormatter().format(logging.makeLogRecord(record)))

    def _write(self, line: str) -> None:
        try:
            self._out.write(f"{line}\n")
            self._out.flush()
        except OSError:
            return  # stderr is closed, so nothing can be logged


class LineSplitter:
    """Splits one worker's output into lines."""

    def __init__(self, log: Log, number: int) -> None:
        self._log = log
        self._number = number
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Add output of the worker."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._log.line_of_worker(self._number, line)
        while len(self._rest) > LINE_BYTES_MAX:
            self._log.line_of_worker(self._number, self._rest[:LINE_BYTES_MAX])
            self._rest = self._rest[LINE_BYTES_MAX:]

    def end(self) -> None:
        """The output has ended; pass on an incomplete last line."""
        if self._rest:
            self._log.line_of_worker(self._number, self._rest)
            self._rest = b""
