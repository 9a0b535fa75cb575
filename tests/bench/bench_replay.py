"""What `tokentee replay` reads in a second, first and again, with one process and with two.

    uv run python -m tests.bench --parts replay

Every reading is a process of its own, as a user starts it. Rates are of CPU seconds, which other
work on the machine disturbs least, and of wall seconds; `start` is what a replay of one exchange
takes and is left out of none of them. The ratio of known to first is by CPU. `cores` says how many
cores were busy: one process keeps more than one busy, since its writer is a thread that holds the
interpreter lock little, so two of them cannot be twice as fast on two cores.
"""

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench import recordings
from tests.bench.bench_start import children_cpu_seconds
from tests.proxy.mitmdump import REPOSITORY

LONG_BYTES = 8_000_000
RSS_SECONDS = 0.05
"""How often memory is looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One `tokentee replay`."""

    cpu_seconds: float
    wall_seconds: float
    rss_mb: tuple[int, ...]
    """Resident memory of the process that was started, at equal distances of time."""

    def at(self, share: float) -> int:
        """The memory after such a share of the run."""
        return self.rss_mb[min(len(self.rss_mb) - 1, int(share * len(self.rss_mb)))]


def replay(path: Path, ledger: Path, *, count: int, jobs: int = 1) -> Run:
    """Read a file of so many exchanges into a ledger; fails if not all of them are read."""
    call = "import sys; from addon.cli import main; sys.exit(main())"
    command = ["-c", call, "replay", str(path), "--ledger", f"sqlite:///{ledger}"]
    before, began = children_cpu_seconds(), time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *command, "--jobs", str(jobs)],
        cwd=REPOSITORY,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    seen = []
    while process.poll() is None:
        seen.append(_rss_mb(process.pid))
        time.sleep(RSS_SECONDS)
    wall_seconds = time.perf_counter() - began
    cpu_seconds = children_cpu_seconds() - before
    assert process.stderr is not None
    said = process.stderr.read().decode()
    assert process.returncode == 0, said
    assert f"{count:,} exchanges read" in said, said
    rss_mb = tuple(filter(None, seen))
    return Run(cpu_seconds=cpu_seconds, wall_seconds=wall_seconds, rss_mb=rss_mb)


def _rss_mb(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


def measure(short: int, long_mb: int, rounds: int) -> dict[str, object]:
    """Measure in turns, print a table, and give the figures."""
    found: dict[str, list[dict[str, object]]] = {}
    with tempfile.TemporaryDirectory(prefix="tokentee-bench-") as folder:
        root = Path(folder)
        one = root / "one.jsonl"
        recordings.write(one, recordings.shorts(1))
        files: dict[str, tuple[Path, int, int]] = {}
        for name in ("short.jsonl", "short.jsonl.gz", "short.mitm"):
            size = recordings.write(root / name, recordings.shorts(short))
            files[name] = (root / name, short, size)
        streams = max(1, long_mb * 1_000_000 // LONG_BYTES)
        for name in ("long.jsonl", "long.mitm"):
            size = recordings.write(root / name, recordings.longs(streams, LONG_BYTES))
            files[name] = (root / name, streams, size)
        print(
            f"{'file':16}{'':>14}{'/CPU s':>9}{'MB/CPU s':>10}{'/s':>9}{'MB/s':>8}{'cores':>7}  RSS MB"
        )
        for turn in range(rounds):
            start = replay(one, root / f"{turn}-one.db", count=1)
            print(f"{'one exchange':16}{'start':>14}  {start.cpu_seconds:.2f} CPU s")
            found.setdefault("start", []).append({"cpu_seconds": start.cpu_seconds})
            for name, (path, count, size) in files.items():
                first = replay(path, root / f"{turn}-{name}.db", count=count)
                again = replay(path, root / f"{turn}-{name}.db", count=count)
                two = replay(path, root / f"{turn}-{name}-2.db", count=count, jobs=2)
                for what, run in (("first", first), ("again", again), ("two processes", two)):
                    figures = _figures(run, count, size)
                    found.setdefault(f"{name}, {what}", []).append(figures)
                    print(f"{name:16}{what:>14}{_line(figures)}")
                print(
                    f"{'':16}{'again/first':>14}  {again.cpu_seconds / first.cpu_seconds:.0%} of "
                    f"the CPU; two processes {first.wall_seconds / two.wall_seconds:.2f} as fast"
                )
    return dict(found)


def _figures(run: Run, count: int, size: int) -> dict[str, object]:
    return {
        "cpu_seconds": run.cpu_seconds,
        "wall_seconds": run.wall_seconds,
        "exchanges_per_cpu_second": count / run.cpu_seconds,
        "exchanges_per_second": count / run.wall_seconds,
        "mb_per_cpu_second": size / run.cpu_seconds / 1e6,
        "mb_per_second": size / run.wall_seconds / 1e6,
        "cores_busy": run.cpu_seconds / run.wall_seconds,
        "rss_mb": [run.at(0.25), run.at(0.5), run.at(1)],
    }


def _line(figures: dict[str, Any]) -> str:
    return (
        "{exchanges_per_cpu_second:>9,.0f}{mb_per_cpu_second:>10,.0f}"
        "{exchanges_per_second:>9,.0f}{mb_per_second:>8,.0f}{cores_busy:>7.2f}  {rss_mb}"
    ).format(**figures)
