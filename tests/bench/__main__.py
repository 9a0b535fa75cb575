"""All measurements that the README states, as one command.

    uv run python -m tests.bench              # under three minutes on two idle cores
    uv run python -m tests.bench --full       # more rounds, memory, times to the first chunk
    uv run --with py-spy python -m tests.bench --profile    # where the time goes instead

Prints the tables with date, machine, A/A control and spread (the median, and in brackets the
range), and writes all figures behind them as JSON.
"""

import argparse
import json
import os
import platform
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from tests.bench import bench_meter, bench_proxy, bench_start, bench_tap, profile
from tests.proxy.mitmdump import REPOSITORY


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How much is measured."""

    rounds: int
    seconds: float
    """Of each run of a workload."""
    parts: tuple[str, ...]
    start_rounds: int


QUICK = Extent(rounds=3, seconds=1.0, parts=("throughput",), start_rounds=3)
FULL = Extent(rounds=7, seconds=2.0, parts=bench_proxy.PARTS, start_rounds=7)


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
    parser.add_argument("--json", type=Path, default=Path("bench.json"), metavar="FILE")
    parser.add_argument(
        "--against", type=Path, metavar="PATH", help="another checkout with a .venv, in turn too"
    )
    parser.add_argument(
        "--profile", action="store_true", help="sample the busy proxy instead; needs py-spy"
    )
    arguments = parser.parse_args()
    extent = FULL if arguments.full else QUICK
    about = machine()
    print("\n".join(f"{name:<12} {text}" for name, text in about.items()))
    if arguments.profile:
        rooms = profile.measure(seconds=extent.seconds * 2, names=["tee", "run"])
        write(arguments.json, {"about": about, "share of samples by room": rooms})
        return
    bench_tap.measure()
    bench_meter.measure()
    start = bench_start.measure(rounds=extent.start_rounds)
    bench = bench_proxy.run(
        rounds=extent.rounds,
        seconds=extent.seconds,
        names=["tee", "run"],
        parts=extent.parts,
        against=arguments.against and arguments.against.resolve(),
    )
    figures: dict[str, object] = {
        "about": about,
        "start CPU s": start,
        **{
            name: {f"{what}, {who}": values for (what, who), values in found.items()}
            for name, found in bench.found().items()
        },
    }
    write(arguments.json, figures)


if __name__ == "__main__":
    main()
