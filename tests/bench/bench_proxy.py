"""What recording costs: a stock mitmdump that only streams ("bare"), and ours, in turn.

    uv run python -m tests.bench --parts proxy

One core is the proxy's, all of its threads together, and one is for upstream and client, which need
less than a tenth of what the proxy needs. Every round plays each workload through each proxy, in an
order that turns; a ratio is taken within a round, so that what else the machine does hits both
sides, and bare runs twice in every round: the ratio of the two (A/A) says how far a figure can be
trusted. All are started again after some rounds.

Proxies: `tee` is `mitmdump -s addon/tee.py`, recording into SQLite with `before_end`; `guest` is the
same with `tee_fast=no`, as in a process that is not ours; `run` is `tokentee run` with its lean
master. Workloads marked "edited" are the same streams for a client
that did not ask for usage: ours asks, and takes it out again.
"""

import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.bench import upstream
from tests.proxy.mitmdump import BARE, REPOSITORY, TEE

PROXY_CORE, HARNESS_CORE = 0, 1
ROUNDS_OF_A_START = 3
"""Then all proxies are started again: two processes of one program differ by a tenth for as long as
they run (measured), by where their memory lies."""
START_SECONDS_MAX = 100
SLOW_STREAMS = 1000
MITMDUMP = (
    "-c",
    "import sys; from mitmproxy.tools.main import mitmdump; sys.argv[0] = 'mitmdump'; mitmdump()",
)
"""Under its own name, by which the addon knows whose process it is."""
TOKENTEE_RUN = ("-c", "from addon.cli import main; main()", "run")
OLD = "old "
"""Begins the names of the proxies of the checkout given with `--against`."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One load, what is read from it, and what it may cost."""

    name: str
    load: tuple[str, ...]
    budget: str
    """Requests against bare, for `guest`."""
    budget_host: str = ""
    """For `tee` and `run`."""
    per_answer: int = 1
    """Chunks, where chunks are counted."""


WORKLOADS = (
    Workload(
        name="short streams",
        load=("short", "--asks"),
        budget=">= 0.85",
        budget_host=">= 1.5",
    ),
    Workload(name="short streams, edited", load=("short",), budget="(none)"),
    Workload(name="JSON answers", load=("json",), budget=">= 0.85", budget_host=">= 1.5"),
    Workload(
        name="burst chunks",
        load=("burst", "--asks", "--connections", "4"),
        budget=">= 0.85",
        budget_host=">= 2.5",
        per_answer=upstream.BURST_CHUNKS,
    ),
    Workload(
        name="burst chunks, edited",
        load=("burst", "--connections", "4"),
        budget="(none)",
        per_answer=upstream.BURST_CHUNKS,
    ),
)
SHORT = ("short", "--asks", "--warmup", "0")
WARM_UP_SECONDS = 2
PACED = ("paced", "--asks", "--connections", "200", "--warmup", "2", "--seconds", "4")
FIRST = ("first", "--asks", "--connections", "1", "--seconds", "3")


@dataclass(frozen=True, kw_only=True)
class Proxy:
    """A proxy that runs."""

    name: str
    process: subprocess.Popen[bytes]
    port: int

    def cpu_seconds(self) -> tuple[float, float]:
        """Of its event loop and of all its threads, so far."""
        pid = self.process.pid
        return cpu_seconds_of(f"/proc/{pid}/task/{pid}/stat"), cpu_seconds_of(f"/proc/{pid}/stat")

    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def cpu_seconds_of(path: str) -> float:
    """User and system time of a process or a thread."""
    stat = Path(path).read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


