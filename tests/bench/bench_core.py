"""What one exchange costs in this process: its CPU, and the calls of our own Python code in it.

    uv run python -m tests.bench --core

Flows pass the recorder's hooks as mitmproxy calls them, 16 at a time, whose ends wait for one
commit. In turn with it, a plain recorder does the least that a ledger needs: it keeps the chunks,
reads model and usage, digests both bodies and commits a row. What is printed is the cheapest block
of many, of the event loop and of the writer, and the ratio of the two recorders: the load of a
machine moves both.
"""

import asyncio
import gc
import hashlib
import json
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import CodeType
from typing import Any

from mitmproxy import http
from rich.console import Console
from rich.table import Table

from tests.addon.proxy.recording import answered, flow_of, passed_on, recording
from tests.bench import upstream
from tests.proxy.mitmdump import REPOSITORY

AT_ONCE = 16
BLOCKS = 40
WARM_BLOCKS = 3
KINDS = {
    "a stream with its usage": (True, True),
    "a stream that is edited": (True, False),
    "one document": (False, False),
}
"""Name -> whether it streams, and whether its client asks for usage itself."""
COUNTED_CHUNKS = 5
OURS = tuple(f"{REPOSITORY}/{room}/" for room in ("addon", "ledger"))


class PlainRecorder:
    """The least that a ledger needs of an exchange."""

    def __init__(self, path: Path) -> None:
        self._chunks: dict[str, list[bytes]] = {}
        self._rows: list[tuple[Any, ...]] = []
        self._commit: asyncio.Future[None] | None = None
        self._thread = ThreadPoolExecutor(1)
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL")
        self._db.execute("CREATE TABLE kept (id, at, model, asked, answered, usage)")

    def request(self, flow: http.HTTPFlow) -> None:
        self._chunks[flow.id] = []

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        chunks = self._chunks[flow.id]

        def keep(data: bytes) -> bytes | list[bytes]:
            chunks.append(data)
            return data or []

        assert flow.response is not None
        flow.response.stream = keep

    async def response(self, flow: http.HTTPFlow) -> None:
        sent, body = flow.request.raw_content or b"", b"".join(self._chunks.pop(flow.id))
        at = body.rfind(b'"usage":{')
        usage = json.JSONDecoder().raw_decode(body[at + 8 :].decode())[0] if at >= 0 else None
        digests = [hashlib.blake2b(each, digest_size=16).hexdigest() for each in (sent, body)]
        model = json.loads(sent)["model"]
        self._rows.append((flow.id, time.time(), model, *digests, json.dumps(usage)))
        if self._commit is None:
            loop = asyncio.get_running_loop()
            self._commit = loop.create_future()
            loop.call_soon(loop.run_in_executor, self._thread, self._write, loop, self._commit)
        await self._commit

    def _write(self, loop: asyncio.AbstractEventLoop, commit: asyncio.Future[None]) -> None:
        rows, self._rows, self._commit = self._rows, [], None
        values = ", ".join(["(?, ?, ?, ?, ?, ?)"] * len(rows))
        self._db.execute(
            f"INSERT INTO kept VALUES {values}",
            [each for row in rows for each in row],
        )
        loop.call_soon_threadsafe(commit.set_result, None)


made = iter(range(1, sys.maxsize))


def answer_to(flow: http.HTTPFlow, count: int) -> tuple[str, list[bytes]]:
    """The type and the chunks of an answer, by what upstream was asked for."""
    own, asked = b"chatcmpl-bench%08d" % next(made), json.loads(flow.request.raw_content or b"{}")
    if not asked.get("stream"):
        return "application/json", [upstream.DOCUMENT.replace(upstream.ID, own)]
    frames = upstream.frames(count, asked=bool(asked.get("stream_options")))
    return "text/event-stream", [frame.replace(upstream.ID, own) for frame in frames]


