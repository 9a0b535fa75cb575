"""How each kind of answer is read: as it passes, held for its commit, or whole; and asking for usage in a
client's name: which requests are edited, how that is undone, and what is learned of it."""

import asyncio
import base64
import functools
import gc
import gzip
import itertools
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mitmproxy import http
from msgspec.structs import replace

from addon.dialects.dialect import Asking
from addon.dialects.facts import ChoiceFacts, Facts, Fingerprint, RareFacts
from addon.metering.messages import End
from addon.metering.meter import Meter
from addon.metering.settlement import Settled
from addon.metering.tap import Tap
from addon.metering.troubles import Troubles
from addon.proxy import answers, opt_in
from addon.proxy.answers import ChunkRun
from addon.proxy.live import Live
from addon.proxy.recorder import Recorder
from addon.proxy.recording import Recording
from addon.recordings.capture import CaptureFiles
from addon.recordings.formats.recorded import split_url
from addon.usage_opt_in import asking
from ledger.model.exchange import Outcome, UsageSource
from ledger.model.learned import Learned
from tests.addon.feeding import pieces
from tests.addon.metering.test_tap import BODY, DONE, LAST, WORD, tap_of
from tests.addon.proxy.recording import (
    DOCUMENT,
    STREAM,
    answered,
    events_of,
    exchanges,
    flow_of,
    passed_on,
    recording,
)
from tests.ledger.written import reading, settled
from tests.named import for_each, named

OF_AN_EXCHANGE = (Live, Tap, Meter)
SSE = "text/event-stream"
JSON = "application/json"


@asynccontextmanager
async def live_of(
    ledger: Path, flow: http.HTTPFlow, **options: Any
) -> AsyncIterator[tuple[Recorder, Recording, Live]]:
    """The exchange of a request that has gone upstream."""
    async with recording(ledger, **options) as (recorder, _):
        recorder.request(flow)
        running = recorder.recording
        assert running is not None
        yield recorder, running, running.live[flow.id]


def begun(running: Recording, live: Live, response: http.Response) -> http.Response:
    response.stream = True
    answers.begin(running, live, response)
    return response


@pytest.mark.parametrize(
    ("status", "headers", "how"),
    named({
        "stream": (200, {"content_type": SSE}, "streamed"),
        "chunked-document": (200, {"content_type": JSON}, "streamed"),
        "with-a-length": (200, {"content_type": JSON, "content_length": "50"}, "end-held"),
        "empty-body": (200, {"content_type": JSON, "content_length": "0"}, "streamed"),
        "no-length-at-all": (200, {"content_type": JSON, "content_length": "x"}, "streamed"),
        "stream-with-a-length": (200, {"content_type": SSE, "content_length": "50"}, "end-held"),
        "error-to-what-was-not-injected": (400, {"content_type": JSON}, "streamed"),
    }),
)  # fmt: skip
async def test_what_is_held(ledger: Path, status: int, headers: dict[str, Any], how: str):
    flow = flow_of(stream=headers["content_type"] == SSE, asks=True)
    async with live_of(ledger, flow) as (recorder, running, live):
        response = begun(running, live, answered(flow, status, **headers))
        assert response.stream == live.stream
        assert (events_of(recorder).held_length(flow) == 50) is (how == "end-held")


@pytest.mark.parametrize(
    ("status", "length", "is_held"),
    [
        (400, "", True),
        (400, str(asking.REFUSAL_BYTES_MAX), True),
        (400, str(asking.REFUSAL_BYTES_MAX + 1), False),
        (429, "", False),
        (200, "", False),
    ],
)
async def test_a_short_answer_that_may_refuse_our_question_is_held(
    ledger: Path, status: int, length: str, is_held: bool
):
    flow = flow_of(stream=True)
    async with live_of(ledger, flow) as (recorder, running, live):
        headers: dict[str, Any] = {"content_length": length} if length else {}
        response = begun(running, live, answered(flow, status, content_type=JSON, **headers))
        assert (response.stream is False) is is_held
        events = events_of(recorder)
        assert not events.passes_on(flow, asking.REFUSAL_BYTES_MAX)
        # Another addon may hold an answer that it wants whole.
        assert events.passes_on(flow, asking.REFUSAL_BYTES_MAX + 1) is (status == 400)


