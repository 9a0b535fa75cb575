"""Starting, handing over at a reload, stopping; what is wrong at the end is one warning; what is remembered of
answers that are booked; waiting for a commit, and long work that takes turns with the other tasks of the
event loop."""

import asyncio
import contextlib
import logging
import sqlite3
import threading
import time
from collections.abc import Generator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from mitmproxy import http
from mitmproxy.exceptions import OptionsError
from mitmproxy.flow import Error
from mitmproxy.hooks import DoneHook
from mitmproxy.options import Options
from mitmproxy.proxy.layers.http._hooks import HttpResponseHook
from mitmproxy.test import tflow
from mitmproxy.tools.dump import DumpMaster
from msgspec.structs import replace

from addon.metering.exchange import Stage
from addon.metering.memory_budget import MemoryBudget
from addon.metering.messages import End
from addon.metering.tap import Tap
from addon.proxy import event_loop, lifecycle
from addon.proxy import recording as recording_module
from addon.proxy.event_loop import in_turns
from addon.proxy.lifecycle import Leaving
from addon.proxy.live import Live
from addon.proxy.options import help_of
from addon.proxy.process import Process
from addon.proxy.recorder import Recorder
from addon.proxy.recording import Recording, Seen
from addon.proxy.sessions import LiveSession
from ledger.store.engines import sqlite_file
from ledger.store.processes.supervision import RecordingHealth, ThreadHealth
from ledger.store.writing.incoming import Receipt
from tests.addon.proxy.recording import DOCUMENT, answered, exchanges, flow_of, recording
from tests.ledger.written import settled
from tests.named import for_each


def thread(name, *, is_working=True):
    return ThreadHealth(
        name=name, is_working=is_working, failures=3, set_aside=0, error="RuntimeError('x')"
    )


def health(*threads, trouble=None, dropped=0, set_aside=0):
    return RecordingHealth(
        threads=threads, trouble=trouble, queued_rows=0, dropped=dropped, set_aside=set_aside
    )


@pytest.mark.parametrize(
    ("found", "of_captures", "said"),
    [
        (health(thread("writer")), (), []),
        (
            health(thread("writer")),
            ("2 captures were not written",),
            ["tokentee: recording ended with problems: 2 captures were not written"],
        ),
        (
            health(thread("writer"), thread("shipper", is_working=False), dropped=2),
            (),
            [
                "tokentee: recording ended with problems: "
                "the shipper does not work: RuntimeError('x'); 2 exchanges are not in the ledger"
            ],
        ),
        (
            health(thread("writer"), trouble="disk full", set_aside=1),
            (),
            [
                "tokentee: recording ended with problems: "
                "the ledger cannot be written: disk full; 1 items were set aside"
            ],
        ),
    ],
)
def test_what_is_wrong_at_the_end_is_one_warning(caplog, found, of_captures, said):
    closed: list[float] = []
    ledger = SimpleNamespace(close=closed.append, health=lambda: found)
    captures = SimpleNamespace(close=lambda _: None, problems=lambda: of_captures)
    parts: dict[str, Any] = {"watching": None, "process": Process(), "tasks": []}
    parts["authoriser"] = Mock()
    running: Any = SimpleNamespace(captures=captures, ledger=ledger, **parts)
    with caplog.at_level(logging.WARNING):
        asyncio.run(lifecycle.close(running))
    assert closed == [lifecycle.CLOSE_SECONDS_MAX]
    assert caplog.messages == said


def new_running() -> Recording:
    """One that nothing is recorded with."""
    nothing: Any = None
    return Recording(nothing, nothing, ledger=nothing, price=nothing, authoriser=nothing)


def running_in(recorder: Recorder) -> Recording:
    assert recorder.recording is not None
    return recorder.recording


def beginning(recorder: Recorder, flow: http.HTTPFlow) -> asyncio.Future[None]:
    """The hook of a request that is read in turns."""
    reading = recorder.request(flow)
    assert reading is not None
    return asyncio.ensure_future(reading)


