"""Microseconds that the meter takes for an ordinary frame, and for a whole short stream.

    pytest -m bench tests/bench/bench_meter.py -s

Frames come in runs of about 1.9 KB, as the tap hands them on. Beside each figure stands what one
search through such a run takes, so that machines can be compared.
"""

import json
import random
import timeit
from collections.abc import Callable, Mapping

import pytest

from addon.dialects import routes
from addon.metering.answers.meter import Meter

RUN_BYTES = 1_900
REPEATS = 15


def chat(text: str, _number: int) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    body = {
        "id": "chatcmpl-A1b2C3d4E5f6G7h8",
        "object": "chat.completion.chunk",
        "created": 1716825600,
    }
    return sse(body | {"model": "gpt-4o", "choices": [choice]})


def chat_padded(text: str, number: int) -> bytes:
    return chat(text, number)[:-3] + b',"obfuscation":"%s"}\n\n' % (b"x" * (number % 12))


def anthropic(text: str, _number: int) -> bytes:
    delta = {"type": "text_delta", "text": text}
    return b"event: content_block_delta\n" + sse(
        {"type": "content_block_delta", "index": 0, "delta": delta}
    )


def responses(text: str, number: int) -> bytes:
    body = {"type": "response.output_text.delta", "content_index": 0, "delta": text}
    body |= {"item_id": "msg_0123456789abcdef0123456789abcdef", "logprobs": [], "output_index": 1}
    return b"event: response.output_text.delta\n" + sse(body | {"sequence_number": number})


def gemini(text: str, number: int) -> bytes:
    candidate = {"content": {"parts": [{"text": text}], "role": "model"}, "index": 0}
    usage = {"promptTokenCount": 9, "candidatesTokenCount": number, "totalTokenCount": 9 + number}
    body = {"candidates": [candidate], "usageMetadata": usage, "responseId": "ZyS5aZaqIYSAkdUP"}
    return sse(body).replace(b"\n\n", b"\r\n\r\n")


def sse(body: Mapping[str, object]) -> bytes:
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


WIRES: dict[str, tuple[str, Callable[[str, int], bytes]]] = {
    "chat": ("openai.chat", chat),
    "chat, padded": ("openai.chat", chat_padded),
    "messages": ("anthropic.messages", anthropic),
    "responses": ("openai.responses", responses),
    "gemini (usage on each)": ("gemini.generate_content", gemini),
}


def runs_of(frames: list[bytes]) -> list[bytes]:
    runs, run = [], b""
    for one in frames:
        run += one
        if len(run) >= RUN_BYTES:
            runs.append(run)
            run = b""
    return runs


def best_us(work: Callable[[], object], number: int) -> float:
    return min(timeit.repeat(work, number=number, repeat=REPEATS)) / number * 1e6


def measure() -> dict[str, tuple[float, float]]:
    """Print what each wire costs; by wire, µs of a frame and of 20 short ones."""
    found: dict[str, tuple[float, float]] = {}
    rng = random.Random(1)
    lines = []
    for name, (dialect, make) in WIRES.items():
        words = ["".join(rng.choices("etaoin shrdlu", k=rng.randint(1, 9))) for _ in range(400)]
        frames = [make(word, number) for number, word in enumerate(words)]
        runs = runs_of(frames)
        meter = Meter(routes.DIALECTS[dialect], content_type="text/event-stream")
        for run in runs[:-1]:
            meter.feed(run)
        run = runs[-1]
        count = run.count(b"data: ")
        frame_us = best_us(lambda run=run, meter=meter: meter.feed(run), 500) / count  # type: ignore[misc]
        search_us = best_us(lambda run=run: b'"usage"' in run, 500)  # type: ignore[misc]

        def short(dialect: str = dialect, frames: list[bytes] = frames) -> None:
            meter = Meter(routes.DIALECTS[dialect], content_type="text/event-stream")
            meter.feed(frames[0])
            for run in (frames[1:8], frames[8:15], frames[15:20]):
                meter.feed(b"".join(run))
            meter.end()

        short_us = best_us(short, 50)
        size = len(run) // count
        found[name] = frame_us, short_us
        lines.append(f"{name:24}{size:>8}{frame_us:>12.2f}{short_us:>12.0f}{search_us:>12.2f}")
    heads = f"{'bytes':>8}{'µs a frame':>12}{'µs 20 short':>12}{'µs a search':>12}"
    print(f"\n{'wire':24}{heads}")
    print("\n".join(lines))
    return found


@pytest.mark.bench
def test_what_a_frame_costs(capsys: pytest.CaptureFixture[str]) -> None:
    """Every wire is metered without a fault; the figures are for the reader."""
    with capsys.disabled():
        measure()


if __name__ == "__main__":
    measure()
