"""A mitmdump or tokentee that is forked from a process which has imported mitmproxy already.

The imports are four fifths of what it costs to start one, and the tests start about 150.
"""

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

FORKING = Path(__file__).parent / "scripts" / "forking.py"
END_SECONDS_MAX = 100
_one_at_a_time = threading.Lock()


class Forked:
    """Used like a `subprocess.Popen` whose output is a pipe, errors included, unless they go
    elsewhere."""

    def __init__(
        self,
        program: str,
        arguments: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        errors: int | None = None,
    ) -> None:
        read_end, output = os.pipe()
        self._exit_code, exit_code = os.pipe()
        request = {
            "program": program,
            "arguments": [*arguments],
            "folder": str(folder),
            "environment": {**environment},
        }
        descriptors = [output, output if errors is None else errors, exit_code]
        with _one_at_a_time:
            server = _server()
            socket.send_fds(server, [json.dumps(request).encode()], descriptors)
            self.pid = int(server.recv(100))
        os.close(output)
        os.close(exit_code)
        self.stdout = os.fdopen(read_end, encoding="utf-8", errors="replace")
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, negative after a signal; None while it runs."""
        return self._ended_within(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended_within(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(str(FORKING), timeout or 0)
        return code

    def send_signal(self, which: int) -> None:
        # It may end in between, as `subprocess.Popen` says of its own.
        with contextlib.suppress(ProcessLookupError):
            if self.poll() is None:
                os.kill(self.pid, which)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended_within(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._exit_code], [], [], seconds)[0]:
            self.returncode = int(os.read(self._exit_code, 100))
            os.close(self._exit_code)
        return self.returncode


def run(
    program: str, *arguments: str, folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[bytes]:
    """As `subprocess.run` with both outputs captured."""
    with tempfile.TemporaryFile() as errors:
        process = Forked(
            program, arguments, folder=folder, environment=environment, errors=errors.fileno()
        )
        with process.stdout:
            output = bytes(process.stdout.buffer.read())
        code = process.wait(END_SECONDS_MAX)
        errors.seek(0)
        return subprocess.CompletedProcess(arguments, code, output, errors.read())


@cache
def _server() -> socket.socket:
    """The connection to the process that forks; it ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            # Not the folder of the script on the path, as with `python -c`.
            [sys.executable, "-P", str(FORKING), str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )

    def end() -> None:
        ours.close()
        process.wait(END_SECONDS_MAX)

    atexit.register(end)
    return ours
