"""The hooks, one after the other as mitmproxy calls them, what the ledger has then, and which host a request is
booked under: the one that the client meant."""

import asyncio
import gzip
import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest
from mitmproxy import exceptions, http
from mitmproxy.flow import Error
from mitmproxy.proxy.mode_specs import ProxyMode
from mitmproxy.test import tflow, tutils
from mitmproxy.websocket import WebSocketData, WebSocketMessage
from wsproto.frame_protocol import Opcode

from addon.proxy import flows
from addon.proxy.recorder import Recorder
from addon.proxy.recording import Recording
from ledger.model.exchange import Exchange
from tests.addon.proxy.recording import (
    DOCUMENT,
    STREAM,
    answered,
    events_of,
    exchanges,
    flow_of,
    passed_on,
    recording,
)
from tests.named import for_each


async def test_a_stream_is_passed_on_and_settled_once(ledger: Path):
    async with recording(ledger) as (recorder, _):
        flow = flow_of(stream=True, asks=True)
        recorder.request(flow)
        assert exchanges_soon(ledger) == [("open", None, None)]
        response = answered(flow, content_type="text/event-stream")
        recorder.responseheaders(flow)
        assert passed_on(response, STREAM) == b"".join(STREAM)
        await recorder.response(flow)
        # The commit has been waited for.
        assert exchanges(ledger) == [("settled", "complete", "chatcmpl-7")]
        flow.error = Error("late")
        await recorder.error(flow)
    assert exchanges(ledger) == [("settled", "complete", "chatcmpl-7")]


def begun(recorder: Recorder) -> tuple[http.HTTPFlow, Recording]:
    """A request that has gone upstream."""
    flow = flow_of()
    recorder.request(flow)
    assert recorder.recording is not None
    return flow, recorder.recording


async def test_the_caps_count_an_exchange_once_whatever_fails_behind_them(
    ledger: Path, monkeypatch
):
    counted: list[str] = []

    def fails(*_: object) -> None:
        raise ZeroDivisionError

    async with recording(ledger) as (recorder, _):
        flow, running = begun(recorder)
        count = running.authoriser.settled

        def counts(exchange: Exchange, *more: Any) -> tuple[str, ...]:
            counted.append(exchange.id)
            return count(exchange, *more)

        monkeypatch.setattr(running.authoriser, "settled", counts)
        monkeypatch.setattr(running.ledger, "settle", fails)
        answered(flow, content=DOCUMENT, content_type="application/json")
        await recorder.response(flow)
        monkeypatch.undo()
    assert counted == [flow.id]


async def test_a_row_that_could_not_be_handed_over_is_handed_over_without_figures(
    ledger: Path, monkeypatch
):
    async with recording(ledger) as (recorder, _):
        flow, running = begun(recorder)
        settle = running.ledger.settle

        def fails_once(*_: object) -> None:
            monkeypatch.setattr(running.ledger, "settle", settle)
            raise ZeroDivisionError

        monkeypatch.setattr(running.ledger, "settle", fails_once)
        answered(flow, content=DOCUMENT, content_type="application/json")
        await recorder.response(flow)
    ((state, response_id, degraded),) = exchanges(ledger, "state, response_id, degraded")
    assert (state, response_id) == ("settled", None)
    assert "ZeroDivisionError" in degraded


async def test_the_headers_of_a_handshake_belong_to_its_responses(ledger: Path):
    async with recording(ledger) as (recorder, _):
        flow = flow_of(headers={"upgrade": "websocket"})
        flow.request.method, flow.request.path, flow.request.content = "GET", "/v1/responses", b""
        recorder.request(flow)
        answered(flow, 101, openai_organization="org-1")
        recorder.responseheaders(flow)
        flow.websocket = WebSocketData()
        await recorder.response(flow)
        for from_client, message in (
            (True, {"type": "response.create", "model": "gpt-5", "input": "Hi"}),
            (False, {"type": "response.created", "response": {"id": "r"}}),
            (False, {"type": "response.completed", "response": {"id": "r", "usage": {}}}),
        ):
            content = json.dumps(message).encode()
            flow.websocket.messages.append(WebSocketMessage(Opcode.TEXT, from_client, content))
            await recorder.websocket_message(flow)
    ((account,),) = exchanges(ledger, "account")
    assert account


