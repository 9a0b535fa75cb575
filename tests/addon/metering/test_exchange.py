"""One exchange from its request to its reading, through the one function that settles; its states: which end is
which outcome, and what the ledger is told."""

import gzip
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from msgspec import structs

from addon.dialects.facts import AnswerError, Ending, Facts
from addon.dialects.routes import DIALECTS
from addon.framing.long_json import without_pauses
from addon.metering import exchange as exchange_module
from addon.metering import opening
from addon.metering.exchange import (
    TRANSITIONS,
    Event,
    MeteredExchange,
    Stage,
    is_stream,
)
from addon.metering.messages import NOT_KNOWN, Body, End, RecordedTimes, Response
from addon.metering.meter import Meter
from addon.metering.settlement import ZEROS, outcome_of, result_of, result_unread
from addon.metering.troubles import Troubles
from ledger.model.exchange import Billing, Outcome, Source, State, UsageSource
from tests.addon.feeding import JSON, metered
from tests.addon.metering.opened import REQUEST, RULES, STREAM, failing_rule, opened, tapped
from tests.ledger.written import opened as opened_row
from tests.named import for_each, named

NOW = datetime(2026, 11, 20, 0, 0, 9, tzinfo=UTC)
SSE = Response(status=200, headers={"content-type": "text/event-stream"})


def passed(exchange: MeteredExchange, response: Response = SSE, *, edits: bool = False) -> bytes:
    tap = exchange.answer(response, edits=edits, clock=lambda: 0.0)
    out = b""
    for chunk in (STREAM[:50], STREAM[50:], b""):
        got = tap.callable(chunk)
        out += got if isinstance(got, bytes) else b"".join(got)
    return out


def test_an_answer_is_read():
    exchange = opened()
    assert passed(exchange) == STREAM
    settled, reading = exchange.settle(End.FINISHED, cause=None, now=NOW)
    assert settled.outcome is Outcome.COMPLETE
    assert (reading.usage.input_tokens, reading.usage.output_tokens) == (3, 2)
    assert settled.degraded is None


@for_each("end", [End.FINISHED, End.UPSTREAM_BROKE, End.CLIENT_LEFT, End.STOPPED])
def test_an_answer_with_its_own_end_has_no_error_whatever_broke_behind_it(end: End):
    exchange = opened()
    passed(exchange)
    settled, _ = exchange.settle(end, cause="connection reset", now=NOW)
    errors = (settled.error_type, settled.error_code, settled.error_message)
    assert (settled.outcome, *errors) == (Outcome.COMPLETE, None, None, None)


def test_usage_that_was_asked_for_is_stripped_where_editing_is_allowed():
    exchange = opened()
    exchange.mark_injected()
    assert b"usage" not in passed(exchange, edits=True)
    settled, reading = exchange.settle(End.FINISHED, cause=None, now=NOW)
    assert settled.usage_injected
    assert settled.usage_stripped
    assert reading.usage.output_tokens == 2


def test_a_refused_question_is_reverted():
    exchange = opened()
    exchange.mark_injected()
    passed(exchange, edits=True)
    exchange.revert_injection()
    assert exchange.tap is None
    assert (exchange.opened.usage_injected, exchange.opened.resent) == (False, True)


@for_each("end", [End.UPSTREAM_BROKE, End.CLIENT_LEFT, End.STOPPED])
def test_a_refused_question_leaves_nothing_of_its_answer(end: End):
    """The request that is sent again may get none."""
    ends = []
    for is_refused in (True, False):
        exchange = opened()
        if is_refused:
            exchange.mark_injected()
            headers = {"retry-after": "9", "x-ratelimit-limit-requests": "5"}
            tapped(exchange, b'{"error":{"message":"no"}}', status=400, headers=headers)
            exchange.revert_injection()
        ends.append(exchange.settle(end, cause="gone", now=NOW)[0])
    assert structs.replace(ends[0], resent=False) == ends[1]


@for_each("kind", ["application/json", "text/plain", "Text/Event-Stream", ""])
@for_each("headers", [{}, {"content-length": str(len(STREAM))}])
def test_usage_is_stripped_of_a_stream_whatever_it_is_called(kind: str, headers: dict[str, str]):
    """Under a length that is promised to the client it stays, and the row says so."""
    exchange = opened()
    exchange.mark_injected()
    response = Response(status=200, headers={"content-type": kind} | headers)
    got = passed(exchange, response, edits=True)
    settled, reading = exchange.settle(End.FINISHED, cause=None, now=NOW)
    is_left = bool(headers) and "vent" not in kind
    assert (got == STREAM, b"usage" in got) == (is_left, is_left)
    assert settled.usage_stripped is not is_left
    assert (settled.degraded is not None) is is_left
    assert reading.usage.output_tokens == 2


