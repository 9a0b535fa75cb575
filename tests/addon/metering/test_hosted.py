"""What answers state of sessions of hosted agents, cut into chunks in any way."""

import json
import random
from datetime import UTC, datetime

import pytest

from addon.dialects import hosted
from addon.dialects.facts import FELL
from addon.framing.long_json import without_pauses
from addon.metering.exchange import exchange_of
from addon.metering.hosted import rows_of
from addon.metering.messages import End, Request, Response, recorded_body
from addon.metering.opening import RunRules, Upstream
from ledger.model.exchange import (
    ORDERED,
    SESSION_CALL,
    SESSION_REQUEST,
    SESSION_TOTAL,
    Outcome,
    Source,
    UsageSource,
)
from ledger.model.usage import NO_USAGE

AT = datetime(2026, 11, 20, 10, tzinfo=UTC)
LATER = datetime(2026, 11, 20, 11, tzinfo=UTC)
ANTHROPIC = "api.anthropic.com"


def end(number, at="2026-11-20T10:00:01Z", **usage):
    return {
        "type": "span.model_request_end",
        "id": f"sevt_{number}",
        "processed_at": at,
        "model_usage": {
            "input_tokens": number,
            "output_tokens": 1,
            "cache_creation_input_tokens": 0,
            **usage,
        },
    }


def opened(path, host, headers=None, rules=None, method="GET"):
    request = Request(
        method=method,
        scheme="https",
        host=host,
        port=443,
        path=path,
        headers=headers or {},
        redacted=frozenset(),
        tag_headers=(),
        body=recorded_body(b"{}" if method == "POST" else b"", method),
        began_at=AT,
    )
    rules = rules or RunRules(node="")
    exchange = exchange_of(request, rules, exchange_id="wire", source=Source.LIVE)
    assert exchange is not None
    without_pauses(exchange.read_request(request))
    return exchange


def stated(answer, path="/v1/sessions/sesn_1", host=ANTHROPIC, cut=None, headers=None, rules=None):
    exchange = opened(path, host, headers, rules)
    is_stream = isinstance(answer, list)
    kind = "text/event-stream" if is_stream else "application/json"
    tap = exchange.answer(
        Response(status=200, headers={"content-type": kind}), edits=False, clock=lambda: 0.0
    ).callable
    body = json.dumps(answer)
    if is_stream:
        body = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in answer)
    for chunk in (cut or (lambda data: [data]))(body.encode()):
        tap(chunk)
    tap(b"")
    settled = exchange.settle(End.FINISHED, cause=None, now=LATER)
    assert not exchange.is_confirmed
    return exchange.stated(settled)


def ordered(path, answer, status=200, host=ANTHROPIC, end=End.FINISHED, headers=None):
    """The row of a POST, and how many rows its answer states."""
    exchange = opened(path, host, headers, method="POST")
    assert exchange.is_confirmed
    if status is not None:
        is_stream = isinstance(answer, str)
        kind = "text/event-stream" if is_stream else "application/json"
        response = Response(status=status, headers={"content-type": kind})
        tap = exchange.answer(response, edits=False, clock=lambda: 0.0).callable
        tap(answer.encode() if is_stream else json.dumps(answer).encode())
        tap(b"")
    settled = exchange.settle(end, cause=None, now=LATER)
    found = exchange.stated(settled)
    assert all(one.exchange.parent_session_id in (None, "mine") for one in found)
    assert all(one.exchange.source is Source.REPLAY for one in found)
    return settled, len(found)


MADE = {"type": "session", "id": "sesn_1", "usage": {"input_tokens": 0}}
OF_OPENAI = {"object": "agent.session", "id": "as_1", "usage": {"input_tokens": 0}}
CUT = f"event: x\ndata: {json.dumps({'type': 'x', 'object': 'agent.session', 'id': 'as_1'})}\n\nda"
FAILED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
ORDERS = {
    "made": ("/v1/sessions", MADE, 200, "sesn_1", 1),
    "sent": ("/v1/sessions/sesn_1/events", {"data": []}, 200, "sesn_1", 0),
    "made, and unreadable": ("/v1/sessions", {}, 200, None, 0),
    "made at OpenAI": ("/v1/agents/sessions", OF_OPENAI, 201, "as_1", 1),
    "sent to OpenAI": ("/v1/agents/sessions/as_1/events", "", 202, "as_1", 0),
    "a turn that is cut": ("/v1/agents/sessions/as_1/turns", CUT, 200, "as_1", 1),
}


