"""Edge. Items that a thread cannot process: counted, and kept in a file for inspection."""

import json
import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

LOG_SECONDS = 60.0
"""Between two log lines about items that were set aside."""
KEPT_BYTES_MAX = 4_000_000
"""Size of the file of set-aside items; later items are only counted."""
SHOWN_CHARACTERS_MAX = 4_000
"""Kept of one item and of one error."""

type Log = Callable[[str, str], object]


class SetAside:
    """Keeps items that could not be processed. Called from any thread; never raises."""

    def __init__(self, path: Path | None, *, log: Log) -> None:
        self._path = path
        self._log = log
        self._lock = threading.Lock()
        self._quiet_until = 0.0
        self.count = 0
        self.error: str | None = None

    def add(self, item: object, error: BaseException) -> None:
        """Keep an item and the reason why it failed; logged at intervals."""
        reason = shown(error)
        with self._lock:
            self.count += 1
            self.error = reason
            now = time.monotonic()
            is_said = now >= self._quiet_until
            if is_said:
                self._quiet_until = now + LOG_SECONDS
            kept = self._keep(item, reason)
        if is_said:
            place = f"; kept in {self._path}" if kept else ""
            self._log("error", f"{self.count} items were set aside, the last for {reason}{place}")

    def _keep(self, item: object, reason: str) -> bool:
        if self._path is None:
            return False
        line = json.dumps(
            {"at": datetime.now(UTC).isoformat(), "error": reason, "item": shown(item)}
        )
        try:
            file = os.open(self._path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
            try:
                if os.fstat(file).st_size < KEPT_BYTES_MAX:
                    os.write(file, line.encode() + b"\n")
            finally:
                os.close(file)
        except OSError:
            return False
        return True


def shown(value: object) -> str:
    """The text of an item or an error for a log and a file."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001  # the value's own repr raised
        text = f"{type(value).__name__} ({type(error).__name__} in its repr)"
    return text[:SHOWN_CHARACTERS_MAX].encode("ascii", "backslashreplace").decode()