def test_a_document_passes_as_it_came_where_a_stream_was_asked_for():
    exchange = opened()
    exchange.mark_injected()
    body = b'{"id":"c1","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}'
    tap = exchange.answer(
        Response(status=200, headers={"content-type": "application/json"}),
        edits=True,
        clock=lambda: 0.0,
    )
    got = [tap.callable(part) for part in (body[:20], body[20:], b"")]
    assert b"".join(b"".join(each) if isinstance(each, list) else each for each in got) == body
    settled, reading = exchange.settle(End.FINISHED, cause=None, now=NOW)
    assert (settled.outcome, settled.degraded) == (Outcome.COMPLETE, None)
    assert (settled.upstream_digest, reading.usage.output_tokens) == (settled.client_digest, 2)


def test_everything_that_went_wrong_is_on_the_row(monkeypatch: pytest.MonkeyPatch):
    """Of the hooks, of the last steps, and in their order. What fails beside the figures costs
    none of them."""
    exchange = opened()
    passed(exchange)
    exchange.troubles.add("first")
    monkeypatch.setattr(exchange_module, "limits_of", lambda *_, **__: 1 / 0)
    settled, reading = exchange.settle(End.FINISHED, cause=None, now=NOW)
    assert settled.degraded is not None
    assert settled.degraded.startswith("first; ZeroDivisionError in ")
    assert reading.usage.output_tokens == 2


def test_an_exchange_settles_even_if_its_reading_fails(monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object, **__: object) -> str:
        raise ZeroDivisionError

    exchange = opened()
    passed(exchange)
    monkeypatch.setattr(Meter, "usage", fail)
    settled, reading = exchange.settle(End.FINISHED, cause=None, now=NOW)
    assert settled.outcome is Outcome.COMPLETE
    assert "ZeroDivisionError" in (settled.degraded or "")
    assert reading.usage_source is UsageSource.NONE


def test_a_request_that_cannot_be_read_is_noted(monkeypatch: pytest.MonkeyPatch):
    exchange = opened()

    def fail(*_: object) -> None:
        raise ArithmeticError("a text that must not show")

    monkeypatch.setattr(opening, "read", fail)
    without_pauses(exchange.read_request(REQUEST))
    assert passed(exchange) == STREAM
    settled, _ = exchange.settle(End.FINISHED, cause=None, now=NOW)
    assert "ArithmeticError in " in str(settled.degraded)
    assert "must not show" not in str(settled.degraded)


@for_each(
    "first, ended, expected",
    [
        (1, 2, (1, 2)),
        (1, None, (1, 0)),
        (None, None, (None, 0)),
        (0, 2, (None, 2)),
        (3, 2, (None, 2)),
        (1, -3600, (1, 0)),
        (-3600, 2, (None, 2)),
        (-3600, -3599, (None, 0)),
        (1, 2**31, (1, 0)),
        (2**31, 2**31 + 1, (None, 0)),
        (1, 86_400, (1, 86_400)),
        (1, 86_401, (1, 0)),
    ],
)
def test_a_recorded_exchange_has_the_times_of_its_recording(first, ended, expected):
    def at(seconds: int | None) -> datetime | None:
        return None if seconds is None else REQUEST.began_at + timedelta(seconds=seconds)

    exchange = opened(source=Source.REPLAY)
    assert exchange.is_recorded
    passed(exchange)
    times = RecordedTimes(first_byte_at=at(first), ended_at=at(ended))
    settled, _ = exchange.settle(End.FINISHED, cause=None, now=NOW, times=times)
    assert (settled.first_byte_at, settled.settled_at) == (at(expected[0]), at(expected[1]))
    assert settled.first_token_at is None


def test_which_answers_are_streams():
    assert is_stream(SSE)
    assert not is_stream(Response(status=200, headers={"content-type": "application/json"}))


