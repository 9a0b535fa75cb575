"""The supervisor, with workers that proxy nothing and so start quickly."""

import asyncio
import io
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from addon.run.call.arguments import Call, parse
from addon.run.workers import supervisor as module
from addon.run.workers import worker_process
from addon.run.workers.supervisor import Supervisor, run_workers
from addon.run.workers.worker_process import Log, ending_of
from ledger.model.errors import WrongCallError
from tests.proxy.mitmdump import free_port

pytestmark = pytest.mark.process


class Played:
    """A supervisor with two workers, and what they do when they start."""

    def __init__(self, folder: Path) -> None:
        self.out = io.StringIO()
        self.does = folder / "does"
        self.does.write_text("fine")
        self.calls: list[Callable[[], Call]] = []
        """What the settings are from now on."""
        self._confdir = folder
        shared = folder / "of-supervisor"
        shared.mkdir()
        self.supervisor = Supervisor(2, make_call=self._make_call, log=Log(self.out), folder=shared)

    def _make_call(self) -> Call:
        if self.calls:
            return self.calls[-1]()
        return parse(["--set", f"confdir={self._confdir}", "--listen", "127.0.0.1:0"])

    @property
    def log(self) -> str:
        return self.out.getvalue()

    @property
    def pids(self) -> list[int]:
        return [slot.current.pid for slot in self.supervisor._slots if slot.current is not None]

    async def until(self, text: str, count: int = 1) -> None:
        async with asyncio.timeout(60):
            while self.log.count(text) < count:
                await asyncio.sleep(0.01)

    async def until_both_run(self) -> None:
        async with asyncio.timeout(60):
            while len(self.pids) < 2:
                await asyncio.sleep(0.01)

    def run(
        self,
        play: Callable[["Played"], Awaitable[None]] = lambda _: asyncio.sleep(0),
        after: str = "2 workers listening at 127.0.0.1:",
    ) -> int:
        """The exit code, after the play, which begins when all workers are ready."""

        async def both() -> int:
            running = asyncio.create_task(self.supervisor.run())
            await self.until(after)
            await play(self)
            self.supervisor._on_stop()
            async with asyncio.timeout(60):
                return await running

        return asyncio.run(both())


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Played:
    monkeypatch.setattr(worker_process, "MODULE", "tests.addon.run.workers.fake_worker")
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.01)
    made = Played(tmp_path)
    monkeypatch.setenv("TOKENTEE_FAKE", str(made.does))
    return made


def test_a_worker_that_dies_is_started_again_and_all_are_replaced(played: Played):
    async def play(played: Played) -> None:
        before = played.pids
        for deaths in (1, 2):
            os.kill(played.pids[0], signal.SIGKILL)
            await played.until("ended with SIGKILL and is started again", deaths)
            await played.until("index 0: fine", deaths + 1)
            await played.until_both_run()
        assert "worker 1 is started again in 10 ms" in played.log
        assert played.pids[1] == before[1]
        again = played.pids
        played.supervisor._on_hangup()
        await played.until("2 workers were replaced")
        await played.until("has finished", 2)
        assert not set(again) & set(played.pids)

    assert played.run(play) == 0
    assert "index 2: fine" in played.log, "a new worker is there before the old one goes"


def test_bad_settings_leave_the_workers_as_they_are(played: Played):
    async def play(played: Played) -> None:
        before = played.pids

        def refused() -> Call:
            raise WrongCallError("listen: 'x' is not HOST:PORT")

        played.calls.append(refused)
        played.supervisor._on_hangup()
        await played.until("the workers go on as they are: listen: 'x' is not HOST:PORT")
        played.calls.clear()
        played.does.write_text("die")
        played.supervisor._on_hangup()
        await played.until("the new worker 1 does not start: it ended before it was ready (exit")
        assert played.pids == before

    assert played.run(play) == 0


def test_other_addresses_after_a_replacement(played: Played):
    async def play(played: Played) -> None:
        words = ["--set", f"confdir={played._confdir}", "--listen", "127.0.0.2:0"]
        played.calls.append(lambda: parse(words))
        played.supervisor._on_hangup()
        await played.until("2 workers were replaced")
        (shown,) = played.supervisor._listeners.shown()
        assert shown.startswith("127.0.0.2:")

    assert played.run(play) == 0