@pytest.mark.parametrize(
    ("path", "answer", "status", "session", "count"), ORDERS.values(), ids=ORDERS
)
@pytest.mark.parametrize("own", ["mine", None])
def test_what_starts_work_is_an_order(path, answer, status, session, count, own):
    host = "api.openai.com" if "agents" in path else ANTHROPIC
    headers = {"x-tokentee-session": own} if own else None
    (exchange, reading), found = ordered(path, answer, status, host, headers=headers)
    assert (exchange.operation, exchange.source) == (SESSION_CALL, Source.LIVE)
    assert (exchange.finish_reason, exchange.response_id) == (ORDERED[0], session)
    assert (exchange.session_id, exchange.parent_session_id) == (
        (session, own) if session else (own, None)
    )
    assert reading.usage_source is UsageSource.NONE
    assert reading.usage == NO_USAGE
    assert reading.estimated_output_tokens is None
    assert found == count


@pytest.mark.parametrize(
    ("status", "end", "outcome"),
    [
        (401, End.FINISHED, Outcome.HTTP_ERROR),
        (200, End.FINISHED, Outcome.ERROR_FRAME),
        (None, End.STOPPED, Outcome.LOST),
    ],
)
def test_an_order_that_fails_is_none(status, end, outcome):
    (exchange, _), found = ordered("/v1/sessions/sesn_1/events", FAILED, status, end=end)
    assert (exchange.outcome, exchange.finish_reason, exchange.response_id) == (outcome, None, None)
    assert (exchange.session_id, found) == ("sesn_1", 0)


@pytest.mark.parametrize("path", ["/v1/sessions/sesn_1", "/v1/sessions/sesn_1/archive"])
@pytest.mark.parametrize(("status", "has_row"), [(200, False), (429, True), (500, True)])
def test_what_only_fetches_has_a_row_if_it_fails(path, status, has_row):
    for method in ("GET", "POST"):
        exchange = opened(path, ANTHROPIC, method=method)
        assert not exchange.is_confirmed
        response = Response(status=status, headers={"content-type": "application/json"})
        exchange.answer(response, edits=False, clock=lambda: 0.0).callable(b"{}")
        settled = exchange.settle(End.FINISHED, cause=None, now=LATER)
        assert exchange.is_confirmed is has_row
        assert settled.exchange.finish_reason is None


def at_random(data):
    draw, at = random.Random(7), 0
    while at < len(data):
        step = draw.randint(1, 40)
        yield data[at : at + step]
        at += step


STREAM = [
    {"type": "agent.message", "id": "sevt_0", "content": [{"type": "text", "text": "usage"}]},
    end(1),
    {"type": "session.usage", "processed_at": None, "usage": {"input_tokens": 1}},
    end(2, at="2026-11-20T10:00:02Z", speed="fast"),
    {"type": "session.usage", "processed_at": "2026-11-20T10:00:03Z", "usage": {"input_tokens": 3}},
]
CUTS = {
    "whole": None,
    "bytes": lambda data: [data[at : at + 1] for at in range(len(data))],
    "random": at_random,
}


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_a_stream_states_its_requests_and_the_last_total(cut):
    found = stated(STREAM, "/v1/sessions/sesn_1/events/stream", cut=cut)
    assert [one.exchange.response_id for one in found] == ["sevt_1", "sevt_2", "sesn_1"]
    assert [one.exchange.operation for one in found] == [SESSION_REQUEST] * 2 + [SESSION_TOTAL]
    assert [one.reading.usage.input_tokens for one in found] == [1, 2, 3]
    assert [one.exchange.opened_at.second for one in found] == [1, 2, 3]
    assert found[1].exchange.service_tier == "fast"
    assert len({one.exchange.id for one in found}) == 3


def test_a_total_is_behind_the_requests_of_its_answer_whatever_our_clock_says():
    """The provider's clock is ahead of ours; a total without a moment has ours."""
    answer = [end(1, at="2026-11-20T11:00:30Z"), {"type": "session", "id": "sesn_1", "usage": {}}]
    request, total = stated({"data": answer})
    assert total.exchange.settled_at == request.exchange.opened_at > LATER


def test_a_request_without_an_answer_states_nothing():
    exchange = opened("/v1/sessions/sesn_1", ANTHROPIC)
    settled = exchange.settle(End.UPSTREAM_BROKE, cause=None, now=LATER)
    assert exchange.stated(settled) == []


