"""What the fake providers answer to the SDKs of `default_hosts.py`, after their published formats.

The figures rise with each answer: 1001 tokens in and 11 out of the first. Those over gRPC are
compressed with gzip where the client takes it.
"""

import base64
import gzip
import itertools
import json
import struct
import time
from collections.abc import Callable, Iterable
from typing import Any
from zlib import crc32

from tests.clients.answers import answer_to
from tests.proxy.upstream import Answer, Request, document

TEXT = "Hello."
ANSWER_SECONDS = 0.5
"""Less than any LLM takes, and more than the period in which `run` looks for connections past it."""
BOTH_WAYS = "/invoke-with-bidirectional-stream"
STREAM = "https://stream.replicate.com/v1/streams/made-up"


def script() -> Callable[[Request], Answer]:
    """Answers to one way of playing."""
    numbers = itertools.count(1)

    def answer(request: Request) -> Answer:
        time.sleep(ANSWER_SECONDS)
        path = request.target.partition("?")[0]
        over_grpc = _GRPC.get(path)
        if over_grpc is not None:
            number = next(numbers) if over_grpc is not _endpoints else 0
            return _grpc(request, over_grpc(1000 + number, 10 + number))
        number = next(numbers)
        tokens = 1000 + number, 10 + number
        body = json.loads(request.body or b"{}") if not path.endswith(BOTH_WAYS) else {}
        if request.header("x-dashscope-sse"):
            body["stream"] = True
        for end, kind in _HTTP.items():
            if path.endswith(end):
                return kind(body, *tokens)
        if request.target == "/v1/chat/completions" and "mistral" in body["model"]:
            body["stream_options"] = {"include_usage": True}  # it states usage unasked
        chat = answer_to(path, body, "c", lambda: number)
        assert chat is not None, path
        return Answer(pieces=chat.pieces, content_type=chat.content_type)

    return answer


def _message(*fields: tuple[int, int | str | bytes]) -> bytes:
    """A protobuf message of numbers, texts and messages."""
    written = bytearray()
    for number, value in fields:
        if isinstance(value, int):
            written += _varint(number << 3) + _varint(value)
        else:
            raw = value.encode() if isinstance(value, str) else value
            written += _varint(number << 3 | 2) + _varint(len(raw)) + raw
    return bytes(written)


