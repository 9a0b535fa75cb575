"""The hooks, one after the other as mitmproxy calls them, and what the ledger has then."""

import asyncio
import logging
from pathlib import Path

import pytest
from mitmproxy import exceptions
from mitmproxy.flow import Error

from addon.proxy import exchanges as exchanges_module
from addon.proxy.recorder import Recorder
from tests.addon.proxy.recording import (
    DOCUMENT,
    DONE,
    STOP,
    STREAM,
    WORD,
    answered,
    events_of,
    exchanges,
    flow_of,
    passed_on,
    recording,
)


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


def exchanges_soon(ledger: Path) -> list[object]:
    """The rows as soon as there are any: opening is not waited for by the hook."""
    for _ in range(1_000):
        if found := exchanges(ledger):
            return found
    raise AssertionError("no row")


async def test_usage_that_was_asked_for_in_the_clients_name_does_not_reach_it(ledger: Path):
    async with recording(ledger) as (recorder, _):
        flow = flow_of(stream=True)
        recorder.request(flow)
        assert flow.request.content is not None
        assert b'"include_usage"' in flow.request.content
        response = answered(flow, content_type="text/event-stream")
        recorder.responseheaders(flow)
        assert passed_on(response, STREAM) == WORD + STOP + DONE
        await recorder.response(flow)
    assert exchanges(ledger, "outcome, usage_injected, usage_stripped") == [("complete", 1, 1)]


async def test_an_error_settles_what_broke_off(ledger: Path):
    async with recording(ledger) as (recorder, _):
        flow = flow_of(stream=True, asks=True)
        recorder.request(flow)
        response = answered(flow, content_type="text/event-stream")
        recorder.responseheaders(flow)
        assert callable(response.stream)
        assert response.stream(WORD) == WORD
        flow.error = Error("server disconnected b'secret bytes'")
        await recorder.error(flow)
    ((outcome, message),) = exchanges(ledger, "outcome, error_message")
    assert outcome == "upstream_cut"
    assert "secret" not in (message or "")


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


async def test_a_plain_answer_is_read_whole(ledger: Path):
    async with recording(ledger) as (recorder, _):
        flow = flow_of()
        recorder.request(flow)
        answered(flow, content=DOCUMENT, content_type="application/json")
        await recorder.response(flow)
    assert exchanges(ledger) == [("settled", "complete", "chatcmpl-7")]


async def test_what_another_addon_killed_has_no_row(ledger: Path):
    async with recording(ledger) as (recorder, _):
        flow = flow_of()
        flow.error = Error(Error.KILLED_MESSAGE)
        recorder.request(flow)
        await recorder.error(flow)
    assert exchanges(ledger) == []


async def test_what_is_no_llm_call_has_no_row_and_is_not_touched(ledger: Path):
    async with recording(ledger) as (recorder, _):
        flow = flow_of(host="shop.example")
        flow.request.path = "/basket"
        before = flow.request.get_state()
        recorder.request(flow)
        response = answered(flow, content_type="text/html")
        recorder.responseheaders(flow)
        assert flow.request.get_state() == before
        assert response.stream is False
        await recorder.response(flow)
    assert exchanges(ledger) == []


async def test_an_exception_of_ours_leaves_the_flow_alone(
    ledger: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    async with recording(ledger) as (recorder, _):
        monkeypatch.setattr(exchanges_module, "open_exchange", fails)
        flow = flow_of(stream=True)
        body = flow.request.content
        recorder.request(flow)
        response = answered(flow, content_type="text/event-stream")
        recorder.responseheaders(flow)
        await recorder.response(flow)
        assert flow.request.content == body
        assert response.stream is False
        assert flow.error is None
    assert exchanges(ledger) == []
    assert "RuntimeError" in caplog.text


async def test_own_headers_do_not_go_upstream(ledger: Path):
    async with recording(ledger, tee_tags="env=prod") as (recorder, _):
        flow = flow_of(headers={"x-tokentee-tag": "team=a,env=mine", "x-tokentee-session": "s"})
        recorder.requestheaders(flow)
        assert not [name for name in flow.request.headers if name.startswith("x-tokentee")]
        recorder.request(flow)
    ((tags, session),) = exchanges(ledger, "tags, session_id")
    assert '"team"' in tags
    assert '"prod"' in tags
    assert "mine" not in tags
    assert session == "s"


async def test_the_programs_tags_win_over_the_options(ledger: Path):
    mine = Recorder(tags={"run": "1"}, project="p", git_branch="b")
    async with recording(ledger, recorder=mine, tee_tags="run=2,x=y") as (recorder, _):
        recorder.request(flow_of())
    ((tags,),) = exchanges(ledger, "tags")
    assert '"run": "1"' in tags.replace('":"', '": "')
    assert '"x"' in tags


async def test_what_is_open_at_the_stop_is_lost(ledger: Path):
    async with recording(ledger) as (recorder, _):
        recorder.request(flow_of())
    ((state, outcome, message),) = exchanges(ledger, "state, outcome, error_message")
    assert (state, outcome) == ("lost", "lost")
    assert "the proxy was stopped" in message


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
    assert "tokentee: 2 saved flows hold no answer; not recorded" in caplog.messages
    assert exchanges(ledger) == []


async def test_a_bad_value_at_the_start_is_one_line_and_nothing_is_recorded(
    ledger: Path, caplog: pytest.LogCaptureFixture
):
    async with recording(ledger, tee_inject="sometimes") as (recorder, _):
        recorder.request(flow_of())
    wanted = "tokentee: tee_inject: 'sometimes' is not one of auto, always, never"
    assert [line for line in caplog.messages if "tokentee" in line] == [wanted]
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


async def test_an_option_that_nobody_declares_ends_the_start(
    ledger: Path, caplog: pytest.LogCaptureFixture
):
    async with recording(ledger) as (recorder, context):
        assert recorder._running is not None
        context.options.deferred["tee_host"] = "x"
        recorder.running()
        recorder.request(flow_of())
    assert "tokentee: unknown option 'tee_host': did you mean tee_hosts?" in caplog.messages
    assert exchanges(ledger) == []


async def test_an_answer_that_switches_protocols_is_not_streamed(ledger: Path):
    async with recording(ledger) as (recorder, _):
        flow = flow_of()
        recorder.request(flow)
        response = answered(flow, 101)
        recorder.responseheaders(flow)
        assert response.stream is False


def test_each_exchange_is_a_line_where_that_is_asked_for(
    ledger: Path, caplog: pytest.LogCaptureFixture
):
    async def play() -> None:
        async with recording(ledger, tee_log="exchanges") as (recorder, _):
            flow = flow_of()
            recorder.request(flow)
            answered(flow, content=DOCUMENT, content_type="application/json")
            await recorder.response(flow)

    with caplog.at_level(logging.INFO):
        asyncio.run(play())
    (line,) = [line for line in caplog.messages if "gpt-4o" in line]
    assert "complete" in line


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
