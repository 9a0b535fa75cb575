"""What a provider repeats in an error stands in no row: neither key nor prompt, over HTTP or
WebSocket."""

import gzip
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec import structs

from addon.metering.requests.messages import NOT_KNOWN, Body, End, Request
from addon.metering.settlement import Settled
from ledger.model.exchange import Outcome
from tests.addon.metering.opened import REQUEST, opened, session_of, tapped

AT = datetime(2026, 11, 2, 12, tzinfo=UTC)
KEY = "sk-proj-Ab12Cd34Ef56Gh78Ij90Kl12Mn34"
PROMPT = "Our merger with Globex closes on Friday; tell nobody before that."


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


def runs(text: str) -> set[str]:
    return {text[at : at + RUN] for at in range(len(text) - RUN + 1)}


ESCAPES = re.compile(r'(?:\\u[0-9a-fA-F]{4})+|\\["\\/bfnrt]')


def told(prompt: str, *stored: msgspec.Struct) -> set[str]:
    """What stands of a prompt in stored texts, as it is or escaped."""
    texts = [
        text for one in stored for text in msgspec.structs.astuple(one) if isinstance(text, str)
    ]
    texts += [ESCAPES.sub(lambda found: json.loads(f'"{found[0]}"'), text) for text in texts]
    return runs(prompt) & {run for text in texts for run in runs(text)}


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
