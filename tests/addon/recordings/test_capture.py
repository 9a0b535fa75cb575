"""Captures hold the bytes and no credential, within their bounds; a thread writes them: private files,
whole gzip members, failures said and survived."""

import base64
import gzip
import json
import logging
import stat
import tracemalloc
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon.dialects.routes import DIALECTS
from addon.metering.attribution import REDACTED
from addon.metering.memory_budget import BUDGET_BYTES_MAX, CAPTURES_LEAVE_BYTES, MemoryBudget
from addon.metering.messages import End
from addon.recordings import capture as module
from addon.recordings.allow_list import KEPT_HEADERS, redacted_headers, redacted_url, redacted_value
from addon.recordings.capture import (
    CHUNK_BYTES,
    CHUNKS_MAX,
    EXCHANGE_BYTES_MAX,
    Capture,
    CapturedExchange,
    CaptureFiles,
    append,
    file_for,
    line_of,
    make_folder,
)
from ledger.store.processes import supervision
from tests.addon.linear import assert_linear
from tests.named import for_each

STARTED = datetime(2026, 11, 20, 12, tzinfo=UTC)
CAPTURES_BYTES_MAX = BUDGET_BYTES_MAX - CAPTURES_LEAVE_BYTES
PIECE = bytes(1024 * 1024)


def captured(capture: Capture, **more: Any) -> CapturedExchange:
    facts: dict[str, Any] = {
        "id": "flow-1",
        "started_at": STARTED,
        "ended_at": STARTED + timedelta(seconds=2),
        "end": End.FINISHED,
        "cause": None,
        "usage_injected": True,
        "method": "POST",
        "url": "https://me:pw@h.example/v1/chat/completions?key=AIza1&alt=sse",
        "request_headers": (
            ("authorization", "Bearer sk-secret"),
            ("accept", "a"),
            ("accept", "b"),
        ),
        "request_body": b'{"stream":true}',
        "status": 200,
        "response_headers": (("content-type", "text/event-stream"), ("set-cookie", "s=1")),
        "capture": capture,
    }
    return CapturedExchange(**{**facts, **more})


def test_a_line_is_the_exchange_with_its_cuts():
    capture = Capture(MemoryBudget(), request_bytes=15)
    for chunk in (b"data: 1\n", b"\ndata: 2\n\n", b""):
        capture.add(chunk)
    value = json.loads(line_of(captured(capture)))
    assert value["id"] == value["name"] == "flow-1"
    assert value["end"] == "finished"
    assert value["usage_injected"] is True
    assert value["request"] == {
        "method": "POST",
        "url": f"https://h.example/v1/chat/completions?key={REDACTED}&alt=sse",
        "headers": {"authorization": REDACTED, "accept": ["a", "b"]},
        "body_b64": base64.b64encode(b'{"stream":true}').decode(),
    }
    assert value["response"]["headers"] == {
        "content-type": "text/event-stream",
        "set-cookie": REDACTED,
    }
    assert base64.b64decode(value["response"]["body_b64"]) == b"data: 1\n\ndata: 2\n\n"
    assert [length for length, _ in value["response"]["chunks"]] == [8, 10]
    assert "websocket" not in value


def test_bytes_that_are_no_text_do_not_cost_the_line():
    capture = Capture(MemoryBudget())
    value = json.loads(line_of(captured(capture, response_headers=(("server", "x\udcff"),))))
    assert value["response"]["headers"] == {"server": "x?"}


def test_a_session_is_its_messages():
    capture = Capture(MemoryBudget())
    for number, side in enumerate((True, False)):
        at = STARTED + timedelta(days=1, microseconds=number)
        capture.add_message(b"m%d" % number, from_client=side, is_text=side, at=at)
    value = json.loads(line_of(captured(capture, end=End.CLIENT_LEFT, status=101)))
    assert value["websocket"] == {
        "closed_by_client": True,
        "messages": [
            ["client", "text", 86_400_000_000, base64.b64encode(b"m0").decode()],
            ["server", "binary", 86_400_000_001, base64.b64encode(b"m1").decode()],
        ],
    }


