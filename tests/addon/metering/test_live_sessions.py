"""OpenAI's live sessions: billed by their seconds, and by what they delegate."""

from addon.dialects.facts import FELL
from addon.metering.websocket import Closed, Opened, SessionEvent
from tests.addon.metering.test_websocket import message, openai_live, response
from tests.named import for_each

DELEGATED = response("resp_1", "completed", model="gpt-5.4", usage={"input_tokens": 7})


DECISION = {"model": "gpt-6-luna", "answers": [], "usage": {"input_tokens": 50}}


@for_each("is_closed", [True, False])
def test_a_live_session_is_billed_by_its_seconds_and_by_what_it_delegates(
    *, is_closed: bool
) -> None:
    """https://developers.openai.com/api/docs/guides/live: its usage is cumulative, and that of the
    responses and decisions is reported apart."""
    session = openai_live()
    started = {"id": "sess_1", "model": "gpt-live-1"}
    begun = response("resp_1", "in_progress", model="gpt-5.4")
    happened: list[SessionEvent] = []
    for said in (
        message("session.started", session=started),
        message("session.usage.updated", usage={"seconds": 4}),
        message("response.event", event={"type": "response.created", "response": begun}),
        message("response.event", event={"type": "response.output_text.delta", "delta": "x"}),
        message("response.event", event={"type": "response.completed", "response": DELEGATED}),
        message("decision.event", event={"type": "decision.completed", "decision": DECISION}),
        message("session.usage.updated", usage={"seconds": 30.5, "active_seconds": 30}),
    ):
        happened += session.server_message(said)
    if is_closed:
        whole = message("session.closed", session=started, usage={"seconds": 31})
        happened += session.server_message(whole)
        assert session.end() == []
    else:
        happened += session.end()
    meters = [one.meter for one in happened if isinstance(one, Closed)]
    assert [meter.facts.response_model for meter in meters] == [
        "gpt-5.4",
        "gpt-6-luna",
        "gpt-live-1",
    ]
    assert [meter.usage().input_tokens for meter in meters] == [7, 50, None]
    assert meters[2].usage().tool_units == {"audio_milliseconds": 31_000 if is_closed else 30_500}
    assert meters[2].facts.ended is meters[2].facts.usage_final is is_closed
    assert meters[2].facts.response_id == ("sess_1" if is_closed else None)
    opened = [one.request.model for one in happened if isinstance(one, Opened)]
    assert opened == ["gpt-live-1", "gpt-6-luna", "gpt-live-1"]


@for_each(
    "usage, units",
    [
        (
            {"seconds": 60, "active_seconds": 45, "paused_seconds": 15},
            {"audio_milliseconds": 45_000, "paused_milliseconds": 15_000},
        ),
        (
            {"seconds": 60, "active_seconds": 60, "paused_seconds": 0},
            {"audio_milliseconds": 60_000},
        ),
        (
            {"seconds": 15, "active_seconds": 0, "paused_seconds": 15},
            {"paused_milliseconds": 15_000},
        ),
        ({"seconds": 15, "paused_seconds": 20}, {"paused_milliseconds": 15_000}),
        ({"seconds": 60, "paused_seconds": "many"}, {"audio_milliseconds": 60_000}),
    ],
)
def test_paused_time_of_a_live_session_has_a_price_of_its_own(
    usage: dict[str, object], units: dict[str, int]
) -> None:
    """Active and paused seconds add up to the total (openai.types.live.SessionUsage)."""
    session = openai_live()
    started = {"id": "sess_1", "model": "gpt-live-1"}
    session.server_message(message("session.started", session=started))
    happened = session.server_message(message("session.closed", session=started, usage=usage))
    (closed,) = (one for one in happened if isinstance(one, Closed))
    assert closed.meter.usage().tool_units == units


def test_the_total_of_a_live_session_is_neither_lost_nor_billed_twice() -> None:
    session = openai_live()
    happened: list[SessionEvent] = []
    for kind, usage in (
        ("updated", {"seconds": 20}),
        ("updated", None),
        ("closed", None),
        ("updated", {"seconds": 20}),
        ("closed", {"seconds": 20}),
    ):
        name = "session.closed" if kind == "closed" else "session.usage.updated"
        happened += session.server_message(message(name, session={"id": "s"}, usage=usage))
    happened += session.end()
    (closed,) = (one for one in happened if isinstance(one, Closed))
    assert closed.meter.usage().tool_units == {"audio_milliseconds": 20_000}


@for_each("is_closed", [True, False])
def test_a_total_of_a_live_session_that_fell_is_said(*, is_closed: bool) -> None:
    session = openai_live()
    happened: list[SessionEvent] = []
    for seconds in (20, 12, 15):
        usage = {"seconds": seconds}
        happened += session.server_message(message("session.usage.updated", usage=usage))
    if is_closed:
        happened += session.server_message(message("session.closed", session={"id": "s"}))
    happened += session.end()
    (closed,) = (one for one in happened if isinstance(one, Closed))
    usage_read = closed.meter.usage()
    assert usage_read.tool_units == {"audio_milliseconds": 15_000}
    assert usage_read.remarks == (FELL.format("seconds"),)
