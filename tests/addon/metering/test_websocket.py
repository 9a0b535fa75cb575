"""WebSocket sessions: each response is an exchange of its own, and nothing is left behind."""

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon.dialects import routes
from addon.dialects.facts import TEXT_LENGTH_MAX, AnswerContext, AnswerError
from addon.dialects.openai.responses import TRANSCRIBED
from addon.metering import websocket
from addon.metering.websocket import (
    OPEN_MAX,
    WAITING_MAX,
    Closed,
    Opened,
    SessionEvent,
    WebSocketSession,
)
from tests.named import for_each

USAGE = {
    "total_tokens": 300,
    "input_tokens": 200,
    "output_tokens": 100,
    "input_token_details": {"text_tokens": 50, "audio_tokens": 150, "cached_tokens": 64, "cached_tokens_details": {"text_tokens": 64}},
    "output_token_details": {"text_tokens": 20, "audio_tokens": 80},
}  # fmt: skip


def responses() -> WebSocketSession:
    route = routes.match_websocket("api.openai.com", "/v1/responses")
    assert route is not None
    return WebSocketSession(route, context=AnswerContext(provider="openai"))


def realtime(model: str | None = "gpt-realtime") -> WebSocketSession:
    route = routes.match_websocket("api.openai.com", "/v1/realtime")
    assert route is not None
    return WebSocketSession(route, context=AnswerContext(provider="openai"), model=model)


def openai_live() -> WebSocketSession:
    route = routes.match_websocket("api.openai.com", "/v1/live/sessions")
    assert route is not None
    return WebSocketSession(route, context=AnswerContext(provider="openai"))


def message(kind: str, **more: Any) -> bytes:
    return json.dumps({"type": kind, **more}).encode()


def response(response_id: str, status: str, **more: Any) -> dict[str, Any]:
    return {"id": response_id, "status": status, "output": [], **more}


def begin(session: WebSocketSession, response_id: str = "r") -> list[SessionEvent]:
    created = response(response_id, "in_progress")
    return session.server_message(message("response.created", response=created))


def only[Kind: (Opened, Closed)](kind: type[Kind], happened: list[SessionEvent]) -> Kind:
    (found,) = happened
    assert isinstance(found, kind)
    return found


def ask(session: WebSocketSession, **more: Any) -> Opened:
    return only(Opened, session.client_message(message("response.create", **more)))


def end(session: WebSocketSession, kind: str, response_id: str, status: str, **more: Any) -> Closed:
    ended = message(f"response.{kind}", response=response(response_id, status, **more))
    return only(Closed, session.server_message(ended))


def test_the_tier_that_a_message_asks_for_is_that_of_its_response() -> None:
    session = responses()
    ask(session, model="gpt-5.4", input=[], service_tier="priority")
    begin(session)
    assert end(session, "completed", "r", "completed").meter.facts.service_tier == "priority"


def test_codex_asks_and_is_answered() -> None:
    """lis186/ccxray#28: Codex speaks Responses over WebSocket."""
    session = responses()
    more = {"prompt_cache_key": "c-1", "service_tier": "flex"}
    asked = ask(session, model="gpt-5-codex", input=[], **more)
    assert (asked.request.model, asked.request.streamed) == ("gpt-5-codex", True)
    assert (asked.request.session_id, asked.request.billing) == ("c-1", {"service_tier": "flex"})

    created = response("resp_1", "in_progress", model="gpt-5-codex-1", service_tier="flex")
    assert session.server_message(message("response.created", response=created)) == []
    assert session.server_message(message("response.output_text.delta", delta="Hi")) == []
    usage = {"input_tokens": 9, "output_tokens": 4}
    closed = end(session, "completed", "resp_1", "completed", model="gpt-5-codex-1", usage=usage)
    assert closed.key == asked.key
    facts = closed.meter.facts
    assert (facts.response_id, facts.response_model) == ("resp_1", "gpt-5-codex-1")
    assert facts.finish_reason == "completed"
    assert facts.ended
    assert facts.usage_final
    assert facts.token_seen
    assert closed.meter.usage().output_tokens == 4
    assert session.open_count == 0
    assert session.end() == []


