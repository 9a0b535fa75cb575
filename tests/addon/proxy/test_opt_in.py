"""Asking for usage in a client's name: which requests are edited, how that is undone, and what is
learned of it."""

import base64
import gzip
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from addon.dialects.dialect import Asking
from addon.metering.settlement import Settled
from addon.proxy import opt_in
from addon.proxy.recorder import Recorder
from ledger.model.exchange import Outcome
from ledger.model.reading import UsageSource
from tests.addon.proxy.recording import answered, flow_of, recording
from tests.ledger.written import reading, settled

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
        running = recorder._running
        assert running is not None
        live = running.live[flow.id]
        dropped: list[str] = []
        live.capture = SimpleNamespace(drop=dropped.append)  # type: ignore[assignment]
        answered(flow, 400, REFUSAL, content_type="application/json")
        assert opt_in.revert_if_refused(running, live)
        assert flow.request.raw_content == before
        assert flow.request.headers["content-length"] == str(len(before))
        assert flow.request.headers.get("accept-encoding") == accepted
        # Both attempts have one row and one capture: the first attempt's is dropped.
        assert (live.capture, dropped) == (None, ["not kept"])
        # The second refusal is the client's own mistake.
        assert not opt_in.revert_if_refused(running, live)


def learned(*settled_ones: Settled) -> tuple[list[str], int]:
    """The verdicts that exchanges of an unknown host teach, and how many upstreams are proven."""
    verdicts: list[str] = []
    dialect = SimpleNamespace(asking=Asking.STREAM_OPTIONS)
    live = SimpleNamespace(
        exchange=SimpleNamespace(route=SimpleNamespace(dialect=dialect), tap=None)
    )
    running = SimpleNamespace(
        ledger=SimpleNamespace(learned={}, learn=lambda lesson: verdicts.append(lesson.verdict)),
        proven=set(),
    )
    for one in settled_ones:
        opt_in.learn(running, live, one)  # type: ignore[arg-type]
    return verdicts, len(running.proven)


def ended(
    *, outcome: Outcome = Outcome.COMPLETE, source: str = UsageSource.REPORTED, **more: Any
) -> Settled:
    exchange = settled("a", **{"streamed": True, "outcome": outcome, **more})
    return Settled(exchange, reading(exchange, usage_source=source))


@pytest.mark.parametrize(
    ("one", "verdicts"),
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