@pytest.mark.parametrize("status", [204, 304])
async def test_an_answer_without_a_body_keeps_its_headers(ledger: Path, status: int):
    """To be chunked, it would get an end that its client takes for the next answer."""
    flow = flow_of(stream=True)
    async with live_of(ledger, flow) as (_, running, live):
        assert live.opened.usage_injected
        response = answered(flow, status, content_type=SSE, content_length="0")
        before = response.headers.fields
        begun(running, live, response)
        assert response.headers.fields == before


@pytest.mark.parametrize(
    ("length", "is_held"),
    [(answers.HELD_BODY_BYTES_MAX, True), (answers.HELD_BODY_BYTES_MAX + 1, False)],
)
async def test_without_the_patch_a_plain_answer_is_held_whole_up_to_a_bound(
    ledger: Path, length: int, is_held: bool
):
    flow = flow_of()
    async with live_of(ledger, flow) as (_, running, live):
        running.process.can_hold_end = False
        headers: dict[str, Any] = {"content_type": JSON, "content_length": str(length)}
        response = begun(running, live, answered(flow, **headers))
        assert (response.stream is False) is is_held
        assert (live.troubles.text is None) is is_held  # its row says so


async def test_a_whole_body_that_is_not_edited_stays_the_same_object(ledger: Path):
    flow = flow_of()
    async with live_of(ledger, flow) as (_, running, live):
        response = answered(flow, content=DOCUMENT, content_type=JSON)
        before = response.raw_content
        answers.read_whole(running, live, response)
        assert response.raw_content is before
        assert live.tap is not None
        live.tap.end()
        assert live.tap.transfer().response_bytes == len(DOCUMENT)


async def test_a_capture_has_the_chunks_of_a_run(ledger: Path, tmp_path: Path):
    flow = flow_of(stream=True, asks=True)
    folder = str(tmp_path / "captures")
    async with live_of(ledger, flow, tee_capture=folder) as (_, running, live):
        response = begun(running, live, answered(flow, content_type=SSE))
        assert callable(response.stream)
        run = ChunkRun.of(STREAM)
        assert response.stream(run) is run
        assert live.capture is not None
        assert live.capture.body == b"".join(STREAM)
        assert [length for length, _ in live.capture.cuts] == [len(chunk) for chunk in STREAM]


async def test_the_url_of_a_capture_can_be_read(ledger: Path, tmp_path: Path, monkeypatch):
    """mitmproxy's own has an IPv6 address without brackets."""
    written = []
    monkeypatch.setattr(CaptureFiles, "write", lambda _, captured: written.append(captured))
    flow = flow_of(host="[::1]")
    flow.client_conn.sni = None
    async with live_of(ledger, flow, tee_capture=str(tmp_path)) as (_, running, live):
        assert running.captures is not None
        live.write_capture(running.captures, end=End.FINISHED, cause=None, at=live.clock.now())
    origin, path = split_url(written[0].url)
    assert (origin.host, origin.port, path) == ("::1", flow.request.port, flow.request.path)


@for_each("run_chunks", [1, 2, 7, 1000])
@for_each("size", [1, 50, 100, len(WORD), 1000])
def test_chunks_that_come_together_are_edited_as_those_that_come_apart(size: int, run_chunks: int):
    """With the length of an event each chunk is one event, as servers write them."""
    together, apart = tap_of(strips=True), tap_of(strips=True)
    edit = answers._run_by_run(together.callable)
    for run in itertools.batched(pieces(BODY, range(0, len(BODY), size)), run_chunks):
        passed = edit(ChunkRun.of(run))
        chunks = list(passed.chunks) if isinstance(passed, ChunkRun) else []
        assert chunks == [piece for piece in map(apart.callable, run) if piece]
    assert edit(b"") == apart.callable(b"") == []
    for tap in (together, apart):
        tap.end()
        assert tap.meter.usage().output_tokens == 2
        assert tap.meter.frames == 62
    now = {"first_byte_at": None, "first_token_at": None}
    assert replace(together.transfer(), **now) == replace(apart.transfer(), **now)
    assert together.transfer().removed_digest is not None


def test_a_capture_that_failed_gets_no_more_and_the_end_is_no_chunk():
    got: list[bytes] = []
    troubles = Troubles()
    capture = answers._captured(lambda data: data or [], got.append, troubles)
    assert [capture(WORD), capture(DONE), capture(b"")] == [WORD, DONE, []]
    assert got == [WORD, DONE]
    assert troubles.text is None

    def fails(data: bytes) -> None:
        got.append(data)
        raise OSError

    got.clear()
    capture = answers._captured(lambda data: data or [], fails, troubles)
    assert [capture(WORD), capture(DONE), capture(b"")] == [WORD, DONE, []]
    assert got == [WORD]
    assert "OSError" in str(troubles.text)


