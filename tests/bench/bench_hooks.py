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

from addon.proxy.recorder import Recorder
from tests.addon.proxy.recording import recording
from tests.bench import upstream
from tests.proxy.mitmdump import REPOSITORY

LOADS = ("short", "edited", "json", "burst")
AT_ONCE = 16
ROUNDS = 15
EXCHANGES = {"short": 320, "edited": 320, "json": 480, "burst": 48}
"""In one round: some 0.15 s."""
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
        headers = {"content-type": "application/json", "authorization": "Bearer sk-bench"}
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
    recorder.stream_begins(flow)
    for piece in (*pieces, b""):
        stream(piece)
    recorder.upstream_ended(flow)
    await recorder.response(flow)
    recorder.release_held_end(flow)


async def play(recorder: Recorder, answers: Answers, load: str, count: int) -> float:
    """CPU µs per exchange."""
    made = [answers.flow(load) for _ in range(count)]
    left = iter(made)

    async def client() -> None:
        for flow, response, pieces in left:
            await exchange(recorder, flow, response, pieces)

    began = time.process_time()
    await asyncio.gather(*(client() for _ in range(AT_ONCE)))
    return (time.process_time() - began) / count * 1e6


async def serve(loads: list[str]) -> None:
    """Play the round that standard input names, and print what it cost."""
    answers = Answers()
    with tempfile.TemporaryDirectory(prefix="tokentee-hooks-") as folder:
        async with recording(Path(folder) / "ledger.db") as (recorder, _):
            for load in loads:
                await play(recorder, answers, load, EXCHANGES[load])
            for line in sys.stdin:
                load = line.strip()
                print(await play(recorder, answers, load, EXCHANGES[load]), flush=True)


async def profile(load: str) -> None:
    answers = Answers()
    with tempfile.TemporaryDirectory(prefix="tokentee-hooks-") as folder:
        async with recording(Path(folder) / "ledger.db") as (recorder, _):
            await play(recorder, answers, load, EXCHANGES[load])
            profiler = cProfile.Profile()
            profiler.enable()
            await play(recorder, answers, load, 5 * EXCHANGES[load])
            profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(45)


def started(checkout: Path) -> subprocess.Popen[str]:
    python = sys.executable if checkout == REPOSITORY else str(checkout / ".venv/bin/python")
    script = [python, "-m", "tests.bench.bench_hooks", "--serve"]
    pipe = subprocess.PIPE
    return subprocess.Popen(script, cwd=checkout, stdin=pipe, stdout=pipe, text=True)


def ask(process: subprocess.Popen[str], load: str) -> float:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(load + "\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def measure(rounds: int, loads: list[str], against: Path | None) -> dict[str, dict[str, float]]:
    """Print and return, by load: µs of this checkout, and ratios of the medians."""
    checkouts = {"here": REPOSITORY, "here again": REPOSITORY}
    if against is not None:
        checkouts["old"] = against
    found: dict[str, dict[str, float]] = {}
    processes = {name: started(checkout) for name, checkout in checkouts.items()}
    try:
        for load in loads:
            taken: dict[str, list[float]] = {name: [] for name in processes}
            for number in range(rounds):
                for name in turned(list(processes), number):
                    taken[name].append(ask(processes[name], load))
            found[load] = row = {"here": statistics.median(taken["here"])}
            for name in list(processes)[1:]:
                row[name] = statistics.median(taken[name])
                ratios = [a / b for a, b in zip(taken["here"], taken[name], strict=True)]
                row[f"here / {name}"] = statistics.median(ratios)
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
