"""`tokentee top`, as it is called."""

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

import pytest

from ledger.commands import top
from ledger.reports import activity_text


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
    top._live(ask)  # type: ignore[arg-type]
    assert dropped == [KeyboardInterrupt]
    assert signal.getsignal(signal.SIGINT) is before