async def block(hooks: Any, kind: str, *, at_once: int, count: int) -> tuple[float, float]:
    """Pass exchanges at once; the µs of CPU of each on the loop, and off it."""
    stream, asks = KINDS[kind]
    flows = [flow_of(stream=stream, asks=asks) for _ in range(at_once)]
    gc.collect()
    process, loop = time.process_time(), time.thread_time()
    for flow in flows:
        hooks.request(flow)
    asked = time.thread_time()
    answers = []
    for flow in flows:
        content_type, chunks = answer_to(flow, count)
        answers.append((flow, answered(flow, content_type=content_type), chunks))
    loop += time.thread_time() - asked
    process += time.thread_time() - asked
    for flow, response, chunks in answers:
        hooks.responseheaders(flow)
        passed_on(response, chunks)
    await asyncio.gather(*[hooks.response(flow) for flow in flows])
    await asyncio.sleep(0.01)  # what is done after the commit counts, too
    on_loop, everywhere = time.thread_time() - loop, time.process_time() - process
    return on_loop / at_once * 1e6, (everywhere - on_loop) / at_once * 1e6


async def calls_of(hooks: Any, kind: str) -> int:
    """Starts and resumptions of our own Python code, in all threads, for one exchange alone."""
    monitoring, fewest = sys.monitoring, sys.maxsize
    events = monitoring.events.PY_START | monitoring.events.PY_RESUME
    for _ in range(5):
        seen: Counter[CodeType] = Counter()

        def started(code: CodeType, _offset: int, seen: Counter[CodeType] = seen) -> object:
            if not code.co_filename.startswith(OURS):
                return monitoring.DISABLE
            seen[code] += 1
            return None

        monitoring.use_tool_id(monitoring.PROFILER_ID, "bench_core")
        for event in (monitoring.events.PY_START, monitoring.events.PY_RESUME):
            monitoring.register_callback(monitoring.PROFILER_ID, event, started)
        monitoring.restart_events()
        monitoring.set_events(monitoring.PROFILER_ID, events)
        try:
            await block(hooks, kind, at_once=1, count=COUNTED_CHUNKS)
            await asyncio.sleep(0.2)
        finally:
            monitoring.set_events(monitoring.PROFILER_ID, 0)
            monitoring.free_tool_id(monitoring.PROFILER_ID)
        fewest = min(fewest, seen.total())
    return fewest


async def figures_in(folder: Path) -> dict[str, dict[str, float]]:
    """By kind of exchange: µs on the loop and off it, those of the plain recorder, and calls."""
    found: dict[str, dict[str, float]] = {}
    plain = PlainRecorder(folder / "plain.sqlite3")
    async with recording(folder / "ledger.sqlite3") as (recorder, _):
        for kind in KINDS:
            best: dict[str, tuple[float, float]] = {}
            for number in range(WARM_BLOCKS + BLOCKS):
                for name, hooks in (("ours", recorder), ("plain", plain)):
                    used = await block(hooks, kind, at_once=AT_ONCE, count=upstream.SHORT_CHUNKS)
                    if number >= WARM_BLOCKS:
                        best[name] = min(best.get(name, used), used, key=sum)
            found[kind] = {
                "loop": best["ours"][0],
                "writer": best["ours"][1],
                "plain": sum(best["plain"]),
                "ratio": sum(best["ours"]) / sum(best["plain"]),
                "calls": await calls_of(recorder, kind),
            }
    return found


def measure() -> dict[str, dict[str, float]]:
    """Print what an exchange costs."""
    with tempfile.TemporaryDirectory(prefix="tokentee-bench-") as folder:
        found = asyncio.run(figures_in(Path(folder)))
    table = Table(title="CPU µs of one exchange, the cheapest block; calls of our own code")
    heads = ("exchange", "event loop", "writer", "plain recorder", "ratio", "calls")
    for head in heads:
        table.add_column(head, justify="left" if head == "exchange" else "right")
    for kind, each in found.items():
        numbers = [f"{each[name]:.0f}" for name in ("loop", "writer", "plain")]
        table.add_row(kind, *numbers, f"{each['ratio']:.1f}", f"{each['calls']:.0f}")
    Console(width=110).print(table)
    return found
