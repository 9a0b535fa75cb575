"""Error texts hold neither the request's credentials nor its prompt, and stay readable; so what a provider repeats in
an error stands in no row: neither key nor prompt, over HTTP or WebSocket."""

import base64
import gzip
import html
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from urllib.parse import quote, quote_plus

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec import structs

from addon.metering.requests import redaction
from addon.metering.requests.messages import NOT_KNOWN, Body, End, Request
from addon.metering.requests.redaction import (
    BODY_BYTES_MAX,
    BODY_RUN,
    CREDENTIAL_RUN,
    GRAM_BYTES,
    REDACTED,
    TEXT_LENGTH_MAX,
    credentials_of,
    redact,
)
from addon.metering.settlement import Settled
from ledger.model.exchange import Outcome
from tests.addon.linear import assert_linear
from tests.addon.metering.opened import REQUEST, opened, session_of, tapped
from tests.named import named

KEY = "sk-proj-Ab12Cd34Ef56Gh78Ij90Kl12Mn34"
PROMPT = "Our merger with Globex closes on Friday; tell nobody before that."
BODY = json.dumps({"model": "gpt-4o", "messages": [{"role": "user", "content": PROMPT}],
                   "tools": [{"additionalProperties": True}]}).encode()  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    named(
        {
            "key-in-a-401": (
                f"Incorrect API key provided: {KEY}. You can find your API key at https://x.example.",
                f"Incorrect API key provided: {REDACTED}. You can find your API key at https://x.example.",
            ),
            "key-that-the-provider-masked": (
                "Incorrect API key provided: sk-pr***********Mn34.",
                "Incorrect API key provided: sk-pr***********Mn34.",
            ),
            "key-of-somebody-else": (
                "invalid token AIzaSyA1234567890abcdefghij in query",
                f"invalid token {REDACTED} in query",
            ),
            "prompt-in-a-validation-error": (
                f"messages.0: input should be a list, got '{PROMPT}'",
                f"messages.0: input should be a list, got '{REDACTED}'",
            ),
            "nothing-to-redact": (
                "prompt is too long: 250000 tokens > 200000 maximum",
                "prompt is too long: 250000 tokens > 200000 maximum",
            ),
            "words-that-begin-like-keys": (
                "api_version_not_supported: use 2024-10-21",
                "api_version_not_supported: use 2024-10-21",
            ),
            "a-key-of-the-body": (
                "'additionalProperties' is required to be supplied and to be false",
                "'additionalProperties' is required to be supplied and to be false",
            ),
            "a-known-type": ("invalid_request_error", "invalid_request_error"),
        }
    ),
)
def test_what_providers_repeat(text: str, expected: str):
    credentials = credentials_of({"authorization": f"Bearer {KEY}"}, "/v1/chat/completions")
    assert redact(text, credentials=credentials, body=Body(BODY)) == expected


def test_a_long_model_name_stays():
    model = "anthropic.claude-sonnet-4-5-20250929-v1:0"
    body = json.dumps({"model": model, "messages": []}).encode()
    text = f"The model `{model}` does not exist"
    assert redact(text, body=Body(body), keep=(model,)) == text
    assert model not in redact(text, body=Body(body))


@pytest.mark.parametrize(
    ("headers", "path", "secret"),
    [
        ({"authorization": f"Bearer {KEY}"}, "/", KEY),
        ({"x-api-key": KEY}, "/", KEY),
        ({"authorization": "Basic " + base64.b64encode(b"me:hunter2hunter2").decode()}, "/",
         "hunter2hunter2"),
        ({"cookie": "a=1; session=abcdefghijklmnop"}, "/", "abcdefghijklmnop"),
        ({"sec-websocket-protocol": f"realtime, openai-insecure-api-key.{KEY}"}, "/",
         f"openai-insecure-api-key.{KEY}"),
        ({}, "/v1beta/models/x:generateContent?key=AIza0123456789&alt=sse", "AIza0123456789"),
        ({}, "/x?code=abc%2Fdefgh%3D%3D", "abc/defgh=="),
    ],
)  # fmt: skip
def test_where_credentials_are(headers: dict[str, str], path: str, secret: str):
    assert secret in credentials_of(headers, path)


