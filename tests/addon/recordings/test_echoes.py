"""What a provider repeats of a request's credentials stands in no capture and in no row."""

import base64
import gzip
import json
import re
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import brotli
import pytest
import zstandard
from msgspec import to_builtins

from addon.metering.memory_budget import MemoryBudget
from addon.metering.messages import End
from addon.metering.opening import RunRules
from addon.recordings.capture import EXCHANGE_BYTES_MAX, Capture, CapturedExchange, line_of
from addon.recordings.echoes import Echoes
from addon.recordings.formats.lines import entries
from addon.recordings.formats.recorded import Origin, Recorded
from addon.recordings.metered import meter
from tests.named import for_each

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)
KEY = "azure/Fn+k3y=0123456789abcdef"
URL = "https://api.openai.com/v1/chat/completions"
USAGE = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
FORMS = {
    "as it is": KEY,
    "percent-encoded": quote(KEY, safe=""),
    "with escaped slashes": KEY.replace("/", "\\/"),
    "base64": base64.b64encode(KEY.encode()).decode(),
    "base64, a byte later": base64.b64encode(b"x" + KEY.encode() + b"yz").decode(),
    "base64 for URLs, two bytes later": base64.urlsafe_b64encode(b"xx" + KEY.encode()).decode(),
}
CERTAIN = re.compile(r"azure.{0,4}Fn|YXp1cmUvRm4razN5|F6dXJlL0ZuK2szeT0|henVyZS9GbitrM3k9")
"""Of each form, characters in its middle."""
ENCODED = {
    "identity": bytes,
    "gzip": gzip.compress,
    "br": brotli.compress,
    "zstd": zstandard.compress,
    "gzip, br": lambda body: brotli.compress(gzip.compress(body)),
}


def line(body: bytes, *, cut: int = 7, messages: tuple[bytes, ...] = (), **more: Any) -> Any:
    capture = Capture(MemoryBudget())
    for at in range(0, len(body), cut):
        capture.add(body[at : at + cut])
    for message in messages:
        capture.add_message(message, from_client=False, is_text=True, at=AT)
    facts: dict[str, Any] = {
        "id": "flow-1", "started_at": AT, "ended_at": AT, "end": End.FINISHED, "cause": None, "usage_injected": False,
        "method": "POST", "url": URL, "request_headers": (("api-key", KEY),), "request_body": b"{}", "status": 200,
        "response_headers": (), "capture": capture,
    }  # fmt: skip
    return json.loads(line_of(CapturedExchange(**{**facts, **more})))


def texts_of(value: Any) -> str:
    """A line with all its base64 decoded."""
    bodies = [
        value["response"]["body_b64"],
        *(each[3] for each in value.get("websocket", {}).get("messages", ())),
    ]
    return json.dumps(value) + "".join(base64.b64decode(each).decode("latin-1") for each in bodies)


@for_each("encoding", ENCODED)
@for_each("form", FORMS)
def test_a_body_that_repeats_the_key_is_masked_and_metered(tmp_path, form, encoding):
    assert CERTAIN.search(FORMS[form])
    body = json.dumps(
        {"note": "?", "usage": USAGE, "choices": [], "object": "chat.completion"}
    ).encode()
    body = body.replace(b"?", b"?" * 65_510 + FORMS[form].encode())
    headers = (("content-type", "application/json"), ("content-encoding", encoding))
    value = line(ENCODED[encoding](body), cut=40_000, response_headers=headers)
    assert value["masked"] is True
    assert not CERTAIN.search(texts_of(value))
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(value))
    (item,) = (entry.item() for entry in entries(path))
    assert isinstance(item, Recorded)
    assert (len(item.response_body), item.is_exact, item.is_llm) == (len(body), False, True)
    (exchange, reading), *_ = meter(item, RunRules(node="")) or []
    assert (reading.usage.input_tokens, exchange.degraded, exchange.upstream_digest) == (
        7,
        None,
        None,
    )


PLACES: dict[str, dict[str, Any]] = {
    "a header that is kept": {"response_headers": (("x-request-id", f"for {KEY}"),)},
    "the path of a redirect": {
        "response_headers": (("location", f"https://h.example/{quote(KEY, safe='')}/x"),)
    },
    "a message of a WebSocket": {"messages": (b'{"error": "%s"}' % KEY.encode(),), "status": 101},
    "the cause": {"cause": f"refused {KEY}"},
    "the request's own path": {"url": f"{URL}/{KEY}", "body": b""},
}