@for_each(
    "encoding, body, kept, said",
    [
        pytest.param("", b"body", Body(b"body"), None, id="plain"),
        pytest.param("identity", b"body", Body(b"body"), None, id="identity"),
        pytest.param("gzip", b"", Body(b""), None, id="empty"),
        pytest.param("gzip", gzip.compress(b"body"), Body(b"body"), None, id="gzip"),
        pytest.param("gzip", b"no gzip", NOT_KNOWN, "request: ", id="broken"),
        pytest.param(
            "gzip", gzip.compress(b"x" * 2_000), NOT_KNOWN, "more than 1000 bytes", id="large"
        ),
    ],
)
def test_a_request_body_is_decoded_within_a_bound(
    encoding: str, body: bytes, kept: Body, said: str | None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(opening, "REQUEST_BYTES_MAX", 1_000)
    troubles = Troubles()
    steps = opening.decoded_body_in_steps(Body(body), encoding, troubles)
    assert without_pauses(steps) == kept
    assert (said or "None") in str(troubles.text)


PROMPT = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"%s"}]}' % (
    b"a b " * 300
)


def of_request(body: bytes, encoding: str) -> MeteredExchange:
    headers = {"content-encoding": encoding}
    return opened(structs.replace(REQUEST, body=Body(body), headers=headers))


def test_the_input_of_an_encoded_request_is_estimated():
    plain, encoded = of_request(PROMPT, ""), of_request(gzip.compress(PROMPT), "gzip")
    for exchange in (plain, encoded):
        exchange.answer(SSE, edits=False, clock=lambda: 0.0).callable(STREAM[:70])
    (_, expected), (_, found) = (
        exchange.settle(End.CLIENT_LEFT, cause=None, now=NOW) for exchange in (plain, encoded)
    )
    assert expected.usage_source is found.usage_source is UsageSource.ESTIMATED
    assert found.usage.input_tokens == expected.usage.input_tokens == len(PROMPT) // 4


def test_an_encoding_that_is_not_known_leaves_asked_usage_in():
    exchange = opened()
    exchange.mark_injected()
    headers = {"content-type": "text/event-stream", "content-encoding": "unheard-of"}
    tap = exchange.answer(Response(status=200, headers=headers), edits=True, clock=lambda: 0.0)
    assert not tap.edits
    assert "usage that was asked for stays" in str(exchange.troubles.text)


@for_each("encoding", ["gzip", "unheard-of", "gzip, unheard-of", ", ".join(["br"] * 4)])
def test_an_answer_that_cannot_be_decoded_is_noted(encoding: str):
    exchange = opened()
    headers = {"content-type": "text/event-stream", "content-encoding": encoding}
    passed(exchange, Response(status=200, headers=headers))
    settled, _ = exchange.settle(End.FINISHED, cause=None, now=NOW)
    assert "content-encoding" in (settled.degraded or "")


def test_an_edited_answer_that_is_encoded_is_metered_as_decoded():
    exchange = opened()
    exchange.mark_injected()
    headers = {"content-type": "text/event-stream", "content-encoding": "gzip"}
    tap = exchange.answer(Response(status=200, headers=headers), edits=True, clock=lambda: 0.0)
    sent = tap.callable(gzip.compress(STREAM))
    assert b"usage" not in b"".join(sent if isinstance(sent, list) else [sent])
    _, reading = exchange.settle(End.FINISHED, cause=None, now=NOW)
    assert reading.usage.output_tokens == 2


def test_how_it_is_billed_is_told_by_request_answer_and_operator():
    def billed(headers, answer, billing=None):
        request = structs.replace(REQUEST, headers=headers)
        exchange = opened(request, replace(RULES, billing=billing))
        passed(exchange, replace(SSE, headers={**SSE.headers, **answer}))
        return exchange.settle(End.FINISHED, cause=None, now=NOW)[1].billing

    key = {"authorization": "Bearer sk-0123456789abcdef"}
    spent = {"anthropic-ratelimit-unified-overage-in-use": "true"}
    assert billed({}, {}) is None
    assert billed(key, {}) is Billing.METERED
    assert billed(key, {"x-codex-plan-type": "plus"}) is Billing.PLAN
    assert billed(key, {}, lambda _: Billing.FREE) is Billing.FREE
    assert billed(key, {}, lambda _: None) is Billing.METERED
    assert billed(key, spent, lambda _: Billing.PLAN) is Billing.METERED
    assert billed(key, {}, lambda _: 1 / 0) is Billing.METERED