def environment() -> dict[str, str]:
    """Ours, with bytecode kept: otherwise the compiler is most of every start."""
    return {key: text for key, text in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


@contextlib.contextmanager
def on_core(core: int | None) -> Iterator[None]:
    """What is started here stays on one core; on any, if that is None."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, before if core is None else {core} & before or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def fast_upstream(core: int | None = HARNESS_CORE) -> Iterator[tuple[int, int]]:
    """Its port and its process id."""
    with on_core(core):
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.upstream"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline()), process.pid
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait()


@contextlib.contextmanager
def proxy(
    name: str,
    upstream_port: int,
    folder: Path,
    *,
    core: int | None = PROXY_CORE,
    against: Path | None = None,
) -> Iterator[Proxy]:
    """`bare`, `bare again`, `guest`, `tee`, `run`, or `old tee` and so on of another checkout."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    kind = name.removeprefix(OLD)
    checkout, python = REPOSITORY, sys.executable
    if kind != name:
        assert against is not None
        checkout, python = against, str(against / ".venv" / "bin" / "python")
    program = TOKENTEE_RUN if kind == "run" else MITMDUMP
    tee = str(checkout / TEE.relative_to(REPOSITORY))
    script = {"run": (), "tee": ("-s", tee), "guest": ("-s", tee)}.get(kind, ("-s", str(BARE)))
    options = {"confdir": folder / "confdir", "termlog_verbosity": "error"}
    if kind != "run":  # which prints no flows, and refuses the option
        options["flow_detail"] = 0
    if kind == "guest":
        options["tee_fast"] = "no"
    if kind in ("guest", "tee", "run"):
        options["ledger_url"] = f"sqlite:///{folder}/{name.replace(' ', '-')}.db"
        options["tee_hosts"] = f"127.0.0.1:{upstream_port}=openai"
    command = [python, *program, *script]
    command += ["--mode", f"reverse:http://127.0.0.1:{upstream_port}@127.0.0.1:{port}"]
    for option, value in options.items():
        command += ["--set", f"{option}={value}"]
    log = (folder / f"{name}.log").open("wb")
    with on_core(core):
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=checkout,  # from which `python -c` imports
            env=environment(),
        )
    try:
        wait_for_port(port, process)
        yield Proxy(name=name, process=process, port=port)
    finally:
        process.terminate()
        process.wait()
        log.close()
        said = (folder / f"{name}.log").read_text()
        if said:
            print(f"{name} said:\n{said[:2000]}", file=sys.stderr)


def wait_for_port(
    port: int, process: subprocess.Popen[bytes], seconds: float = START_SECONDS_MAX
) -> None:
    bound = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < bound:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise SystemExit(f"nothing listens on {port}: {process.args!r}")


