"""Processes that a command leaves behind, and those of its program from before."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from addon.run.command import daemons
from tests.proxy.rows import eventually

MARK = "tokentee:a-secret-of-this-run@"


@contextmanager
def sleeping(*command: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs until it is ended."""
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE) as process:
        try:
            # The kernel closes Popen's pipe before the new process has its words.
            assert eventually(lambda: bool(daemons._words(process.pid)))
            yield process
        finally:
            process.kill()


WAITS = (sys.executable, "-c", "input()")


def test_a_helper_that_outlives_its_command_is_named_with_the_line_that_ends_it() -> None:
    with sleeping(*WAITS, HTTPS_PROXY=f"http://{MARK}127.0.0.1:1") as process, sleeping(*WAITS):
        (line,) = daemons.left_behind(MARK)
        assert f"({process.pid})" in line
        assert line.endswith(f"end it: kill {process.pid}")
    assert daemons.left_behind(MARK) == []


def test_a_helper_from_before_is_named_while_it_runs(tmp_path: Path) -> None:
    package = tmp_path / "node_modules" / "agent-x" / "daemon.py"
    package.parent.mkdir(parents=True)
    package.write_text("input()\n")
    with sleeping(sys.executable, str(package)) as process:
        found = daemons.of_program("/usr/bin/agent-x")
        assert found == {process.pid}
        (line,) = daemons.from_before(found, "agent-x")
        assert line.endswith(f"end it and run again: kill {process.pid}")
        assert "calls for agent-x is not recorded" in line
        assert daemons.of_program(sys.executable) & {process.pid} == set()
    assert daemons.from_before(found, "agent-x") == []
