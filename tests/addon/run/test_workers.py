"""The supervisor, with workers that proxy nothing and so start quickly."""

import asyncio
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from addon.run import standalone
from addon.run import workers as module
from addon.run.call.arguments import Call, parse
from addon.run.standalone import shared_addresses, shown_address
from addon.run.workers import Supervisor, run_workers
from ledger.model.errors import LedgerError, WrongCallError
from tests.named import for_each
from tests.proxy.mitmdump import free_port

pytestmark = pytest.mark.process


class ToDescriptor(logging.Handler):
    """Writes where the workers write, too."""

    def emit(self, record: logging.LogRecord) -> None:
        os.write(2, f"{self.format(record)}\n".encode())


class Played:
    """A supervisor with two workers, and what they do when they start. The test plays in a thread,
    as the supervisor's signals come to the main one."""

    def __init__(self, folder: Path) -> None:
        self.does = folder / "does"
        self.does.write_text("fine")
        self.call: Callable[[], Call] = lambda: self.listening(self.port)
        self.port = free_port()
        self.failed: list[Exception] = []
        self._folder = folder
        self._stderr = folder / "stderr"
        self._stderr.touch()

    def make_call(self) -> Call:
        return self.call()

    def listening(self, port: int) -> Call:
        words = ["--listen", f"127.0.0.1:{port}", "--set", f"confdir={self._folder}"]
        return parse(words)

    @property
    def log(self) -> str:
        return self._stderr.read_text()

    def pids(self) -> list[int]:
        return [each.process.pid for each in list(self.supervisor.workers)]

    def until_accepting(self, count: int) -> None:
        deadline = time.monotonic() + 60
        while [each.is_ready for each in self.supervisor.workers] != [True] * count:
            assert time.monotonic() < deadline, f"{count} workers do not accept"
            time.sleep(0.01)

    def until(self, text: str, count: int = 1) -> None:
        deadline = time.monotonic() + 60
        while self.log.count(text) < count:
            assert not self.failed
            assert time.monotonic() < deadline, f"{text!r} is not in {self.log}"
            time.sleep(0.01)

    def run(
        self,
        play: Callable[["Played"], None] = lambda _: None,
        after: str = "2 workers listening at 127.0.0.1:",
        stops: bool = True,
    ) -> int:
        """The exit code, after the play, which begins when all workers are ready."""
        with self.stderr_in_its_file():
            return self._run(play, after, stops=stops)

    @contextmanager
    def stderr_in_its_file(self) -> Iterator[None]:
        """A capture that is read and emptied while others write may lose a line."""
        before = os.dup(2)
        with self._stderr.open("a", buffering=1) as out, redirect_stderr(out):
            os.dup2(out.fileno(), 2)
            try:
                yield
            finally:
                os.dup2(before, 2)
                os.close(before)

    def _run(self, play: Callable[["Played"], None], after: str, *, stops: bool) -> int:

        def played() -> None:
            try:
                self.until(after)
                play(self)
            except Exception as failure:  # noqa: BLE001  # shown in the main thread
                self.failed.append(failure)
            finally:
                if stops or self.failed:
                    os.kill(os.getpid(), signal.SIGTERM)

        thread = threading.Thread(target=played)
        thread.start()
        before = {
            each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        }
        try:
            self.supervisor = Supervisor(2, make_call=self.make_call, folder=self._folder)
            code = asyncio.run(self.supervisor.run())
        except Exception as failure:
            self.failed.append(failure)
            raise
        finally:
            thread.join()
            for number, handler in before.items():
                signal.signal(number, handler)
        assert not self.failed, self.failed
        return code


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    monkeypatch.setattr(module, "MODULE", "tests.addon.run.fake_worker")
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.01)
    handler = ToDescriptor()
    module.logger.addHandler(handler)
    made = Played(tmp_path)
    monkeypatch.setenv("TOKENTEE_FAKE", str(made.does))
    yield made
    module.logger.removeHandler(handler)