def test_a_capture_gets_upstreams_chunks_of_an_edited_run():
    got: list[bytes] = []
    edit = answers._run_by_run(tap_of(strips=True).callable)
    capture = answers._captured(edit, got.append, Troubles())
    passed = capture(ChunkRun.of([WORD, WORD, LAST]))
    assert isinstance(passed, ChunkRun)
    assert list(passed.chunks) == [WORD.replace(b',"usage":null', b"")] * 2
    assert got == [WORD, WORD, LAST]


@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize(
    ("content_type", "chunks"), [(SSE, STREAM), (JSON, (DOCUMENT,))], ids=["stream", "document"]
)
def test_a_settled_exchange_keeps_nothing_of_its_answer(
    ledger: Path, content_type: str, chunks: Iterable[bytes], asks: bool
):
    """mitmproxy's objects of a flow refer to each other, so what a flow refers to stays until the
    garbage collector runs."""
    flow = flow_of(stream=True, asks=asks)

    async def settle() -> None:
        async with recording(ledger) as (recorder, _):
            recorder.request(flow)
            response = answered(flow, content_type=content_type)
            response.stream = True
            recorder.responseheaders(flow)
            passed_on(response, chunks)
            await recorder.response(flow)
            assert response.stream is True
            kept = [each for each in gc.get_objects() if isinstance(each, OF_AN_EXCHANGE)]
            assert kept == []

    gc.collect()
    gc.disable()
    try:
        asyncio.run(settle())
    finally:
        gc.enable()
    assert exchanges(ledger) == [("settled", "complete", "chatcmpl-7")]


async def test_the_callable_of_another_addon_stays(ledger: Path):
    flow = flow_of(stream=True)
    async with recording(ledger) as (recorder, _):
        recorder.request(flow)
        response = answered(flow, content_type=SSE)
        response.stream = True
        recorder.responseheaders(flow)
        assert callable(response.stream)
        other = response.stream = functools.partial(response.stream)
        passed_on(response, STREAM)
        await recorder.response(flow)
        assert response.stream is other


REFUSAL = b'{"error":{"message":"Unrecognized request argument supplied: stream_options"}}'


async def opened(recorder: Recorder, flow: Any) -> None:
    waiting = recorder.request(flow)
    if waiting is not None:
        await waiting