def test_a_rule_of_the_operator_that_fails_costs_no_limit():
    exchange = opened(rules=replace(RULES, billing=failing_rule))
    told = {
        "retry-after": "7",
        "x-ratelimit-remaining-tokens": "5",
        "x-ratelimit-limit-tokens": "9",
    }
    passed(exchange, replace(SSE, headers={**SSE.headers, **told}))
    settled, _ = exchange.settle(End.FINISHED, cause=None, now=NOW)
    assert settled.quotas
    assert "ZeroDivisionError" in (settled.degraded or "")


def test_a_recorded_answer_is_read_whole():
    exchange = opened(source=Source.REPLAY)
    exchange.answer(SSE, edits=False, clock=lambda: 0.0).callable(STREAM)
    settled, reading = exchange.settle(End.FINISHED, cause=None, now=NOW)
    assert exchange.is_recorded
    assert settled.outcome is Outcome.COMPLETE
    assert settled.streamed
    assert (reading.usage.input_tokens, reading.usage.output_tokens) == (3, 2)


SAID_DONE = Facts(ended=True, finish_reason="stop")
SAID_FINISH = Facts(finish_reason="stop")
WHOLE_DOCUMENT = Facts(ended=True, is_document=True)
SAID_NOTHING = Facts()
SAID_ERROR = Facts(error=AnswerError(), ended=True)
CLOSES = Facts(ending=Ending.CLOSE)
OVER, LEFT, BROKE, CUT = End.FINISHED, End.CLIENT_LEFT, End.UPSTREAM_BROKE, Outcome.UPSTREAM_CUT


@for_each(
    "end, facts, status, streamed, expected",
    named(
        {
            "done": (OVER, SAID_DONE, 200, True, Outcome.COMPLETE),
            "no-DONE-but-finish": (OVER, SAID_FINISH, 200, True, Outcome.COMPLETE),
            "close-is-its-end": (OVER, CLOSES, 200, True, Outcome.COMPLETE),
            "rst-that-looks-like-an-end": (OVER, SAID_NOTHING, 200, True, CUT),
            "plain-document": (OVER, SAID_NOTHING, 200, False, Outcome.COMPLETE),
            "client-closes-at-DONE": (LEFT, SAID_DONE, 200, True, Outcome.COMPLETE),
            "client-leaves-before-usage": (LEFT, SAID_FINISH, 200, True, Outcome.CLIENT_LEFT),
            "client-leaves-before-headers": (LEFT, SAID_NOTHING, None, True, Outcome.CLIENT_LEFT),
            "cut": (BROKE, SAID_NOTHING, 200, True, CUT),
            "refused": (BROKE, SAID_NOTHING, None, False, CUT),
            "document-shorter-than-its-length": (BROKE, WHOLE_DOCUMENT, 200, False, CUT),
            "client-leaves-behind-the-document": (
                LEFT,
                WHOLE_DOCUMENT,
                200,
                False,
                Outcome.COMPLETE,
            ),
            "cut-at-DONE": (BROKE, SAID_DONE, 200, True, Outcome.COMPLETE),
            "proxy-stopped": (End.STOPPED, SAID_NOTHING, 200, True, Outcome.LOST),
            "error-frame": (OVER, SAID_ERROR, 200, True, Outcome.ERROR_FRAME),
            "client-leaves-on-the-error": (LEFT, SAID_ERROR, 200, True, Outcome.ERROR_FRAME),
            "http-error": (OVER, SAID_ERROR, 429, False, Outcome.HTTP_ERROR),
            "http-error-cut": (BROKE, SAID_NOTHING, 500, False, Outcome.HTTP_ERROR),
        }
    ),
)
def test_outcomes(end: End, facts: Facts, status, streamed: bool, expected: Outcome):
    assert outcome_of(end, facts, status=status, streamed=streamed) is expected


def settled(body: bytes | None, end: End):
    return result_of(
        opened_row("flow-1", at=NOW, streamed=True),
        end=end,
        status=200,
        meter=metered(DIALECTS["openai.chat"], body).tap.meter if body is not None else None,
        estimate_input=lambda: 11,
        now=NOW,
    )


WORD = b'data: {"id":"c1","model":"m","created":5,"choices":[{"delta":{"content":"hello there world"}}]}\n\n'
STOP = b'data: {"id":"c1","choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"id":"c1","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n'
DONE = b"data: [DONE]\n\n"


ZERO = {"prompt_tokens": 0, "completion_tokens": 0}


def usage_chunk(**usage: object) -> bytes:
    frame = {"id": "c1", "choices": [], "usage": usage}
    return b"data: " + json.dumps(frame).encode() + b"\n\n"