def hang_up(played: Played) -> None:
    os.kill(os.getpid(), signal.SIGHUP)


def test_a_worker_that_dies_is_started_again_and_all_are_replaced(played: Played):
    def play(played: Played) -> None:
        first, second = played.pids()
        for deaths in (1, 2):
            played.until_accepting(2)
            (victim,) = [pid for pid in played.pids() if pid != second]
            os.kill(victim, signal.SIGKILL)
            played.until("ended with SIGKILL and is started again", deaths)
            played.until_accepting(2)
        again = played.pids()
        hang_up(played)
        played.until("2 workers were replaced")
        played.until("has finished", 2)
        assert not {first, second, *again} & set(played.pids())

    assert played.run(play) == 0


def test_workers_that_retire_for_long_are_ended_by_the_next_replacement(played: Played):
    """Of each number one accepts, one retires and one is being started, whatever SIGHUP asks for."""
    most = 0

    def play(played: Played) -> None:
        nonlocal most
        for replaced in range(1, 5):
            hang_up(played)
            deadline = time.monotonic() + 60
            while played.log.count("2 workers were replaced") < replaced:
                assert time.monotonic() < deadline
                assert not played.failed
                counts = Counter(each.number for each in list(played.supervisor.workers))
                most = max(most, *counts.values())
                time.sleep(0.001)
            played.until("has finished", 2 * (replaced - 1))
        assert len(played.pids()) == 4

    played.does.write_text("retire")
    assert played.run(play) == 0
    assert most == 3


def test_one_that_does_not_retire_when_it_has_to_is_killed(
    played: Played, monkeypatch: pytest.MonkeyPatch
):
    """At the next replacement, or where it takes longer than any exchange."""

    def play(played: Played) -> None:
        first = set(played.pids())
        for replaced in (1, 2):
            hang_up(played)
            played.until("2 workers were replaced", replaced)
        played.until("has finished", 2)
        assert not first & set(played.pids())
        monkeypatch.setattr(module, "RETIRING_SECONDS_MAX", 0.0)
        hang_up(played)
        played.until("has finished", 6)

    monkeypatch.setattr(module, "STOP_SECONDS_MAX", 0.2)
    played.does.write_text("stubborn")
    assert played.run(play) == 0
    assert played.log.count("did not end in time and is killed") >= 6


def test_bad_settings_leave_the_workers_as_they_are(played: Played):
    def play(played: Played) -> None:
        before = played.pids()
        good = played.call

        def refused() -> Call:
            raise WrongCallError("listen: 'x' is not HOST:PORT")

        played.call = refused
        hang_up(played)
        played.until("the workers keep their settings: listen: 'x' is not HOST:PORT")
        played.call = good
        played.does.write_text("die")
        hang_up(played)
        played.until("the new worker 1 does not start: it ended before it was ready (exit code 3)")
        assert played.pids() == before

    assert played.run(play) == 0


def test_another_address_after_a_replacement(played: Played):
    def play(played: Played) -> None:
        modes = [f"regular@127.0.0.1:{port}" for port in (played.port, free_port())]
        words = [word for mode in modes for word in ("--mode", mode)]
        played.call = lambda: parse([*words, *played.listening(0).options, "--set", "a=b"])
        hang_up(played)
        played.until("2 workers were replaced")
        played.until("of a=b", 2)
        held = [mode.removeprefix("regular@") for mode in modes]
        assert list(map(shown_address, played.supervisor.listening)) == held

        played.port = free_port()
        played.call = lambda: played.listening(played.port)
        hang_up(played)
        played.until("2 workers were replaced", 2)
        assert list(played.supervisor.listening) == [("127.0.0.1", played.port)]

        with socket.create_server(("127.0.0.1", 0)) as taken:
            played.call = lambda: played.listening(taken.getsockname()[1])
            hang_up(played)
            played.until("the workers keep their settings: cannot listen on 127.0.0.1:")
            assert list(played.supervisor.listening) == [("127.0.0.1", played.port)]

    assert played.run(play) == 0