@pytest.mark.parametrize("provider", ["anthropic", "openai", None])
def test_a_host_is_of_the_provider_that_the_operator_names(provider):
    rules = RunRules(node="", upstreams=(Upstream(host="gate.example", provider=provider),))
    found = opened("/v1/sessions/sesn_1", "gate.example", rules=rules).route.dialect.name
    assert found == ("anthropic.sessions" if provider == "anthropic" else "unknown")


def test_the_session_of_the_client_is_the_parent():
    headers = {"x-tokentee-session": "mine"}
    (total,) = stated({"type": "session", "id": "sesn_1", "usage": {}}, headers=headers)
    assert total.exchange.session_id == "sesn_1"
    assert total.reading.usage_json is None


def test_a_total_has_cache_writes_active_time_and_list_cost():
    usage = {
        "input_tokens": 5,
        "cache_read_input_tokens": 10,
        "cache_creation": {"ephemeral_5m_input_tokens": 2, "ephemeral_1h_input_tokens": 3},
        "output_tokens": 7,
        "active_seconds": 1.25,
        "list_cost": {"amount": "12", "currency": "USD"},
        "server_tool_use": {"web_search_requests": 4},
    }
    answer = {"type": "session", "id": "sesn_1", "agent": {"model": "claude-x"}, "usage": usage}
    (total,) = stated(answer)
    read = total.reading.usage
    assert (read.input_tokens, read.cache_write_tokens, read.output_tokens) == (20, 5, 7)
    assert read.tool_units == {"session_milliseconds": 1250, "web_searches": 4}
    assert read.reported_cost_picousd == 12 * 10**10
    assert total.exchange.request_model == "claude-x"


@pytest.mark.parametrize(
    "cost", [None, {"amount": "x", "currency": "USD"}, {"amount": "1", "currency": "EUR"}, 5]
)
def test_a_list_cost_that_cannot_be_read_is_unknown(cost):
    (total,) = stated({"type": "session", "id": "sesn_1", "usage": {"list_cost": cost}})
    assert total.reading.usage.reported_cost_picousd is None


@pytest.mark.parametrize("at", ["never", "2999-01-01T00:00:00Z", None, True, 10**30, []])
def test_a_moment_that_is_none_is_that_of_the_answer(at):
    (one,) = stated({"data": [end(1, at=at)]}, "/v1/sessions/sesn_1/events")
    assert one.exchange.opened_at == LATER


@pytest.mark.parametrize(
    "answer", [{}, {"data": []}, {"type": "session"}, {"type": "span.model_request_end"}]
)
def test_what_has_no_session_or_id_is_no_row(answer):
    assert stated(answer, "/v1/sessions") == []


def test_statements_are_bounded():
    answer = {"data": [end(number) for number in range(1, hosted.STATED_MAX + 9)]}
    found = stated(answer, "/v1/sessions/sesn_1/events")
    assert 0 < len(found) <= hosted.STATED_MAX


def test_turns_of_openai():
    usage = {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}
    turn: dict[str, object] = {"object": "agent.session.turn", "id": "turn_1"}
    turn |= {"status": "completed", "session_id": "as_1"}
    turn |= {"completed_at": 1_790_000_000, "usage": usage}
    own = {"object": "agent.session", "id": "as_1", "agent": {"model": "gpt-5.4"}}
    events = [
        {"type": "agent.session.turn.in_progress", "turn": {**turn, "status": "in_progress"}},
        {"type": "agent.session.turn.failed", "turn": {**turn, "id": "turn_0", "usage": None}},
        {"type": "agent.session.turn.completed", "turn": turn},
        {"type": "agent.session.idle", "session": {**own, "usage": usage}},
    ]
    found = stated(events, "/v1/agents/sessions/as_1/events", "api.openai.com")
    assert [one.exchange.response_id for one in found] == ["turn_1", "as_1"]
    assert found[0].exchange.opened_at == datetime.fromtimestamp(1_790_000_000, UTC)
    assert [one.reading.usage.input_tokens for one in found] == [10, 10]
    assert rows_of is not None


def test_a_total_that_fell_within_a_stream_says_so():
    events = [
        {"type": "session.usage", "usage": {"input_tokens": count, "output_tokens": 7}}
        for count in (100, 60, 80)
    ]
    (total,) = stated(events, path="/v1/sessions/sesn_1/events/stream")
    assert total.reading.usage.input_tokens == 80
    assert total.reading.usage.remarks == (FELL.format("input_tokens"),)