@for_each(
    "usage, end, source",
    [
        pytest.param(ZERO, End.FINISHED, UsageSource.NONE, id="whole"),
        pytest.param(
            {**ZERO, "total_tokens": 0}, End.FINISHED, UsageSource.NONE, id="with-a-total"
        ),
        pytest.param({"completion_tokens": 0}, End.FINISHED, UsageSource.NONE, id="one-alone"),
        pytest.param(ZERO, End.CLIENT_LEFT, UsageSource.ESTIMATED, id="left"),
    ],
)
def test_zeros_for_an_answer_with_text_are_no_figures(usage, end, source):
    body = WORD + STOP + usage_chunk(**usage) + DONE
    if end is End.CLIENT_LEFT:
        body = usage_chunk(**usage) + WORD
    _, reading = settled(body, end)
    assert reading.usage_source is source
    assert ZEROS in reading.usage.remarks
    figures = (reading.usage.input_tokens, reading.usage.output_tokens)
    assert figures == ((None, None) if source is UsageSource.NONE else (11, 4))


@for_each(
    "body",
    [
        pytest.param(STOP + usage_chunk(**ZERO) + DONE, id="without-text"),
        pytest.param(
            WORD + STOP + usage_chunk(prompt_tokens=0, completion_tokens=2) + DONE, id="one"
        ),
        pytest.param(WORD + STOP + usage_chunk(**ZERO, cost=0.5) + DONE, id="with-a-cost"),
    ],
)
def test_a_zero_beside_a_figure_is_one(body):
    _, reading = settled(body, End.FINISHED)
    assert reading.usage_source is UsageSource.REPORTED
    assert reading.usage.input_tokens == 0


def test_a_figure_that_calls_itself_an_estimate_is_one():
    usage = {"prompt_tokens": 2_000, "completion_tokens": 9, "estimated": True}
    _, reading = settled(WORD + STOP + usage_chunk(**usage) + DONE, End.FINISHED)
    assert reading.usage_source is UsageSource.ESTIMATED
    assert (reading.usage.input_tokens, reading.usage.output_tokens) == (2_000, 9)
    _, reading = settled(
        WORD + STOP + usage_chunk(**usage | {"estimated": False}) + DONE, End.FINISHED
    )
    assert reading.usage_source is UsageSource.REPORTED


def test_a_complete_exchange_is_reported():
    exchange, reading = settled(WORD + STOP + USAGE + DONE, End.FINISHED)
    assert exchange.state is State.SETTLED
    assert exchange.outcome is Outcome.COMPLETE
    assert (exchange.response_id, exchange.finish_reason) == ("c1", "stop")
    assert reading.usage_source is UsageSource.REPORTED
    assert (reading.usage.input_tokens, reading.usage.output_tokens) == (3, 2)
    assert reading.estimated_output_tokens is None
    assert (reading.exchange_id, reading.opened_at) == (exchange.id, exchange.opened_at)


def test_what_was_reported_before_a_cut_is_kept_as_partial():
    running = WORD.replace(b"]}\n", b'],"usage":{"prompt_tokens":3,"completion_tokens":1}}\n')
    exchange, reading = settled(running * 3, End.UPSTREAM_BROKE)
    assert exchange.outcome is Outcome.UPSTREAM_CUT
    assert reading.usage_source is UsageSource.PARTIAL
    assert (reading.usage.input_tokens, reading.usage.output_tokens) == (3, 1)


def test_an_aborted_stream_that_reported_nothing_is_estimated():
    exchange, reading = settled(WORD * 50, End.CLIENT_LEFT)
    assert exchange.outcome is Outcome.CLIENT_LEFT
    assert reading.usage_source is UsageSource.ESTIMATED
    assert reading.usage.input_tokens == 11
    assert reading.usage.output_tokens == reading.estimated_output_tokens
    assert 75 <= (reading.usage.output_tokens or 0) <= 300  # 150 words in 50 chunks
    assert reading.usage_json is None


def test_a_complete_stream_without_usage_is_not_estimated():
    _, reading = settled(WORD + STOP + DONE, End.FINISHED)
    assert reading.usage_source is UsageSource.NONE
    assert reading.usage.output_tokens is None


def test_an_exchange_without_an_answer_settles():
    exchange, reading = settled(None, End.UPSTREAM_BROKE)
    assert exchange.outcome is Outcome.UPSTREAM_CUT
    assert exchange.response_id is None
    assert exchange.content_digest is None
    assert reading.usage_source is UsageSource.NONE