def play(port: int, load: Sequence[str], core: int | None = HARNESS_CORE) -> dict[str, Any]:
    """One run of the load generator, which gets answers."""
    with on_core(core):
        done = subprocess.run(
            [sys.executable, "-m", "tests.bench.load", f"127.0.0.1:{port}", *load],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise SystemExit(f"load {' '.join(load)}: {done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout)
    if not result["answers"]:
        raise SystemExit(f"load {' '.join(load)}: no answer; is the machine busy?")
    return result


type Figures = dict[tuple[str, str], list[float]]
"""By workload (or figure) and proxy, one value a round."""


class Bench:
    """Runs rounds and keeps the figures."""

    def __init__(
        self, *, rounds: int, seconds: float, names: Sequence[str], against: Path | None = None
    ) -> None:
        self.rounds = rounds
        self.seconds = seconds
        self.against = against
        self.compared = tuple(names) if against else ()
        self.names = ("bare", "bare again", *names, *(OLD + name for name in self.compared))
        self.rate: Figures = {}
        self.loop_us: Figures = {}
        self.cpu_us: Figures = {}
        self.differences: dict[str, Figures] = {}
        self.console = Console(width=160)

    @contextlib.contextmanager
    def started(self, upstream_port: int, folder: Path, core: int | None) -> Iterator[list[Proxy]]:
        """All proxies, with new ledgers."""
        place = Path(tempfile.mkdtemp(dir=folder))
        with contextlib.ExitStack() as running:
            yield [
                running.enter_context(
                    proxy(name, upstream_port, place, core=core, against=self.against)
                )
                for name in self.names
            ]

    def throughput(
        self, proxies: Sequence[Proxy], workloads: Sequence[Workload], rounds: range
    ) -> None:
        for each in proxies:  # what the first request loads is no request's
            play(each.port, (*SHORT, "--seconds", str(WARM_UP_SECONDS)))
        for number in rounds:
            for workload in workloads:
                for each in _turned(proxies, number):
                    loop_before, all_before = each.cpu_seconds()
                    load = (*workload.load, "--seconds", str(self.seconds), "--warmup", "0")
                    result = play(each.port, load)
                    loop, everything = each.cpu_seconds()
                    key = workload.name, each.name
                    count = result["answers"] * workload.per_answer
                    self.rate.setdefault(key, []).append(count / result["seconds"])
                    self.loop_us.setdefault(key, []).append((loop - loop_before) / count * 1e6)
                    self.cpu_us.setdefault(key, []).append((everything - all_before) / count * 1e6)
            self.console.print(f"round {number + 1} of {self.rounds} done", style="dim")

    def figures(
        self, proxies: Sequence[Proxy], load: Sequence[str], names: Sequence[str]
    ) -> Figures:
        found: Figures = {}
        for number in range(self.rounds):
            for each in _turned(proxies, number):
                result = play(each.port, load)
                for name in names:
                    found.setdefault((name, each.name), []).append(result[name])
        return found

    def print_throughput(self, workloads: Sequence[Workload]) -> None:
        table = Table(title="answers (or chunks) per second on one core, against bare")
        for title in ("", "bare /s", "bare µs", "proxy", "/s", "loop µs", "all µs"):
            table.add_column(title, justify="left" if title in ("", "proxy") else "right")
        for title in ("rate", "loop", "all CPU"):
            table.add_column(f"{title} ratio", justify="right")
        table.add_column("budget")
        for workload in workloads:
            bare, again = ((workload.name, name) for name in ("bare", "bare again"))
            for name in self.names[1:]:
                key = workload.name, name
                # The second bare is held against the first, ours against both.
                both = [bare] if name == "bare again" else [bare, again]
                budget = {
                    "bare again": "A/A",
                    "guest": workload.budget,
                    "tee": workload.budget_host,
                    "run": workload.budget_host,
                }.get(name, "")
                rate, loop, everything = (
                    mean(figures, both) for figures in (self.rate, self.loop_us, self.cpu_us)
                )
                table.add_row(
                    workload.name,
                    f"{statistics.median(rate):.0f}",
                    f"{statistics.median(everything):.0f}",
                    name,
                    f"{statistics.median(self.rate[key]):.0f}",
                    f"{statistics.median(self.loop_us[key]):.0f}",
                    f"{statistics.median(self.cpu_us[key]):.0f}",
                    spread(quotients(self.rate[key], rate)),
                    spread(quotients(loop, self.loop_us[key])),
                    spread(quotients(everything, self.cpu_us[key])),
                    budget,
                )
        self.console.print(table)

    def print_against(self, workloads: Sequence[Workload]) -> None:
        """CPU of ours by CPU of the other checkout's; above 1 ours costs more."""
        table = Table(title=f"CPU per answer (or chunk), this checkout / {self.against}")
        table.add_column("")
        for name in ("A/A", *self.compared):
            table.add_column(name, justify="right")
        pairs = [("bare", "bare again"), *((name, OLD + name) for name in self.compared)]
        for workload in workloads:
            ratios = (
                quotients(self.cpu_us[workload.name, ours], self.cpu_us[workload.name, other])
                for ours, other in pairs
            )
            table.add_row(workload.name, *map(spread, ratios))
        self.console.print(table)

    def found(self) -> dict[str, Figures]:
        """All figures, by what they are."""
        measured = {"answers/s": self.rate, "event loop µs": self.loop_us, "CPU µs": self.cpu_us}
        return measured | self.differences

    def print_latencies(self, proxies: Sequence[Proxy], parts: Sequence[str]) -> None:
        if "first" in parts:
            self.print_differences(
                "one client alone: µs to the first chunk",
                self.figures(proxies, FIRST, ["first_us_p50"]),
                {"first_us_p50": "<= 150"},
            )
        if "paced" in parts:
            names = ["transit_us_p50", "transit_us_p90", "transit_us_p99"]
            self.print_differences(
                "200 paced streams: µs from upstream's write to the client's read",
                self.figures(proxies, PACED, names),
                dict(zip(names, ("<= 20", "-", "noise"), strict=True)),
            )

    def print_differences(self, title: str, found: Figures, budgets: dict[str, str]) -> None:
        self.differences[title] = found
        table = Table(title=title)
        for head in ("", "bare", "proxy", "measured", "added", "budget"):
            table.add_column(head, justify="left" if head in ("", "proxy") else "right")
        for figure, budget in budgets.items():
            bare = found[figure, "bare"]
            for name in self.names[1:]:
                added = [
                    ours - theirs for ours, theirs in zip(found[figure, name], bare, strict=True)
                ]
                table.add_row(
                    figure,
                    f"{statistics.median(bare):.1f}",
                    name,
                    f"{statistics.median(found[figure, name]):.1f}",
                    spread(added, digits=1),
                    "A/A" if name == "bare again" else budget,
                )
        self.console.print(table)


def mean(figures: Figures, keys: Sequence[tuple[str, str]]) -> list[float]:
    """Round by round, the mean of some series."""
    rounds = zip(*(figures[key] for key in keys), strict=True)
    return [statistics.fmean(values) for values in rounds]


def quotients(above: Sequence[float], below: Sequence[float]) -> list[float]:
    return [one / other for one, other in zip(above, below, strict=True)]


def spread(values: Sequence[float], *, digits: int = 2) -> str:
    """Median and, in brackets, the range."""
    low, high = min(values), max(values)
    return f"{statistics.median(values):.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def _turned(proxies: Sequence[Proxy], number: int) -> list[Proxy]:
    """Another one goes first each time."""
    start = number % len(proxies)
    return [*proxies[start:], *proxies[:start]]


def memory(bench: Bench, upstream_port: int, folder: Path) -> Figures:
    """KB that one open stream holds, in fresh processes."""
    found: Figures = {}
    for number in range(min(bench.rounds, 2)):
        for name in bench.names:
            place = folder / f"memory{number}"
            place.mkdir(exist_ok=True)
            with proxy(name, upstream_port, place, against=bench.against) as running:
                # What is loaded once (prices, say) is no stream's.
                play(running.port, ("short", "--asks", "--seconds", "2"))
                before = running.resident_bytes()
                with slow_streams(running.port):
                    held = running.resident_bytes() - before
            found.setdefault(("KB per open stream", name), []).append(held / SLOW_STREAMS / 1024)
    return found


@contextlib.contextmanager
def slow_streams(port: int) -> Iterator[None]:
    """A thousand streams that have begun and do not end."""
    command = [sys.executable, "-m", "tests.bench.load", f"127.0.0.1:{port}", "slow", "--asks"]
    command += ["--connections", str(SLOW_STREAMS)]
    with on_core(HARNESS_CORE):
        load = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert load.stdin is not None
    assert load.stdout is not None
    if load.stdout.readline() != b"ready\n":
        raise SystemExit("the slow streams did not come up")
    try:
        yield
    finally:
        load.stdin.write(b"\n")
        load.stdin.close()
        load.stdout.read()
        load.stdout.close()
        load.wait()


def run(
    *,
    rounds: int,
    seconds: float,
    names: Sequence[str],
    parts: Sequence[str],
    core: int | None = PROXY_CORE,
    against: Path | None = None,
    workloads: Sequence[Workload] = WORKLOADS,
) -> Bench:
    """Print the parts that are asked for; the figures behind them."""
    bench = Bench(rounds=rounds, seconds=seconds, names=names, against=against)
    with (
        tempfile.TemporaryDirectory(prefix="tokentee-bench-") as temporary,
        fast_upstream() as (upstream_port, _),
    ):
        folder = Path(temporary)
        itself = {
            workload.name: play(upstream_port, (*workload.load, "--seconds", "1"))
            for workload in workloads
        }
        rates = ", ".join(
            f"{result['answers'] * workload.per_answer / result['seconds']:.0f} {workload.name}/s"
            for workload, result in zip(workloads, itself.values(), strict=True)
        )
        bench.console.print(f"without a proxy, client and upstream on one core: {rates}")
        if "memory" in parts:
            found = memory(bench, upstream_port, folder)
            bench.print_differences(
                f"memory, {SLOW_STREAMS} open streams", found, {"KB per open stream": "<= 10"}
            )
        if "throughput" in parts:
            for first in range(0, rounds, ROUNDS_OF_A_START):
                with bench.started(upstream_port, folder, core) as proxies:
                    of_start = range(first, min(rounds, first + ROUNDS_OF_A_START))
                    bench.throughput(proxies, workloads, of_start)
            bench.print_throughput(workloads)
            if against:
                bench.print_against(workloads)
        if {"first", "paced"} & set(parts):
            with bench.started(upstream_port, folder, core) as proxies:
                bench.print_latencies(proxies, parts)
    return bench


PARTS = ("memory", "throughput", "first", "paced")
