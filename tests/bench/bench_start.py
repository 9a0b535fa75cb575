"""CPU seconds of commands that start and end: `tokentee --help`, `report`, `show`, `run -- true`.

    uv run python -m tests.bench --parts start

The commands take turns, so that what else the machine does hits all of them. Bytecode is kept, as
it is on an installed machine: the first round, which writes it, is not counted.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from rich.console import Console
from rich.table import Table

from ledger.store import db
from tests.bench import big_ledger
from tests.bench.bench_proxy import MITMDUMP, environment, spread
from tests.proxy.mitmdump import BARE, REPOSITORY

EXCHANGES = 200
BARE_NAME = "mitmdump, bare, started and stopped"
RUN_NAME = "tokentee run -- true"
BUDGETS = {
    "tokentee --help": "<= 0.5 s",
    "tokentee report": "<= 0.5 s",
    "tokentee show": "<= 0.5 s",
    RUN_NAME: "<= 1.2 of bare",
}
LISTENING_SECONDS_MAX = 60

type Seconds = dict[str, list[float]]
"""By command, CPU seconds of each round."""


def children_cpu_seconds() -> float:
    """Of all processes that were started here and have ended."""
    times = os.times()
    return times.children_user + times.children_system


def tokentee(
    folder: Path, *words: str, variables: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Run one command, with further environment variables; it must succeed."""
    command = [sys.executable, "-c", "from addon.cli import main; main()", *words]
    ledger = {"TOKENTEE_LEDGER": f"sqlite:///{folder / 'small.sqlite3'}"}
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        env=environment() | ledger | dict(variables),
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"tokentee {' '.join(words)}: {done.stderr.decode()}")


def bare_mitmdump(folder: Path) -> None:
    """Start a bare mitmdump, wait until it listens, stop it."""
    command = [sys.executable, *MITMDUMP, "-s", str(BARE), "--listen-port", "0"]
    command += ["--listen-host", "127.0.0.1", "--set", f"confdir={folder / 'confdir'}"]
    process = subprocess.Popen(
        command, cwd=REPOSITORY, env=environment(), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    bound = time.monotonic() + LISTENING_SECONDS_MAX
    for line in process.stdout:
        if "listening at" in line or time.monotonic() > bound:
            break
    process.terminate()
    process.stdout.read()
    process.wait()


def measure(*, rounds: int = 5) -> Seconds:
    """CPU seconds of every command; the table is printed."""
    found: Seconds = {}
    with tempfile.TemporaryDirectory(prefix="tokentee-bench-") as temporary:
        folder = Path(temporary)
        engine = db.ensure(f"sqlite:///{folder / 'small.sqlite3'}")
        big_ledger.fill(engine, EXCHANGES)
        engine.dispose()
        commands: dict[str, Callable[[], None]] = {
            "tokentee --help": lambda: tokentee(folder, "--help"),
            "tokentee report": lambda: tokentee(folder, "report"),
            "tokentee show": lambda: tokentee(folder, "show", f"e{EXCHANGES // 2}"),
            BARE_NAME: lambda: bare_mitmdump(folder),
            f"{BARE_NAME}, again": lambda: bare_mitmdump(folder),
            RUN_NAME: lambda: tokentee(folder, "run", "--", "true"),
        }
        for number in range(rounds + 1):
            for name, call in commands.items():
                before = children_cpu_seconds()
                call()
                if number:
                    found.setdefault(name, []).append(children_cpu_seconds() - before)
    show(found)
    return found


def show(found: Seconds) -> None:
    """Print the table."""
    table = Table("command", "CPU s", "by bare's", "budget", title="start and end of a command")
    for name, seconds in found.items():
        # By the median, since rounds of single starts vary more than they drift.
        bare = statistics.median(found[BARE_NAME])
        by_bare = "" if name == BARE_NAME else spread([each / bare for each in seconds])
        table.add_row(name, spread(seconds), by_bare, BUDGETS.get(name, ""))
    Console(width=120).print(table)