def exchanges_soon(ledger: Path) -> list[object]:
    """The rows as soon as there are any: opening is not waited for by the hook."""
    for _ in range(1_000):
        if found := exchanges(ledger):
            return found
    raise AssertionError("no row")


@pytest.mark.parametrize("by_client", [True, False])
async def test_the_side_that_broke_first_counts(ledger: Path, by_client: bool):
    async with recording(ledger) as (recorder, _):
        flow = flow_of(stream=True, asks=True)
        recorder.request(flow)
        answered(flow, content_type="text/event-stream")
        recorder.responseheaders(flow)
        events = events_of(recorder)
        events.broke(flow, by_client=by_client)
        events.broke(flow, by_client=not by_client)
        flow.error = Error("disconnected")
        await recorder.error(flow)
    expected = "client_left" if by_client else "upstream_cut"
    assert exchanges(ledger, "outcome") == [(expected,)]


@pytest.mark.parametrize("quote", ["'", '"'])
async def test_what_upstream_wrote_is_no_part_of_an_error_text(ledger: Path, quote: str):
    """mitmproxy puts the bytes that it could not read behind its own words."""
    async with recording(ledger, tee_error_text="on") as (recorder, _):
        flow = flow_of(stream=True, asks=True)
        recorder.request(flow)
        events_of(recorder).broke(flow, by_client=False)
        flow.error = Error(f"Invalid HTTP response: b{quote}the customer is Ada{quote}")
        await recorder.error(flow)
    ((outcome, text),) = exchanges(ledger, "outcome, error_message")
    assert outcome == "upstream_cut"
    assert text.startswith("Invalid HTTP response")
    assert "Ada" not in text


async def test_the_programs_tags_win_over_the_options(ledger: Path):
    mine = Recorder(tags={"run": "1"}, project="p", git_branch="b")
    async with recording(ledger, recorder=mine, tee_tags="run=2,x=y") as (recorder, _):
        recorder.request(flow_of())
    ((tags,),) = exchanges(ledger, "tags")
    assert '"run": "1"' in tags.replace('":"', '": "')
    assert '"x"' in tags


async def test_what_begins_while_stopping_is_refused(ledger: Path):
    async with recording(ledger) as (recorder, context):
        context.master.should_exit.set()
        stopping = recorder.done()
        flow = flow_of()
        recorder.request(flow)
        assert flow.error is not None
        assert flow.error.msg == Error.KILLED_MESSAGE
        assert stopping is not None
        await stopping
    assert exchanges(ledger) == []


def test_saved_flows_without_an_answer_are_counted(ledger: Path, caplog: pytest.LogCaptureFixture):
    async def play() -> None:
        async with recording(ledger) as (recorder, _):
            recorder.request(flow_of(live=False))
            recorder.request(flow_of(live=False))

    with caplog.at_level(logging.INFO):
        asyncio.run(play())
    assert "tokentee: 2 saved flows have no answer and were not recorded" in caplog.messages
    assert exchanges(ledger) == []


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("tee_tags", "nonsense", "'nonsense' is not KEY=VALUE"),
        ("ledger_url", "sqlite:////tmp/other.sqlite3", "restart to change it"),
    ],
)
async def test_a_bad_value_later_is_refused_and_the_old_one_stays(
    ledger: Path, name: str, value: str, said: str
):
    async with recording(ledger, tee_tags="env=prod") as (recorder, context):
        with pytest.raises(exceptions.OptionsError, match=said):
            context.options.update(**{name: value})
        recorder.request(flow_of())
    ((tags,),) = exchanges(ledger, "tags")
    assert "prod" in tags