@pytest.mark.parametrize(
    ("does", "code", "says"),
    [("die", 3, ""), ("hang", 1, "worker 1 is not ready after 200 ms and is killed\n")],
)
def test_a_worker_that_cannot_start_ends_the_start(
    played: Played, monkeypatch: pytest.MonkeyPatch, does: str, code: int, says: str
):
    monkeypatch.setattr(module, "START_SECONDS_MAX", 0.2 if does == "hang" else 60)
    played.does.write_text(does)
    assert played.run(after=says, stops=False) == code


def test_stopped_while_it_starts(played: Played):
    played.does.write_text("hang")
    assert played.run(after="process") == 0
    assert played.log.count("process ") == 1


def test_killed_while_it_starts_it_is_started_again(played: Played):
    def play(played: Played) -> None:
        _, second = played.pids()
        played.does.write_text("hang")
        os.kill(played.pids()[0], signal.SIGKILL)
        kills = 4
        for deaths in range(1, kills + 1):
            played.until(": hang", deaths)
            (starting,) = [pid for pid in played.pids() if pid != second]
            if deaths == kills:
                played.does.write_text("fine")  # for the worker that is started next
            os.kill(starting, signal.SIGKILL)
            played.until("does not start: it ended before it was ready (SIGKILL)", deaths)
        played.until(": fine", 3)

    assert played.run(play) == 0


def test_one_that_cannot_start_again_ends_everything(played: Played):
    def play(played: Played) -> None:
        played.does.write_text("die")
        os.kill(played.pids()[1], signal.SIGKILL)

    assert played.run(play, stops=False) == 3
    assert "worker 2 does not start: it ended before it was ready (exit code 3)" in played.log


def test_workers_that_do_not_stop_are_killed(played: Played, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "STOP_SECONDS_MAX", 0.2)
    played.does.write_text("stubborn")
    assert played.run() == 0
    assert played.log.count("did not end in time and is killed") == 2


def test_a_second_signal_kills(played: Played):
    def play(played: Played) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        while not played.supervisor._exit_code.done():
            time.sleep(0.01)
        time.sleep(0.1)  # the first one was seen

    played.does.write_text("stubborn")
    assert played.run(play) == 0
    assert "did not end in time" not in played.log


def test_health_of_all_workers(played: Played, monkeypatch: pytest.MonkeyPatch):
    # These workers report once; on a busy machine the second one takes seconds to start.
    monkeypatch.setattr(module, "SILENT_SECONDS_MAX", 600.0)
    port = free_port()
    played.does.write_text(str(port))

    def readyz() -> tuple[int, dict[str, Any]]:
        try:
            with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=60) as answered:
                return answered.status, json.load(answered)
        except HTTPError as error:
            with error:
                return error.code, json.load(error)

    def play(played: Played) -> None:
        status, found = readyz()
        assert (status, found["workers"], found["dropped"]) == (200, 2, 2)
        played.does.write_text("hang")
        os.kill(played.pids()[0], signal.SIGKILL)
        played.until("is started again")
        status, found = readyz()
        assert (status, found["problems"]) == (503, ["worker 1 does not run"])
        assert (found["dropped"], found["worker_restarts"]) == (2, 1), "what it dropped stays"
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answered:
            assert "tokentee_observations_dropped_total 4.0" in answered.read().decode()
        monkeypatch.setattr(module, "SILENT_SECONDS_MAX", 0.0)
        _, found = readyz()
        assert any("worker 2 has not reported for" in each for each in found["problems"])

    assert played.run(play) == 0


def test_an_address_for_metrics_that_is_taken_stops_all(played: Played):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        played.does.write_text(str(taken.getsockname()[1]))
        with pytest.raises(LedgerError, match="tee_metrics: cannot listen"):
            played.run(after="process", stops=False)
    assert played.pids() == []


