"""Microseconds that the tap takes per frame, without a proxy around it.

    uv run python -m tests.bench --parts tap

Each frame is one chunk, as paced streams bring them. What is printed is the best of several
rounds in CPU time, less what an empty callable takes; allowed are 0.3 µs for a frame that is only
listened to and 2 µs for one that is edited.
"""

import time
from collections.abc import Callable
from functools import partial

from rich.console import Console
from rich.table import Table

from addon.dialects.routes import DIALECTS
from addon.metering.meter import Meter
from addon.metering.tap import Tap
from addon.metering.troubles import Troubles
from tests.bench import upstream
from tests.proxy.wires import WIRES

FRAMES = 5_000
ROUNDS = 7


def tap(dialect: str, content_type: str, *, edits: bool) -> Tap:
    return Tap(
        Meter(DIALECTS[dialect]),
        content_type=content_type,
        edits=edits,
        clock=time.time,
        troubles=Troubles(),
    )


def streams() -> dict[str, tuple[str, str, list[bytes], bool]]:
    """By name: dialect, content type, chunks, and whether they are edited."""
    plain = upstream.frames(FRAMES, asked=False)
    nulls = upstream.frames(FRAMES, asked=True)
    sse = "text/event-stream"
    wires = {wire.name: wire for wire in WIRES}
    delta = wires["anthropic"].frames[3]
    return {
        "OpenAI, listened to": ("openai.chat", sse, plain, False),
        "OpenAI, usage null on each, listened to": ("openai.chat", sse, nulls, False),
        "OpenAI, usage null on each, taken out": ("openai.chat", sse, nulls, True),
        "OpenAI, nothing to take out": ("openai.chat", sse, plain, True),
        "Anthropic deltas": (
            "anthropic.messages",
            sse,
            [*wires["anthropic"].frames[:3], *[delta] * FRAMES, *wires["anthropic"].frames[5:]],
            False,
        ),
        "OpenAI, padded": (
            "openai.chat",
            sse,
            [
                frame[:-3] + b',"obfuscation":"%s"}\n\n' % (b"x" * (number % 12))
                for number, frame in enumerate(plain[:-2])
            ]
            + plain[-2:],
            False,
        ),
        "Gemini parts (usage on each)": (
            "gemini.generate_content",
            sse,
            [wires["gemini"].frames[0]] * FRAMES,
            False,
        ),
    }


def measure() -> dict[str, tuple[float, float]]:
    """Print µs per frame; by stream, of the tap alone and with the meter's end."""
    found: dict[str, tuple[float, float]] = {}
    table = Table(title="µs per frame, one frame a chunk")
    for head in ("stream", "bytes a frame", "tap", "tap + meter's end, per frame"):
        table.add_column(head, justify="left" if head == "stream" else "right")
    for name, (dialect, content_type, chunks, edits) in streams().items():
        empty = best_us(None, chunks)
        make = partial(tap, dialect, content_type, edits=edits)
        alone, whole = (best_us(make, chunks, ends=ends) - empty for ends in (False, True))
        found[name] = alone, whole
        size = sum(map(len, chunks)) // len(chunks)
        table.add_row(name, str(size), f"{alone:.2f}", f"{whole:.2f}")
    Console(width=110).print(table)
    return found


def best_us(make: Callable[[], Tap] | None, chunks: list[bytes], *, ends: bool = False) -> float:
    """Per chunk, of a tap or of an empty callable; `ends`: with all that the answer's end takes."""
    best = float("inf")
    for _ in range(ROUNDS):
        used = make() if make else None
        callable_ = used.callable if used else bytes
        started = time.thread_time_ns()
        for chunk in chunks:
            callable_(chunk)
        if used and ends:
            used.end()
            used.transfer()
            used.meter.usage()
        best = min(best, time.thread_time_ns() - started)
    return best / len(chunks) / 1000
