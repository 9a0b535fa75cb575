"""A ledger's file is moved, removed or replaced while processes write: nothing that was reported as
committed is lost, and every file is whole.

https://www.sqlite.org/howtocorrupt.html#_unlinking_or_renaming_a_database_file_while_in_use
"""

import contextlib
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.ledger.store.writing.test_killing import LOAD

pytestmark = [pytest.mark.process, pytest.mark.large]


class Load:
    """A process that writes, and says what was reported as committed."""

    def __init__(self, url: str, name: str) -> None:
        self.reported: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-c", LOAD, url, name], stdout=subprocess.PIPE, text=True
        )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout:
            for line in self._process.stdout:
                self.reported.append(line.strip())

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join()


def ids_in(path: Path) -> set[str]:
    """The settled exchanges of a whole file."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",), path
        return {
            name for (name,) in connection.execute("SELECT id FROM exchanges WHERE state='settled'")
        }


def wait_for(loads: list[Load], more: int) -> None:
    wanted = [len(load.reported) + more for load in loads]
    until = time.monotonic() + 60
    while any(len(load.reported) < number for load, number in zip(loads, wanted, strict=True)):
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize("how", ["mv", "rm", "restore"])
@pytest.mark.parametrize("writers", [1, 2, 3])
def test_nothing_reported_is_lost(new_sqlite, tmp_path: Path, writers: int, how: str):
    url = new_sqlite()
    path = Path(url.removeprefix("sqlite:///"))
    backup, moved = tmp_path / "backup.sqlite3", path.with_name("moved.sqlite3")
    shutil.copy(path, backup)
    loads = [Load(url, f"w{number}") for number in range(writers)]
    try:
        wait_for(loads, 200)
        before = [len(load.reported) for load in loads]
        if how == "mv":
            path.rename(moved)
        elif how == "rm":
            path.unlink()
        else:
            backup.rename(path)
        wait_for(loads, 400)
    finally:
        for load in loads:
            load.kill()
    found = ids_in(path) | (ids_in(moved) if how == "mv" else set())
    for load, number in zip(loads, before, strict=True):
        # What was reported before a file was removed, went with it. A report may be under way when
        # the file goes, so some batches around that moment are of either side.
        since = 0 if how == "mv" else number + 64 * 4
        assert set(load.reported[since:]) - found == set()
