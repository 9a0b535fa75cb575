"""CPU that one exchange costs us, without mitmproxy's layers around it.

    uv run python -m tests.bench.bench_hooks
    uv run python -m tests.bench.bench_hooks --against PATH     # another checkout, in turn
    uv run python -m tests.bench.bench_hooks --profile short    # by function, event loop alone

A recorder with a real ledger is given flows as mitmproxy gives them, sixteen at a time: `request`,
`responseheaders`, the chunks of the answer, `response` with its wait for the commit. CPU is user
and system time of the whole process, the writer's thread included, less what making the flows
takes. Each figure is the median of many short rounds, which the checkouts play in turn; A/A is the
same checkout twice, and says how far a ratio can be trusted.
"""

import argparse
import asyncio
import cProfile
import json
import pstats
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from mitmproxy import http
from mitmproxy.test import tflow

from addon.proxy.host.chunk_run import ChunkRun
from addon.proxy.recorder import Recorder
from addon.proxy.stream_events import StreamEvents
from ledger.model.exchange import Exchange
from ledger.model.reading import Reading
from ledger.store.writing.jobs import Receipt
from ledger.store.writing.writer import Ledger
from tests.addon.proxy.recording import recording
from tests.bench import upstream
from tests.proxy.mitmdump import REPOSITORY

LOADS = ("short", "edited", "json", "burst")
AT_ONCE = 16
RUN_CHUNKS = 180
"""Of one read of 64 KB."""
ROUNDS = 60
EXCHANGES = {"short": 96, "edited": 96, "json": 128, "burst": 16}
"""In one round: some 0.05 s, so that the checkouts take turns often."""
BODY = b'{"model":"gpt-4o","messages":[{"role":"user","content":"%s"}]%s}'
TEXT = b"Tell me about ledgers. " * 40


class Answers:
    """The pieces of each load's answer, with an id of its own in each."""

    def __init__(self) -> None:
        self.number = 0
        self.frames = {
            "short": upstream.frames(upstream.SHORT_CHUNKS, asked=True),
            "edited": upstream.frames(upstream.SHORT_CHUNKS, asked=True),
            "json": [upstream._DOCUMENT],
            "burst": upstream.frames(upstream.BURST_CHUNKS, asked=True),
        }

    def flow(self, load: str) -> tuple[http.HTTPFlow, http.Response, list[bytes]]:
        self.number += 1
        own = b"chatcmpl-bench%08d" % self.number
        pieces = [piece.replace(upstream._ID, own) for piece in self.frames[load]]
        options = b"" if load == "json" else b',"stream":true'
        if load in ("short", "burst"):
            options += b',"stream_options":{"include_usage":true}'
        headers: dict[str | bytes, str | bytes] = {
            "content-type": "application/json",
            "authorization": "Bearer sk-bench",
        }
        headers |= {"accept-encoding": "gzip", "user-agent": "bench"}
        request = http.Request.make(
            "POST",
            "https://api.openai.com/v1/chat/completions",
            BODY % (TEXT, options),
            headers,
        )
        kind = "application/json" if load == "json" else "text/event-stream; charset=utf-8"
        response = http.Response.make(200, b"", {"content-type": kind})
        if load == "json":
            response.headers["content-length"] = str(len(pieces[0]))
        else:
            del response.headers["content-length"]
            response.headers["transfer-encoding"] = "chunked"
        flow = tflow.tflow(req=request)
        flow.response = None
        flow.live = True
        return flow, response, pieces


async def exchange(
    recorder: Recorder, flow: http.HTTPFlow, response: http.Response, pieces: list[bytes]
) -> None:
    """One exchange, as mitmproxy takes an addon through it."""
    recorder.request(flow)
    await asyncio.sleep(0)
    flow.response = response
    recorder.responseheaders(flow)
    stream = response.stream
    assert callable(stream)
    assert recorder.running_state is not None
    events = StreamEvents(recorder.running_state)
    events.stream_begins(flow)
    if len(pieces) > 1:
        pieces = [
            ChunkRun.of(pieces[at : at + RUN_CHUNKS]) for at in range(0, len(pieces), RUN_CHUNKS)
        ]
    for piece in (*pieces, b""):
        stream(piece)
    events.upstream_ended(flow)
    await recorder.response(flow)


async def play(
    recorder: Recorder,
    answers: Answers,
    load: str,
    count: int,
    profiler: cProfile.Profile | None = None,
) -> tuple[float, float]:
    """CPU µs per exchange: of the process, and of the event loop."""
    made = [answers.flow(load) for _ in range(count)]
    left = iter(made)

    async def client() -> None:
        for flow, response, pieces in left:
            await exchange(recorder, flow, response, pieces)

    began, began_here = time.process_time(), time.thread_time()
    if profiler is not None:
        profiler.enable()
    await asyncio.gather(*(client() for _ in range(AT_ONCE)))
    if profiler is not None:
        profiler.disable()
    all_of_it, here = time.process_time() - began, time.thread_time() - began_here
    return all_of_it / count * 1e6, here / count * 1e6