def test_an_exchange_beyond_the_bound_is_dropped_and_says_so():
    budget = MemoryBudget()
    capture = Capture(budget, request_bytes=EXCHANGE_BYTES_MAX)
    assert capture.overflow is None
    capture.add(b"x")
    assert capture.overflow == "not captured: larger than 32 MiB"
    assert not capture.body
    assert capture.cuts == []
    assert budget.taken_bytes == 0
    capture.add(b"more")
    assert not capture.body


def test_all_captures_together_have_a_bound():
    budget = MemoryBudget()
    captures = [Capture(budget) for _ in range(CAPTURES_BYTES_MAX // EXCHANGE_BYTES_MAX + 1)]
    for capture in captures:
        for _ in range(EXCHANGE_BYTES_MAX // len(PIECE)):
            capture.add(PIECE[CHUNK_BYTES:])
    assert [one.overflow for one in captures[:-1]] == [None] * (len(captures) - 1)
    assert (
        captures[-1].overflow
        == "not captured: all exchanges together keep as much in memory as they may"
    )
    assert budget.taken_bytes == CAPTURES_BYTES_MAX
    budget.release(captures[0].size)
    assert Capture(budget, request_bytes=1).overflow is None


def test_a_dropped_session_holds_nothing():
    capture = Capture(MemoryBudget())
    capture.add_message(b"m", from_client=True, is_text=True, at=STARTED)
    capture.drop("why")
    capture.drop("another reason")
    assert (capture.messages, capture.overflow) == ([], "why")


@pytest.mark.large
@pytest.mark.parametrize("size", [1, 2, 60])
def test_what_a_capture_takes_is_counted(size: int):
    budget = MemoryBudget()
    capture = Capture(budget)
    chunk = bytes(size)
    tracemalloc.start()
    try:
        for _ in range(120_000):
            capture.add(chunk)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 1.25 * budget.taken_bytes
    assert len(capture.cuts) == CHUNKS_MAX
    assert sum(length for length, _ in capture.cuts) == 120_000 * size


@for_each("size", [0, 1, 1_000])
def test_what_captured_messages_take_is_counted(size: int):
    budget = MemoryBudget()
    capture = Capture(budget)
    tracemalloc.start()
    try:
        for number in range(5_000):
            at = STARTED + timedelta(microseconds=number)
            capture.add_message(bytes(size), from_client=True, is_text=True, at=at)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 1.25 * budget.taken_bytes


KEY = "sk-proj-Ab12Cd34Ef56Gh78Ij90"


DATA = Path(__file__).parents[2] / "data"


def test_headers_that_a_dialect_reads_are_kept() -> None:
    """Without them a recording reads otherwise than the exchange did, and a rebuild would take
    the figures away."""
    cases = [json.loads(path.read_bytes()) for path in DATA.glob("*/*/expected.json")]
    of_answers = {name.lower() for case in cases for name in case.get("headers", {})}
    of_requests = {one.model_header for one in DIALECTS.values() if one.model_header}
    assert len(of_answers) > 3
    assert of_requests
    assert of_answers | of_requests <= KEPT_HEADERS


@for_each(
    "name",
    [
        "Authorization", "x-api-key", "api-key", "Cookie", "Set-Cookie", "X-Goog-Api-Key",
        "x-amz-security-token", "Proxy-Authorization", "OpenAI-Session",
        "cf-access-jwt-assertion", "x-goog-iap-jwt-assertion", "x-password", "x-nobody-knows",
    ],
)  # fmt: skip
def test_headers_that_are_not_listed_are_redacted(name: str):
    assert redacted_headers([(name, "s3cr3t")]) == {name: REDACTED}


@for_each(
    "name, value, kept",
    [
        ("content-type", "application/json", "application/json"),
        ("x-amzn-bedrock-input-token-count", "12", "12"),
        ("sec-websocket-protocol", f"realtime, openai-insecure-api-key.{KEY}",
         f"realtime, {REDACTED}"),
        ("location", f"https://b.example/x?sig={KEY}", f"https://b.example/x?sig={REDACTED}"),
        ("operation-location", "/ops/1?api-version=2024-10-21&code=zzz",
         f"/ops/1?api-version=2024-10-21&code={REDACTED}"),
        ("referer", "https://u:p@h.example/", "https://h.example/"),
        ("user-agent", "x" * 10_000, "x" * 8_192),
    ],
)  # fmt: skip
def test_headers_that_are_kept(name: str, value: str, kept: str):
    assert redacted_value(name, value) == kept


@for_each(
    "url, kept",
    [
        ("https://g.example/v1beta/m:x?key=AIza1&alt=sse",
         f"https://g.example/v1beta/m:x?key={REDACTED}&alt=sse"),
        ("https://u:p@h.example/v1?stream=1", "https://h.example/v1?stream=1"),
        ("https://h.example/v1?X-Amz-Signature=ab&limit=2",
         f"https://h.example/v1?X-Amz-Signature={REDACTED}&limit=2"),
        *((f"https://h.example/v1?{name}=v", f"https://h.example/v1?{name}={REDACTED}")
          for name in ("sig", "code", "auth", "jwt", "password", "%6Bey")),
        (f"https://h.example/hooks/{KEY}/v1/chat/completions",
         f"https://h.example/hooks/{REDACTED}/v1/chat/completions"),
        (f"https://h.example/v1?model={KEY}", f"https://h.example/v1?model={REDACTED}"),
        ("https://h.example/v1/chat/completions#x", "https://h.example/v1/chat/completions"),
        ("https://[h/v1", REDACTED),
        ("https://h.example/v1?flag", "https://h.example/v1?flag"),
    ],
)  # fmt: skip
def test_urls(url: str, kept: str):
    assert redacted_url(url) == kept


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_text_is_taken(name: str, value: str):
    redacted_headers([(name, value)])
    redacted_url(value)


@pytest.mark.nightly
@pytest.mark.large
@pytest.mark.parametrize("unit", ["&key=", "key", "/", "a1", "%", "?", "@", "a&"])
def test_the_work_is_linear(unit: str):
    def work(size: int) -> None:
        url = "https://h.example/?" + (unit * size)[:size]
        for _ in range(20):
            redacted_url(url)

    assert_linear(work, 500)


@for_each(
    "name, value",
    [
        ("anthropic-ratelimit-unified-5h-utilization", "0.42"),
        ("anthropic-ratelimit-unified-overage-in-use", "true"),
        ("anthropic-ratelimit-requests-reset", "2026-09-30T20:00:01Z"),
        ("x-codex-secondary-window-minutes", "10080"),
        ("x-quota-snapshot-premium_interactions",
         "ent=300&ov=0.0&ovPerm=false&rem=80.1&rst=2026-10-01T00%3A00%3A00Z"),
        ("x-ratelimit-remaining-tokens-minute", "499000"),
        ("retry-after", "Wed, 30 Sep 2026 20:01:00 GMT"),
    ],
)  # fmt: skip
def test_headers_of_quotas_are_kept_unless_they_hold_a_key(name: str, value: str):
    assert redacted_value(name, value) == value
    assert redacted_value(name, KEY) == REDACTED


NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def files(folder: Path) -> CaptureFiles:
    return CaptureFiles(folder, node="host/12/34", budget=MemoryBudget(), now=lambda: NOW)


def test_files_are_private_and_every_line_is_a_member(tmp_path: Path):
    writing = files(tmp_path / "new" / "deeper")
    paths = set()
    for number in range(3):
        begun = writing.begin(request_bytes=15)
        begun.add(b"data: %d\n\n" % number)
        paths.add(writing.write(captured(begun, id=f"flow-{number}")))
    writing.close(10)
    (path,) = paths
    assert path.name == "20261120T12-host-12-34.jsonl.gz"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.parent.parent.stat().st_mode) == 0o700
    lines = gzip.decompress(path.read_bytes()).splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["flow-0", "flow-1", "flow-2"]
    assert writing.budget.taken_bytes == 0
    assert (writing.dropped, writing.failure) == (0, None)


def test_a_failure_is_said_once_and_the_next_exchange_is_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    writing = files(tmp_path / "file" / "in-the-way")
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            writing.write(captured(writing.begin()))
        writing.close(10)
    assert writing.dropped == 2
    assert (writing.failure or "").startswith("captures cannot be written: ")
    assert len(caplog.records) == 1
    (tmp_path / "file").unlink()
    path = writing.write(captured(writing.begin()))
    writing.close(10)
    assert path.exists()
    assert (writing.failure, writing.budget.taken_bytes) == (None, 0)


STEPS = ["line_of", "append"]


@pytest.mark.parametrize("error", [RuntimeError, MemoryError, OSError, KeyboardInterrupt])
@pytest.mark.parametrize("step", STEPS)
def test_whatever_a_step_raises_the_thread_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd, step: str, error: type[BaseException]
):
    """Each step raises twice: with a whole exchange, with a WebSocket, with nothing that a capture
    is; what comes afterwards is written."""
    monkeypatch.setattr(supervision, "PAUSE_SECONDS", 0.001)
    writing = files(tmp_path)
    monkeypatch.setattr(supervision, "LOG_SECONDS", 0.0)
    real, left = getattr(module, step), [error("step failed"), error("step failed")]

    def fail(*arguments):
        if left:
            raise left.pop()
        return real(*arguments)

    monkeypatch.setattr(module, step, fail)
    session = writing.begin()
    session.add_message(b"hello", from_client=True, is_text=True, at=NOW)
    for item in (writing.begin(), session, writing.begin()):
        writing.write(captured(item))
    writing.write("no capture")  # type: ignore[arg-type]  # what it must survive
    writing.write(captured(writing.begin(), started_at="no time"))
    path = writing.write(captured(writing.begin(), id="after"))
    writing.close(30)
    assert not left
    last = gzip.decompress(path.read_bytes()).splitlines()[-1]
    assert json.loads(last)["id"] == "after"
    health = writing.health()
    assert health is not None
    assert health.is_working
    assert health.set_aside == writing.dropped
    assert health.failures + writing.dropped >= 2
    assert writing.problems()
    assert writing.budget.taken_bytes == 0


def test_a_thread_that_cannot_go_on_is_a_problem(tmp_path: Path, monkeypatch, capfd):
    monkeypatch.setattr(supervision, "PAUSE_SECONDS", 30)  # until it is closed
    writing = files(tmp_path)
    assert writing.problems() == ()
    monkeypatch.setattr(MemoryBudget, "release", lambda *_: 1 / 0)
    for _ in range(supervision.FAILURES_AT_END_MAX + 2):
        writing.write(captured(writing.begin()))
    writing.close(30)
    (problem,) = writing.problems()
    assert problem.startswith("the capture writer does not work: ZeroDivisionError")
    assert "the capture writer failed" in capfd.readouterr().err


def test_what_waits_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "WAITING_MAX", 0)
    writing = files(tmp_path)
    with pytest.raises(OSError, match="0 captures wait"):
        writing.write(captured(writing.begin(request_bytes=5)))
    assert (writing.dropped, writing.budget.taken_bytes) == (1, 0)
    writing.close(1)


def test_an_existing_folder_is_left_as_it_is(tmp_path: Path):
    folder = tmp_path / "mine"
    folder.mkdir()
    folder.chmod(0o750)
    make_folder(folder)
    append(file_for(folder, node="n", now=NOW), b"{}\n")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o750