async def test_a_process_that_ends_while_the_script_is_gone_stops_as_ever(ledger):
    async with recording(ledger) as (recorder, context):
        recorder.request(flow_of())
        context.master.addons.remove(recorder)
        await asyncio.sleep(0)
        context.master.should_exit.set()
        await context.master.addons.trigger_event(DoneHook())
    assert exchanges(ledger, "state, error_code") == [("lost", "proxy_stopped")]


async def shut_down(master: DumpMaster, _: asyncio.Task[None]) -> None:
    master.shutdown()


async def cancel(_: DumpMaster, run: asyncio.Task[None]) -> None:
    run.cancel()


@pytest.mark.parametrize("end", [shut_down, cancel])
@pytest.mark.parametrize("is_gone", [False, True])
def test_a_master_that_ends_in_any_way_is_a_stop_also_if_it_is_not_the_last(ledger, end, is_gone):
    """A program may cancel it, make the next one before, and give that the same addon."""
    recorder = Recorder()

    async def play(number: int) -> None:
        master = DumpMaster(Options(), with_termlog=False, with_dumper=False)
        master.options.update(server=False)
        master.addons.add(recorder)
        master.options.update(ledger_url=f"sqlite:///{ledger}")
        run = asyncio.create_task(master.run())
        while recorder.recording is None or not recorder.recording.process._undo:
            await asyncio.sleep(0.01)
        undo = recorder.recording.process._undo
        flow = flow_of()
        recorder.request(flow)
        assert flow.error is None
        if is_gone:
            master.addons.remove(recorder)
        other = DumpMaster(Options(), with_termlog=False, with_dumper=False)
        await end(master, run)
        with contextlib.suppress(asyncio.CancelledError):
            await run
        assert not undo
        assert not other.addons.get(Leaving.name)
        await other.done()
        assert exchanges(ledger, "state, error_code") == [("lost", "proxy_stopped")] * (number + 1)

    for number in range(2):
        asyncio.run(play(number))
    assert not any(thread.name == "tokentee-writer" for thread in threading.enumerate())


READ_AT_START = {
    "ledger_url": "sqlite:///other.db",
    "tee_prices": __file__,
    "tee_metrics": "9",
    "tee_otlp": "http://127.0.0.1:9",
    "tee_log_format": "json",
    "tee_fast": "yes",
    "tee_wrap": "no",
}
APPLIED = {
    "ledger_commit": ("async", lambda running: not running.settings.commit_before_end),
    "tee_inject": ("never", lambda running: running.settings.inject == "never"),
    "tee_hosts": ("a.example", lambda running: running.rules.upstreams),
    "tee_capture": ("captures", lambda running: running.captures),
    "tee_tags": ("a=b", lambda running: running.rules.tags),
    "tee_client_tags": ("ignore", lambda running: not running.rules.takes_client_tags),
    "tee_error_text": ("on", lambda running: running.rules.keeps_error_text),
    "tee_segments": ("off", lambda running: not running.rules.keeps_segments),
    "tee_log": ("exchanges", lambda running: running.settings.log == "exchanges"),
}


@pytest.mark.parametrize("comes_back", [False, True])
@pytest.mark.parametrize("name", help_of())
async def test_a_new_value_of_an_option_counts_or_is_refused(
    ledger, tmp_path, monkeypatch, name, comes_back
):
    """Also while the script is gone, but an exchange under way."""
    monkeypatch.chdir(tmp_path)
    async with recording(ledger, recorder=Recorder()) as (recorder, context):
        recorder.request(flow_of())
        before = getattr(context.options, name)
        value, is_applied = APPLIED.get(name) or (READ_AT_START[name], None)
        if comes_back:
            context.master.addons.remove(recorder)
        if is_applied is None:
            with pytest.raises(OptionsError, match=f"{name}: stays as it was at the start"):
                context.options.update(**{name: value})
            assert getattr(context.options, name) == before
        else:
            context.options.update(**{name: value})
        if comes_back:
            context.master.addons.add(recorder)
            recorder.configure(set(help_of()))
            recorder.running()
        assert is_applied is None or is_applied(running_in(recorder))
        assert list(running_in(recorder).live)


