"""What answers say of limits reaches the row: over HTTP, in a stream's event, over WebSocket."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from msgspec import structs

from addon.metering.opening import RunRules
from addon.metering.quotas import limits_of
from addon.metering.requests.messages import Body, End, RecordedTimes, Response
from addon.metering.session import RATE_LIMITS_BYTES_MAX, MeteredSession
from addon.metering.settlement import Settled
from tests.addon.metering.opened import REQUEST, opened, tapped

AT = datetime(2026, 11, 2, 12, tzinfo=UTC)
RESET = int(AT.timestamp()) + 3_600
HEADERS = {"x-codex-primary-used-percent": "42", "x-codex-primary-window-minutes": "300"}


def event(percent, slot="primary"):
    window = {"used_percent": percent, "window_minutes": 300, "reset_at": RESET}
    return {"type": "codex.rate_limits", "rate_limits": {slot: window}}


def asked(host="api.openai.com", path="/v1/responses", **headers):
    headers = {"authorization": "Bearer sk-1", **headers}
    body = Body(b'{"model":"gpt-5","input":"Hi","stream":true}')
    request = structs.replace(
        REQUEST, host=host, path=path, headers=headers, body=body, began_at=AT
    )
    return opened(request, RunRules(node="n", secret=b"s" * 32))


def answered(exchange, body, status=200, times=None, **headers):
    kind = "text/event-stream" if body.startswith("data") else "application/json"
    tapped(exchange, body.encode(), kind, status, headers=headers)
    row, _ = exchange.settle(End.FINISHED, cause=None, now=AT, times=times)
    assert row.degraded is None
    return row


def used(row):
    return {each.window: each.used_ppm for each in row.quotas}


def test_headers_of_an_answer():
    row = answered(asked(), "{}", **HEADERS)
    assert used(row) == {"5h": 420_000}
    assert row.retry_after_ms is None


def test_the_event_of_a_stream_is_newer_than_its_headers():
    events = [{"type": "response.created", "response": {"id": "r"}}, event(43)]
    events += [{"type": "response.output_text.delta", "delta": str(n)} for n in range(50)]
    events += [event(44)]
    stream = "".join(f"data: {json.dumps(each)}\n\n" for each in events)
    assert used(answered(asked(), stream, **HEADERS)) == {"5h": 440_000}


@pytest.mark.parametrize(("status", "wait"), [(429, 1_500), (529, 1_500), (200, None)])
def test_the_wait_that_an_error_asks_for(status, wait):
    assert answered(asked(), "{}", status, **{"retry-after": "1.5"}).retry_after_ms == wait


def test_a_relative_reset_counts_from_the_arrival_of_a_recorded_answer():
    began = AT + timedelta(seconds=7)
    times = RecordedTimes(first_byte_at=began, ended_at=began)
    headers = HEADERS | {"x-codex-primary-reset-after-seconds": "60"}
    (quota,) = answered(asked(), "{}", times=times, **headers).quotas
    assert quota.resets_at == began + timedelta(seconds=60)


def test_keys_of_one_account_have_one_account():
    of_answer = {"openai-organization": "org-1"}
    first = answered(asked(), "{}", **of_answer)
    assert first.account
    assert answered(asked(authorization="Bearer other"), "{}", **of_answer).account == first.account
    assert answered(asked(), "{}", **{"openai-organization": "org-2"}).account != first.account
    codex = asked("chatgpt.com", "/backend-api/codex/responses", **{"chatgpt-account-id": "a-1"})
    assert answered(codex, "{}").account is not None
    assert "org-1" not in repr(first)
    assert answered(asked(), "{}").account is None


def test_over_websocket_the_next_response_has_what_was_said():
    handshake = asked(upgrade="websocket")
    handshake.answer(Response(status=101, headers=HEADERS), edits=False, clock=lambda: 0.0)
    session = MeteredSession(handshake)

    def say(message, *, from_client=False):
        return session.message(json.dumps(message).encode(), from_client=from_client, at=AT)

    def respond(*between):
        say({"type": "response.create", "model": "gpt-5", "input": "Hi"}, from_client=True)
        say({"type": "response.created", "response": {"id": "r"}})
        for each in between:
            say(each)
        done = say({"type": "response.completed", "response": {"id": "r", "usage": {}}})
        (settled,) = [each for each in done if isinstance(each, Settled)]
        return used(settled.exchange)

    assert respond() == {"5h": 420_000}, "of the handshake"
    assert respond() == {}
    assert respond(event(50), event(51)) == {"5h": 510_000}
    assert respond({**event(60), "filler": "x" * RATE_LIMITS_BYTES_MAX}) == {}
    assert respond({"type": "made.up", "text": '"codex.rate_limits"'}) == {}


def test_an_event_replaces_only_its_own_window():
    found = limits_of(HEADERS, status=200, event=event(3, "secondary"), arrived_at=AT)
    assert [each.used_ppm for each in found.quotas] == [30_000]
    other = event(3)
    other["rate_limits"]["primary"]["window_minutes"] = 10_080
    found = limits_of(HEADERS, status=None, event=other, arrived_at=AT)
    assert {each.window: each.used_ppm for each in found.quotas} == {"5h": 420_000, "7d": 30_000}
