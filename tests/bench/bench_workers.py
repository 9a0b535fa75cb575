"""What a second worker brings: `tokentee run --workers 1` and `--workers 2`, in turn.

    uv run python -m tests.bench --parts workers --rounds 7 --seconds 3

Nothing is pinned: workers, upstream and clients share all cores of the machine, so two workers
cannot be twice as quick where clients and upstream need a part of the second core. Therefore the
CPU of each side is measured too, and what the machine allows is worked out from it: with one
worker its own core is the bound, with two the sum of all CPU is. One worker runs twice in every
round: the ratio of the two (A/A) says how far a figure can be trusted.
"""

import contextlib
import os
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.bench import bench_proxy
from tests.proxy.workers import Workers

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


def play(setup: str, workload: str, workers: Workers, upstream: int, seconds: float) -> Run:
    """Load one proxy, and see what it and the others used."""

    def used(pids: list[int]) -> float:
        return sum(bench_proxy.cpu_seconds_of(f"/proc/{pid}/stat") for pid in pids)

    pids = [workers.process.pid, *workers.pids()]
    before, upstream_before = used(pids), used([upstream])
    load = (*WORKLOADS[workload], "--connections", str(CONNECTIONS))
    load += ("--seconds", str(seconds), "--warmup", "0.5")
    found = bench_proxy.play(workers.address()[1], load, core=None)
    # The CPU figures include the warm-up and the ends, and so do the answers that they are per.
    played = found["answers"] * (found["seconds"] + 0.5) / found["seconds"]
    return Run(
        setup=setup,
        workload=workload,
        rate=found["answers"] / found["seconds"],
        workers_ms=1000 * (used(pids) - before) / played,
        others_ms=1000 * (used([upstream]) - upstream_before) / played
        + 1000 * found["client_cpu"] / (found["answers"] / found["seconds"]),
    )


def measure(rounds: int, seconds: float) -> list[Run]:
    """All workloads on all setups, in an order that turns from round to round."""
    with contextlib.ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="tokentee-bench-")))
        port, upstream = running.enter_context(bench_proxy.fast_upstream(core=None))
        proxies = {
            setup: running.enter_context(
                Workers(
                    folder / setup.replace(" ", "-"),
                    f"http://127.0.0.1:{port}",
                    count=count,
                    options={"tee_hosts": f"127.0.0.1:{port}=openai", "termlog_verbosity": "warn"},
                    environment={"TOKENTEE_SECRET_FILE": str(folder / "secret")},
                )
            )
            for setup, count in SETUPS.items()
        }
        setups = list(SETUPS)
        return [
            play(setup, workload, proxies[setup], upstream, seconds)
            for number in range(rounds)
            for workload in WORKLOADS
            for setup in setups[number % 3 :] + setups[: number % 3]
        ]


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
            f"| {bench_proxy.spread(ratios(runs, workload, '2 workers'))} "
            f"| {allowed(runs, workload):.2f} "
            f"| {bench_proxy.spread(ratios(runs, workload, '1 worker again'))} "
            f"| {statistics.median(run.workers_ms for run in one):.2f}, "
            f"{statistics.median(run.workers_ms for run in two):.2f}, "
            f"{statistics.median(run.others_ms for run in one):.2f} |"
        )