def _varint(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def _grpc(request: Request, messages: Iterable[bytes]) -> Answer:
    takes_gzip = "gzip" in (request.header("grpc-accept-encoding") or "")
    pieces = [gzip.compress(message) if takes_gzip else message for message in messages]
    return Answer(
        pieces=tuple(struct.pack(">BI", takes_gzip, len(piece)) + piece for piece in pieces),
        content_type="application/grpc",
        headers=(("grpc-encoding", "gzip" if takes_gzip else "identity"),),
        trailers=(("grpc-status", "0"),),
    )


def _xai(tokens_in: int, tokens_out: int) -> list[bytes]:
    usage = _message((1, tokens_out), (2, tokens_in), (3, tokens_in + tokens_out))
    output = _message((1, 3), (3, _message((1, TEXT), (2, 2))))
    return [_message((1, "x-1"), (2, output), (6, "grok-4"), (9, usage))]


def _xai_chunks(tokens_in: int, tokens_out: int) -> list[bytes]:
    usage = _message((1, tokens_out), (2, tokens_in), (3, tokens_in + tokens_out))
    delta = _message((1, _message((1, "Hel"), (2, 2))))
    end = _message((1, _message((1, "lo."), (2, 2))), (3, 3))
    return [
        _message((1, "x-2"), (2, delta), (4, "grok-4")),
        _message((1, "x-2"), (2, end), (4, "grok-4"), (6, usage)),
    ]


def _vertex(tokens_in: int, tokens_out: int) -> list[bytes]:
    usage = _message((1, tokens_in), (2, tokens_out), (3, tokens_in + tokens_out))
    candidate = _message((2, _message((1, "model"), (2, _message((1, TEXT))))), (3, 1))
    return [_message((2, candidate), (4, usage), (11, "gemini-2.5-flash"), (13, "v-1"))]


def _vertex_chunks(tokens_in: int, tokens_out: int) -> list[bytes]:
    part = _message((2, _message((1, "model"), (2, _message((1, "Hel"))))))
    begun = _message((2, part), (11, "gemini-2.5-flash"), (13, "v-2"))
    return [begun, *_vertex(tokens_in, tokens_out)]


def _yandex(tokens_in: int, tokens_out: int) -> list[bytes]:
    usage = _message((1, tokens_in), (2, tokens_out), (3, tokens_in + tokens_out))
    alternative = _message((1, _message((1, "assistant"), (2, TEXT))), (2, 3))
    return [_message((1, alternative), (2, usage), (3, "yandexgpt-5"))]


def _endpoints(_in: int, _out: int) -> list[bytes]:
    address = _message((1, "ai-foundation-models"), (2, "llm.api.cloud.yandex.net:443"))
    return [_message((1, address))]


_PREDICTION = "/google.cloud.aiplatform.v1.PredictionService"
_GRPC: dict[str, Callable[[int, int], list[bytes]]] = {
    "/xai_api.Chat/GetCompletion": _xai,
    "/xai_api.Chat/GetCompletionChunk": _xai_chunks,
    f"{_PREDICTION}/GenerateContent": _vertex,
    f"{_PREDICTION}/StreamGenerateContent": _vertex_chunks,
    "/yandex.cloud.ai.foundation_models.v1.TextGenerationService/Completion": _yandex,
    "/yandex.cloud.endpoint.ApiEndpointService/List": _endpoints,
}


def _json(value: object) -> Answer:
    return document(json.dumps(value).encode())


def _sse(events: Iterable[tuple[str, Any]]) -> Answer:
    """Events with a name, where there is one, and an id."""
    pieces = []
    for number, (name, value) in enumerate(events):
        data = value if isinstance(value, str) else json.dumps(value)
        named = f"event: {name}\n" if name else ""
        pieces.append(f"id: {number}\n{named}data: {data}\n\n".encode())
    return Answer(pieces=tuple(pieces))


def _bedrock_usage(tokens_in: int, tokens_out: int) -> dict[str, Any]:
    return {
        "usage": {
            "inputTokens": tokens_in,
            "outputTokens": tokens_out,
            "totalTokens": tokens_in + tokens_out,
        },
        "metrics": {"latencyMs": 9},
    }


def _converse(_: Any, tokens_in: int, tokens_out: int) -> Answer:
    message = {"role": "assistant", "content": [{"text": TEXT}]}
    return _json(
        {
            "output": {"message": message},
            "stopReason": "end_turn",
            **_bedrock_usage(tokens_in, tokens_out),
        }
    )


def _converse_stream(_: Any, tokens_in: int, tokens_out: int) -> Answer:
    events = (
        ("messageStart", {"role": "assistant"}),
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "Hel"}}),
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "lo."}}),
        ("contentBlockStop", {"contentBlockIndex": 0}),
        ("messageStop", {"stopReason": "end_turn"}),
        ("metadata", _bedrock_usage(tokens_in, tokens_out)),
    )
    return Answer(
        pieces=tuple(_aws_event(name, json.dumps(value).encode()) for name, value in events),
        content_type="application/vnd.amazon.eventstream",
    )


def _session(_: Any, tokens_in: int, tokens_out: int) -> Answer:
    usage = {
        "details": {"total": {"input": {"speechTokens": tokens_in}, "output": {}}},
        "totalInputTokens": tokens_in,
        "totalOutputTokens": tokens_out,
        "totalTokens": tokens_in + tokens_out,
    }
    events = ({"usageEvent": usage}, {"completionEnd": {"stopReason": "END_TURN"}})
    written = (json.dumps({"event": event}).encode() for event in events)
    chunks = (json.dumps({"bytes": base64.b64encode(each).decode()}).encode() for each in written)
    return Answer(
        pieces=tuple(_aws_event("chunk", chunk) for chunk in chunks),
        content_type="application/vnd.amazon.eventstream",
    )


