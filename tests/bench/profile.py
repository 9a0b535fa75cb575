"""Where the time of a busy proxy goes, by room of the house and by function.

    uv run --with py-spy python -m tests.bench --profile

py-spy samples the running proxy from outside, all threads, without slowing it by more than a few
percent. A sample belongs to the innermost frame of ours, so that SQLite's time is the writer's and
a search in bytes is the tap's; a sample without one is mitmproxy's or Python's. Stacks that end in a
wait are left out.
"""

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.bench.bench_proxy import SHORT, WARM_UP_SECONDS, WORKLOADS, fast_upstream, play, proxy
from tests.proxy.mitmdump import REPOSITORY

SAMPLES_PER_SECOND = 250
FUNCTIONS_MAX = 25
OURS = ("addon", "ledger")
WAITS = re.compile(r"(\w+\.)*(wait|select|take|_first) \(")
"""How the innermost frame of a thread begins that waits for a lock, a socket or the queue."""
TURN = "BaseEventLoop._run_once ("
"""One turn of asyncio's event loop."""


def measure(*, seconds: float, names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Print the tables; shares of all samples, by workload and proxy, of each room."""
    spy = shutil.which("py-spy")
    if spy is None:
        raise SystemExit("--profile needs py-spy: uv run --with py-spy python -m tests.bench")
    found: dict[str, dict[str, float]] = {}
    console = Console(width=110)
    with tempfile.TemporaryDirectory(prefix="tokentee-profile-") as temporary:
        folder = Path(temporary)
        with fast_upstream() as upstream_port:
            for name in names:
                with proxy(name, upstream_port, folder) as running:
                    play(running.port, (*SHORT, "--seconds", str(WARM_UP_SECONDS)))
                    for workload in WORKLOADS:
                        raw = folder / "samples.txt"
                        command = [spy, "record", "--pid", str(running.process.pid)]
                        command += ["--format", "raw", "--full-filenames", "--output", str(raw)]
                        command += ["--rate", str(SAMPLES_PER_SECOND)]
                        command += ["--duration", str(max(1, round(seconds)))]
                        sampling = subprocess.Popen(
                            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
                        )
                        play(running.port, (*workload.load, "--seconds", str(seconds)))
                        _, said = sampling.communicate()
                        if sampling.returncode:
                            raise SystemExit(f"py-spy: {said.strip()}")
                        title = f"{workload.name}, {name}"
                        found[title] = _show(console, title, list(samples(raw.read_text())))
    return found


def samples(text: str) -> Iterator[tuple[list[str], int]]:
    """Stacks, outermost frame first, and how often each was seen."""
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = stack.split(";")
        turns = [number for number, frame in enumerate(frames) if frame.startswith(TURN)]
        frames = frames[turns[-1] :] if turns else frames  # what started the loop is no owner
        if not WAITS.match(frames[-1]):
            yield frames, int(count)


def owner(stack: Sequence[str]) -> tuple[str, str]:
    """Room and function of the innermost frame of ours; else the package of the innermost one."""
    for frame in reversed(stack):
        function, _, place = frame.partition(" (")
        path = place.rpartition(":")[0]
        within = Path(path)
        if within.is_relative_to(REPOSITORY) and ".venv" not in within.parts:
            parts = within.relative_to(REPOSITORY).parts
            if parts[0] in OURS:
                return "/".join(parts[:-1]), f"{'/'.join(parts)} {function}"
    package = "python"
    for frame in reversed(stack):
        _, found, rest = frame.partition("/site-packages/")
        if found:
            package = rest.partition("/")[0]
            break
    return package, f"{package} {stack[-1].partition(' (')[0]}"


def _show(console: Console, title: str, found: Sequence[tuple[list[str], int]]) -> dict[str, float]:
    rooms: Counter[str] = Counter()
    functions: Counter[str] = Counter()
    for stack, count in found:
        room, function = owner(stack)
        rooms[room] += count
        functions[function] += count
    total = max(1, rooms.total())
    table = Table(title=f"{title}: {total} samples")
    table.add_column("room")
    table.add_column("%", justify="right")
    table.add_column("function")
    table.add_column("%", justify="right")
    left = rooms.most_common(FUNCTIONS_MAX)
    right = functions.most_common(FUNCTIONS_MAX)
    for number in range(max(len(left), len(right))):
        room, in_room = left[number] if number < len(left) else ("", 0)
        function, in_function = right[number]
        table.add_row(
            room,
            f"{100 * in_room / total:.1f}" if room else "",
            function,
            f"{100 * in_function / total:.1f}",
        )
    console.print(table)
    return {room: count / total for room, count in rooms.most_common()}
