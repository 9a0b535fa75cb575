"""Edge. Starts the command, and passes on signals and its exit code."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Mapping, Sequence

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit codes of a shell."""
END_SECONDS_MAX = 5.0
"""For a command whose proxy has stopped, between SIGTERM and SIGKILL."""
PASSED_ON = (signal.SIGTERM, signal.SIGHUP)


class CannotStartError(Exception):
    """The command cannot be started; the text gives the reason."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


def cannot_start(command: Sequence[str], error: OSError | ValueError) -> CannotStartError:
    """The error of a command that the system does not start, with a shell's exit code."""
    code = NOT_EXECUTABLE if isinstance(error, PermissionError) else NOT_FOUND
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return CannotStartError(f"cannot run {command[0]}: {reason}", code)


async def run_command(
    command: Sequence[str], environment: Mapping[str, str], *, on_start: Callable[[int], None]
) -> int:
    """Run the command to its end. Returns its exit code, or 128 + N if signal N ended it.

    `on_start` gets its process id. Raises CannotStartError. If it is cancelled, it ends
    the command.
    """
    try:
        process = await asyncio.create_subprocess_exec(*command, env=dict(environment))
    except (OSError, ValueError) as error:
        raise cannot_start(command, error) from error
    on_start(process.pid)
    loop = asyncio.get_running_loop()
    # The terminal sends Ctrl-C to the command, too. The command decides, and we end when it ends.
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    for number in PASSED_ON:
        loop.add_signal_handler(number, _pass_on, process, number)
    try:
        code = await process.wait()
    except asyncio.CancelledError:  # the proxy has stopped
        await _end(process)
        raise
    return code if code >= 0 else 128 - code


def _pass_on(process: asyncio.subprocess.Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


async def _end(process: asyncio.subprocess.Process) -> None:
    _pass_on(process, signal.SIGTERM)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), END_SECONDS_MAX)
        return
    _pass_on(process, signal.SIGKILL)
