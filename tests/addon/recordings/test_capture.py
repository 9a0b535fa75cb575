"""Captures hold the bytes and no credential."""

import base64
import gzip
import json
import stat
from datetime import UTC, datetime

import pytest
from mitmproxy.test import tflow, tutils

from addon.recordings.capture import (
    CAPTURE_BYTES_MAX,
    REDACTED,
    Capture,
    append,
    file_for,
    redact,
    redact_url,
)

STARTED = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "name",
    [
        "Authorization",
        "x-api-key",
        "api-key",
        "Cookie",
        "Set-Cookie",
        "X-Goog-Api-Key",
        "x-amz-security-token",
        "Proxy-Authorization",
        "OpenAI-Session",
    ],
)
def test_credentials_are_redacted(name: str):
    assert redact([(name, "sk-secret")]) == {name: REDACTED}


def test_other_headers_stay():
    assert redact([("content-type", "application/json")]) == {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (
            "https://g.example/v1beta/m:x?key=AIza1&alt=sse",
            f"https://g.example/v1beta/m:x?key={REDACTED}&alt=sse",
        ),
        ("https://u:p@h.example/v1?x=1", "https://h.example/v1?x=1"),
        (
            "https://h.example/v1?X-Amz-Signature=ab&n=2",
            f"https://h.example/v1?X-Amz-Signature={REDACTED}&n=2",
        ),
    ],
)
def test_urls_lose_their_keys(url: str, expected: str):
    assert redact_url(url) == expected


def test_a_capture_is_the_answer_with_its_cuts(tmp_path):
    flow = tflow.tflow(req=tutils.treq(content=b'{"stream":true}'), resp=True)
    flow.request.headers["authorization"] = "Bearer sk-secret"
    got = []
    capture = Capture()
    through = capture.around(lambda data: got.append(data) or data)
    for chunk in (b"data: 1\n", b"\ndata: 2\n\n", b""):
        through(chunk)
    assert got == [b"data: 1\n", b"\ndata: 2\n\n", b""]

    path = file_for(tmp_path / "new", node="host/12/34", now=STARTED)
    append(path, capture.line(flow, started_at=STARTED))
    append(path, capture.line(flow, started_at=STARTED))
    assert path.name == "20261120T12-host-12-34.jsonl.gz"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    first, second = map(json.loads, gzip.decompress(path.read_bytes()).splitlines())
    assert first == second
    assert first["name"] == flow.id
    assert "sk-secret" not in json.dumps(first)
    assert base64.b64decode(first["request"]["body_b64"]) == b'{"stream":true}'
    assert base64.b64decode(first["response"]["body_b64"]) == b"data: 1\n\ndata: 2\n\n"
    assert [length for length, _ in first["response"]["chunks"]] == [8, 10]


def test_an_answer_beyond_the_bound_is_let_go():
    capture = Capture()
    piece = bytes(1024 * 1024)
    for _ in range(CAPTURE_BYTES_MAX // len(piece) + 1):
        capture.add(piece)
    assert capture.overflowed
    assert capture.chunks == []
