"""All measurements that docs/benchmarks.md states, as one command.

    uv run python -m tests.bench              # some six minutes on two idle cores
    uv run python -m tests.bench --full       # everything, more rounds; an hour
    uv run python -m tests.bench --core       # what one exchange costs, in a minute
    uv run python -m tests.bench --parts replay,workers
    uv run python -m tests.bench --parts proxy --proxies run --workloads json,burst
    uv run python -m tests.bench --parts overhead --proxies run
    uv run python -m tests.bench --parts ledger --rows 200000

Prints the tables with date, machine, A/A control and spread (the median, and in brackets the
range), and writes all figures behind them as JSON.
"""

import argparse
import json
import os
import platform
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from tests.bench import (
    bench_core,
    bench_import,
    bench_ledger,
    bench_overhead,
    bench_proxy,
    bench_replay,
    bench_start,
    bench_tap,
    bench_workers,
    bench_writer,
)
from tests.proxy.mitmdump import REPOSITORY


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How much is measured."""

    parts: tuple[str, ...]
    rounds: int
    seconds: float
    """Of each run of a workload."""
    proxy_parts: tuple[str, ...]
    start_rounds: int
    import_rounds: int
    short_exchanges: int
    """That replay reads."""
    long_mb: int
    rows: int
    """Of the ledger that questions are asked of."""


QUICK = Extent(
    parts=("tap", "start", "proxy"),
    rounds=9,
    seconds=1.0,
    proxy_parts=("throughput",),
    start_rounds=5,
    import_rounds=2,
    short_exchanges=20_000,
    long_mb=1_000,
    rows=200_000,
)
FULL = Extent(
    parts=(
        *("core", "tap", "start", "import", "proxy", "overhead"),
        *("writer", "replay", "workers", "ledger"),
    ),
    rounds=7,
    seconds=2.0,
    proxy_parts=bench_proxy.PARTS,
    start_rounds=7,
    import_rounds=5,
    short_exchanges=50_000,
    long_mb=1_000,
    rows=2_000_000,
)


def machine() -> dict[str, str]:
    """What the figures depend on."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "commit": commit.stdout.strip(),
        "machine": f"{processor()}, {os.cpu_count()} cores, {platform.system()}",
        "python": platform.python_version(),
        "mitmproxy": version("mitmproxy"),
        "load before": " ".join(f"{value:.1f}" for value in os.getloadavg()),
    }


def processor() -> str:
    """The model of the processor, as Linux names it."""
    path = Path("/proc/cpuinfo")
    text = path.read_text() if path.exists() else ""
    name = text.partition("model name")[2].partition("\n")[0].strip("\t :")
    return name or platform.machine()


def ledger(extent: Extent) -> object:
    """Common questions to a large ledger, on both databases."""
    with tempfile.TemporaryDirectory(prefix="tokentee-bench-") as folder:
        databases = ["sqlite", "postgresql"]
        return bench_ledger.measure(databases, extent.rows, Path(folder))


def write(path: Path, figures: dict[str, object]) -> None:
    """All figures, as JSON."""
    path.write_text(json.dumps(figures, indent=1) + "\n")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--full", action="store_true", help="more rounds and more figures")
    parser.add_argument("--core", action="store_const", const="core", dest="parts", help="one part")
    parser.add_argument("--json", type=Path, default=Path("bench.json"), metavar="FILE")
    parser.add_argument("--parts", metavar="NAMES", help=f"of {', '.join(FULL.parts)}")
    parser.add_argument(
        "--against", type=Path, metavar="PATH", help="another checkout with a .venv, in turn too"
    )
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="of each run of a workload")
    parser.add_argument("--rows", type=int, help="of the ledger that questions are asked of")
    parser.add_argument("--proxies", default="guest,tee,run", help="beside bare: guest, tee, run")
    parser.add_argument(
        "--workloads", default="", metavar="WORDS", help="those whose name has one of these words"
    )
    arguments = parser.parse_args()
    asked = {name: getattr(arguments, name) for name in ("rounds", "seconds", "rows")}
    extent = FULL if arguments.full else QUICK
    extent = replace(extent, **{name: value for name, value in asked.items() if value})
    about = machine()
    print("\n".join(f"{name:<12} {text}" for name, text in about.items()))
    named = arguments.parts.split(",") if arguments.parts else extent.parts
    against = arguments.against and arguments.against.resolve()
    measures = parts_of(extent, against, arguments.proxies.split(","), arguments.workloads)
    if unknown := sorted(set(named) - set(measures)):
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(measures)}")
    figures: dict[str, object] = {"about": about}
    for name in named:
        print(f"\n{name}", flush=True)
        figures[name] = measures[name]()
        write(arguments.json, figures)


def parts_of(
    extent: Extent, against: Path | None, names: Sequence[str], words: str
) -> dict[str, Callable[[], object]]:
    """What can be measured: prints a table and gives its figures."""
    return {
        "core": bench_core.measure,
        "tap": bench_tap.measure,
        "start": lambda: bench_start.measure(rounds=extent.start_rounds),
        "import": lambda: bench_import.measure(rounds=extent.import_rounds),
        "proxy": lambda: proxies(extent, against, names, words),
        "overhead": lambda: bench_overhead.measure(
            rounds=extent.rounds, seconds=extent.seconds, names=names
        ),
        "writer": lambda: writer(extent, against),
        "replay": lambda: bench_replay.measure(extent.short_exchanges, extent.long_mb, rounds=1),
        "workers": lambda: workers(extent),
        "ledger": lambda: ledger(extent),
    }


def proxies(
    extent: Extent, against: Path | None, names: Sequence[str], words: str
) -> dict[str, object]:
    """Recording proxies against bare ones, with the workloads whose name has one of the words."""
    bench = bench_proxy.run(
        rounds=extent.rounds,
        seconds=extent.seconds,
        names=names,
        parts=extent.proxy_parts,
        against=against,
        workloads=[
            each
            for each in bench_proxy.WORKLOADS
            if any(word in each.name.lower() for word in words.lower().split(","))
        ],
    )
    return {
        name: {f"{what}, {who}": values for (what, who), values in found.items()}
        for name, found in bench.found().items()
    }


def writer(extent: Extent, against: Path | None) -> object:
    """What a commit costs."""
    found = bench_writer.measure(
        rounds=extent.rounds, against=against, databases=("sqlite", "postgresql")
    )
    bench_writer.show(found)
    return found


def workers(extent: Extent) -> object:
    """One worker against two."""
    runs = bench_workers.measure(extent.rounds, extent.seconds)
    bench_workers.show(runs)
    return [asdict(run) for run in runs]


if __name__ == "__main__":
    main()
