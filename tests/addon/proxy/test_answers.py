"""How each kind of answer is read: as it passes, held for its commit, or whole."""

import asyncio
import functools
import gc
import gzip
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mitmproxy import http

from addon.metering.answers.meter import Meter
from addon.metering.exchange import MeteredExchange
from addon.metering.tap import Tap
from addon.proxy import answers
from addon.proxy.host.chunk_run import ChunkRun, chunks_of
from addon.proxy.recorder import Recorder
from addon.proxy.running import Live, Running
from tests.addon.proxy.recording import (
    DOCUMENT,
    DONE,
    STOP,
    STREAM,
    USAGE,
    WORD,
    answered,
    events_of,
    exchanges,
    flow_of,
    passed_on,
    recording,
)
from tests.named import named

OF_AN_EXCHANGE = (Live, MeteredExchange, Tap, Meter)
SSE = "text/event-stream"
JSON = "application/json"


@asynccontextmanager
async def live_of(
    ledger: Path, flow: http.HTTPFlow, **options: Any
) -> AsyncIterator[tuple[Recorder, Running, Live]]:
    """The exchange of a request that has gone upstream."""
    async with recording(ledger, **options) as (recorder, _):
        recorder.request(flow)
        running = recorder._running
        assert running is not None
        yield recorder, running, running.live[flow.id]


def stream_plainly(response: http.Response) -> None:
    """As an addon does that has no use for the body."""
    response.stream = True


def begun(running: Running, live: Live, response: http.Response) -> http.Response:
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


async def test_without_waiting_for_commits_no_end_is_held(ledger: Path):
    flow = flow_of()
    async with live_of(ledger, flow, ledger_commit="async") as (recorder, running, live):
        headers: dict[str, Any] = {"content_type": JSON, "content_length": "50"}
        response = begun(running, live, answered(flow, **headers))
        assert callable(response.stream)
        assert events_of(recorder).held_length(flow) == 0


@pytest.mark.parametrize(
    ("length", "is_held"),
    [(answers.HELD_BODY_BYTES_MAX, True), (answers.HELD_BODY_BYTES_MAX + 1, False)],
)
async def test_without_the_patch_a_plain_answer_is_held_whole_up_to_a_bound(
    ledger: Path, length: int, is_held: bool
):
    flow = flow_of()
    async with live_of(ledger, flow) as (_, running, live):
        running.can_hold_end = False
        headers: dict[str, Any] = {"content_type": JSON, "content_length": str(length)}
        response = begun(running, live, answered(flow, **headers))
        assert (response.stream is False) is is_held
        assert bool(live.exchange.troubles) is not is_held  # its row says so


async def test_an_answer_that_may_refuse_the_question_is_held(ledger: Path):
    flow = flow_of(stream=True)
    async with live_of(ledger, flow) as (_, running, live):
        assert live.original is not None
        response = begun(running, live, answered(flow, 400, content_type=JSON))
        assert response.stream is False


@pytest.mark.parametrize(
    ("version", "encoding"), [("HTTP/1.1", "chunked"), ("HTTP/2.0", None)], ids=["1.1", "2"]
)
async def test_an_edited_stream_has_no_length(ledger: Path, version: str, encoding: str | None):
    flow = flow_of(stream=True)
    flow.request.http_version = version
    async with live_of(ledger, flow) as (_, running, live):
        length = str(sum(map(len, STREAM)))
        response = begun(running, live, answered(flow, content_type=SSE, content_length=length))
        assert "content-length" not in response.headers
        assert response.headers.get("transfer-encoding") == encoding
        assert passed_on(response, STREAM) == WORD + STOP + DONE


async def test_an_edited_stream_that_was_compressed_goes_on_as_identity(ledger: Path):
    flow = flow_of(stream=True)
    async with live_of(ledger, flow) as (_, running, live):
        response = begun(running, live, answered(flow, content_type=SSE, content_encoding="gzip"))
        assert "content-encoding" not in response.headers
        assert passed_on(response, [gzip.compress(b"".join(STREAM))]) == WORD + STOP + DONE
        assert not answers.is_cut_short(live)