def test_one_connection_carries_many_responses() -> None:
    session = responses()
    keys = []
    for n in range(5):
        asked = ask(session, model="m")
        begin(session, f"r{n}")
        more = {
            "incomplete_details": {"reason": "max_output_tokens"},
            "usage": {"output_tokens": n},
        }
        closed = end(session, "incomplete", f"r{n}", "incomplete", **more)
        assert closed.key == asked.key
        assert closed.meter.usage().output_tokens == n
        assert closed.meter.facts.finish_reason == "incomplete:max_output_tokens"
        keys.append(closed.key)
    assert len(set(keys)) == 5


def test_a_failed_response_is_closed_with_its_error() -> None:
    session = responses()
    ask(session, model="m")
    begin(session)
    error = {"code": "server_error", "message": "It broke."}
    closed = end(session, "failed", "r", "failed", error=error)
    assert closed.meter.facts.error is not None
    assert closed.meter.facts.error.code == "server_error"


def test_a_refused_request_is_closed_at_once() -> None:
    session = responses()
    asked = ask(session, model="m")
    error = {"type": "invalid_request_error", "message": "No such model."}
    closed = only(Closed, session.server_message(message("error", status=400, error=error)))
    assert closed.key == asked.key
    assert closed.meter.facts.error == AnswerError("invalid_request_error", "model_not_found")
    assert session.open_count == 0


def test_an_error_while_answering_is_kept_in_mind() -> None:
    session = responses()
    ask(session, model="m")
    begin(session)
    assert session.server_message(message("error", error={"code": "c", "message": "m"})) == []
    cut = only(Closed, session.end())
    assert cut.meter.facts.error is not None
    assert not cut.meter.facts.ended


def test_what_is_open_when_the_session_ends_is_cut() -> None:
    session = responses()
    asked, second = ask(session, model="m"), ask(session, model="m")
    begin(session)
    ended = session.end()
    assert {closed.key for closed in ended} == {asked.key, second.key}
    assert not any(isinstance(one, Opened) or one.meter.facts.ended for one in ended)
    assert session.end() == []


def test_voice_detection_begins_responses_by_itself() -> None:
    session = realtime()
    created = message("session.created", session={"model": "gpt-realtime-2"})
    assert session.server_message(created) == []
    opened = only(Opened, begin(session))
    assert opened.request.model == "gpt-realtime-2"
    session.server_message(message("response.output_audio.delta", response_id="r", delta="AAAA"))
    closed = end(session, "done", "r", "completed", usage=USAGE)
    usage = closed.meter.usage()
    assert (usage.input_tokens, usage.cache_read_tokens, usage.output_tokens) == (200, 64, 100)
    assert (usage.input_audio_tokens, usage.output_audio_tokens) == (150, 80)
    assert closed.meter.facts.response_model == "gpt-realtime-2"
    assert closed.meter.unknown_keys == set()


def test_a_cancelled_response_is_billed_too() -> None:
    session = realtime()
    begin(session)
    usage = {"input_tokens": 5, "output_tokens": 1}
    details = {"type": "cancelled", "reason": "turn_detected"}
    closed = end(session, "done", "r", "cancelled", usage=usage, status_details=details)
    assert closed.meter.facts.finish_reason == "cancelled"
    assert closed.meter.usage().output_tokens == 1
    assert not closed.meter.facts.error is not None


def test_responses_under_way_together_are_told_apart_by_id() -> None:
    session = realtime()
    for response_id in ("a", "b"):
        begin(session, response_id)
    session.server_message(message("response.output_text.delta", response_id="b", delta="x"))
    second = end(session, "done", "b", "completed", usage={"output_tokens": 2})
    more = {"status_details": {"error": {"code": "c"}}, "usage": {"output_tokens": 1}}
    first = end(session, "done", "a", "failed", **more)
    assert (second.meter.facts.token_seen, first.meter.facts.token_seen) == (True, False)
    assert (second.meter.usage().output_tokens, first.meter.usage().output_tokens) == (2, 1)
    assert first.meter.facts.error is not None


