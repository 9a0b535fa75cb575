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
        env=environment,
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
        assert process.wait(30) == 0
    finally:
        process.kill()
        os.close(master)
    assert b"\x1b[?1049h" in seen  # the alternate screen
    assert b"tokentee top" in seen