async def serve(loads: list[str]) -> None:
    """Play the round that standard input names, and print what it cost."""
    answers = Answers()
    with tempfile.TemporaryDirectory(prefix="tokentee-hooks-") as folder:
        async with recording(Path(folder) / "ledger.db") as (recorder, _):
            for load in loads:
                await play(recorder, answers, load, EXCHANGES[load])
            for line in sys.stdin:
                load = line.strip()
                print(*await play(recorder, answers, load, EXCHANGES[load]), flush=True)


def forget(ledger: Ledger) -> None:
    """Have a ledger take what it is given for written."""

    def open_(exchange: Exchange) -> None:
        pass

    def settle(exchange: Exchange, reading: Reading) -> Receipt:
        receipt = Receipt(exchange.id)
        receipt.committed = True
        return receipt

    ledger.open = open_  # type: ignore[method-assign]
    ledger.settle = settle  # type: ignore[method-assign]


async def profile(load: str) -> None:
    answers = Answers()
    with tempfile.TemporaryDirectory(prefix="tokentee-hooks-") as folder:
        async with recording(Path(folder) / "ledger.db") as (recorder, _):
            await play(recorder, answers, load, EXCHANGES[load])
            running = recorder.running_state
            assert running is not None
            forget(running.ledger)  # the profiler takes every thread's calls for one thread's
            profiler = cProfile.Profile(timer=time.thread_time)
            await play(recorder, answers, load, 5 * EXCHANGES[load], profiler)
    stats = pstats.Stats(profiler)
    stats.sort_stats("cumtime").print_stats(60)
    stats.sort_stats("tottime").print_stats(45)


def started(checkout: Path) -> subprocess.Popen[str]:
    python = sys.executable if checkout == REPOSITORY else str(checkout / ".venv/bin/python")
    script = [python, "-m", "tests.bench.bench_hooks", "--serve"]
    pipe = subprocess.PIPE
    return subprocess.Popen(script, cwd=checkout, stdin=pipe, stdout=pipe, text=True)


def ask(process: subprocess.Popen[str], load: str) -> tuple[float, float]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(load + "\n")
    process.stdin.flush()
    everything, loop = process.stdout.readline().split()
    return float(everything), float(loop)


def measure(rounds: int, loads: list[str], against: Path | None) -> dict[str, dict[str, float]]:
    """Print and return, by load: µs of this checkout, and ratios of the medians."""
    checkouts = {"here": REPOSITORY, "here again": REPOSITORY}
    if against is not None:
        checkouts["old"] = against
    found: dict[str, dict[str, float]] = {}
    processes = {name: started(checkout) for name, checkout in checkouts.items()}
    try:
        for load in loads:
            taken: dict[str, list[tuple[float, float]]] = {name: [] for name in processes}
            for number in range(rounds):
                for name in turned(list(processes), number):
                    taken[name].append(ask(processes[name], load))
            found[load] = row = {}
            for name, figures in taken.items():
                row[name], row[f"{name}, loop"] = map(statistics.median, zip(*figures, strict=True))
                pairs = zip(taken["here"], figures, strict=True)
                ratio = statistics.median(ours[0] / theirs[0] for ours, theirs in pairs)
                if name != "here":
                    row[f"here / {name}"] = ratio
                    best = [min(one[0] for one in taken[each]) for each in ("here", name)]
                    row[f"here / {name}, best rounds"] = best[0] / best[1]
                    best = [min(one[1] for one in taken[each]) for each in ("here", name)]
                    row[f"here / {name}, loop, best rounds"] = best[0] / best[1]
            shown = ", ".join(f"{name} {value:.2f}" for name, value in row.items())
            print(f"{load:8} {shown}", flush=True)
    finally:
        for process in processes.values():
            assert process.stdin is not None
            process.stdin.close()
            process.wait()
    return found


def turned(names: list[str], number: int) -> Iterator[str]:
    at = number % len(names)
    yield from names[at:] + names[:at]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--loads", default=",".join(LOADS))
    parser.add_argument("--against", type=Path, metavar="PATH")
    parser.add_argument("--profile", metavar="LOAD")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    loads = arguments.loads.split(",")
    if arguments.serve:
        asyncio.run(serve(loads))
    elif arguments.profile:
        asyncio.run(profile(arguments.profile))
    else:
        print(json.dumps(measure(arguments.rounds, loads, arguments.against)))


if __name__ == "__main__":
    main()