def test_an_error_goes_to_the_request_it_names() -> None:
    session = realtime()
    ask(session, event_id="e1", response={})
    second = ask(session, event_id="e2")
    other, of_second = (message("error", error={"event_id": name}) for name in ("e9", "e2"))
    assert session.server_message(other) == []
    closed = only(Closed, session.server_message(of_second))
    assert closed.key == second.key
    assert session.open_count == 1


def test_a_transcript_is_billed_by_itself() -> None:
    session = realtime()
    audio = {"input": {"transcription": {"model": "whisper-1"}}}
    session.server_message(message("session.updated", session={"audio": audio}))
    usage = {"type": "duration", "seconds": 3.5}
    said = message(TRANSCRIBED, item_id="item_1", transcript="hello", usage=usage)
    opened, closed = session.server_message(said)
    assert isinstance(opened, Opened)
    assert isinstance(closed, Closed)
    assert opened.request.model == "whisper-1"
    assert closed.meter.facts.response_id == "item_1"
    assert closed.meter.usage().tool_units == {"audio_milliseconds": 3_500}


def test_a_transcript_that_goes_on_is_billed_once() -> None:
    session = realtime()
    for text, status, events in (("hel", "in_progress", 0), ("hello", "completed", 2)):
        sent = message(TRANSCRIBED, item_id="item_1", transcript=text, status=status)
        assert len(session.server_message(sent)) == events


def test_usage_beside_the_response_is_its_usage() -> None:
    session = realtime()
    begin(session)
    done = message(
        "response.done",
        response=response("r", "completed", usage={}),
        usage={
            "input_tokens": 10,
            "input_token_details": {"text_tokens": 8, "audio_tokens": 2, "grok_tokens": 3},
            "output_tokens": 277,
            "output_token_details": {"text_tokens": 19, "audio_tokens": 258},
            "total_tokens": 287,
            "output_audio_seconds": 5.134,
            "billable_audio_seconds": 3,
        },
    )
    closed = only(Closed, session.server_message(done))
    usage = closed.meter.usage()
    assert (usage.input_tokens, usage.input_audio_tokens) == (10, 2)
    assert (usage.output_tokens, usage.output_audio_tokens) == (277, 258)
    # Sound is billed by begun seconds, for which no list has a price: units, so the row is partial.
    assert usage.tool_units == {"output_audio_seconds": 6, "billable_audio_seconds": 3}
    assert closed.meter.facts.usage_final


def test_an_event_is_carried_by_one_message() -> None:
    inner = {"type": "response.event", "event": {"type": "response.created", "response": {}}}
    assert openai_live().server_message(message("response.event", event=inner)) == []


@for_each("others", [0, 1, 2], ids="{} others are open".format)
@for_each("is_asked", [True, False])
@for_each("make, kind", [(realtime, "done"), (responses, "completed"), (responses, "incomplete")])
def test_a_response_whose_beginning_did_not_come_is_billed(
    make: Any, kind: str, others: int, is_asked: bool
) -> None:
    session = make()
    for n in range(others):
        begin(session, f"other-{n}")
    happened = [ask(session)] if is_asked else []
    whole = response("alone", kind, usage=USAGE)
    happened += session.server_message(message(f"response.{kind}", response=whole))
    opening, closing = happened
    assert isinstance(closing, Closed)
    assert opening.key == closing.key
    assert closing.meter.facts.response_id == "alone"
    assert closing.meter.usage().input_tokens == 200
    assert session.open_count == others


def test_other_messages_bring_nothing_about() -> None:
    session = realtime()
    for sent in (
        message("input_audio_buffer.append", audio="A" * 10_000),
        message("session.update", session={"instructions": "say response.create"}),
        b"response.create but no JSON",
        b'["response.create"]',
        b"\xff",
    ):
        assert session.client_message(sent) == []
    for received in (
        message("rate_limits.updated", rate_limits=[]),
        message("response.output_audio.delta", response_id="nobody", delta="A"),
        message("response.done", response=response("nobody", "completed")),
        b"\xff",
        b"[]",
        b'{"response": cut',
    ):
        assert session.server_message(received) == []
    assert session.open_count == 0


