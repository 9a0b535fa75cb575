"""Microseconds that the tap takes per frame, without a proxy around it.

    uv run python -m tests.bench.bench_tap
    uv run pytest -m bench -n 0 -s tests/bench/bench_tap.py

Each frame is one chunk, as paced streams bring them. What is printed is the best of several
rounds in CPU time, less what an empty callable takes; allowed are 0.3 µs for a frame that is only
listened to and 2 µs for one that is edited.
"""

import time
from collections.abc import Callable

import pytest
from rich.console import Console
from rich.table import Table

from addon.dialects.routes import DIALECTS
from addon.metering.answers.meter import Meter
from addon.metering.tap import Tap
from addon.metering.troubles import Troubles
from addon.usage_opt_in.stripping import Stripper
from tests.bench import upstream
from tests.proxy.wires import WIRES

FRAMES = 5_000
ROUNDS = 7


def tap(dialect: str, content_type: str, *, edits: bool) -> Tap:
    meter = Meter(DIALECTS[dialect], content_type=content_type)
    return Tap(
        meter,
        stripper=Stripper() if edits else None,
        clock=time.time,
        troubles=Troubles(),
    )


def pass_on(data: bytes) -> bytes:
    return data


def best_us(make: Callable[[], Callable[[bytes], object]], chunks: list[bytes]) -> float:
    """Per chunk."""
    best = float("inf")
    for _ in range(ROUNDS):
        callable_ = make()
        started = time.thread_time_ns()
        for chunk in chunks:
            callable_(chunk)
        best = min(best, time.thread_time_ns() - started)
    return best / len(chunks) / 1000


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
        size = sum(map(len, chunks)) // len(chunks)
        empty = best_us(lambda: pass_on, chunks)
        alone = best_us(callable_of(dialect, content_type, edits=edits), chunks) - empty
        whole = best_whole_us(dialect, content_type, chunks, edits=edits) - empty
        found[name] = alone, whole
        table.add_row(name, str(size), f"{alone:.2f}", f"{whole:.2f}")
    Console(width=110).print(table)
    return found


def callable_of(
    dialect: str, content_type: str, *, edits: bool
) -> Callable[[], Callable[[bytes], object]]:
    return lambda: tap(dialect, content_type, edits=edits).callable


def best_whole_us(dialect: str, content_type: str, chunks: list[bytes], *, edits: bool) -> float:
    """Per chunk, with all that is done at the end of the answer."""
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.thread_time_ns()
        used = tap(dialect, content_type, edits=edits)
        callable_ = used.callable
        for chunk in chunks:
            callable_(chunk)
        used.end()
        used.passed()
        used.meter.usage()
        best = min(best, time.thread_time_ns() - started)
    return best / len(chunks) / 1000


@pytest.mark.bench
def test_microseconds_per_frame(capsys: pytest.CaptureFixture[str]) -> None:
    """Every stream is metered without a fault; the figures are for the reader."""
    with capsys.disabled():
        measure()


if __name__ == "__main__":
    measure()
