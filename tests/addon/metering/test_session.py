"""The responses of a WebSocket connection: each is settled once, however it ends, and says no key and no prompt."""

import dataclasses
import json
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from addon.dialects.counts import MEMBERS_MAX
from addon.framing import long_json
from addon.metering.messages import Body, End, Request
from addon.metering.settlement import Settled
from addon.metering.websocket import ADDED_UP
from ledger.model.exchange import Billing, Exchange, Outcome, Source
from tests.addon.metering.opened import REQUEST, RULES, failing_rule, opened, session_of, tapped
from tests.named import for_each

KEY = "sk-proj-Ab12Cd34Ef56Gh78Ij90Kl12Mn34"
PROMPT = "Our merger with Globex closes on Friday; tell nobody before that."
RUN = 16
"""So many characters of a prompt in a row are told to nobody."""
AT = datetime(2026, 11, 2, 12, tzinfo=UTC)


def asked() -> Request:
    """Of a prompt, with a key."""
    chat = {"model": "gpt-4o", "messages": [{"role": "user", "content": PROMPT}]}
    return replace(
        REQUEST,
        headers={"authorization": f"Bearer {KEY}"},
        body=Body(json.dumps(chat).encode()),
    )


def create(text: str = PROMPT, **more: str) -> bytes:
    value = {"type": "response.create", "model": "gpt-5", "input": text, **more}
    return json.dumps(value).encode()


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


def test_a_rule_of_the_operator_that_fails_costs_no_figure_of_a_session():
    session = session_of(asked(), rules=dataclasses.replace(RULES, billing=failing_rule))
    session.message(create(), from_client=True, at=AT)
    usage = {"input_tokens": 200, "output_tokens": 3}
    response = {"id": "r1", "status": "completed", "usage": usage}
    for kind, status in (("created", "in_progress"), ("completed", "completed")):
        event = {"type": f"response.{kind}", "response": {**response, "status": status}}
        settled = session.message(json.dumps(event).encode(), from_client=False, at=AT)
    (one,) = settled
    assert isinstance(one, Settled)
    assert one.reading.usage.input_tokens == 200
    assert one.reading.billing is Billing.METERED
    assert "ZeroDivisionError" in (one.exchange.degraded or "")


@for_each("seconds, kept", [(2, 2), (-3600, 0), (2**31, 0), (86_400, 86_400)])
def test_a_recorded_response_has_no_absurd_end(seconds: int, kept: int):
    session = session_of(asked(), source=Source.REPLAY)
    session.message(create(), from_client=True, at=AT)
    (settled,) = session.end(End.CLIENT_LEFT, at=AT + timedelta(seconds=seconds))
    assert isinstance(settled, Settled)
    assert settled.exchange.settled_at == AT + timedelta(seconds=kept)


@for_each("earlier", [None, "no capture"])
def test_a_long_message_whose_figures_are_not_found_degrades_its_response_alone(
    earlier: str | None,
):
    session = session_of(asked())
    if earlier:
        session.handshake.troubles.add(earlier)
    many = '"n":1,' * (long_json.MEMBERS_MAX + 1)
    text = "x" * long_json.END_BYTES
    told = {}
    for number, inside, behind in ((1, many, text), (2, "", "")):
        session.message(create(), from_client=True, at=AT)
        for kind in ("created", "completed"):
            response = f'"id":"r{number}"'
            if kind == "completed":  # neither its first nor its last bytes have the figures
                response += f',{inside}"usage":{{"input_tokens":2}},"x":"{behind}"'
            data = f'{{"type":"response.{kind}","response":{{{response}}}}}'.encode()
            for each in session.message(data, from_client=False, at=AT):
                if isinstance(each, Settled):
                    told[number] = each.exchange.degraded
    for each in session.end(End.FINISHED, at=AT):
        assert isinstance(each, Settled)
        told[1] = each.exchange.degraded
    unread = "; ".join(filter(None, (earlier, long_json.UNREAD)))
    assert told == {1: unread, 2: earlier}


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