def test_memory_is_flat_over_long_sessions() -> None:
    session = realtime()
    audio = message("response.output_audio.delta", response_id="r", delta="A" * 2_000)

    def one_turn() -> None:
        begin(session)
        for _ in range(20):
            session.client_message(message("input_audio_buffer.append", audio="A" * 500))
            session.server_message(audio)
        end(session, "done", "r", "completed", usage=USAGE)

    for _ in range(20):
        one_turn()
    tracemalloc.start()
    try:
        one_turn()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(200):
            one_turn()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 20_000


def test_requests_that_are_never_answered_are_bounded() -> None:
    """A client alone cannot open exchanges without end: 26 bytes each would fill the ledger."""
    session = responses()
    asking = message("response.create")
    happened = [one for _ in range(1_000) for one in session.client_message(asking)]
    assert [one.key for one in happened] == list(range(1, WAITING_MAX + 1))
    assert all(isinstance(one, Opened) for one in happened)
    assert session.open_count == WAITING_MAX


def test_a_request_beyond_the_bound_is_recorded_when_it_is_answered() -> None:
    session = responses()
    for _ in range(WAITING_MAX + 1):
        session.client_message(message("response.create", model="m"))
    opened = [one for n in range(WAITING_MAX + 1) for one in begin(session, f"r{n}")]
    assert [one.key for one in opened] == [WAITING_MAX + 1]
    assert session.open_count == WAITING_MAX + 1


def test_what_a_session_says_of_itself_is_bounded() -> None:
    """A model of 5 000 000 characters, with characters that no database or terminal takes."""
    session = realtime()
    audio = {"input": {"transcription": {"model": "t" * 5_000_000}}}
    about = {"model": "m\0\x1b" * 2_000_000, "audio": audio}
    session.server_message(message("session.created", session=about))
    opened = ask(session, event_id="e" * 1_000_000)
    assert len(opened.request.model or "") <= TEXT_LENGTH_MAX
    assert "\0" not in (opened.request.model or "")
    transcribed, _ = session.server_message(message(TRANSCRIBED, item_id="i"))
    assert isinstance(transcribed, Opened)
    assert len(transcribed.request.model or "") <= TEXT_LENGTH_MAX


def test_responses_without_an_id_are_not_one() -> None:
    """A missing id names nothing: two responses without one stay two, and have none."""
    session = realtime()
    created = message("response.created", response={"object": "realtime.response"})
    for _ in range(2):
        session.server_message(created)
    assert session.open_count == 2
    closed = [one for one in session.end() if isinstance(one, Closed)]
    assert [one.meter.facts.response_id for one in closed] == [None, None]


def test_a_response_without_an_id_is_closed_by_its_end() -> None:
    session = realtime()
    session.server_message(message("response.created", response={"object": "realtime.response"}))
    done = {"object": "realtime.response", "status": "completed", "usage": {"output_tokens": 3}}
    closed = only(Closed, session.server_message(message("response.done", response=done)))
    assert closed.meter.usage().output_tokens == 3
    assert closed.meter.facts.response_id is None
    assert session.open_count == 0


def test_a_failed_realtime_response_says_so() -> None:
    session = realtime()
    begin(session)
    closed = end(session, "done", "r", "failed")
    assert closed.meter.facts.error is not None


def test_responses_that_never_end_are_bounded() -> None:
    session = realtime()
    closed = []
    for n in range(OPEN_MAX + 10):
        happened = begin(session, f"r{n}")
        closed += [one.meter.facts.response_id for one in happened if isinstance(one, Closed)]
    assert closed == [f"r{n}" for n in range(10)]
    assert session.open_count == OPEN_MAX