def test_what_is_no_credential():
    assert credentials_of({"content-type": "application/json"}, "/x?api-version=2024-10-21") == ()
    assert credentials_of({"authorization": "Basic !"}, "/x") == ()


def runs(text: str, length: int) -> set[str]:
    return {text[at : at + length] for at in range(len(text) - length + 1)}


TEXTS = st.text(min_size=0, max_size=120)


@given(
    before=TEXTS, after=TEXTS, at=st.integers(0, 40), length=st.integers(8, 200),
    key=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=200),
)  # fmt: skip
def test_no_piece_of_a_credential_survives(before, after, at, length, key):
    said = redact(before + key[at : at + length] + after, credentials=(key,), body=Body(b""))
    for piece in said.split(REDACTED):
        assert not runs(piece, CREDENTIAL_RUN) & runs(key, CREDENTIAL_RUN)


@given(
    before=TEXTS, after=TEXTS, at=st.integers(0, 40), length=st.integers(BODY_RUN, 400),
    prompt=st.text(st.characters(exclude_categories=["Cs"]), min_size=BODY_RUN, max_size=400),
    is_ascii=st.booleans(), quotes=st.booleans(),
)  # fmt: skip
@example("", "", 0, 60, 'é"\\/\n\t\x00<&>' * 10, True, False)
@example("", "", 0, 60, 'é"\\/\n\t\x00<&>' * 10, False, True)
@example("x" * 7, "", 3, 30, "abcdefghijklmnopqrstuvwxyz0123456789", False, False)
def test_no_piece_of_a_prompt_survives(before, after, at, length, prompt, is_ascii, quotes):
    """Said as it is or as JSON, whatever the body's encoder."""
    body = json.dumps({"messages": [prompt, before]}, ensure_ascii=is_ascii).encode()
    quoted = prompt[at : at + length]
    if quotes:
        quoted = json.dumps(quoted, ensure_ascii=is_ascii)[1:-1]
        prompt = json.dumps(prompt, ensure_ascii=is_ascii)[1:-1]
    said = redact(before + quoted + after, body=Body(body))
    for piece in said.split(REDACTED):
        assert not runs(piece, BODY_RUN) & runs(prompt, BODY_RUN)


def test_a_prompt_that_is_quoted_with_escapes_of_its_own_is_found():
    """Spelled as JSON, Python, HTML, a URL or a form, and as JSON in JSON, though the request has
    it as it is."""
    prompt = "Tell nobody: \N{MONEY BAG}\N{GRINNING FACE} caf\u00e9 \u2028 and the rest of it\n" * 2
    body = json.dumps({"messages": [prompt]}, ensure_ascii=False).encode()
    for quoted in (
        json.dumps(prompt),
        json.dumps(json.dumps(prompt)),
        json.dumps(prompt).replace("\\u00e9", "\\xe9"),
        html.escape(prompt).replace(" ", "&#32;"),
        quote(prompt),
        quote_plus(prompt),
        json.dumps(quote_plus(prompt)),
    ):
        said = redact(f"invalid: {quoted}", body=Body(body))
        assert said.startswith("invalid: ")
        assert REDACTED in said
        assert "nobody" not in said
        assert "rest of" not in said


def test_two_halves_that_only_meet_in_the_text_are_found():
    left, right, middle = "abcdefghijklmnop", "qrstuvwxyz012345", "MIDDLE-OF-12"
    body = f"{left}{middle} and {middle}{right}".encode()
    assert redact(left + middle + right, body=Body(body)) == REDACTED


def test_long_texts_are_cut():
    assert len(redact("a " * TEXT_LENGTH_MAX, body=Body(b""))) == TEXT_LENGTH_MAX


