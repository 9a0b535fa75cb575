"""Starting, handing over at a reload, stopping; what is wrong at the end is one warning."""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from addon.metering.ends import End
from addon.metering.memory_budget import MemoryBudget
from addon.metering.troubles import Troubles
from addon.proxy import lifecycle
from addon.proxy.recorder import Recorder
from ledger.store.processes.health import Health, ThreadHealth
from tests.addon.proxy.recording import DOCUMENT, answered, exchanges, flow_of, recording


def thread(name, *, is_working=True):
    return ThreadHealth(
        name=name, is_working=is_working, failures=3, set_aside=0, error="RuntimeError('x')"
    )


def health(*threads, trouble=None, dropped=0, set_aside=0):
    return Health(
        threads=threads, trouble=trouble, queued_rows=0, dropped=dropped, set_aside=set_aside
    )


def running_of(**parts: object) -> Any:
    """Of a `Running`, the parts that are used."""
    return SimpleNamespace(**parts)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (health(thread("writer")), []),
        (
            health(thread("writer"), thread("shipper", is_working=False), dropped=2),
            [
                "tokentee: recording ended with problems: "
                "the shipper does not work: RuntimeError('x'); 2 exchanges are not in the ledger"
            ],
        ),
        (
            health(thread("writer"), trouble="disk full", set_aside=1),
            [
                "tokentee: recording ended with problems: "
                "the ledger cannot be written: disk full; 1 items were set aside"
            ],
        ),
    ],
)
def test_what_is_wrong_at_the_end_is_one_warning(caplog, found, said):
    closed: list[float] = []
    ledger = SimpleNamespace(close=closed.append, health=lambda: found)
    with caplog.at_level(logging.WARNING):
        asyncio.run(lifecycle.close(running_of(captures=None, ledger=ledger, watching=None)))
    assert closed == [lifecycle.CLOSE_SECONDS_MAX]
    assert caplog.messages == said


def test_captures_that_were_not_written_are_in_the_warning_at_the_end(caplog):
    ledger = SimpleNamespace(close=lambda _: None, health=lambda: health(thread("writer")))
    captures = SimpleNamespace(
        close=lambda _: None, problems=lambda: ("2 captures were not written",)
    )
    running = running_of(captures=captures, ledger=ledger, watching=None)
    with caplog.at_level(logging.WARNING):
        asyncio.run(lifecycle.close(running))
    assert caplog.messages == [
        "tokentee: recording ended with problems: 2 captures were not written"
    ]


def test_a_recorder_that_follows_takes_over_what_was_left(ledger):
    """A reload: the ledger stays open, and an exchange under way is settled by the next one."""

    async def play():
        async with recording(ledger) as (first, context):
            flow = flow_of()
            first.request(flow)
            kept = first._running
            assert first.done() is None
            second = Recorder()
            second.running()
            assert second._running is kept
            await asyncio.sleep(0)  # what would close the ledger has had its turn
            answered(flow, content=DOCUMENT, content_type="application/json")
            await second.response(flow)
            assert exchanges(ledger) == [("settled", "complete", "chatcmpl-7")]
            context.master.should_exit.set()
            stopping = second.done()
            assert stopping is not None
            await stopping

    asyncio.run(play())


def test_without_a_follower_what_is_open_is_lost_and_the_ledger_closes(ledger, caplog):
    async def play():
        async with recording(ledger) as (recorder, _):
            recorder.request(flow_of())
            running = recorder._running
            assert running is not None
            recorder.done()
            await asyncio.sleep(0)
            assert not running.live
            assert not lifecycle._handed_over
            await asyncio.gather(*lifecycle._closing)

    with caplog.at_level(logging.INFO):
        asyncio.run(play())
    assert "tokentee: the script was removed; the ledger is closed" in caplog.messages
    assert exchanges(ledger, "state, error_message") == [("lost", "the script was removed")]


def test_a_stop_waits_for_open_answers_and_no_longer_than_its_bound(monkeypatch):
    monkeypatch.setattr(lifecycle, "DRAIN_POLL_SECONDS", 0.0)
    running = running_of(live={"a": object()})

    async def ends_soon():
        await asyncio.sleep(0)
        running.live.clear()

    async def play():
        ending = asyncio.create_task(ends_soon())
        await lifecycle.drain(running)
        assert ending.done()
        running.live["b"] = object()
        monkeypatch.setattr(lifecycle, "DRAIN_SECONDS_MAX", 0.01)
        await lifecycle.drain(running)
        assert running.live

    asyncio.run(play())


def test_a_session_that_was_ended_at_the_stop_is_not_ended_again():
    """mitmproxy may still report the end of the connection while the process stops."""
    ends = []

    def end(how, at):
        ends.append(how)
        return ()

    session = SimpleNamespace(handshake=SimpleNamespace(troubles=Troubles()), end=end)
    running = running_of(live={}, sessions={"flow": session}, ledger=None)
    lifecycle.end_all(running, "the proxy was stopped")
    assert not session.handshake.troubles.text
    assert running.sessions == {}
    lifecycle.end_all(running, "the proxy was stopped")
    assert ends == [End.STOPPED]


def test_captures_go_where_the_settings_name_them(tmp_path):
    def running_into(folder, captures):
        settings = SimpleNamespace(capture=folder)
        rules = SimpleNamespace(budget=MemoryBudget())
        return SimpleNamespace(settings=settings, captures=captures, rules=rules)

    running = running_into(tmp_path / "a", None)
    lifecycle.set_captures(running, node="n")
    first = running.captures
    assert first.folder == tmp_path / "a"
    lifecycle.set_captures(running, node="n")
    assert running.captures is first
    running.settings.capture = None
    lifecycle.set_captures(running, node="n")
    assert running.captures is None
