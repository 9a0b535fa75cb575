"""Recordings made up for measurements: short exchanges and long streams, as captures and flow files.

The exchanges are of one day in the past, of three wires, and of a dozen models and keys.
"""

import base64
import gzip
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from mitmproxy.http import HTTPFlow
from mitmproxy.io import FlowWriter
from mitmproxy.test import tflow, tutils

BEGAN_AT = datetime(2026, 3, 1, tzinfo=UTC)
WORDS = "etaoin shrdlu"
SHORT_CHUNKS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """One exchange."""

    number: int
    host: str
    path: str
    request: bytes
    content_type: str
    answer: bytes

    @property
    def id(self) -> str:
        """Like the id of a flow."""
        return f"00000000-0000-4000-8000-{self.number:012}"

    @property
    def started_at(self) -> datetime:
        return BEGAN_AT + timedelta(seconds=self.number % 86_000, microseconds=self.number)


def short(number: int, rng: random.Random) -> Made:
    """A streamed answer of some 20 chunks, or one as JSON."""
    kind = number % 4
    text = ["".join(rng.choices(WORDS, k=rng.randint(1, 9))) for _ in range(SHORT_CHUNKS)]
    if kind == 2:
        return _messages(number, text)
    if kind == 3:
        return _json(number, text)
    return _chat(number, text)


def long(number: int, size: int, rng: random.Random) -> Made:
    """A stream of about so many bytes."""
    pool = ["".join(rng.choices(WORDS, k=rng.randint(1, 9))) for _ in range(20_000)]
    frames = max(1, size // 190)
    return _chat(number, [pool[at % len(pool)] for at in range(frames)])


def shorts(count: int) -> Iterator[Made]:
    """So many short exchanges; the same at every call."""
    rng = random.Random(7)
    return (short(number, rng) for number in range(count))


def longs(count: int, size: int) -> Iterator[Made]:
    """So many long streams; the same at every call."""
    rng = random.Random(8)
    return (long(number, size, rng) for number in range(count))


def write(path: Path, made: Iterator[Made]) -> int:
    """Write exchanges to a file of the kind that its name says; the bytes of their answers."""
    size = 0
    if path.suffix in (".mitm", ".flow"):
        with path.open("wb") as file:
            writer = FlowWriter(file)
            for one in made:
                writer.add(_flow(one))
                size += len(one.answer)
        return size
    with path.open("wb") as file:
        for one in made:
            line = capture_line(one)
            file.write(gzip.compress(line, 4) if path.suffix == ".gz" else line)
            size += len(one.answer)
    return size


def capture_line(made: Made) -> bytes:
    """A line as `tee_capture` writes it."""
    chunk = max(1, len(made.answer) // SHORT_CHUNKS if len(made.answer) < 100_000 else 1_400)
    cuts = [[chunk, 20_000] for _ in range(len(made.answer) // chunk)]
    line = {
        "name": made.id,
        "id": made.id,
        "started_at": made.started_at.isoformat(),
        "ended_at": (made.started_at + timedelta(seconds=2)).isoformat(),
        "end": "finished",
        "cause": None,
        "usage_injected": False,
        "request": {
            "method": "POST",
            "url": f"https://{made.host}{made.path}",
            "headers": {"content-type": "application/json", "user-agent": "bench/1"},
            "body_b64": base64.b64encode(made.request).decode(),
        },
        "response": {
            "status": 200,
            "headers": {"content-type": made.content_type, "date": "Sun, 01 Mar 2026 00:00:00 GMT"},
            "body_b64": base64.b64encode(made.answer).decode(),
            "encoded": True,
            "chunks": cuts,
        },
    }
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def _flow(made: Made) -> HTTPFlow:
    start = made.started_at.timestamp()
    request = tutils.treq(
        method=b"POST",
        scheme=b"https",
        host=made.host,
        port=443,
        path=made.path.encode(),
        content=made.request,
        timestamp_start=start,
        timestamp_end=start,
    )
    response = tutils.tresp(
        content=made.answer, timestamp_start=start + 0.1, timestamp_end=start + 2
    )
    response.headers["content-type"] = made.content_type
    flow = tflow.tflow(req=request, resp=response)
    flow.id = made.id
    return flow


def _request(number: int, model: str, *, stream: bool) -> bytes:
    message = {"role": "user", "content": f"{number}: {'what is it ' * 20}"}
    body = {"model": model, "stream": stream, "messages": [message], "max_tokens": 400}
    return json.dumps(body).encode()


def _chat(number: int, text: list[str]) -> Made:
    model = ("gpt-4o", "gpt-4o-mini", "gpt-4.1", "o3-mini")[number % 4]
    head = (
        f'data: {{"id":"chatcmpl-{number:08}","object":"chat.completion.chunk",'
        f'"created":1772323200,"model":"{model}","choices":'
    )
    frames = [
        f'{head}[{{"index":0,"delta":{{"content":"{word}"}},"finish_reason":null}}]}}\n\n'
        for word in text
    ]
    usage = {
        "prompt_tokens": 60 + number % 100,
        "completion_tokens": len(text),
        "total_tokens": 60 + number % 100 + len(text),
        "prompt_tokens_details": {"cached_tokens": 10},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
    frames.append(f'{head}[{{"index":0,"delta":{{}},"finish_reason":"stop"}}]}}\n\n')
    frames.append(f'{head}[],"usage":{json.dumps(usage)}}}\n\ndata: [DONE]\n\n')
    return _openai(number, model, "".join(frames), stream=True)


def _openai(number: int, model: str, answer: str, *, stream: bool) -> Made:
    return Made(
        number=number,
        host="api.openai.com",
        path="/v1/chat/completions",
        request=_request(number, model, stream=stream),
        content_type="text/event-stream" if stream else "application/json",
        answer=answer.encode(),
    )


def _messages(number: int, text: list[str]) -> Made:
    model = "claude-sonnet-4-5"
    usage = {"input_tokens": 50 + number % 90, "cache_read_input_tokens": 9, "output_tokens": 1}
    start = {"id": f"msg_{number:08}", "type": "message", "role": "assistant", "model": model}
    events: list[tuple[str, dict[str, object]]] = [
        ("message_start", {"message": {**start, "content": [], "usage": usage}}),
        ("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}),
        *(
            ("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": word}})
            for word in text
        ),
        ("content_block_stop", {"index": 0}),
        (
            "message_delta",
            {"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": len(text)}},
        ),
        ("message_stop", {}),
    ]
    answer = "".join(
        f"event: {name}\ndata: {json.dumps({'type': name, **body})}\n\n" for name, body in events
    )
    return Made(
        number=number,
        host="api.anthropic.com",
        path="/v1/messages",
        request=_request(number, model, stream=True),
        content_type="text/event-stream; charset=utf-8",
        answer=answer.encode(),
    )


def _json(number: int, text: list[str]) -> Made:
    model = "gpt-4o"
    usage = {"prompt_tokens": 40, "completion_tokens": len(text), "total_tokens": 40 + len(text)}
    message = {"role": "assistant", "content": " ".join(text)}
    body = {
        "id": f"chatcmpl-{number:08}",
        "object": "chat.completion",
        "created": 1772323200,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": usage,
    }
    return _openai(number, model, json.dumps(body), stream=False)
