"""Waiting for a commit, and long work that takes turns with the other tasks of the event loop."""

import asyncio
import threading
import time
from collections.abc import Generator

import pytest

from addon.metering.troubles import Troubles
from addon.proxy import commits
from addon.proxy.turns import in_turns
from ledger.store.writing.jobs import Receipt


async def test_a_wait_ends_with_the_commit():
    notify = commits.notifier(asyncio.get_running_loop())
    receipt = Receipt("a")
    waiting = asyncio.ensure_future(commits.wait_for_commit(receipt))
    await asyncio.sleep(0)
    assert not waiting.done()
    receipt.committed = True
    thread = threading.Thread(target=notify, args=([receipt],))
    thread.start()
    await asyncio.wait_for(waiting, 10)
    thread.join()


@pytest.mark.parametrize(("committed", "error"), [(True, None), (False, "disk full")])
def test_what_is_resolved_is_not_waited_for(committed: bool, error: str | None):
    receipt = Receipt("a")
    receipt.committed, receipt.error = committed, error
    asyncio.run(commits.wait_for_commit(receipt))
    assert receipt.context is None
    assert receipt.is_let_go is not committed


def test_a_wait_has_a_bound(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    monkeypatch.setattr(commits, "COMMIT_WAIT_SECONDS_MAX", 0.01)
    receipt = Receipt("exchange-7")
    asyncio.run(commits.wait_for_commit(receipt))
    assert receipt.is_let_go
    assert "exchange-7 not committed" in caplog.text


class CountingLoop:
    """The one method of a loop that is used."""

    def __init__(self) -> None:
        self.calls = 0

    def call_soon_threadsafe(self, callback) -> None:
        self.calls += 1
        self.callback = callback


def test_batches_wake_the_loop_once_while_a_wake_up_is_under_way():
    loop = CountingLoop()
    notify = commits.notifier(loop)  # type: ignore[arg-type]  # as above
    for name in "abc":
        notify([Receipt(name)])
    assert loop.calls == 1
    loop.callback()
    notify([Receipt("d")])
    assert loop.calls == 2


def test_a_closed_loop_is_no_error():
    loop = asyncio.new_event_loop()
    loop.close()
    commits.notifier(loop)([Receipt("a")])


def test_a_commit_after_the_bound_is_no_error(monkeypatch: pytest.MonkeyPatch):
    """The wait is over by then; what the writer reports late must not break the loop's callback."""
    monkeypatch.setattr(commits, "COMMIT_WAIT_SECONDS_MAX", 0.0)
    loop = CountingLoop()
    notify = commits.notifier(loop)  # type: ignore[arg-type]  # as above
    late, other = Receipt("late"), Receipt("other")
    asyncio.run(commits.wait_for_commit(late))
    assert late.context is not None
    notify([late, other])
    loop.callback()
    assert loop.calls == 1


def work(count: int) -> Generator[None, None, bytes]:
    for _ in range(count):
        until = time.monotonic() + 0.002
        while time.monotonic() < until:
            pass
        yield
    return b"done"


def test_others_run_between_the_steps():
    seen: list[int] = []

    async def other() -> None:
        for number in range(10):
            seen.append(number)
            await asyncio.sleep(0)

    async def scenario() -> bytes | None:
        beside = asyncio.create_task(other())
        found = await in_turns(work(20), Troubles())
        assert beside.done()
        return found

    assert asyncio.run(scenario()) == b"done"
    assert seen == list(range(10))


def test_a_step_that_raises_is_noted(caplog: pytest.LogCaptureFixture):
    def broken() -> Generator[None, None, bytes]:
        yield
        raise ValueError

    troubles = Troubles()
    assert asyncio.run(in_turns(broken(), troubles)) is None
    assert "ValueError" in (troubles.text or "")
    assert "it is not read" in caplog.text
