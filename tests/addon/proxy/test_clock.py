"""Durations of live exchanges are those of a monotonic clock: a wall clock that is set, forwards or backwards, at any
moment of a call changes none of them."""

import json
import re
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from mitmproxy import http
from mitmproxy.flow import Error
from mitmproxy.websocket import WebSocketData, WebSocketMessage
from wsproto.frame_protocol import Opcode

from addon.proxy.live import Clock
from addon.proxy.recorder import Recorder
from tests.addon.proxy.recording import DOCUMENT, STREAM, answered, exchanges, flow_of, recording
from tests.named import for_each

ADDON = Path(__file__).parents[3] / "addon"
JUMPS = (3600.0, -3600.0, 68 * 365.25 * 86400)
MOMENTS = ("body", "headers", "first byte", "mid-stream", "end", "hook")
LONGEST = timedelta(minutes=1)
"""Far more than a call takes here, and far less than a jump."""

type SetClock = Callable[[], None]


@pytest.fixture(params=JUMPS, ids=("hour on", "hour back", "years on"))
def jump(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SetClock:
    """Sets the wall clock of this process, each time further."""
    real, ahead = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + ahead[0])

    def sets() -> None:
        ahead[0] += request.param

    return sets


def arrived(flow: http.HTTPFlow) -> http.HTTPFlow:
    """The flow with the time that mitmproxy gives it when its head has come."""
    flow.request.timestamp_start = time.time()
    return flow


def times(ledger: Path, flow: http.HTTPFlow) -> list[Any]:
    """Begin, end and first token of the rows of a flow; cases share a ledger."""
    found = exchanges(ledger, "id, opened_at, settled_at, first_token_at")
    return [row[1:] for row in found if row[0].startswith(flow.id)]


def are_short(found: list[Any], *, tokens: bool = True) -> bool:
    """Whether one row has times that are right."""
    ((opened, *later),) = found
    return all(
        at is not None and timedelta() <= instant(at) - instant(opened) < LONGEST
        for at in (later if tokens else later[:1])
    )


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


@for_each("moment", MOMENTS)
@for_each("how", ["stream", "asked for", "broken", "document", "grpc"])
async def test_no_jump_within_a_call_changes_its_times(
    ledger: Path, jump: SetClock, moment: str, how: str
):
    def reaches(name: str) -> None:
        if moment == name:
            jump()

    async with recording(ledger) as (recorder, _):
        is_stream = how != "document"
        flow = arrived(flow_of(stream=is_stream, asks=how != "asked for"))
        if how == "grpc":
            flow.request.headers["content-type"] = "application/grpc"
            flow.request.path = "/xai_api.Chat/GetCompletionChunk"
            flow.request.host, flow.request.content = "api.x.ai", b"\0\0\0\0\0"
        recorder.requestheaders(flow)
        reaches("body")
        recorder.request(flow)
        reaches("headers")
        if not is_stream:
            answered(flow, content=DOCUMENT, content_type="application/json")
            recorder.responseheaders(flow)
        else:
            kind = "application/grpc" if how == "grpc" else "text/event-stream"
            response = answered(flow, content_type=kind)
            recorder.responseheaders(flow)
            assert callable(response.stream)
            for number, chunk in enumerate(STREAM if how != "grpc" else [b"\0\0\0\0\0"] * 2):
                reaches({0: "first byte", 1: "mid-stream"}.get(number, ""))
                response.stream(chunk)
            reaches("end")
            if how != "broken":
                response.stream(b"")
        reaches("hook")
        if how == "broken":
            flow.error = Error("reset")
            await recorder.error(flow)
        else:
            await recorder.response(flow)
    assert are_short(times(ledger, flow), tokens=how in ("stream", "asked for", "broken"))


async def test_a_stop_after_a_jump_changes_no_times(ledger: Path, jump: SetClock):
    async with recording(ledger) as (recorder, _):
        flow = arrived(flow_of(stream=True, asks=True))
        recorder.requestheaders(flow)
        recorder.request(flow)
        response = answered(flow, content_type="text/event-stream")
        recorder.responseheaders(flow)
        assert callable(response.stream)
        response.stream(STREAM[0])
        jump()
    assert are_short(times(ledger, flow))


MESSAGES: tuple[tuple[bool, dict[str, Any]], ...] = (
    (True, {"type": "response.create", "model": "gpt-5", "input": "Hi"}),
    (False, {"type": "response.created", "response": {"id": "r"}}),
    (False, {"type": "response.completed", "response": {"id": "r", "usage": {}}}),
)


@for_each("at", range(4))
@for_each("is_cut", [False, True])
async def test_no_jump_within_a_websocket_changes_the_times_of_its_responses(
    ledger: Path, jump: SetClock, at: int, is_cut: bool
):
    """Each response opens at the wall clock of its first message."""
    async with recording(ledger) as (recorder, _):
        flow = arrived(flow_of(headers={"upgrade": "websocket"}))
        flow.request.method, flow.request.path, flow.request.content = "GET", "/v1/responses", b""
        recorder.requestheaders(flow)
        recorder.request(flow)
        answered(flow, 101)
        recorder.responseheaders(flow)
        flow.websocket = WebSocketData()
        await recorder.response(flow)
        sent = MESSAGES[:2] if is_cut else MESSAGES
        for number, (from_client, message) in enumerate(sent):
            if number == at:
                jump()
            await message_of(recorder, flow, message, from_client=from_client)
        if at >= len(sent):
            jump()
        wall = time.time()
        flow.websocket.timestamp_end = wall
        recorder.websocket_end(flow)
    assert are_short(times(ledger, flow), tokens=False)
    if at == 0:
        ((opened, *_),) = times(ledger, flow)
        assert abs(instant(opened).timestamp() - wall) < LONGEST.total_seconds()


async def message_of(
    recorder: Recorder, flow: http.HTTPFlow, message: dict[str, Any], *, from_client: bool
) -> None:
    assert flow.websocket is not None
    content = json.dumps(message).encode()
    flow.websocket.messages.append(WebSocketMessage(Opcode.TEXT, from_client, content))
    await recorder.websocket_message(flow)


def test_a_clock_begins_at_the_wall_clock_and_goes_on_with_the_other(monkeypatch):
    monkeypatch.setattr(time, "monotonic", lambda: 12.5)
    clock = Clock(1_000.0, 10.0)
    assert clock.seconds() == 1_002.5
    assert clock.now().timestamp() == 1_002.5


WALL_CLOCK = re.compile(r"\btime\.time\b|\bdatetime\.now\b|\btimestamp_(start|end)\b|\.timestamp\b")
READERS = {
    "proxy/flows.py",  # when a request's head came; the times of saved flows
    "proxy/live.py",  # what a saved flow is read at
    "proxy/sessions.py",  # when a response opens; the messages of saved flows
    "proxy/traffic.py",  # whether a body is over; the end that a saved WebSocket states
    "proxy/recorder.py",  # a node's name
}
"""What may read the wall clock where exchanges are metered."""


def test_no_other_module_that_meters_reads_the_wall_clock():
    rooms = ("proxy", "metering", "dialects", "framing", "usage_opt_in")
    found = {
        str(path.relative_to(ADDON))
        for room in rooms
        for path in (ADDON / room).rglob("*.py")
        if WALL_CLOCK.search(path.read_text(encoding="utf-8"))
    }
    assert found == READERS