def test_a_worker_that_cannot_start_ends_the_start(played: Played):
    played.does.write_text("die")
    assert asyncio.run(played.supervisor.run()) == 3
    assert played.log == "worker 1: index 0: die\n"


def test_stopped_while_it_starts(played: Played):
    played.does.write_text("hang")
    assert played.run(after="index 0: hang") == 0
    assert played.log == "worker 1: index 0: hang\n"


def test_a_worker_that_is_never_ready_is_killed(played: Played, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "START_SECONDS_MAX", 0.2)
    played.does.write_text("hang")
    assert asyncio.run(played.supervisor.run()) == 1
    assert "worker 1 is not ready after 200 ms and is killed" in played.log


def test_a_worker_that_is_killed_while_it_starts_is_started_again(played: Played):
    async def play(played: Played) -> None:
        played.does.write_text("hang")
        os.kill(played.pids[0], signal.SIGKILL)
        kills = module.UNREADY_DEATHS_MAX + 1
        for deaths in range(1, kills + 1):
            await played.until("index 0: hang", deaths)
            (starting,) = [
                each.pid for each in played.supervisor._processes if each.pid not in played.pids
            ]
            if deaths == kills:
                played.does.write_text("fine")  # for the worker that is started next
            os.kill(starting, signal.SIGKILL)
            await played.until("does not start: it ended before it was ready (SIGKILL)", deaths)
        await played.until_both_run()

    assert played.run(play) == 0


def test_workers_that_do_not_stop_are_killed(played: Played, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "STOP_SECONDS_MAX", 0.2)
    played.does.write_text("stubborn")
    assert played.run() == 0
    assert "2 workers did not end in time and are killed" in played.log


def test_a_second_signal_kills(played: Played):
    played.does.write_text("stubborn")

    async def play(played: Played) -> None:
        played.supervisor._on_stop()
        await asyncio.sleep(0)

    assert played.run(play) == 0
    assert "did not end in time" not in played.log


def test_health_of_all_workers(played: Played, monkeypatch: pytest.MonkeyPatch):
    port = free_port()
    played.does.write_text(str(port))

    def readyz() -> tuple[int, dict[str, Any]]:
        try:
            with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as answered:
                return answered.status, json.load(answered)
        except HTTPError as error:
            with error:
                return error.code, json.load(error)

    async def play(played: Played) -> None:
        status, found = await asyncio.to_thread(readyz)
        assert (status, found["workers"], found["dropped"]) == (200, 2, 2)
        played.does.write_text("hang")
        os.kill(played.pids[0], signal.SIGKILL)
        await played.until("is started again")
        status, found = await asyncio.to_thread(readyz)
        assert (status, found["problems"]) == (503, ["worker 1 does not run"])
        assert (found["dropped"], found["worker_restarts"]) == (2, 1), "what it dropped stays"
        assert played.supervisor._metrics.dropped_observations() == 4
        monkeypatch.setattr(worker_process, "SILENT_SECONDS_MAX", 0.0)
        _, found = await asyncio.to_thread(readyz)
        assert any("worker 2 has not reported for" in each for each in found["problems"])

    assert played.run(play) == 0


def test_a_terminal_that_closes_stops_all(played: Played):
    async def play(played: Played) -> None:
        played.supervisor._had_terminal = True  # and now stderr is none
        played.supervisor._on_hangup()
        assert played.supervisor._stopping.is_set()

    assert played.run(play) == 0


def test_windows_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(WrongCallError, match="does not work on Windows"):
        run_workers(2, lambda: parse([]))


def test_how_a_process_ended():
    assert [ending_of(code) for code in (0, 3, -9, -200)] == [
        "exit code 0",
        "exit code 3",
        "SIGKILL",
        "signal 200",
    ]


def test_a_worker_that_cannot_start_again_ends_everything(played: Played):
    async def play(played: Played) -> None:
        played.does.write_text("die")
        os.kill(played.pids[1], signal.SIGKILL)
        await played.until("worker 2 does not start: it ended before it was ready (exit code 3), 3")

    assert played.run(play) == 1
    assert "All workers are stopped" in played.log