@for_each("before", [0, 70_000, 1_000_000])
@for_each("behind", [0, 70_000])
def test_neither_the_key_nor_the_prompt_of_a_session_is_kept(before: int, behind: int):
    session = session_of(asked())
    stored: list[Exchange | Settled] = []
    stated = {"user": f"u {KEY}", "prompt_cache_key": KEY, "safety_identifier": KEY}
    for text in ("x" * before, PROMPT, "y" * behind):
        stored += session.message(create(text, **stated), from_client=True, at=AT)
    for said in (KEY, PROMPT, f"{KEY}: '{PROMPT}'"):
        error = {"type": "error", "error": {"type": said, "code": said, "message": said}}
        stored += session.message(json.dumps(error).encode(), from_client=False, at=AT)
    stored += session.end(End.CLIENT_LEFT, at=AT)
    assert [row for row in stored if isinstance(row, Exchange)]
    settled = [row for row in stored if isinstance(row, Settled)]
    assert [row.exchange.outcome for row in settled].count(Outcome.ERROR_FRAME) >= 1
    rows = repr(stored)
    assert KEY not in rows
    assert not [at for at in range(len(PROMPT) - RUN + 1) if PROMPT[at : at + RUN] in rows]
    assert {(row.exchange.error_type, row.exchange.error_message) for row in settled} == {
        (None, None)
    }


def test_what_upstream_names_without_a_key_is_kept():
    """So that the test above does not pass because nothing is read."""
    session = session_of(asked())
    session.message(create(user="team-7"), from_client=True, at=AT)
    error = {"type": "error", "error": {"type": "bad", "code": "c1", "message": PROMPT}}
    (settled,) = session.message(json.dumps(error).encode(), from_client=False, at=AT)
    assert isinstance(settled, Settled)
    row = settled.exchange
    assert (row.end_user, row.error_type, row.error_code) == ("team-7", "bad", "c1")
    assert row.error_message is None


def test_an_http_error_that_repeats_the_key():
    exchange = opened(asked())
    error = {"message": f"Incorrect API key {KEY} for '{PROMPT}'", "type": KEY, "code": "bad_key"}
    tapped(exchange, json.dumps({"error": error}).encode(), status=401)
    row, _ = exchange.settle(End.FINISHED, cause=None, now=AT)
    assert (row.error_type, row.error_code, row.error_message) == (None, "bad_key", None)
    assert KEY not in repr(row)
    assert row.degraded is None


def test_a_websocket_of_an_unknown_protocol_is_one_exchange():
    session = session_of(replace(asked(), method="GET", body=Body(b"")), "/api-ws/v1/inference")
    assert not session.is_open  # of which nothing is waited for
    assert session.message(b'{"header":{"action":"run-task"}}', from_client=True, at=AT) == []
    usages: tuple[dict[str, int], ...] = ({"input_tokens": 3}, {"output_tokens": 4})
    for usage in (usages[0], usages[0] | usages[1]):
        event = {"header": {"event": "result-generated"}, "payload": {"usage": usage}}
        assert session.message(json.dumps(event).encode(), from_client=False, at=AT) == []
    assert session.message(b"\x00" * 99, from_client=False, at=AT) == []
    (settled,) = session.end(End.CLIENT_LEFT, at=AT)
    assert isinstance(settled, Settled)
    exchange, read = settled
    assert (exchange.id, exchange.dialect, exchange.outcome) == ("e", "unknown", Outcome.COMPLETE)
    assert (exchange.events, str(read.usage_source)) == (3, "partial")
    assert (read.usage.input_tokens, read.usage.output_tokens) == (3, 4)


def cached(tokens: int) -> dict[str, object]:
    return {"input_tokens_details": {"cached_tokens": tokens}}