@pytest.mark.parametrize(
    ("text_bytes", "is_compressed", "is_asked"),
    [
        pytest.param(100, True, True, id="small and compressed"),
        pytest.param(opt_in.ENCODED_BYTES_MAX, False, True, id="large and plain"),
        pytest.param(opt_in.ENCODED_BYTES_MAX, True, False, id="large and compressed"),
        pytest.param(200_000, False, False, id="too large"),
    ],
)
async def test_a_large_request_is_not_edited(
    ledger: Path,
    text_bytes: int,
    is_compressed: bool,
    is_asked: bool,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(opt_in, "EDITED_BYTES_MAX", 500_000)
    async with recording(ledger) as (recorder, _):
        flow = flow_of(stream=True)
        text = base64.b64encode(os.urandom(2 * text_bytes))
        assert flow.request.content is not None
        body = flow.request.content.replace(b'"Hi"', b'"%b"' % text)
        if is_compressed:
            flow.request.headers["content-encoding"] = "gzip"
        flow.request.raw_content = gzip.compress(body) if is_compressed else body
        before = flow.request.raw_content
        await opened(recorder, flow)
        assert flow.request.content is not None
        assert (b'"include_usage"' in flow.request.content) is is_asked
        assert (flow.request.raw_content != before) is is_asked


@pytest.mark.parametrize("accepted", ["gzip, br", None])
async def test_a_refused_request_is_restored_to_the_byte(ledger: Path, accepted: str | None):
    async with recording(ledger) as (recorder, _):
        flow = flow_of(stream=True)
        flow.request.headers.pop("accept-encoding", None)
        if accepted is not None:
            flow.request.headers["accept-encoding"] = accepted
        before = flow.request.raw_content
        assert before is not None
        await opened(recorder, flow)
        assert flow.request.headers["accept-encoding"] == "identity"
        assert flow.request.raw_content != before
        running = recorder.recording
        assert running is not None
        live = running.live[flow.id]
        dropped: list[str] = []
        live.capture = SimpleNamespace(drop=dropped.append)  # type: ignore[assignment]
        answered(flow, 400, REFUSAL, content_type="application/json")
        assert opt_in.revert_if_refused(live, running.seen.proven)
        assert flow.request.raw_content == before
        assert flow.request.headers["content-length"] == str(len(before))
        assert flow.request.headers.get("accept-encoding") == accepted
        # Both attempts have one row and one capture: the first attempt's is dropped.
        assert (live.capture, dropped) == (None, ["not kept"])
        # The second refusal is the client's own mistake.
        assert not opt_in.revert_if_refused(live, running.seen.proven)


def learned(*settled_ones: Settled, lessons: Any = None, **signs: Any) -> tuple[list[str], int]:
    """The verdicts that exchanges of an unknown host teach, and how many upstreams are proven.
    `signs` are what their chunks show."""
    lessons = {} if lessons is None else lessons
    verdicts: list[str] = []

    def learn(lesson: Learned) -> None:
        verdicts.append(lesson.verdict)
        lessons[lesson.origin, lesson.path] = lesson

    dialect = SimpleNamespace(asking=Asking.STREAM_OPTIONS)
    facts = Facts(rare=RareFacts(choices=ChoiceFacts(**signs)))
    tap = SimpleNamespace(meter=SimpleNamespace(facts=facts)) if signs else None
    live: Any = SimpleNamespace(route=SimpleNamespace(dialect=dialect), tap=tap)
    ledger: Any = SimpleNamespace(learned=lessons, learn=learn)
    proven: set[tuple[str, str]] = set()
    doubted: set[tuple[str, str]] = set()
    for one in settled_ones:
        opt_in.learn(live, one, proven=proven, doubted=doubted, ledger=ledger)
    return verdicts, len(proven)


def ended(
    *, outcome: Outcome = Outcome.COMPLETE, source: str = UsageSource.REPORTED, **more: Any
) -> Settled:
    exchange = settled("a", **{"streamed": True, "outcome": outcome, **more})
    return Settled(exchange, reading(exchange, usage_source=source))


@for_each(
    "one, verdicts",
    [
        pytest.param(ended(), ["automatic"], id="usage comes unasked"),
        pytest.param(ended(source=UsageSource.NONE), ["opt_in"], id="none comes unasked"),
        pytest.param(ended(resent=True), ["refuses"], id="refused and sent again"),
        pytest.param(ended(usage_asked=True), [], id="the client asked"),
        pytest.param(ended(streamed=False), [], id="no stream"),
        pytest.param(
            ended(outcome=Outcome.UPSTREAM_CUT, source=UsageSource.NONE), [], id="cut before usage"
        ),
        pytest.param(
            ended(outcome=Outcome.CLIENT_LEFT, source=UsageSource.NONE), [], id="the client left"
        ),
    ],
)
def test_only_a_complete_unasked_stream_teaches(one: Settled, verdicts: list[str]):
    assert learned(one) == (verdicts, 0)


def test_the_upstreams_that_answered_a_question_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(opt_in, "PROVEN_MAX", 2)
    paths = [ended(usage_injected=True, path=f"/{number}") for number in range(5)]
    assert learned(*paths) == ([], 2)


ASKED = ended(usage_injected=True)
UNASKED = ended(source=UsageSource.NONE)
OWN_USAGE = {"usage_beside": 3, "usage_alone": 1}


def test_a_lesson_is_dropped_where_usage_comes_beside_what_was_asked_for() -> None:
    """Once in a run: a server may give both only if it is asked."""
    assert learned(UNASKED, ASKED, **OWN_USAGE) == (["opt_in", "automatic"], 1)
    assert learned(*[UNASKED, ASKED] * 3, **OWN_USAGE)[0] == ["opt_in", "automatic", "opt_in"]
    once = {"usage_beside": 1}
    assert learned(UNASKED, ASKED, **once) == (["opt_in"], 1)
    known = ended(usage_injected=True, provider="openai")
    assert learned(known, **OWN_USAGE) == ([], 1), "the table knows better"


def test_nothing_is_asked_where_that_moves_the_fingerprint() -> None:
    """An unasked stream shows it, and so does one that was asked by the table."""
    moved = {"fingerprint": Fingerprint.LAST}
    assert learned(UNASKED, **moved) == (["moves"], 0)
    assert learned(ASKED, **moved) == (["moves"], 1)
    assert learned(UNASKED, fingerprint=Fingerprint.FIRST) == (["opt_in"], 0)
