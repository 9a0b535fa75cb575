"""kill -9 under load: what was said to be on disk is on disk, once, and the rest is visible. So it is
where a ledger's file is moved, removed or replaced while processes write.

https://www.sqlite.org/howtocorrupt.html#_unlinking_or_renaming_a_database_file_while_in_use
"""

import contextlib
import os
import random
import shutil
import sqlite3
import threading
import time
from bisect import bisect_right
from pathlib import Path

import pytest

from ledger.model.errors import LedgerError
from ledger.store.writing import unwritten, writer
from tests.ledger.written import (
    COST,
    by_id,
    file_of,
    opened,
    row,
    rows,
    settled,
    totals,
    wait_until,
    writing,
)
from tests.proxy.forked import Forked

pytestmark = pytest.mark.process

LOAD = """
import sys, threading, os, time
from tests.ledger.written import opened, settled, reading, priced
from ledger import recording

url, run = sys.argv[1:]
out = os.fdopen(1, "wb", buffering=0)
room = threading.Semaphore(64)

def on_commit(receipts):
    # One write, so that the reader sees whole lines.
    now = time.monotonic()
    out.write(b"".join(f"{r.exchange_id} {now}\\n".encode() for r in receipts if r.committed))
    for _ in receipts:
        room.release()

ledger = recording.open_ledger(url, node=f"host/{os.getpid()}/{run}", price=priced, on_commit=on_commit,
                      log=lambda *_: None)
number = 0
while True:
    number += 1
    name = f"{run}-{number}"
    ledger.open(opened(name))
    if number % 10 == 0:
        continue  # this one stays under way
    room.acquire()
    exchange = settled(name, response_id=name, content_digest=name)
    ledger.settle(exchange, reading(exchange))
"""


class Load:
    """A process that writes, and says what was reported as committed."""

    def __init__(self, url: str, name: str) -> None:
        self.reported: list[str] = []
        self.moments: list[float] = []
        """When each was reported, as `time.monotonic`: it may be read much later."""
        self._process = Forked(
            "python", [LOAD, url, name], folder=Path.cwd(), environment=os.environ
        )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        with self._process.stdout:
            for line in self._process.stdout:
                if line.endswith("\n"):  # else it was killed meanwhile
                    name, moment = line.split()
                    self.reported.append(name)
                    self.moments.append(float(moment))

    def reported_after(self, moment: float) -> list[str]:
        """Those after this moment."""
        return self.reported[bisect_right(self.moments, moment) :]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join()


def rounds(url, count: int, seed: int) -> None:
    generator = random.Random(seed)
    promised: set[str] = set()
    for run in range(count):
        load = Load(url, str(run))
        try:
            wait_for([load], 1)
            if run == 0:  # each tenth stays under way, and has its row a moment later
                wait_until(lambda: rows(url, "SELECT 1 FROM exchanges WHERE id LIKE '%0'") != [])
            time.sleep(generator.uniform(0, 0.25))  # a moment that nobody chose
        finally:
            load.kill()
        promised |= set(load.reported)
        with writing(url, node=f"host/check/{run}"):
            pass
        kept = {name for (name,) in rows(url, "SELECT id FROM exchanges WHERE state='settled'")}
        assert promised <= kept
        found = row(
            url,
            "SELECT COUNT(*), COUNT(DISTINCT id), SUM(input_tokens), SUM(cost_picousd) "
            "FROM requests WHERE state = 'settled'",
        )
        assert found == (len(kept), len(kept), 100 * len(kept), COST * len(kept))
        assert row(url, "SELECT COUNT(*) FROM exchanges WHERE state = 'open'") == (0,)
    assert row(url, "SELECT COUNT(*) > 0 FROM exchanges WHERE state = 'lost'") == (1,)
    assert row(url, "PRAGMA integrity_check") == ("ok",)


def test_kill_9_loses_nothing_that_was_promised(new_sqlite):
    rounds(new_sqlite(), 6, seed=1)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_kill_9_a_hundred_times(new_sqlite):
    rounds(new_sqlite(), 100, seed=2)