async def test_a_recording_whose_script_is_gone_stays_until_all_is_written(ledger, monkeypatch):
    """A stop has a bound, because the process ends; this has none."""
    monkeypatch.setattr(sqlite_file, "BUSY_MS_MAX", 10)
    monkeypatch.setattr(lifecycle, "CLOSE_SECONDS_MAX", 0.1)
    async with recording(ledger, ledger_commit="async") as (recorder, context):
        await asyncio.sleep(0.1)
        with contextlib.closing(sqlite3.connect(ledger, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            flow = flow_of()
            recorder.request(flow)
            answered(flow, content=DOCUMENT, content_type="application/json")
            await recorder.response(flow)
            context.master.addons.remove(recorder)
            await asyncio.sleep(0.5)
            other.execute("ROLLBACK")
        while context.master.addons.get(Leaving.name):
            await asyncio.sleep(0.01)
        assert exchanges(ledger) == [("settled", "complete", "chatcmpl-7")]


async def test_a_request_that_is_read_while_the_script_goes_gets_its_row(ledger, monkeypatch):
    monkeypatch.setattr(recording_module, "is_read_in_steps", lambda *_: True)
    async with recording(ledger) as (recorder, context):
        flow = flow_of()
        opening = beginning(recorder, flow)
        await asyncio.sleep(0)
        context.master.addons.remove(recorder)
        await opening
        answered(flow, content=DOCUMENT, content_type="application/json")
        await context.master.addons.trigger_event(HttpResponseHook(flow))
    assert exchanges(ledger) == [("settled", "complete", "chatcmpl-7")]


async def test_a_request_that_is_still_read_at_the_end_does_not_go_upstream(ledger, monkeypatch):
    monkeypatch.setattr(recording_module, "is_read_in_steps", lambda *_: True)
    async with recording(ledger) as (recorder, _):
        flow = flow_of()
        opening = beginning(recorder, flow)
        running = running_in(recorder)
        assert running.under_way
        running.end_all("the proxy was stopped")
        await opening
        assert flow.error is not None
        assert flow.error.msg == Error.KILLED_MESSAGE
        assert not running.live
    assert exchanges(ledger) == []


def new_live() -> Live:
    nothing: Any = None
    routes: Any = SimpleNamespace(
        route=SimpleNamespace(
            dialect=SimpleNamespace(name="x", operation="chat"),
            path_model=None,
            is_fetch=False,
            needs_stream=False,
        ),
        **dict.fromkeys(("origin", "provider", "path"), ""),
        rules=SimpleNamespace(keeps_error_text=False, node="n"),
        is_confirmed=True,
        is_handshake=False,
        is_served=True,
        began_at=datetime(2026, 11, 20, tzinfo=UTC),
    )
    return Live(routes, nothing, tflow.tflow(), began=0.0)


@for_each("stage", [*Stage, "session", "message"])
def test_a_stop_waits_for_every_state_and_no_longer_than_its_bound(stage, monkeypatch):
    monkeypatch.setattr(lifecycle, "DRAIN_POLL_SECONDS", 0.0)
    monkeypatch.setattr(lifecycle, "DRAIN_SECONDS_MAX", 20.0)
    running = new_running()

    def begin() -> None:
        if isinstance(stage, Stage):
            running.live["a"] = new_live()
            running.live["a"].stage = stage
        else:
            running.sessions["a"] = session
            session._open = {1: nothing} if stage == "session" else {}
            session.messages_under_way = int(stage == "message")

    async def ends_soon():
        await asyncio.sleep(0)
        if isinstance(stage, Stage):
            running.live.clear()
        else:  # its connection stays, and is not waited for
            session.messages_under_way = 0
            session._open = {}

    async def play():
        begin()
        ending = asyncio.create_task(ends_soon())
        await lifecycle.drain(running)
        assert ending.done()
        assert len(running.sessions) == (not isinstance(stage, Stage))
        begin()
        monkeypatch.setattr(lifecycle, "DRAIN_SECONDS_MAX", 0.01)
        await lifecycle.drain(running)
        assert running.under_way == 1

    nothing: Any = None
    session = LiveSession.__new__(LiveSession)
    asyncio.run(play())


def test_a_session_is_busy_while_a_response_or_a_message_is_under_way():
    nothing: Any = None
    session = LiveSession.__new__(LiveSession)
    for is_open, messages, expected in [(0, 0, 0), (0, 1, 1), (1, 0, 1)]:
        session._open = dict.fromkeys(range(is_open + 1), nothing)  # 0 is a connection
        session.messages_under_way = messages
        assert session.is_busy is bool(expected)


def test_a_session_that_was_ended_at_the_stop_is_not_ended_again():
    """mitmproxy may still report the end of the connection while the process stops."""
    ends = []

    session: Any = SimpleNamespace(close=lambda how, *_: ends.append(how))
    running = new_running()
    running.sessions["flow"] = session
    running.end_all("the proxy was stopped")
    assert not running.sessions
    running.end_all("the proxy was stopped")
    assert ends == [End.STOPPED]


async def test_a_stop_settles_what_is_being_read_as_it_ended(ledger, monkeypatch):
    """Not as lost: its body is whole."""
    async with recording(ledger) as (recorder, _):
        flow = flow_of()
        recorder.request(flow)
        answered(flow, content=DOCUMENT, content_type="application/json")
        reading = asyncio.Event()

        monkeypatch.setattr(Tap, "read_some", lambda _: not reading.is_set())
        ending = asyncio.create_task(recorder.response(flow))
        await asyncio.sleep(0)
        assert running_in(recorder).under_way == 1
        running_in(recorder).end_all("the proxy was stopped")
        reading.set()
        await ending
    assert exchanges(ledger) == [("settled", "complete", "chatcmpl-7")]


def test_captures_go_where_the_settings_name_them(tmp_path):
    def running_into(folder, captures):
        settings = SimpleNamespace(capture=folder)
        rules = SimpleNamespace(budget=MemoryBudget(), node="n")
        return SimpleNamespace(settings=settings, captures=captures, rules=rules)

    running = running_into(tmp_path / "a", None)
    lifecycle.set_captures(running)
    first = running.captures
    assert first.folder == tmp_path / "a"
    lifecycle.set_captures(running)
    assert running.captures is first
    running.settings.capture = None
    lifecycle.set_captures(running)
    assert running.captures is None


def answer(response_id: str | None):
    return replace(settled("one"), response_id=response_id)


def test_the_oldest_answer_is_forgotten_first(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(recording_module, "BOOKED_MAX", 3)
    seen = Seen()
    for number in range(5):
        seen.remember_booked(answer(f"r{number}"))
    assert [seen.is_booked(answer(f"r{number}")) for number in range(5)] == [
        False, False, True, True, True
    ]  # fmt: skip


def test_an_answer_without_an_id_is_always_new():
    seen = Seen()
    seen.remember_booked(answer(None))
    assert not seen.is_booked(answer(None))
    assert not seen.booked


def test_the_same_id_at_another_origin_is_another_answer():
    seen = Seen()
    seen.remember_booked(answer("r"))
    assert seen.is_booked(answer("r"))
    assert not seen.is_booked(replace(answer("r"), origin="https://other.example"))


async def test_a_wait_ends_with_the_commit():
    notify = event_loop.notifier(asyncio.get_running_loop())
    receipt = Receipt("a")
    waiting = asyncio.ensure_future(event_loop.wait_for_commit(receipt))
    await asyncio.sleep(0)
    assert not waiting.done()
    receipt.committed = True
    thread = threading.Thread(target=notify, args=([receipt],))
    thread.start()
    await asyncio.wait_for(waiting, 10)
    thread.join()


@for_each("committed, error", [(True, None), (False, "disk full")])
def test_what_is_resolved_is_not_waited_for(committed: bool, error: str | None):
    receipt = Receipt("a")
    receipt.committed, receipt.error = committed, error
    asyncio.run(event_loop.wait_for_commit(receipt))
    assert receipt.context is None
    assert receipt.is_let_go is not committed


def test_a_wait_has_a_bound(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    monkeypatch.setattr(event_loop, "COMMIT_WAIT_SECONDS_MAX", 0.01)
    receipt = Receipt("exchange-7")
    asyncio.run(event_loop.wait_for_commit(receipt))
    assert receipt.is_let_go
    assert "exchange-7 is not on disk" in caplog.text


class CountingLoop:
    """The one method of a loop that is used."""

    def __init__(self) -> None:
        self.calls = 0

    def call_soon_threadsafe(self, callback) -> None:
        self.calls += 1
        self.callback = callback


def test_batches_wake_the_loop_once_while_a_wake_up_is_under_way():
    loop = CountingLoop()
    notify = event_loop.notifier(loop)  # type: ignore[arg-type]  # as above
    for name in "abc":
        notify([Receipt(name)])
    assert loop.calls == 1
    loop.callback()
    notify([Receipt("d")])
    assert loop.calls == 2


def test_a_closed_loop_is_no_error():
    loop = asyncio.new_event_loop()
    loop.close()
    event_loop.notifier(loop)([Receipt("a")])


def test_a_commit_after_the_bound_is_no_error(monkeypatch: pytest.MonkeyPatch):
    """The wait is over by then; what the writer reports late must not break the loop's callback."""
    monkeypatch.setattr(event_loop, "COMMIT_WAIT_SECONDS_MAX", 0.0)
    loop = CountingLoop()
    notify = event_loop.notifier(loop)  # type: ignore[arg-type]  # as above
    late, other = Receipt("late"), Receipt("other")
    asyncio.run(event_loop.wait_for_commit(late))
    assert late.context is not None
    notify([late, other])
    loop.callback()
    assert loop.calls == 1


def test_others_run_between_the_steps():
    seen: list[int] = []

    def work(count: int) -> Generator[None]:
        for _ in range(count):
            until = time.monotonic() + 0.002
            while time.monotonic() < until:
                pass
            yield

    async def other() -> None:
        for number in range(10):
            seen.append(number)
            await asyncio.sleep(0)

    async def scenario() -> None:
        beside = asyncio.create_task(other())
        await in_turns(work(20))
        assert beside.done()

    asyncio.run(scenario())
    assert seen == list(range(10))


async def test_parts_are_told_of_each_commit_and_one_that_fails_stops_nobody(
    tmp_path, monkeypatch, caplog
):
    told: list[list[str]] = [[], []]

    def fails(receipts: list[Receipt]) -> None:
        raise ValueError(receipts)

    def keeps(number):
        return lambda _: lambda receipts: told[number].extend(r.exchange_id for r in receipts)

    def attached(point):
        return [keeps(0), lambda _: None, lambda _: fails, keeps(1)] if point == "commits" else []

    monkeypatch.setattr(lifecycle, "attached", attached)
    async with recording(tmp_path / "l") as (recorder, _):
        flow = flow_of()
        recorder.request(flow)
        answered(flow, content=DOCUMENT, content_type="application/json")
        recorder.responseheaders(flow)
        await recorder.response(flow)
        (row,) = exchanges(tmp_path / "l", "id, state")
    assert told == [[row[0]], [row[0]]]
    assert row[1] == "settled"
    assert "a part failed at a commit" in caplog.text