def test_its_lines_are_json_if_those_of_its_workers_are(played: Played):
    def play(played: Played) -> None:
        os.kill(played.pids()[0], signal.SIGKILL)
        played.until("is started again")

    played.does.write_text("json")
    assert played.run(play) == 0
    lines = [json.loads(line) for line in played.log.splitlines() if line.startswith("{")]
    said = [(line["level"], line["message"]) for line in lines]
    assert ("info", f"tokentee: 2 workers listening at 127.0.0.1:{played.port}") in said
    assert [level for level, text in said if "ended with SIGKILL" in text] == ["warning"]
    rest = [line for line in played.log.splitlines() if not line.startswith("{")]
    assert all(line.startswith("process ") for line in rest), rest


def test_quiet_keeps_warnings(played: Played):
    def play(played: Played) -> None:
        played.until_accepting(2)
        os.kill(played.pids()[0], signal.SIGKILL)
        played.until("is started again")

    played.call = lambda: parse([*played.listening(played.port).options, "-q"])
    assert played.run(play, after="process") == 0
    assert "listening at" not in played.log


def test_a_terminal_that_closes_stops_all(played: Played, monkeypatch: pytest.MonkeyPatch):
    terminal = iter([True])
    monkeypatch.setattr(os, "isatty", lambda _: next(terminal, False))
    assert played.run(hang_up, stops=False) == 0


def test_only_linux_distributes_connections(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(WrongCallError, match="needs Linux"):
        run_workers(2, lambda: parse([]))


def addresses(folder: Path, *words: str) -> list[str]:
    call = parse(["--set", f"confdir={folder}", *words])
    return [shown_address(each) for each in shared_addresses(standalone.words_of(call))]


def test_the_addresses_are_those_that_mitmproxy_asks_for(tmp_path: Path):
    assert addresses(tmp_path, "--listen", "0.0.0.0:81") == ["0.0.0.0:81"]
    modes = ["--mode", "reverse:https://api.openai.com@82", "--mode", "socks5@::1:83"]
    assert addresses(tmp_path, *modes) == ["127.0.0.1:82", "[::1]:83"]
    (tmp_path / "config.yaml").write_text("listen_port: 84\nproxyauth: a:b\n")
    assert addresses(tmp_path) == ["127.0.0.1:84"]
    more = ("--proxyauth", "a:b", "--upstream-auth", "c:d", "-s", "x.py")
    assert addresses(tmp_path, *more) == ["127.0.0.1:84"]


def test_what_is_said_before_the_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    def supervisor(*words: str) -> Supervisor:
        call = parse(["--set", f"confdir={tmp_path}", *words])
        return Supervisor(2, make_call=lambda: call, folder=tmp_path)

    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LedgerError, match=rf"127.0.0.1:{port}: Address already in use"):
            supervisor("--listen", f"127.0.0.1:{port}")
    standalone.close(supervisor("-q", "--listen", f"0.0.0.0:{free_port()}").listening)
    assert "listening on 0.0.0.0: everyone who reaches this machine" in capsys.readouterr().err


@for_each(
    "words, says",
    [
        (["--mode", "wireguard"], "--mode wireguard does not go with --workers"),
        (["--mode", "dns"], "--mode dns does not go with --workers"),
        (["--mode", "local"], "--mode local does not go with --workers"),
        (["--mode", "reverse:http3://h@9"], "does not go with --workers"),
        (["--mode", "reversed:x"], "--mode reversed:x"),
        (["-w", "flows"], "-w) does not go with --workers"),
        (["--set", "save_stream_file=flows"], "-w) does not go with --workers"),
        (["-n"], "--no-server does not go with --workers"),
        (["--listen", "0"], "does not go with --workers"),
        (["--set", "listen_port=x"], "listen_port"),
    ],
)
def test_what_workers_refuse(tmp_path: Path, words: list[str], says: str):
    with pytest.raises(WrongCallError) as raised:
        addresses(tmp_path, *words)
    assert says in str(raised.value)
