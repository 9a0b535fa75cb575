"""What a second worker brings: `tokentee run --workers 1` and `--workers 2`, in turn.

    uv run python -m tests.bench --parts workers --rounds 7 --seconds 3

Nothing is pinned: workers, upstream and clients share all cores of the machine, so two workers
cannot be twice as quick where clients and upstream need a part of the second core. Therefore the
CPU of each side is measured too, and what the machine allows is worked out from it: with one
worker its own core is the bound, with two the sum of all CPU is. One worker runs twice in every
round: the ratio of the two (A/A) says how far a figure can be trusted.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.proxy.mitmdump import REPOSITORY
from tests.proxy.workers import Workers

TICKS = os.sysconf("SC_CLK_TCK")
CONNECTIONS = 32
WORKLOADS = {
    "short streams": ("short", "--asks"),
    "short streams, edited": ("short",),
    "JSON": ("json",),
}
SETUPS = {"1 worker": 1, "1 worker again": 1, "2 workers": 2}


@dataclass(frozen=True, kw_only=True)
class Run:
    """One load on one proxy."""

    setup: str
    workload: str
    rate: float
    """Answers a second."""
    workers_ms: float
    """CPU of all workers and the supervisor, per answer."""
    others_ms: float
    """CPU of upstream and clients, per answer."""


def cpu_seconds(pids: list[int]) -> float:
    """User and system time that processes have used."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS


def play(setup: str, workload: str, workers: Workers, upstream: int, seconds: float) -> Run:
    """Load one proxy, and see what it and the others used."""
    pids = [workers.process.pid, *workers.pids()]
    host, port = workers.address()
    before, upstream_before = cpu_seconds(pids), cpu_seconds([upstream])
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.load", f"{host}:{port}", *WORKLOADS[workload],
         "--connections", str(CONNECTIONS), "--seconds", str(seconds), "--warmup", "0.5"],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{setup}, {workload}: {done.stderr}")
    found = json.loads(done.stdout)
    if not found["answers"]:
        raise SystemExit(
            f"{setup}, {workload}: no answer within {seconds:g} s; is the machine busy?"
        )
    # The CPU figures include the warm-up and the ends, and so do the answers that they are per.
    played = found["answers"] * (found["seconds"] + 0.5) / found["seconds"]
    return Run(
        setup=setup,
        workload=workload,
        rate=found["answers"] / found["seconds"],
        workers_ms=1000 * (cpu_seconds(pids) - before) / played,
        others_ms=1000 * (cpu_seconds([upstream]) - upstream_before) / played
        + 1000 * found["client_cpu"] / (found["answers"] / found["seconds"]),
    )


def measure(rounds: int, seconds: float) -> list[Run]:
    """All workloads on all setups, in an order that turns from round to round."""
    runs = []
    with tempfile.TemporaryDirectory(prefix="tokentee-bench-") as name:
        upstream = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.upstream"],
            cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert upstream.stdout is not None
        assert upstream.stdin is not None
        port = int(upstream.stdout.readline())
        proxies: dict[str, Workers] = {}
        try:
            for setup, count in SETUPS.items():
                options = {"tee_hosts": f"127.0.0.1:{port}=openai", "termlog_verbosity": "warn"}
                folder = Path(name) / setup.replace(" ", "-")
                url = f"http://127.0.0.1:{port}"
                secret = {"TOKENTEE_SECRET_FILE": str(Path(name) / "secret")}
                proxies[setup] = Workers(
                    folder, url, count=count, options=options, environment=secret
                ).start()
            setups = list(SETUPS)
            for number in range(rounds):
                order = setups[number % 3 :] + setups[: number % 3]
                for workload in WORKLOADS:
                    runs += [
                        play(setup, workload, proxies[setup], upstream.pid, seconds)
                        for setup in order
                    ]
        finally:
            for workers in proxies.values():
                workers.stop()
            upstream.stdin.close()
            upstream.wait(10)
            upstream.stdout.close()
    return runs


def ratios(runs: list[Run], workload: str, setup: str) -> list[float]:
    """Answers a second against one worker's, round by round."""
    of = {
        name: [run.rate for run in runs if (run.workload, run.setup) == (workload, name)]
        for name in (setup, "1 worker")
    }
    return [one / other for one, other in zip(of[setup], of["1 worker"], strict=True)]


def allowed(runs: list[Run], workload: str) -> float:
    """How much quicker two workers could be here, by the CPU that one answer costs all sides.

    One worker: 1 core / its own CPU. Two: all cores / everybody's CPU, and twice at most.
    """
    one = [run for run in runs if (run.workload, run.setup) == (workload, "1 worker")]
    own = statistics.median(run.workers_ms for run in one)
    others = statistics.median(run.others_ms for run in one)
    return min(2.0, (os.cpu_count() or 1) * own / (own + others))


def shown(values: list[float]) -> str:
    """The median and, in brackets, the range."""
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def show(runs: list[Run]) -> None:
    """Print the table."""
    print("| | 1 worker, answers/s | 2 workers / 1 | allowed here | A/A | CPU ms: 1, 2, others |")
    print("|---|---|---|---|---|---|")
    for workload in WORKLOADS:
        of = {
            setup: [run for run in runs if (run.workload, run.setup) == (workload, setup)]
            for setup in SETUPS
        }
        one, two = of["1 worker"], of["2 workers"]
        print(
            f"| {workload} | {statistics.median(run.rate for run in one):.0f} "
            f"| {shown(ratios(runs, workload, '2 workers'))} "
            f"| {allowed(runs, workload):.2f} "
            f"| {shown(ratios(runs, workload, '1 worker again'))} "
            f"| {statistics.median(run.workers_ms for run in one):.2f}, "
            f"{statistics.median(run.workers_ms for run in two):.2f}, "
            f"{statistics.median(run.others_ms for run in one):.2f} |"
        )
