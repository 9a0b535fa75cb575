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

from ledger.commands import now
from tests.app import APP
from tests.ledger.stated_limits import answered, play, stated
from tests.ledger.written import NOON


def test_once(run):
    first, second, *_ = run("top", "--once").stdout.splitlines()
    assert first.startswith("tokentee top, 20")
    assert re.fullmatch(r"\d+ running · 0 tok/s · \$0 today · 0 requests", second)
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


@pytest.mark.large
def test_an_interrupt_that_python_drops_ends_it_all_the_same(monkeypatch):
    class Interrupting:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    dropped: list[object] = []
    before = signal.getsignal(signal.SIGINT)

    def ask(*_: int) -> list[str]:
        assert not dropped, "it goes on"
        Interrupting()
        return ["shown"]

    monkeypatch.setattr(sys, "unraisablehook", lambda lost: dropped.append(lost.exc_type))
    now._live(ask)
    assert dropped == [KeyboardInterrupt]
    assert signal.getsignal(signal.SIGINT) is before


CLAUDE = {
    "hook_event_name": "Status",
    "session_id": "s1",
    "model": {"id": "claude-opus-4-1", "display_name": "Opus"},
    "cost": {"total_cost_usd": 0.01234},
    "context_window": {"context_window_size": 200},
}


def line(url, text="", *words):
    call = ["statusline", "--ledger", url, *words]
    done = CliRunner().invoke(APP, call, input=text)
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
    parts = found.split(" · ")
    assert parts[0] == "$0.0000000010/h"
    assert re.fullmatch(r"5h 42% \(2 h (29|30) min left\)", parts[1])
    assert parts[2] == "ctx 50%"
    assert parts[3:] == ["session $0.0000000010", "today $0.0000000010", "model-1"]
    assert "ctx 50%" in found[:80], "what matters first is left where a terminal cuts"
    assert line(url, "", "--session", "s1") == found.replace("50%", "100"), "no size is known"


@pytest.mark.parametrize("size", ["200000", -1, 0, 10**30, None, [], True])
def test_a_size_that_is_none_leaves_the_tokens(url, size):
    text = json.dumps(CLAUDE | {"context_window": {"context_window_size": size}})
    assert "ctx 100 " in line(url, text)


@pytest.mark.parametrize("text", ["", "no JSON", "[]", '{"session_id": 7}', '{"session_id": "x"}'])
def test_any_other_input_leaves_the_session_out(url, text):
    assert re.fullmatch(r"5h 42% \(2 h \d\d min left\) · today \$0\.0000000010", line(url, text))


def test_caps_stand_in_the_line_and_on_top(url, tmp_path, monkeypatch):
    without = line(url)
    file = tmp_path / "budgets.toml"
    monkeypatch.setenv("TOKENTEE_BUDGETS", str(file))
    file.write_text("[[cap]]\nname = 'nightly'\nrequests = 4\nperiod = '5h'\n")
    assert "cap nightly: 25% of 4 requests" in line(url)
    done = CliRunner().invoke(APP, ["top", "--once", "--ledger", url])
    assert "cap nightly: 25% of 4 requests" in done.stdout
    file.write_text("[[cap]]\nname = 'nightly'\n")
    assert line(url) == without


def test_without_a_ledger_it_says_so(tmp_path):
    none = line(f"sqlite:///{tmp_path / 'none.sqlite3'}")
    assert none == "tokentee: no ledger yet; `tokentee report` says how to get one"
