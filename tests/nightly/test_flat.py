"""What a long day leaves behind: memory, files, the write-ahead log and open rows after many streams.

pytest -n 0 -m nightly -s tests/nightly/test_flat.py
TOKENTEE_STREAMS=40000 pytest -n 0 -m nightly -s tests/nightly/test_flat.py

Bare mitmdump and ours take the same load in turn, a step at a time, so that what the allocator and
mitmproxy themselves keep is seen beside what we add. Half of the streams are edited, and each step
ends with clients that leave in the middle of an answer.
"""

import contextlib
import os
import sqlite3
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from tests.bench.bench_proxy import Proxy, fast_upstream, play, proxy

STREAMS = int(os.environ.get("TOKENTEE_STREAMS", "200000"))
SETTLED_AFTER = STREAMS // 10
"""Streams after which caches are warm and the heap has its size."""
STEP_SECONDS = 10.0
GROWTH_MAX = 0.05
"""More than bare's, from `SETTLED_AFTER` to the end."""
IDLE_SECONDS_MAX = 30
FILES_MORE_MAX = 8
"""Descriptors beyond those of the idle proxy after its first streams: a pool may open one more."""
WAL_BYTES_MAX = 16 * 2**20
"""Of the idle ledger. SQLite checkpoints at 4 MB and keeps the file at its largest size."""

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(4 * 3600)]


@dataclass(kw_only=True)
class Watched:
    """One proxy and what was seen of it."""

    proxy: Proxy
    ledger: Path | None
    streams: int = 0
    rss: list[tuple[int, int]] = field(default_factory=list)
    """Streams so far and bytes, after each step."""
    idle_files: int = 0

    def step(self, number: int) -> None:
        asks = ["--asks"] if number % 2 else []
        load = ("short", *asks, "--warmup", "0", "--seconds", str(STEP_SECONDS))
        self.streams += play(self.proxy.port, load)["answers"]
        self.rss.append((self.streams, self.proxy.resident_bytes()))

    def files(self) -> int:
        return len(list(Path(f"/proc/{self.proxy.process.pid}/fd").iterdir()))

    def settled_files(self) -> int:
        """Open descriptors, once no more than before the load or when waiting ends."""
        bound = time.monotonic() + IDLE_SECONDS_MAX
        while self.files() > self.idle_files + FILES_MORE_MAX and time.monotonic() < bound:
            time.sleep(0.2)
        return self.files()

    def open_rows(self) -> int:
        """Exchanges that are still open, once none is or when waiting ends; -1 for bare."""
        if self.ledger is None:
            return -1
        bound = time.monotonic() + IDLE_SECONDS_MAX
        with contextlib.closing(sqlite3.connect(self.ledger)) as db:
            count = "SELECT count(*) FROM exchanges WHERE state = 'open'"
            while (found := db.execute(count).fetchone()[0]) and time.monotonic() < bound:
                time.sleep(0.2)
        return int(found)

    def rows(self) -> int:
        if self.ledger is None:
            return -1
        with contextlib.closing(sqlite3.connect(self.ledger)) as db:
            return int(db.execute("SELECT count(*) FROM exchanges").fetchone()[0])

    def wal_bytes(self) -> int:
        wal = self.ledger and Path(f"{self.ledger}-wal")
        return wal.stat().st_size if wal and wal.exists() else 0

    def growth(self) -> float:
        """Of resident memory, from the first step after `SETTLED_AFTER` to the end, as a share."""
        first = next(size for streams, size in self.rss if streams >= SETTLED_AFTER)
        return self.rss[-1][1] / first - 1


def test_many_streams_leave_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"bare": None, "tee": tmp_path / "tee.db", "run": tmp_path / "run.db"}
    with contextlib.ExitStack() as running, fast_upstream() as (upstream, _):
        watched = {
            name: Watched(
                proxy=running.enter_context(proxy(name, upstream, tmp_path)), ledger=ledger
            )
            for name, ledger in names.items()
        }
        for each in watched.values():
            each.step(0)
            time.sleep(1)
            each.idle_files = each.files()
        number = 1
        while any(each.streams < STREAMS for each in watched.values()):
            for each in watched.values():
                if each.streams < STREAMS:
                    each.step(number)
            number += 1
        seen = {
            name: (each.open_rows(), each.settled_files() - each.idle_files, each.wal_bytes())
            for name, each in watched.items()
        }
        with capsys.disabled():
            _show(watched, seen)
        for name in ("tee", "run"):
            ours, (open_rows, files_more, wal_bytes) = watched[name], seen[name]
            assert open_rows == 0
            assert ours.rows() >= ours.streams
            assert files_more <= FILES_MORE_MAX
            assert wal_bytes <= WAL_BYTES_MAX
            assert ours.growth() - watched["bare"].growth() < GROWTH_MAX, ours.rss


def _show(watched: dict[str, Watched], seen: dict[str, tuple[int, int, int]]) -> None:
    table = Table(title=f"{STREAMS} short streams through one proxy")
    for head in (
        "",
        f"MB at {SETTLED_AFTER}",
        "MB at the end",
        "growth",
        "open",
        "files",
        "WAL MB",
    ):
        table.add_column(head, justify="right" if head else "left")
    for name, each in watched.items():
        open_rows, files_more, wal_bytes = seen[name]
        first = next(size for streams, size in each.rss if streams >= SETTLED_AFTER)
        table.add_row(
            name,
            f"{first / 2**20:.1f}",
            f"{each.rss[-1][1] / 2**20:.1f}",
            f"{each.growth():+.1%}",
            "" if open_rows < 0 else str(open_rows),
            f"{files_more:+d}",
            f"{wal_bytes / 2**20:.1f}" if each.ledger else "",
        )
    Console(width=110).print(table)
