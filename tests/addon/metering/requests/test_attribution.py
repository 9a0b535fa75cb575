"""Values of requests: keys are told apart and never kept, in paths neither; names stay."""

import pytest

from addon.metering.requests.attribution import (
    TAG_LENGTH_MAX,
    TAGS_MAX,
    api_key_of,
    fingerprint_of,
    is_password,
    is_signed,
    redacted_path,
    tags_of_headers,
)
from addon.metering.requests.messages import NOT_KNOWN, Body, header_map, recorded_body
from addon.metering.requests.redaction import REDACTED


@pytest.mark.parametrize(
    ("headers", "path", "expected"),
    [
        pytest.param({"authorization": "Bearer sk-abc"}, "/v1", "sk-abc", id="bearer"),
        pytest.param({"authorization": "bearer  sk-abc"}, "/v1", "sk-abc", id="lower-case"),
        pytest.param({"x-api-key": "sk-ant-1"}, "/v1", "sk-ant-1", id="anthropic"),
        pytest.param({"api-key": "az-1"}, "/v1", "az-1", id="azure"),
        pytest.param({"x-goog-api-key": "AIza1"}, "/v1", "AIza1", id="gemini-header"),
        pytest.param({}, "/v1beta/models/g:x?alt=sse&key=AIza2", "AIza2", id="gemini-query"),
        pytest.param(
            {"authorization": "AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/20261120/us-east-1/bedrock"},
            "/model/x/invoke",
            "AKIAEXAMPLE",
            id="aws-names-the-key-by-its-id",
        ),
        pytest.param(
            {"sec-websocket-protocol": "realtime, openai-insecure-api-key.ek_1, openai-beta.x"},
            "/v1/realtime",
            "ek_1",
            id="a WebSocket's protocol",
        ),
        pytest.param(
            {"authorization": "Negotiate abc", "api-key": "az-2"}, "/v1", "az-2", id="other-scheme"
        ),
        pytest.param({}, "/v1?alt=sse", None, id="a query without a key"),
        pytest.param({}, "/v1", None, id="none"),
    ],
)
def test_the_credential_is_found(headers: dict[str, str], path: str, expected: str | None):
    assert api_key_of(headers, path) == expected


def test_a_fingerprint_is_the_same_within_a_ledger_only():
    key = "sk-proj-0123456789abcdef"
    assert fingerprint_of(key, b"one") == fingerprint_of(key, b"one")
    assert fingerprint_of(key, b"one")[0] != fingerprint_of(key, b"two")[0]
    assert fingerprint_of(key, b"one")[1] == "cdef"
    assert key not in repr(fingerprint_of(key, b"one"))


def test_of_a_password_nothing_is_shown():
    assert is_password({"authorization": "Basic YWxpY2U6aHVudGVyMg=="})
    assert not is_password({"authorization": "Bearer sk-proj-0123456789abcdef"})
    assert not is_password({})


def test_a_short_key_shows_nothing():
    assert fingerprint_of("sk-short", b"one")[1] is None


@pytest.mark.parametrize(
    ("headers", "path", "expected"),
    [
        ({"authorization": "AWS4-HMAC-SHA256 Credential=A/1"}, "/", True),
        ({"content-digest": "sha-256=:x:"}, "/", True),
        ({"x-amz-content-sha256": "x"}, "/", True),
        ({}, "/?X-Amz-Signature=1", True),
        ({"authorization": "Bearer x"}, "/", False),
    ],
)
def test_a_signed_body_is_recognised(headers: dict[str, str], path: str, expected: bool):
    assert is_signed(headers, path) is expected


def test_a_header_that_is_no_tag_is_left_out():
    values = ["team=a, nonsense,=b", " env = prod ", "empty="]
    assert tags_of_headers(values) == {"team": "a", "env": "prod", "empty": ""}


def test_tags_are_bounded():
    long = "k" * (TAG_LENGTH_MAX + 9)
    assert tags_of_headers([f"{long}={long}"]) == {long[:TAG_LENGTH_MAX]: long[:TAG_LENGTH_MAX]}
    many = ",".join(f"k{n}=v" for n in range(TAGS_MAX + 9))
    assert len(tags_of_headers([many])) == TAGS_MAX


@pytest.mark.parametrize(
    "path",
    [
        "/v1/chat/completions",
        "/v1beta/models/gemini-2.5-flash-preview-09-2025:streamGenerateContent",
        "/model/us.anthropic.claude-sonnet-4-5-20250929-v1:0/converse-stream",
        "/openai/deployments/gpt-4o-mini-2024-07-18/chat/completions",
        "/v1/projects/my-project-123456/locations/us-central1/publishers/google/models/x:predict",
        "/v1/files/1b4e28ba-2fa1-11d2-883f-0016d3cca427/content",
        "/inference/v1/accounts/fireworks/models/llama-v3p1-405b-instruct",
    ],
)
def test_names_stay(path: str):
    assert redacted_path(path) == path


@pytest.mark.parametrize(
    "key",
    [
        "sk-proj-Ab12Cd34Ef56Gh78Ij90Kl",
        "sk-ant-api03-abcdefghijkl-mnopqrst_uvwx",
        "AIzaSyA1234567890abcdefghij_KLM",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc",
        "0123456789abcdef0123456789abcdef",
        "AbCdEfGhIjKlMnOpQrSt1",
        "sk%2Dproj%2DAb12Cd34Ef56Gh78Ij90Kl",
    ],
)
def test_keys_do_not(key: str):
    assert redacted_path(f"/hooks/{key}/v1/messages") == f"/hooks/{REDACTED}/v1/messages"


@pytest.mark.parametrize(
    ("data", "method", "body"),
    [
        (b"x", "POST", Body(b"x")),
        (b"", "POST", NOT_KNOWN),
        (b"", "GET", Body(b"")),
        (b"", "CONNECT", Body(b"")),
    ],
)
def test_a_recorded_body_may_be_missing(data, method, body):
    assert recorded_body(data, method) == body


def test_of_two_headers_the_last_counts():
    fields = [(b"A", b"1"), (b"a", b"2"), (b"B", b"\xff")]
    assert header_map(fields) == {"a": "2", "b": "\udcff"}
