"""`tokentee top`, and one line, whatever stands on standard input, and whether there is a ledger."""

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner

from addon.cli import application
from ledger.commands import now
from ledger.reports import activity_text
from tests.ledger.figures.test_limits import answered, play, stated
from tests.ledger.written import NOON


def test_once_and_as_one_line(run):
    result = run("top", "--line")
    assert re.fullmatch(r"\d+ running · 0 tok/s · \$0 today · 0 requests\n", result.stdout)
    result = run("top", "--once")
    assert result.stdout.startswith("tokentee top, 20")
    assert run("top").stdout.startswith("tokentee top, 20")  # no terminal


@pytest.mark.process
def test_live_in_a_terminal_until_ctrl_c(ledger):
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
    process = subprocess.Popen(
        [sys.executable, "-c", "from addon.cli import main; main()", "top", "--ledger", ledger],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment | {"PYTHONFAULTHANDLER": "1"},
    )
    os.close(slave)
    seen, deadline = b"", time.monotonic() + 60
    try:
        while b"tok/s" not in seen and time.monotonic() < deadline:
            if select.select([master], [], [], 1)[0]:
                seen += os.read(master, 65536)
        process.send_signal(signal.SIGINT)
        while process.poll() is None and time.monotonic() < deadline:
            if select.select([master], [], [], 0.2)[0]:
                with contextlib.suppress(OSError):  # the other end is closed
                    seen += os.read(master, 65536)
        try:
            assert process.wait(30) == 0
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # prints where it stands
            process.wait(30)
            pytest.fail(os.read(master, 65536).decode())
    finally:
        process.kill()
        process.wait()
        os.close(master)
    assert b"\x1b[?1049h" in seen  # the alternate screen
    assert b"tokentee top" in seen


def test_an_interrupt_that_python_drops_ends_it_all_the_same(monkeypatch):
    class Interrupting:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    dropped: list[object] = []
    before = signal.getsignal(signal.SIGINT)

    def ask() -> None:
        assert not dropped, "it goes on"
        Interrupting()

    monkeypatch.setattr(activity_text, "lines", lambda *_: ["shown"])
    monkeypatch.setattr(sys, "unraisablehook", lambda lost: dropped.append(lost.exc_type))
    now._live(ask)  # type: ignore[arg-type]
    assert dropped == [KeyboardInterrupt]
    assert signal.getsignal(signal.SIGINT) is before


CLAUDE = {
    "hook_event_name": "Status",
    "session_id": "s1",
    "model": {"id": "claude-opus-4-1", "display_name": "Opus"},
    "cost": {"total_cost_usd": 0.01234},
}


def line(url, text="", *words):
    call = ["statusline", "--ledger", url, *words]
    done = CliRunner().invoke(application(), call, input=text)
    assert done.exit_code == 0, done.output
    (found,) = done.stdout.splitlines()
    return found


@pytest.fixture
def url(tmp_path):
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    now = datetime.now(UTC)
    minutes = int((now - NOON).total_seconds() // 60)
    limit = stated(42, now + timedelta(hours=2, minutes=30))
    play(url, [answered("1", minutes, "s1", "k", [limit])])
    return url


def test_the_session_that_claude_code_names(url):
    found = line(url, json.dumps(CLAUDE))
    assert found.startswith(
        "session $0.0000000010, 1 request · today $0.0000000010 · 5h 42% (resets"
    )
    assert line(url, "", "--session", "s1") == found


@pytest.mark.parametrize("text", ["", "no JSON", "[]", '{"session_id": 7}', '{"session_id": "x"}'])
def test_any_other_input_leaves_the_session_out(url, text):
    assert line(url, text).startswith("today $")


def test_without_a_ledger_it_says_so(tmp_path):
    assert line(f"sqlite:///{tmp_path / 'none.sqlite3'}").startswith("tokentee: ")