async def test_an_edited_stream_that_cannot_be_decoded_is_cut_short(ledger: Path):
    flow = flow_of(stream=True)
    async with live_of(ledger, flow) as (recorder, running, live):
        assert not answers.is_cut_short(live)
        response = begun(running, live, answered(flow, content_type=SSE, content_encoding="gzip"))
        passed_on(response, [gzip.compress(WORD)[:20], b"this is not gzip"])
        assert answers.is_cut_short(live)
        assert events_of(recorder).is_cut_short(flow)


async def test_the_tap_is_put_back_where_plain_streaming_was_chosen(ledger: Path):
    flow = flow_of()
    async with live_of(ledger, flow) as (_, running, live):
        headers: dict[str, Any] = {"content_type": JSON, "content_length": "50"}
        response = begun(running, live, answered(flow, **headers))
        stream_plainly(response)
        answers.restore(live, response)
        assert response.stream is live.stream


async def test_a_callable_of_another_addon_stays_and_is_noted_if_it_reads_nothing(ledger: Path):
    flow = flow_of(stream=True, asks=True)
    async with live_of(ledger, flow) as (recorder, running, live):
        response = begun(running, live, answered(flow, content_type=SSE))
        theirs = response.stream = lambda data: data
        answers.restore(live, response)
        assert response.stream is theirs
        assert passed_on(response, STREAM) == b"".join(STREAM)
        await recorder.response(flow)
    ((degraded, response_id),) = exchanges(ledger, "degraded, response_id")
    assert "StreamReplacedError" in degraded
    assert response_id is None


def test_a_callable_that_calls_the_tap_is_no_trouble(ledger: Path):
    async def play() -> None:
        flow = flow_of(stream=True, asks=True)
        async with live_of(ledger, flow) as (recorder, running, live):
            response = begun(running, live, answered(flow, content_type=SSE))
            ours = response.stream
            assert callable(ours)

            def theirs(data: bytes) -> bytes | Iterable[bytes]:
                return ours(data)

            response.stream = theirs
            passed_on(response, STREAM)
            await recorder.response(flow)

    asyncio.run(play())
    assert exchanges(ledger, "degraded, response_id") == [(None, "chatcmpl-7")]


async def test_an_edited_body_that_another_addon_wanted_whole_is_edited_whole(ledger: Path):
    flow = flow_of(stream=True)
    async with live_of(ledger, flow) as (recorder, running, live):
        response = begun(running, live, answered(flow, content_type=SSE))
        response.stream = False
        response.raw_content = b"".join(STREAM)
        await recorder.response(flow)
        assert response.raw_content == WORD + STOP + DONE
    assert exchanges(ledger) == [("settled", "complete", "chatcmpl-7")]


async def test_a_whole_body_that_is_not_edited_stays_the_same_object(ledger: Path):
    flow = flow_of()
    async with live_of(ledger, flow) as (_, running, live):
        response = answered(flow, content=DOCUMENT, content_type=JSON)
        before = response.raw_content
        answers.read_whole(running, live, response)
        assert response.raw_content is before
        assert live.exchange.tap is not None
        assert live.exchange.tap.received_bytes == len(DOCUMENT)


async def test_the_chunks_of_a_run_that_is_edited_stay_apart(ledger: Path):
    flow = flow_of(stream=True)
    async with live_of(ledger, flow) as (_, running, live):
        response = begun(running, live, answered(flow, content_type=SSE))
        assert callable(response.stream)
        passed = response.stream(ChunkRun.of(STREAM))
        assert isinstance(passed, ChunkRun)
        assert chunks_of(passed) == [WORD, STOP, DONE]
        assert response.stream(ChunkRun.of([USAGE, USAGE])) == []
        assert response.stream(b"") == []


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