async def test_a_new_value_counts_for_what_begins_then(ledger: Path):
    async with recording(ledger, tee_tags="env=one") as (recorder, context):
        recorder.request(flow_of())
        context.options.update(tee_tags="env=two")
        recorder.request(flow_of())
    found = " ".join(tags for (tags,) in exchanges(ledger, "tags"))
    assert "one" in found
    assert "two" in found


async def test_an_answer_that_switches_protocols_is_not_streamed(ledger: Path):
    async with recording(ledger) as (recorder, _):
        flow = flow_of()
        recorder.request(flow)
        response = answered(flow, 101)
        recorder.responseheaders(flow)
        assert response.stream is False


def test_a_usage_key_not_known_before_is_logged_once(
    ledger: Path, caplog: pytest.LogCaptureFixture
):
    odd = DOCUMENT.replace(b'"total_tokens"', b'"flux_tokens":1,"total_tokens"')

    async def play() -> None:
        async with recording(ledger) as (recorder, _):
            for _number in range(2):
                flow = flow_of()
                recorder.request(flow)
                response = answered(flow, content_type="application/json")
                recorder.responseheaders(flow)
                passed_on(response, [odd])
                await recorder.response(flow)

    with caplog.at_level(logging.DEBUG):
        asyncio.run(play())
    wanted = "tokentee: a usage key not known before: 'flux_tokens'"
    assert [line for line in caplog.messages if "not known before" in line] == [wanted]


async def test_a_row_names_its_capture(ledger: Path, tmp_path: Path):
    async with recording(ledger, tee_capture=str(tmp_path / "captures")) as (recorder, _):
        flow = flow_of()
        recorder.request(flow)
        answered(flow, content=DOCUMENT, content_type="application/json")
        await recorder.response(flow)
    ((capture, degraded),) = exchanges(ledger, "capture, degraded")
    assert degraded is None
    file, _, name = capture.partition("#")
    (line,) = gzip.decompress(Path(file).read_bytes()).splitlines()
    assert json.loads(line)["id"] == name


async def test_a_row_says_that_captures_cannot_be_written(ledger: Path, tmp_path: Path):
    async with recording(ledger, tee_capture=str(tmp_path / "captures")) as (recorder, _):
        running = recorder.recording
        assert running is not None
        assert running.captures is not None
        running.captures.failure = "captures cannot be written: No space left on device"
        flow = flow_of()
        recorder.request(flow)
        answered(flow, content=DOCUMENT, content_type="application/json")
        await recorder.response(flow)
    ((degraded,),) = exchanges(ledger, "degraded")
    assert degraded == "captures cannot be written: No space left on device"


def flow_to(host: str, *, mode: str = "regular", sni: str | None = None, header: str = ""):
    flow = tflow.tflow(req=tutils.treq(host=host, port=443, scheme=b"https", authority=b""))
    flow.client_conn.proxy_mode = ProxyMode.parse(mode)
    flow.client_conn.sni = sni
    flow.request.headers["host"] = header or host
    return flow


@for_each("mode", ["regular", "socks5", "transparent", "local", "wireguard"])
@for_each(
    "sni, header, meant",
    [
        pytest.param("api.openai.com", "", "api.openai.com", id="sni"),
        pytest.param("API.OpenAI.com.", "other.example", "api.openai.com", id="sni-first"),
        pytest.param(None, "api.openai.com:443", "api.openai.com", id="host-header"),
        pytest.param(None, "10.0.0.9", "10.0.0.7", id="another-address"),
        pytest.param("10.0.0.9", "", "10.0.0.7", id="an-address-as-sni"),
        pytest.param(None, "[::1]:443", "10.0.0.7", id="ipv6-header"),
        pytest.param(None, "bad host", "10.0.0.7", id="no-name"),
        pytest.param(None, "x" * 300, "10.0.0.7", id="too-long"),
        pytest.param(None, "a\x1b[2J.example", "10.0.0.7", id="escape"),
    ],
)
def test_behind_an_address_the_client_names_the_host(mode: str, sni, header: str, meant: str):
    request = flows.request_of(flow_to("10.0.0.7", mode=mode, sni=sni, header=header))
    assert request.host == meant
    assert request.address == (None if meant == "10.0.0.7" else "10.0.0.7")