MESSAGES = st.sampled_from(
    [
        message("response.create"),
        message("response.create", event_id="e"),
        message("response.created", response=response("a", "in_progress")),
        message("response.created", response=response("b", "in_progress")),
        message("response.created"),
        message("response.done", response=response("a", "completed", usage=USAGE)),
        message("response.completed", response=response("b", "completed", usage=USAGE)),
        message("response.output_text.delta", response_id="a", delta="x"),
        message("error", error={"event_id": "e"}),
        message("error"),
        message("session.created", session={"model": 5, "audio": []}),
        message(TRANSCRIBED, usage=None),
        message("session.usage.updated", usage={"seconds": 9}),
        message("session.closed", session={"id": "s"}, usage={"seconds": 9}),
        message("response.event", event={"type": "response.created", "response": {"id": "c"}}),
        message("response.event", event={"type": "response.event", "event": {}}),
        message("decision.event", event={"type": "decision.completed", "decision": 5}),
        b"\xff",
        b'{"type":"response.create"',
    ]
)


@given(
    st.sampled_from([responses, realtime, openai_live]),
    st.lists(st.tuples(st.booleans(), MESSAGES), max_size=20),
)
def test_what_is_opened_is_closed_once(make: Any, messages: list[tuple[bool, bytes]]) -> None:
    session = make()
    happened: list[SessionEvent] = []
    for is_client, one in messages:
        happened += session.client_message(one) if is_client else session.server_message(one)
    happened += session.end()
    opened = [one.key for one in happened if isinstance(one, Opened)]
    closed = [one.key for one in happened if isinstance(one, Closed)]
    assert sorted(opened) == sorted(closed)
    assert len(set(closed)) == len(closed)


def test_a_message_beyond_the_bound_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "MESSAGE_BYTES_MAX", 60)
    session = responses()
    assert session.client_message(message("response.create", model="m" * 60)) == []
    assert session.open_count == 0
    assert len(session.client_message(message("response.create", model="m"))) == 1


def test_a_response_that_is_announced_twice_is_one() -> None:
    session = realtime()
    created = message("response.created", response=response("r", "in_progress"))
    assert len(session.server_message(created)) == 1
    assert session.server_message(created) == []
    assert session.open_count == 1


def test_beyond_the_bound_the_oldest_request_that_waits_is_closed() -> None:
    session = realtime()
    for n in range(OPEN_MAX):
        begin(session, f"r{n}")
    opened, closed = session.client_message(message("response.create"))
    assert isinstance(opened, Opened)
    assert isinstance(closed, Closed)
    assert closed.key == opened.key
    assert session.open_count == OPEN_MAX


def test_a_long_message_is_read_without_what_is_no_figure():
    """A request with a picture in it, and an answer that repeats 3 MB of its output."""
    session = responses()
    picture = "A" * 3_000_000
    assert ask(session, model="m", input=[{"image": picture}]).request.model == "m"
    assert begin(session) == []
    usage = {"input_tokens": 9, "output_tokens": 3, "total_tokens": 12}
    closed = end(session, "completed", "r", "completed", output=[{"text": picture}], usage=usage)
    assert closed.meter.usage().output_tokens == 3


def test_usage_behind_many_tools_is_read():
    """A response repeats the tools of its request, before its usage."""
    session = responses()
    schema = {name: {"type": "string", "enum": ["a", "b"]} for name in "abcdefgh"}
    tools = [{"type": "function", "name": "f", "parameters": {"properties": schema}}] * 800
    begin(session)
    closed = end(session, "completed", "r", "completed", tools=tools, usage=USAGE)
    assert closed.meter.usage().input_tokens == USAGE["input_tokens"]
    assert closed.meter.usage().cache_read_tokens is not None


def test_usage_is_read_among_any_number_of_other_keys():
    session = responses()
    begin(session)
    others = {f"k{n}": -1 for n in range(15_000)}
    more = {f"x{n}": [n] for n in range(15_000)}
    closed = end(session, "completed", "r", "completed", usage=others | USAGE | more)
    assert closed.meter.usage().input_tokens == USAGE["input_tokens"]
    assert closed.meter.usage().output_tokens == USAGE["output_tokens"]


def test_a_message_of_many_values_is_read_for_what_it_asks():
    session = responses()
    many = b'{"type":"response.create","model":"m","input":[' + b"[]," * 1_000_000 + b"[]]}"
    assert only(Opened, session.client_message(many)).request.model == "m"
