"""Edge. Starts the command, and passes on signals and its exit code."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Mapping, Sequence

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit codes of a shell."""
PASSED_ON = (signal.SIGTERM, signal.SIGHUP)


class CannotStartError(Exception):
    """The command cannot be started; the text gives the reason."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


async def run_command(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    on_start: Callable[[int], None],
) -> int:
    """Run the command to its end. Returns its exit code, or 128 + N if signal N ended it.

    `on_start` gets its process id. Raises CannotStartError.
    """
    try:
        process = await asyncio.create_subprocess_exec(*command, env=dict(environment))
    except OSError as error:
        code = NOT_EXECUTABLE if isinstance(error, PermissionError) else NOT_FOUND
        raise CannotStartError(f"cannot run {command[0]}: {error.strerror}", code) from error
    on_start(process.pid)
    loop = asyncio.get_running_loop()
    # The terminal sends Ctrl-C to the command, too. The command decides, and we end when it ends.
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    for number in PASSED_ON:
        loop.add_signal_handler(number, _pass_on, process, number)
    code = await process.wait()
    return code if code >= 0 else 128 - code


def _pass_on(process: asyncio.subprocess.Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)
