"""Usage at a path that no route names, at a host that serves LLMs."""

import json
from datetime import UTC, datetime
from typing import Any

from msgspec import structs

from addon.metering.messages import End
from tests.addon.metering.opened import REQUEST, opened, tapped
from tests.named import for_each

NOW = datetime(2026, 11, 20, tzinfo=UTC)


@for_each(
    "usage, source, input_tokens, output_tokens",
    [
        ({"prompt_tokens": 9, "completion_tokens": 2}, "partial", 9, 2),
        ({"input_tokens": 9, "output_tokens": 2}, "partial", 9, 2),
        (
            {"input_tokens": 9, "output_tokens": 2, "cache_read_input_tokens": 4},
            "partial",
            13,
            2,
        ),
        ({"inputTokens": 9, "outputTokens": 2}, "partial", 9, 2),
        ({"promptTokenCount": 9, "candidatesTokenCount": 2}, "partial", 9, 2),
        ({"dreams": 9}, "none", None, None),
    ],
)
@for_each("kind", ["application/json", "text/event-stream"])
def test_usage_is_read_without_a_route(
    kind: str,
    usage: dict[str, Any],
    source: str,
    input_tokens: int | None,
    output_tokens: int | None,
) -> None:
    key = "usageMetadata" if "promptTokenCount" in usage else "usage"
    answer = json.dumps({"id": "d1", "model": "m", key: usage}).encode()
    if "event" in kind:
        answer = b'data: {"text":"hi"}\n\ndata: ' + answer + b"\n\n"
    exchange = opened(structs.replace(REQUEST, path="/v9/dream"))
    tapped(exchange, answer, kind)
    reading = exchange.settle(End.FINISHED, cause=None, now=NOW).reading
    assert str(reading.usage_source) == source
    assert (reading.usage.input_tokens, reading.usage.output_tokens) == (
        input_tokens,
        output_tokens,
    )
    assert reading.usage.remarks == ("no route",)
    assert json.loads(reading.usage_json or "") == usage


@for_each(
    "answer, kind",
    [
        (b'{"data":%s}', "application/json"),
        (b'{"code":0,"result":%s}', "application/json"),
        (b'data: {"output":%s}\n\n', "text/event-stream"),
        (b'\x1e{"text":"hi"}\n\x1e%s\n', "application/json-seq"),
    ],
)
def test_usage_without_a_route_is_found_where_it_stands(answer: bytes, kind: str) -> None:
    exchange = opened(structs.replace(REQUEST, path="/v9/dream"))
    stated = {"id": "d1", "usage": {"prompt_tokens": 9, "completion_tokens": 2}}
    tapped(exchange, answer % json.dumps(stated).encode(), kind)
    reading = exchange.settle(End.FINISHED, cause=None, now=NOW).reading
    assert (reading.usage.input_tokens, reading.usage.output_tokens) == (9, 2)
    assert json.loads(reading.usage_json or "") == stated["usage"]


def test_figures_of_a_stream_without_a_route_are_merged() -> None:
    frames = [
        {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 9, "cache_read_input_tokens": 1}}},
        {"type": "message_delta", "usage": {"input_tokens": None, "output_tokens": 5}},
        {"type": "x", "usage": {"prompt_tokens": 3}},
    ]  # fmt: skip
    for count, expected in ((2, (10, 5)), (3, (3, None))):
        lines = (b"data: " + json.dumps(frame).encode() + b"\n\n" for frame in frames[:count])
        exchange = opened(structs.replace(REQUEST, path="/v9/dream"))
        tapped(exchange, b"".join(lines), "text/event-stream")
        usage = exchange.settle(End.FINISHED, cause=None, now=NOW).reading.usage
        assert (usage.input_tokens, usage.output_tokens) == expected