def test_the_same_response_has_the_same_content_digest_and_another_has_not():
    first, _ = settled(WORD + STOP + USAGE + DONE, End.FINISHED)
    again, _ = settled(WORD + WORD + STOP + USAGE + DONE, End.FINISHED)
    other, _ = settled((WORD + STOP + USAGE).replace(b":2}", b":4}") + DONE, End.FINISHED)
    assert first.content_digest == again.content_digest
    assert first.content_digest != other.content_digest


DOCUMENT = (
    b'{"id":"c1","model":"m","choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":3}}'
)


@for_each("before", [b"", b"\n\n", b" \r\n", b"\xef\xbb\xbf"])
@for_each("kept", [*range(1, len(DOCUMENT), 7), len(DOCUMENT) - 1, len(DOCUMENT)])
def test_a_document_is_complete_only_if_it_is_whole(kept: int, before: bytes):
    """Closing the connection ends the body in order, wherever that cut it. Before it there may be
    blanks that keep the connection (DeepSeek), or a byte order mark."""
    meter = metered(DIALECTS["openai.chat"], before + DOCUMENT[:kept], JSON)
    found = outcome_of(End.FINISHED, meter.facts, status=200, streamed=False)
    assert (found is Outcome.COMPLETE) is (kept == len(DOCUMENT))


def test_the_states_of_an_exchange_and_what_moves_it():
    """Every event in every state: what is not in the table changes nothing."""
    for state in Stage:
        for event in Event:
            exchange = opened()
            exchange.stage = state
            follows = TRANSITIONS[state].get(event)
            assert exchange.moves(event) is (follows is not None)
            assert exchange.stage is (follows or state)
    reached = {follows for moves in TRANSITIONS.values() for follows in moves.values()}
    assert reached | {Stage.OPENING} == set(Stage)


@for_each("is_kept", [True, False])
def test_the_text_of_an_error_is_kept_where_the_operator_wants_it(is_kept: bool):
    exchange = opened(rules=replace(RULES, keeps_error_text=is_kept))
    text = "prompt is too long: 250000 tokens > 200000 maximum"
    tapped(exchange, b'{"error":{"message":"%s"}}' % text.encode(), status=400)
    row, _ = exchange.settle(End.FINISHED, cause=None, now=NOW)
    assert row.error_message == (text if is_kept else None)
    assert row.error_code == "prompt_too_long"


@for_each(
    "status, cap, outcome",
    [
        (402, "daily", Outcome.REFUSED),
        (402, None, Outcome.HTTP_ERROR),
        (402, "no token", Outcome.HTTP_ERROR),
        (200, "daily", Outcome.COMPLETE),
    ],
)
def test_the_refusal_of_a_cap_is_no_error_of_a_provider(status, cap, outcome):
    exchange = opened()
    headers = {} if cap is None else {"x-tokentee-cap": cap}
    tapped(exchange, b"{}", status=status, headers=headers)
    settled, reading = exchange.settle(End.FINISHED, cause=None, now=NOW)
    assert settled.outcome is outcome
    if outcome is Outcome.REFUSED:
        assert (settled.error_type, settled.error_code) == ("tokentee_cap", cap)
        assert (reading.usage_source, settled.response_bytes) == (UsageSource.NONE, None)


@pytest.mark.parametrize("has_tap", [True, False])
def test_what_was_read_before_a_stop_is_below_what_is_read_later(has_tap: bool):
    exchange = opened()
    if has_tap:
        exchange.answer(SSE, edits=False, clock=lambda: 0.0).callable(WORD)
    lost, reading = exchange.settle(End.STOPPED, cause=None, now=NOW)
    assert (lost.state, reading.revision) == (State.LOST, 0)
    unread = result_unread(exchange.opened, end=End.STOPPED, status=200, now=NOW)
    assert unread.reading.revision == 0
    whole = opened()
    passed(whole)
    assert whole.settle(End.FINISHED, cause=None, now=NOW).reading.revision == 1


def test_what_the_caps_remark_stands_behind_the_remarks_of_the_usage():
    settled = result_unread(opened_row("a"), end=End.FINISHED, status=200, now=NOW)
    assert settled.remarked(()) is settled
    assert settled.remarked(("a",)).remarked(("b", "c")).reading.usage.remarks == ("a", "b", "c")