def ids_in(path: Path) -> set[str]:
    """The settled exchanges of a whole file."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",), path
        return {
            name for (name,) in connection.execute("SELECT id FROM exchanges WHERE state='settled'")
        }


def wait_for(loads: list[Load], more: int) -> None:
    wanted = [len(load.reported) + more for load in loads]
    wait_until(lambda: all(len(load.reported) >= n for load, n in zip(loads, wanted, strict=True)))


@pytest.mark.large
@pytest.mark.parametrize("how", ["mv", "rm", "restore"])
@pytest.mark.parametrize("writers", [1, pytest.param(2, marks=pytest.mark.nightly), 3])
def test_nothing_reported_is_lost(url, tmp_path: Path, writers: int, how: str):
    path = file_of(url)
    backup, moved = tmp_path / "backup.sqlite3", path.with_name("moved.sqlite3")
    shutil.copy(path, backup)
    loads = [Load(url, f"w{number}") for number in range(writers)]
    try:
        wait_for(loads, 200)
        if how == "mv":
            path.rename(moved)
        elif how == "rm":
            path.unlink()
        else:
            backup.rename(path)
        moment = 0.0 if how == "mv" else time.monotonic()
        wait_for(loads, 400)
    finally:
        for load in loads:
            load.kill()
    found = ids_in(path) | (ids_in(moved) if how == "mv" else set())
    for load in loads:
        # What was reported before a file was removed, went with it, and the batch whose report was
        # under way when the file went.
        under_way = 0 if how == "mv" else 64  # the room of a load
        assert set(load.reported_after(moment)[under_way:]) - found == set()


@pytest.mark.large
@pytest.mark.parametrize(
    ("writers", "what"),
    [(1, "another ledger"), (3, "VACUUM INTO")]
    + [
        pytest.param(writers, what, marks=pytest.mark.nightly)
        for writers in (1, 3)
        for what in ("another database", "its own copy", ".backup", "no database")
    ],
)
def test_an_overwritten_file_is_left_alone_and_the_next_start_books_what_was_reported(
    new_sqlite, url, tmp_path: Path, writers: int, what: str
):
    path = file_of(url)
    source = tmp_path / "source.sqlite3"
    if what == "another ledger":
        other = new_sqlite("other")
        with writing(other) as written:
            for number in range(10):
                written.hand_over(settled(f"other{number}"))
        with contextlib.closing(sqlite3.connect(file_of(other))) as connection:
            # It has more pages than the one that is overwritten.
            connection.execute("CREATE TABLE room AS SELECT zeroblob(10000000)")
            connection.execute("DROP TABLE room")
        shutil.copy(file_of(other), source)
    elif what == "another database":
        with contextlib.closing(sqlite3.connect(source)) as connection:
            connection.execute("CREATE TABLE other (text TEXT)")
    elif what == "no database":
        source.write_bytes(b"no database" * 100_000)
    loads = [Load(url, f"w{number}") for number in range(writers)]
    with writing(url) as idle:  # that has nothing to write must let go of the file, too
        try:
            wait_for(loads, 100)
            with contextlib.closing(sqlite3.connect(path)) as connection:
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
                if what == "its own copy":
                    shutil.copy(path, source)
                    wait_for(loads, 1_000)
                    connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
                wait_for(loads, 10)
                if what == "VACUUM INTO":
                    connection.execute(f"VACUUM INTO '{source}'")
                elif what == ".backup":
                    with contextlib.closing(sqlite3.connect(source)) as target:
                        connection.backup(target)
            overwrite(path, source)
            moment = time.monotonic()  # what was reported before went with the file
            wait_for(loads, 400)
            wait_until(lambda: idle.ledger.health().problems())
            (line,) = idle.lines("error")
            assert "overwritten in place, and nothing more is written to it" in line
        finally:
            for load in loads:
                load.kill()
    if what in ("no database", "another database"):
        assert path.read_bytes() == source.read_bytes()
        with pytest.raises(LedgerError), writing(url):
            pass
        assert path.read_bytes() == source.read_bytes()
        path.unlink()
    with writing(url) as next_start:
        assert (
            "could not be written earlier are in the ledger now" in next_start.lines("warning")[0]
        )
    found = ids_in(path)
    assert not list(path.parent.glob("*-unbooked-*"))
    assert ("other7" in found) is (what == "another ledger")
    for load in loads:
        assert set(load.reported_after(moment)[64 * 4 :]) - found == set()


def overwrite(path: Path, source: Path) -> None:
    """As `cp` does it."""
    with source.open("rb") as copied, path.open("r+b") as target:
        target.truncate()
        shutil.copyfileobj(copied, target, 65_536)


def test_what_was_open_when_its_file_was_overwritten_is_lost_or_settled_once(
    new_sqlite, url, tmp_path
):
    """An odd row costs no other, and a start that cannot write keeps the rows for the next."""
    other = file_of(new_sqlite("other"))
    with writing(url) as written:
        written.open(opened("before"))
        overwrite(file_of(url), other)
        receipts = [
            written.hand_over(exchange)
            for exchange in (
                settled("before"),
                settled("\udcff", path="/\ud800"),
                settled("bad", request_model=object()),
                settled("after", tags={"team": "a"}, segments="[]"),
            )
        ]
        written.ledger.open(opened("never ends"))
        written.wait(*receipts)
        assert written.settle(settled("last")).committed
        health = written.ledger.health()
        assert "overwritten in place" in (health.trouble or "")
        assert health.set_aside == 1
        assert written.ledger.dropped == 0
        with writing(url, node="host/2/1"):  # the first one lives: its rows are its own
            assert totals(url)[0] == 0
    (kept,) = file_of(url).parent.glob("*-unbooked-*")
    assert kept.stat().st_mode & 0o777 == 0o600
    with kept.open("ab") as torn:
        torn.write(b'[{"id":"torn')
    with contextlib.closing(sqlite3.connect(file_of(url), isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="locked"), writing(url):
            pass
    assert kept.exists()
    with writing(url, node="host/3/1") as written:
        assert written.ledger.health().set_aside == 1
    assert not kept.exists()
    assert by_id(url, "state, node") == [
        ("after", "settled", "host/1/1"),
        ("before", "settled", "host/1/1"),
        ("last", "settled", "host/1/1"),
        ("never ends", "lost", "host/1/1"),
        ("�", "settled", "host/1/1"),
    ]
    assert totals(url)[0] == 5


def test_a_full_disk_beside_an_overwritten_ledger_is_late_not_lost(new_sqlite, url, monkeypatch):
    other = file_of(new_sqlite("other"))
    with writing(url) as written:
        overwrite(file_of(url), other)
        monkeypatch.setattr(unwritten, "UNBOOKED_BYTES_MAX", 10)
        assert "has 10 bytes" in (written.settle(settled("a")).error or "")
        monkeypatch.undo()
        wait_until(lambda: written.settle(settled("b")).committed)
    with writing(url):
        assert {name for name, _ in by_id(url, "state")} == {"a", "b"}


def test_closing_says_that_the_file_was_overwritten(new_sqlite, url, monkeypatch):
    other = file_of(new_sqlite("other"))
    monkeypatch.setattr(writer, "IDLE_SECONDS", 60)
    with writing(url) as written:
        assert written.settle(settled("a")).committed
        overwrite(file_of(url), other)
    (line,) = written.lines("error")
    assert "overwritten in place" in line


@pytest.mark.parametrize("change", ["VACUUM", "CREATE INDEX i ON exchanges (path)", "rm -wal"])
def test_what_others_do_to_a_ledger_is_no_overwriting(url, change):
    """An operator's own statements and checkpoints, and a WAL that is removed."""
    with writing(url) as written:
        for number in range(3):
            for more in range(50):
                written.hand_over(settled(f"{number}-{more}"))
            written.settle(settled(f"{number}"))
            with contextlib.closing(sqlite3.connect(file_of(url), isolation_level=None)) as other:
                if change != "rm -wal":
                    other.execute(change.replace(" i ", f" i{number} "))
                    other.execute("DELETE FROM learned")
                    other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            if change == "rm -wal":
                file_of(url).with_name(f"{file_of(url).name}-wal").unlink()
        assert written.settle(settled("last")).committed
        assert written.ledger.health().problems() == ()
    assert len(ids_in(file_of(url))) == 3 * 51 + 1