def _aws_event(name: str, payload: bytes) -> bytes:
    headers = b"".join(
        struct.pack(">B", len(key)) + key + b"\x07" + struct.pack(">H", len(value)) + value
        for key, value in (
            (b":event-type", name.encode()),
            (b":content-type", b"application/json"),
            (b":message-type", b"event"),
        )
    )
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    head = prelude + struct.pack(">I", crc32(prelude)) + headers + payload
    return head + struct.pack(">I", crc32(head))


def _prediction(body: Any, tokens_in: int, tokens_out: int) -> Answer:
    prediction: dict[str, Any] = {
        "id": "p-1",
        "model": "meta/meta-llama-3-8b-instruct",
        "version": "dp-0123",
        "input": body["input"],
        "urls": {"get": "https://api.replicate.com/v1/predictions/p-1", "stream": STREAM},
        "created_at": "2026-11-28T12:00:00Z",
    }
    if body.get("stream"):
        return _json({**prediction, "status": "starting"})
    metrics = {
        "input_token_count": tokens_in,
        "output_token_count": tokens_out,
        "predict_time": 1.5,
    }
    return _json({**prediction, "status": "succeeded", "output": [TEXT], "metrics": metrics})


def _prediction_stream(_: Any, _in: int, _out: int) -> Answer:
    return _sse([("output", "Hel"), ("output", "lo."), ("done", {})])


def _dashscope(body: Any, tokens_in: int, tokens_out: int) -> Answer:
    def said(text: str, reason: str) -> dict[str, Any]:
        choice = {"finish_reason": reason, "message": {"role": "assistant", "content": text}}
        usage = {
            "input_tokens": tokens_in,
            "output_tokens": tokens_out,
            "total_tokens": tokens_in + tokens_out,
        }
        return {"output": {"choices": [choice]}, "usage": usage, "request_id": "d-1"}

    if body.get("stream"):
        return _sse([("result", said("Hel", "null")), ("result", said("lo.", "stop"))])
    return _json(said(TEXT, "stop"))


def _embeddings(_: Any, tokens_in: int, _out: int) -> Answer:
    return _json(
        {
            "object": "list",
            "data": [{"object": "embedding", "embedding": [0.5, 0.25], "index": 0}],
            "model": "voyage-3.5",
            "usage": {"total_tokens": tokens_in},
        }
    )


def _cohere(body: Any, tokens_in: int, tokens_out: int) -> Answer:
    tokens = {"input_tokens": tokens_in, "output_tokens": tokens_out}
    usage = {"billed_units": tokens, "tokens": tokens}
    content = {"type": "text", "text": TEXT}
    if not body.get("stream"):
        message = {"role": "assistant", "content": [content]}
        return _json({"id": "co-1", "finish_reason": "COMPLETE", "message": message,
                      "usage": usage})  # fmt: skip
    delta = {"message": {"content": content}}
    end = {"finish_reason": "COMPLETE", "usage": usage}
    events = (
        {"id": "co-1", "type": "message-start", "delta": {"message": {"role": "assistant"}}},
        {"type": "content-delta", "index": 0, "delta": delta},
        {"type": "message-end", "delta": end},
    )
    return _sse([(str(each["type"]), each) for each in events])


_HTTP: dict[str, Callable[[Any, int, int], Answer]] = {
    "/converse": _converse,
    "/converse-stream": _converse_stream,
    BOTH_WAYS: _session,
    "/predictions": _prediction,
    "/v1/streams/made-up": _prediction_stream,
    "/text-generation/generation": _dashscope,
    "/embeddings": _embeddings,
    "/v2/chat": _cohere,
}