@for_each("place", PLACES)
def test_wherever_else_the_key_is_repeated(place):
    value = line(**{"body": b"{}", **PLACES[place]})
    assert not CERTAIN.search(texts_of(value))


def test_what_has_no_credential_stays_as_it_is():
    body = gzip.compress(b"An answer.")
    headers = (("content-encoding", "gzip"),)
    for given in ((("api-key", KEY),), ()):
        value = line(body, request_headers=given, response_headers=headers)
        assert base64.b64decode(value["response"]["body_b64"]) == body
        assert "masked" not in value


def test_what_would_be_too_large_decoded_is_not_captured():
    body = zstandard.compress(b"%d" % EXCHANGE_BYTES_MAX * (EXCHANGE_BYTES_MAX // 8) + KEY.encode())
    echoes = Echoes((("api-key", KEY),), URL)
    with pytest.raises(OSError, match="decodes to more than 1000 bytes"):
        echoes.decoded(
            bytearray(gzip.compress(b" " * 1001 + KEY.encode())), "gzip", bytes_max=1_000
        )
    assert (
        echoes.decoded(bytearray(body), "zstd", bytes_max=1) is None
    )  # a bomb is not decoded so far


ANSWERED: dict[str, dict[str, Any]] = {
    "content-encoding": {"headers": {"content-encoding": KEY}},
    "the status of a quota": {
        "headers": {"anthropic-ratelimit-unified-5h-status": "lower-key-0123456789"},
        "key": "lower-key-0123456789",
    },
    "the code": {"body": {"error": {"code": "KEY", "type": "x:KEY", "message": "no KEY"}}},
    "the id and the model": {"body": {"id": "chatcmpl-KEY", "model": "m/KEY", "usage": USAGE}},
    "usage": {"body": {"usage": {**USAGE, "service_tier": "KEY", "KEY": 1}}},
    "a gateway's refusal": {"headers": {"x-tokentee-cap": "KEY"}, "status": 402},
}
UNKNOWN = {
    "openai": "sk-proj-0123456789abcdefABCDEF", "aws": "AKIAIOSFODNN7EXAMPLE", "gemini": "AIzaSyA0123456789abcdefABCDEF",
    "jwt": "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxIn0", "groq": "gsk_0123456789abcdefABCDEF",
}  # fmt: skip


def settled_text(case: dict[str, Any], key: str, headers: tuple[tuple[bytes, bytes], ...]) -> str:
    given = {name: value.replace("KEY", key) for name, value in case.get("headers", {}).items()}
    item = Recorded(
        name="a", where="a:1", id="a", method="POST", origin=Origin(scheme="https", host="api.openai.com", port=443),
        path="/v1/chat/completions", request_headers=headers, request_body=b'{"model":"gpt-4o","messages":[]}',
        opened_at=AT, status=case.get("status", 200), is_llm=True,
        response_headers=tuple((name.encode(), value.encode()) for name, value in given.items()),
        response_body=json.dumps(case.get("body", {"usage": USAGE})).replace("KEY", key).encode(),
    )  # fmt: skip
    (exchange, reading), *_ = meter(item, RunRules(node="", keeps_error_text=True)) or []
    return json.dumps(to_builtins([exchange, reading]), default=str)


@for_each("place", ANSWERED)
def test_no_row_has_what_an_answer_repeats_of_the_key(place):
    case = ANSWERED[place]
    key = case.get("key", KEY if place == "content-encoding" else "no-form-of-a-key-1234")
    assert key not in settled_text(case, key, ((b"authorization", f"Bearer {key}".encode()),))


@for_each(
    "place",
    [each for each in ANSWERED if "key" not in ANSWERED[each] and each != "content-encoding"],
)
@for_each("vendor", UNKNOWN)
def test_nor_the_row_of_a_recording_without_its_key(place, vendor):
    assert UNKNOWN[vendor] not in settled_text(ANSWERED[place], UNKNOWN[vendor], ())


@for_each(
    "model",
    [
        "jina-embeddings-v3",
        "pplx-70b-online",
        "hf:meta-llama/Llama-3.1-8B-Instruct",
        "xai-grok-4-fast",
    ],
)
def test_the_names_of_models_are_kept_in_such_a_row(model):
    assert model in settled_text({"body": {"model": model, "usage": USAGE}}, "", ())