def test_a_name_that_is_known_stays():
    flow = flow_to("gateway.example", sni="api.openai.com", header="api.openai.com")
    assert flows.request_of(flow).host == "gateway.example"


def test_a_hostile_host_header_costs_linear_work():
    flow = flow_to("10.0.0.7", header="a" * 250 + "!")
    started = time.process_time()
    assert flows.host_meant(flow) == "10.0.0.7"
    assert time.process_time() - started < 1  # a pattern that backtracks takes minutes


@for_each("host", ["1.2.3.4", "::1", "[2001:db8::1]"])
def test_addresses(host: str):
    assert flows.is_address(host)


@for_each("host", ["api.openai.com", "localhost", "example.c0", "1.2.3.4.5"])
def test_names(host: str):
    assert not flows.is_address(host)


@for_each(
    "fields",
    [
        pytest.param((), id="none"),
        pytest.param(((b"Accept-Encoding", b"gzip"), (b"x", b"1")), id="one"),
        pytest.param(((b"x", b"1"), (b"accept-encoding", b"br"), (b"ACCEPT-ENCODING", b"gzip")), id="two"),
        pytest.param(((b"x", b"1"), (b"content-length", b"7")), id="another"),
    ],
)  # fmt: skip
def test_headers_are_set_as_mitmproxy_sets_them(fields):
    ours, theirs = http.Headers(fields), http.Headers(fields)
    changed = {b"accept-encoding": b"identity", b"content-length": b"12"}
    theirs["accept-encoding"] = "identity"
    theirs["content-length"] = "12"
    assert flows.with_headers(ours, changed) == theirs.fields


async def test_a_websocket_at_an_unknown_path_of_a_listed_host_has_a_row(ledger: Path):
    async with recording(ledger) as (recorder, _):
        flow = flow_of(headers={"upgrade": "websocket"})
        flow.request.method, flow.request.path, flow.request.content = "GET", "/dreams", b""
        recorder.request(flow)
        answered(flow, 101)
        recorder.responseheaders(flow)
        flow.websocket = WebSocketData(closed_by_client=True)
        await recorder.response(flow)
        content = b'{"usage":{"prompt_tokens":3,"completion_tokens":4}}'
        flow.websocket.messages.append(WebSocketMessage(Opcode.TEXT, False, content))
        await recorder.websocket_message(flow)
        recorder.websocket_end(flow)
    columns = "id, state, outcome, dialect, path"
    assert exchanges(ledger, columns) == [(flow.id, "settled", "complete", "unknown", "/dreams")]


async def test_what_only_fetches_has_a_row_if_it_gets_a_stream(ledger: Path):
    async with recording(ledger) as (recorder, _):
        for kind in ("application/json", "text/event-stream"):
            flow = flow_of()
            flow.request.method, flow.request.path, flow.request.content = "GET", "/dreams", b""
            recorder.request(flow)
            answered(flow, content_type=kind)
            recorder.responseheaders(flow)
            is_stream = kind != "application/json"
            assert recorder.recording is not None
            assert (flow.id in recorder.recording.live) is is_stream
            assert flow.response is not None
            if is_stream:
                passed_on(flow.response, [b'data: {"a":1}\n\n'])
            await recorder.response(flow)
    assert exchanges(ledger, "dialect, outcome") == [("unknown", "complete")]


async def test_a_request_whose_client_waits_for_answers_is_streamed_and_has_a_row(ledger: Path):
    """Held until its end it would stand still: both sides send in turns."""
    async with recording(ledger) as (recorder, _):
        flow = flow_of()
        flow.request.headers["content-type"] = "application/vnd.amazon.eventstream"
        recorder.requestheaders(flow)
        assert flow.request.stream is True
        assert exchanges_soon(ledger) == [("open", None, None)]
        held = flow_of()
        recorder.requestheaders(held)
        assert not held.request.stream
