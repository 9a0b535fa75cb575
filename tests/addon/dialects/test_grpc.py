"""Calls over gRPC: figures by field numbers, and the status from the trailers."""

import json
from base64 import b64encode
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import structs

from addon.dialects import grpc
from addon.metering.messages import NOT_KNOWN, End
from addon.metering.settlement import Settled
from tests.addon.framing.test_grpc import framed
from tests.addon.metering.opened import REQUEST, RULES, opened, tapped

CHUNK_PATH = "/xai_api.Chat/GetCompletionChunk"
NOW = datetime(2026, 11, 20, tzinfo=UTC)


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def call(host: str, path: str, body: bytes, status: str | None, **more: Any) -> Settled:
    kind = more.pop("kind", "application/grpc")
    request = structs.replace(
        REQUEST, host=host, path=path, body=NOT_KNOWN, headers={"content-type": kind}
    )
    exchange = opened(request, RULES)
    assert exchange.is_confirmed
    headers = {} if status is None else {"grpc-status": status}
    if cap := more.pop("cap", ""):
        headers["x-tokentee-cap"] = cap
    tapped(exchange, body, kind, headers=headers)
    return exchange.settle(more.pop("end", End.FINISHED), cause=None, now=NOW)


XAI_USAGE = b"".join(
    field(number, value)
    for number, value in {1: 12, 2: 100, 3: 142, 4: 100, 6: 30, 7: 64, 11: 51_435}.items()
)
VERTEX_USAGE = b"".join(
    (field(1, 100), field(2, 12), field(3, 142), field(5, 64), field(14, 30), field(8, 1))
)
YANDEX_USAGE = field(1, 100) + field(2, 42) + field(3, 142) + field(4, field(1, 30))
XAI_CHUNK = field(1, b"c-1") + field(2, field(3, 3)) + field(4, b"grok-4") + field(6, XAI_USAGE)
CASES = {
    "xai": (
        *("api.x.ai", "/xai_api.Chat/GetCompletion"),
        field(1, b"c-1") + field(2, field(1, 3)) + field(6, b"grok-4") + field(9, XAI_USAGE),
        ("c-1", "grok-4", "stop", 100, 64, 42, 30),
    ),
    "xai-stream": (
        *("api.x.ai", "/xai_api.Chat/GetCompletionChunk", XAI_CHUNK),
        ("c-1", "grok-4", "stop", 100, 64, 42, 30),
    ),
    "vertex": (
        "us-central1-aiplatform.googleapis.com",
        "/google.cloud.aiplatform.v1.PredictionService/StreamGenerateContent",
        field(13, b"r-1") + field(11, b"gemini-3") + field(2, field(3, 1)) + field(4, VERTEX_USAGE),
        ("r-1", "gemini-3", "STOP", 100, 64, 42, 30),
    ),
    "yandex": (
        "llm.api.cloud.yandex.net",
        "/yandex.cloud.ai.foundation_models.v1.TextGenerationService/Completion",
        field(2, YANDEX_USAGE),
        (None, None, None, 100, None, 42, 30),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_figures_by_field_numbers(case: str):
    host, path, message, expected = CASES[case]
    early = framed(field(1, b"c-1")) if case == "xai-stream" else b""
    exchange, read = call(host, path, early + framed(message), "0")
    usage = read.usage
    assert (exchange.dialect, str(exchange.outcome)) == ("unknown", "complete")
    assert str(read.usage_source) == "reported"
    assert expected == (
        *(exchange.response_id, exchange.response_model, exchange.finish_reason),
        *(usage.input_tokens, usage.cache_read_tokens),
        *(usage.output_tokens, usage.reasoning_tokens),
    )
    assert json.loads(read.usage_json or "")


@pytest.mark.parametrize(
    ("status", "outcome", "code"),
    [
        ("0", "complete", None),
        ("8", "error_frame", "RESOURCE_EXHAUSTED"),
        ("99", "error_frame", None),
        ("-1", "error_frame", "UNKNOWN"),
        (None, "upstream_cut", None),
    ],
)
@pytest.mark.parametrize("path", [CHUNK_PATH, "/xai_api.Dream/Dream"])
def test_the_status_is_the_outcome(path: str, status: str | None, outcome: str, code: str | None):
    exchange, _ = call("api.x.ai", path, framed(XAI_CHUNK), status)
    assert (str(exchange.outcome), exchange.error_code) == (outcome, code)
    assert exchange.error_type == ("grpc" if outcome == "error_frame" else None)


@pytest.mark.parametrize(("said", "outcome"), [("0", "complete"), ("13", "error_frame")])
@pytest.mark.parametrize("kind", ["application/grpc-web+proto", "application/grpc-web-text"])
def test_grpc_web_has_its_trailers_in_the_body(said: str, outcome: str, kind: str):
    parts = [framed(XAI_CHUNK), framed(f"x: y\r\nGrpc-Status: {said}\r\n".encode(), 0x80)]
    body = b"".join(map(b64encode, parts) if "text" in kind else parts)
    exchange, read = call("api.x.ai", CHUNK_PATH, body, None, kind=kind)
    assert str(exchange.outcome) == outcome
    assert read.usage.input_tokens == 100
    assert grpc.status_in(b"x: y") is None


def test_a_message_that_lies_is_said_and_has_no_figures():
    for body in (framed(b"\x0a\x7fx"), framed(XAI_CHUNK, 1), b"<html>no</html>"):
        exchange, read = call("api.x.ai", CHUNK_PATH, body, "0")
        assert read.usage.input_tokens is None
        assert "not read" in (exchange.degraded or "")
        assert str(exchange.outcome) == "complete"


def test_one_that_breaks_has_the_last_figures_in_part():
    end = {"end": End.CLIENT_LEFT}
    exchange, read = call("api.x.ai", CHUNK_PATH, framed(XAI_CHUNK) + b"\0\0", None, **end)
    assert str(exchange.outcome) == "client_left"
    assert (str(read.usage_source), read.usage.input_tokens) == ("partial", 100)


def test_a_refusal_is_trailers_alone_in_words_that_grpc_decodes():
    said = grpc.refused_headers("application/grpc+proto", "50 % of $1: é\n")
    assert said["content-type"] == "application/grpc+proto"
    assert (said["grpc-status"], said["grpc-message"]) == ("8", "50 %25 of $1: %C3%A9%0A")


def test_a_refused_call_that_was_recorded_is_refused():
    exchange, read = call("api.x.ai", CHUNK_PATH, b"", "8", cap="daily")
    assert (str(exchange.outcome), exchange.http_status) == ("refused", 200)
    assert (exchange.error_code, str(read.usage_source)) == ("daily", "none")
