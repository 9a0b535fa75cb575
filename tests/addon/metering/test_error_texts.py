"""What a provider repeats in an error stands in no row: neither key nor prompt, over HTTP or
WebSocket."""

import json
from datetime import UTC, datetime

import pytest

from addon.metering.ends import End
from addon.metering.opening import Rules, open_exchange
from addon.metering.requests.messages import Body, Request, Response
from addon.metering.session import MeteredSession
from addon.metering.settlement import Settled
from addon.metering.troubles import Troubles
from ledger.model.exchange import Outcome, Source

AT = datetime(2026, 11, 2, 12, tzinfo=UTC)
KEY = "sk-proj-Ab12Cd34Ef56Gh78Ij90Kl12Mn34"
PROMPT = "Our merger with Globex closes on Friday; tell nobody before that."


def opened(path: str = "/v1/chat/completions", **headers: str):
    body = json.dumps({"model": "gpt-4o", "messages": [{"role": "user", "content": PROMPT}]})
    request = Request(
        method="POST", scheme="https", host="api.openai.com", port=443, path=path,
        headers={"authorization": f"Bearer {KEY}", **headers}, body=Body(body.encode()), began_at=AT,
    )  # fmt: skip
    exchange = open_exchange(
        request, Rules(node="n"), exchange_id="e", source=Source.LIVE, troubles=Troubles()
    )
    assert exchange is not None
    return exchange


def test_an_http_error():
    exchange = opened()
    tap = exchange.answer(
        Response(status=401, headers={"content-type": "application/json"}),
        edits=False,
        clock=lambda: 0.0,
    )
    error = {"message": f"Incorrect API key {KEY} for '{PROMPT}'", "type": KEY, "code": "bad_key"}
    tap.callable(json.dumps({"error": error}).encode())
    row, _ = exchange.settle(End.FINISHED, cause=None, now=AT)
    assert row.error_message == "Incorrect API key <redacted> for '<redacted>'"
    assert (row.error_type, row.error_code) == ("<redacted>", "bad_key")
    assert KEY not in repr(row)
    assert row.degraded is None


def test_a_cause_in_words():
    row, _ = opened().settle(End.UPSTREAM_BROKE, cause=f"refused {KEY}", now=AT)
    assert row.error_message == "refused <redacted>"


def test_an_error_in_a_websocket():
    handshake = opened("/v1/responses", upgrade="websocket")
    handshake.status = 101
    session = MeteredSession(handshake)
    create = {"type": "response.create", "model": "gpt-5", "input": PROMPT}
    session.message(json.dumps(create).encode(), from_client=True, at=AT)
    error = {"type": "error", "error": {"type": "bad", "message": f"{KEY}: '{PROMPT}'"}}
    found = session.message(json.dumps(error).encode(), from_client=False, at=AT)
    (settled,) = [one for one in found if isinstance(one, Settled)]
    assert settled.exchange.error_message == "<redacted>: '<redacted>'"


@pytest.mark.parametrize(
    "said",
    [
        pytest.param([PROMPT + "x" * 300_000], id="long"),
        pytest.param([PROMPT, *["later"] * 50], id="many messages behind it"),
        pytest.param([PROMPT, *["x" * 100_000] * 20], id="more than is kept"),
        pytest.param(["x" * 1_000_000, PROMPT], id="after more than is kept"),
    ],
)
def test_a_prompt_in_a_websocket_is_not_kept_whatever_came_beside_it(said: list[str]):
    handshake = opened("/v1/responses", upgrade="websocket")
    handshake.status = 101
    session = MeteredSession(handshake)
    for text in said:
        create = {"type": "response.create", "model": "gpt-5", "input": text}
        session.message(json.dumps(create).encode(), from_client=True, at=AT)
    error = {"type": "error", "error": {"type": "bad", "message": f"{KEY}: '{PROMPT}'"}}
    found = session.message(json.dumps(error).encode(), from_client=False, at=AT)
    (settled,) = [one for one in found if isinstance(one, Settled)]
    assert settled.exchange.error_type == "bad"
    message = settled.exchange.error_message or ""
    assert "<redacted>" in message
    assert not [at for at in range(len(PROMPT) - 16) if PROMPT[at : at + 16] in message]


def test_a_key_in_a_path_is_not_kept():
    row = opened(f"/hooks/{KEY}/v1/chat/completions").opened
    assert row.path == "/hooks/<redacted>/v1/chat/completions"


def test_what_is_open_when_a_websocket_ends_is_settled_as_it_ended():
    handshake = opened("/v1/responses", upgrade="websocket")
    handshake.status = 101
    handshake.troubles.add("no capture")
    session = MeteredSession(handshake)
    create = {"type": "response.create", "model": "gpt-5", "input": PROMPT}
    session.message(json.dumps(create).encode(), from_client=True, at=AT)
    assert session.is_open
    (settled,) = session.end(End.CLIENT_LEFT, at=AT)
    assert not session.is_open
    assert isinstance(settled, Settled)
    assert settled.exchange.outcome is Outcome.CLIENT_LEFT
    assert settled.exchange.degraded == "no capture"
    assert session.end(End.CLIENT_LEFT, at=AT) == []