@for_each(
    "messages, figures, answers",
    [
        # Two answers by their ids, the first with a running figure.
        (
            [
                {"id": "a", "usage": {"input_tokens": 5, "output_tokens": 1}},
                {"id": "a", "usage": {"input_tokens": 5, "output_tokens": 4, **cached(2)}},
                {"id": "b", "usage": {"input_tokens": 9, "output_tokens": 8, **cached(3)}},
            ],
            (14, 12),
            2,
        ),
        # By a figure that falls; what has none, or zeros, changes nothing.
        (
            [
                {"usage": {"input_tokens": 5, "output_tokens": 4}},
                {"usage": {"input_tokens": 0, "output_tokens": 0}},
                {"usage": {"input_tokens": 9, "output_tokens": 2}},
                {"usage": None, "error": None},
                {"usage": {"output_tokens": 3}},
                {"usage": {"input_tokens": 1, "output_tokens": 1}},
            ],
            (15, 8),
            3,
        ),
        # The id stands in a message before.
        (
            [
                {"response": {"id": "a"}, "usage": {}},
                {"usage": {"input_tokens": 5, "output_tokens": 4}},
                {"response": {"id": "b"}, "usage": {}},
                {"usage": {"input_tokens": 5, "output_tokens": 4}},
            ],
            (10, 8),
            2,
        ),
        (
            [
                {"usage": {"input_tokens": 5, "output_tokens": 4}},
                {"usage": {"input_tokens": 5, "output_tokens": 9}},
            ],
            (5, 9),
            1,
        ),
        # Two that run at the same time.
        (
            [
                {"id": name, "usage": {"input_tokens": 5, "output_tokens": count}}
                for count in (1, 2, 3)
                for name in "ab"
            ],
            (10, 6),
            2,
        ),
        (
            [
                {"usage": {"input_tokens": 5}},
                {"id": "a", "usage": {"input_tokens": 5, "output_tokens": 9}},
            ],
            (5, 9),
            1,
        ),
    ],
    ids=["ids", "falls", "id-before", "one", "at-once", "first-without-id"],
)
def test_each_answer_on_a_websocket_of_an_unknown_protocol_counts(messages, figures, answers):
    session = session_of(replace(asked(), method="GET", body=Body(b"")), "/api-ws/v1/inference")
    for body in messages:
        session.message(json.dumps(body).encode(), from_client=False, at=AT)
    (settled,) = session.end(End.CLIENT_LEFT, at=AT)
    assert isinstance(settled, Settled)
    usage = settled.reading.usage
    assert (usage.input_tokens, usage.output_tokens) == figures
    assert usage.cache_read_tokens in (None, 5)
    assert (ADDED_UP.format(answers) in usage.remarks) == (answers > 1)
    assert str(settled.reading.usage_source) == "partial"


def test_what_is_put_together_on_such_a_websocket_is_bounded():
    session = session_of(replace(asked(), method="GET", body=Body(b"")), "/api-ws/v1/inference")
    for number in range(200):
        usage = {"input_tokens": 5, f"key_{number}": number, "inner": {f"key_{number}": 1}}
        body = {"id": f"a{number % 80}", "usage": usage}
        session.message(json.dumps(body).encode(), from_client=False, at=AT)
    (settled,) = session.end(End.CLIENT_LEFT, at=AT)
    assert isinstance(settled, Settled)
    usage = json.loads(settled.reading.usage_json or "")
    assert len(usage) == len(usage["inner"]) == MEMBERS_MAX
    # The first answers are over when the 65th begins: what they state later is another's.
    assert usage["input_tokens"] == 1_000


def test_one_that_breaks_before_an_answer_is_cut():
    session = session_of(replace(asked(), method="GET", body=Body(b"")), "/api-ws/v1/inference")
    (settled,) = session.end(End.UPSTREAM_BROKE, at=AT)
    assert isinstance(settled, Settled)
    assert settled.exchange.outcome is Outcome.UPSTREAM_CUT