def test_beyond_the_bound_nothing_is_kept():
    body = b"x " * (BODY_BYTES_MAX // 2 + 1)
    assert redact("the quick brown fox jumps over the lazy dog", body=Body(body)) == REDACTED


def test_beyond_the_bound_of_searches_no_name_is_kept(monkeypatch):
    text = "unexpected additionalProperties here"
    assert redact(text, body=Body(BODY)) == text
    monkeypatch.setattr(redaction, "SEARCHED_BYTES_MAX", 0)
    assert "additionalProperties" not in redact(text, body=Body(BODY))


@pytest.mark.large
@pytest.mark.parametrize("unit", ["sk-", "eyJ.", "a-", "Bearer ", "AIza", "0" * 35 + " ", "\\u00"])
def test_the_work_is_linear(unit: str):
    def work(size: int) -> None:
        text = (unit * size)[:size]
        for _ in range(20):
            redact(text, credentials=(text,), body=Body(text.encode()))

    assert_linear(work, 200)


def test_a_run_of_the_request_that_is_too_short_to_tell_anything_stays():
    before, word, behind = "he says:", "quarters", " arrived"
    assert len(before) == len(word) == GRAM_BYTES < BODY_RUN
    text = f"{before}{word}{behind}"
    assert redact(text, body=Body(f"no; {word}? yes".encode())) == text
    assert redact(text, body=Body(text.encode())) == REDACTED


def test_a_basic_credential_that_is_no_ascii_hides_no_other_credential():
    headers = {"authorization": "Basic \xe9\xe9\xe9\xe9\xe9\xe9\xe9\xe9", "x-api-key": "k" * 20}
    assert "k" * 20 in credentials_of(headers, "/v1/chat/completions")


def test_a_text_is_redacted_as_a_whole_if_the_body_cannot_be_searched():
    message = "prompt is too long: 250000 tokens > 200000 maximum"
    assert redact(message, body=NOT_KNOWN) == REDACTED
    assert redact("invalid_request_error", body=NOT_KNOWN) == "invalid_request_error"
    assert redact(f"{KEY[:23]}", body=NOT_KNOWN) == REDACTED


def test_pictures_beside_a_prompt_do_not_count():
    picture = base64.b64encode(bytes(range(256)) * 20_000).decode()
    body = json.dumps({"messages": [{"content": [picture, PROMPT, picture]}]}).encode()
    assert len(body) > BODY_BYTES_MAX
    text = f"the image is larger than 5 MB; '{PROMPT}'"
    assert redact(text, body=Body(body)) == f"the image is larger than 5 MB; '{REDACTED}'"


def test_a_long_name_of_a_header_takes_no_memory():
    kept = redaction._may_hold_credential.cache_info().currsize
    name = "x" * redaction.NAME_KEPT_MAX
    assert credentials_of({f"{name}-api-key": "0123456789abcdef"}, "/") == ("0123456789abcdef",)
    assert credentials_of({name + name: "0123456789abcdef"}, "/") == ()
    assert redaction._may_hold_credential.cache_info().currsize == kept


AT = datetime(2026, 11, 2, 12, tzinfo=UTC)


def asked(path: str = REQUEST.path, body: Body | None = None, **headers: str) -> Request:
    """Of a prompt, with a key."""
    chat = {"model": "gpt-4o", "messages": [{"role": "user", "content": PROMPT}]}
    headers = {"authorization": f"Bearer {KEY}", **headers}
    body = body or Body(json.dumps(chat).encode())
    return structs.replace(REQUEST, path=path, headers=headers, body=body)


def create(text: str = PROMPT) -> bytes:
    return json.dumps({"type": "response.create", "model": "gpt-5", "input": text}).encode()


def test_an_http_error():
    exchange = opened(asked())
    error = {"message": f"Incorrect API key {KEY} for '{PROMPT}'", "type": KEY, "code": "bad_key"}
    tapped(exchange, _json({"error": error}), status=401)
    row, _ = exchange.settle(End.FINISHED, cause=None, now=AT)
    assert row.error_message == "Incorrect API key <redacted> for '<redacted>'"
    assert (row.error_type, row.error_code) == ("<redacted>", "bad_key")
    assert KEY not in repr(row)
    assert row.degraded is None


def test_a_cause_in_words():
    row, _ = opened(asked()).settle(End.UPSTREAM_BROKE, cause=f"refused {KEY}", now=AT)
    assert row.error_message == "refused <redacted>"


def test_a_response_whose_reading_fails_is_settled_all_the_same(monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object, **__: object) -> Settled:
        raise RuntimeError("fault")

    monkeypatch.setattr("addon.metering.session.result_of", fail)
    session = session_of(asked())
    session.message(create(), from_client=True, at=AT)
    (settled,) = session.end(End.CLIENT_LEFT, at=AT)
    assert isinstance(settled, Settled)
    assert settled.exchange.outcome is Outcome.CLIENT_LEFT
    assert "RuntimeError" in (settled.exchange.degraded or "")


def test_an_error_in_a_websocket():
    session = session_of(asked())
    session.message(create(), from_client=True, at=AT)
    error = {"type": "error", "error": {"type": "bad", "message": f"{KEY}: '{PROMPT}'"}}
    found = session.message(json.dumps(error).encode(), from_client=False, at=AT)
    (settled,) = [one for one in found if isinstance(one, Settled)]
    assert settled.exchange.error_message == "<redacted>: '<redacted>'"


def test_a_prompt_in_a_websocket_is_not_kept_after_more_than_is_kept():
    session = session_of(asked())
    for text in ("x" * 1_000_000, PROMPT):
        session.message(create(text), from_client=True, at=AT)
    error = {"type": "error", "error": {"type": "bad", "message": f"{KEY}: '{PROMPT}'"}}
    found = session.message(json.dumps(error).encode(), from_client=False, at=AT)
    (settled,) = [one for one in found if isinstance(one, Settled)]
    assert settled.exchange.error_type == "bad"
    message = settled.exchange.error_message or ""
    assert "<redacted>" in message
    assert not [at for at in range(len(PROMPT) - 16) if PROMPT[at : at + 16] in message]


def test_a_key_in_a_path_is_not_kept():
    row = opened(asked(f"/hooks/{KEY}/v1/chat/completions")).opened
    assert row.path == "/hooks/<redacted>/v1/chat/completions"


def test_what_is_open_when_a_websocket_ends_is_settled_as_it_ended():
    session = session_of(asked())
    session.handshake.troubles.add("no capture")
    session.message(create(), from_client=True, at=AT)
    assert session.is_open
    (settled,) = session.end(End.CLIENT_LEFT, at=AT)
    assert not session.is_open
    assert isinstance(settled, Settled)
    assert settled.exchange.outcome is Outcome.CLIENT_LEFT
    assert settled.exchange.degraded == "no capture"
    assert session.end(End.CLIENT_LEFT, at=AT) == []


RUN = 16
"""So many characters of a prompt in a row are told to nobody."""
PROMPTS = st.text('abcdefgh XYZ.,;-_éß"\\\n/<>&😀', min_size=RUN, max_size=80)
BODIES: dict[str, Callable[[str], bytes]] = {
    "chat": lambda text: _json({"model": "m", "messages": [{"role": "user", "content": text}]}),
    "parts": lambda text: _json({"messages": [{"content": [{"type": "text", "text": text}]}]}),
    "tools": lambda text: _json({"tools": [{"description": text}], "input": ["x", {"a": text}]}),
    "wide": lambda text: json.dumps({"prompt": text}, ensure_ascii=False).encode(),
    "form": lambda text: b'--b\r\nname="prompt"\r\n\r\n' + text.encode() + b"\r\n--b--",
    "text": lambda text: text.encode(),
}
KNOWN: dict[str, Callable[[bytes], tuple[Body, dict[str, str]]]] = {
    "whole": lambda body: (Body(body), {}),
    "not known": lambda _: (NOT_KNOWN, {}),
    "a prefix": lambda body: (Body(body[: len(body) // 3], is_whole=False), {}),
    "gzip": lambda body: (Body(gzip.compress(body)), {"content-encoding": "gzip"}),
    "half a gzip": lambda body: (
        Body(gzip.compress(body)[: 10 + len(body) // 2]), {"content-encoding": "gzip"}
    ),
    "broken gzip": lambda body: (Body(gzip.compress(body)[:-9]), {"content-encoding": "gzip"}),
    "no gzip": lambda body: (Body(body), {"content-encoding": "gzip"}),
    "unknown encoding": lambda body: (Body(body), {"content-encoding": "rot13"}),
    "gzip that is not known": lambda _: (NOT_KNOWN, {"content-encoding": "gzip"}),
}  # fmt: skip
ERRORS: dict[str, Callable[[str], tuple[int, str, bytes]]] = {
    "message": lambda said: (400, "application/json", _json({"error": {"message": said}})),
    "type": lambda said: (400, "application/json", _json({"error": {"type": said, "code": said}})),
    "text": lambda said: (422, "application/json", _json({"error": said})),
    "detail": lambda said: (422, "application/json", _json({"detail": said})),
    "errors": lambda said: (400, "application/json", _json({"errors": [{"message": said}]})),
    "plain": lambda said: (500, "text/plain", said.encode()),
    "in a stream": lambda said: (
        200, "text/event-stream", b"data: " + _json({"error": {"message": said}}) + b"\n\n"
    ),
    "in a document": lambda said: (
        200, "application/json", _json({"error": {"message": said, "code": said}})
    ),
}  # fmt: skip


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


ESCAPES = re.compile(r'(?:\\u[0-9a-fA-F]{4})+|\\["\\/bfnrt]')


def told(prompt: str, *stored: msgspec.Struct) -> set[str]:
    """What stands of a prompt in stored texts, as it is or escaped."""
    texts = [
        text for one in stored for text in msgspec.structs.astuple(one) if isinstance(text, str)
    ]
    texts += [ESCAPES.sub(lambda found: json.loads(f'"{found[0]}"'), text) for text in texts]
    return runs(prompt, RUN) & {run for text in texts for run in runs(text, RUN)}


@st.composite
def quotes(draw: st.DrawFn) -> tuple[str, str]:
    """A prompt, and a text that repeats a part of it."""
    prompt = draw(PROMPTS)
    start = draw(st.integers(0, len(prompt) - RUN))
    end = draw(st.integers(start + RUN, len(prompt)))
    said = draw(st.sampled_from([prompt[start:end], json.dumps(prompt[start:end])[1:-1]]))
    return prompt, draw(st.text(max_size=30)) + said + draw(st.text(max_size=30))


@given(
    quoted=quotes(),
    body=st.sampled_from(sorted(BODIES)),
    known=st.sampled_from(sorted(KNOWN)),
    error=st.sampled_from(sorted(ERRORS)),
    is_streamed=st.booleans(),
)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_run_of_a_prompt_is_stored(quoted, body: str, known: str, error: str, is_streamed: bool):
    prompt, said = quoted
    sent, headers = KNOWN[known](BODIES[body](prompt))
    exchange = opened(asked(body=sent, **headers))
    status, kind, answer = ERRORS[error](said)
    tapped(exchange, answer, kind, status, edits=is_streamed)
    row, reading = exchange.settle(End.FINISHED, cause=None, now=AT)
    assert told(prompt, row, reading) == set()


@given(
    quoted=quotes(),
    before=st.lists(st.sampled_from([0, 10, 70_000, 300_000, 600_000]), max_size=3),
    behind=st.lists(st.sampled_from([0, 10, 300_000, 600_000]), max_size=6),
)
@example(quoted=(PROMPT + "x" * 300_000, f"{KEY}: '{PROMPT}'"), before=[], behind=[])
@example(quoted=(PROMPT, f"{KEY}: '{PROMPT}'"), before=[], behind=[10] * 50)
@example(quoted=(PROMPT, f"{KEY}: '{PROMPT}'"), before=[], behind=[100_000] * 20)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_run_of_a_prompt_in_a_websocket_is_stored(quoted, before: list[int], behind: list[int]):
    prompt, said = quoted
    session = session_of(asked())
    for text in (*("x" * size for size in before), prompt, *("y" * size for size in behind)):
        session.message(create(text), from_client=True, at=AT)
    error = {"type": "error", "error": {"type": said, "code": said, "message": said}}
    stored = session.message(_json(error), from_client=False, at=AT)
    stored += session.end(End.CLIENT_LEFT, at=AT)
    settled = [one for one in stored if isinstance(one, Settled)]
    assert settled
    for row, reading in settled:
        assert told(prompt, row, reading) == set()
