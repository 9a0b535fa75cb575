"""Edge. The command: started, watched, its signals and its exit code passed on."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Mapping, Sequence

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit codes, as a shell gives them."""
PASSED_ON = (signal.SIGTERM, signal.SIGHUP)


class CannotStartError(Exception):
    """The command cannot be started; the text says why."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


async def run_command(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    on_start: Callable[[int], None],
) -> int:
    """Run it to its end. The exit code: its own, 128 + N if signal N ended it.

    `on_start` gets its process id. Raises CannotStartError.
    """
    try:
        process = await asyncio.create_subprocess_exec(*command, env=dict(environment))
    except OSError as error:
        code = NOT_EXECUTABLE if isinstance(error, PermissionError) else NOT_FOUND
        raise CannotStartError(f"cannot run {command[0]}: {error.strerror}", code) from error
    on_start(process.pid)
    loop = asyncio.get_running_loop()
    # Ctrl-C reaches the command from the terminal. The command decides, and we end when it does.
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    for number in PASSED_ON:
        loop.add_signal_handler(number, _pass_on, process, number)
    code = await process.wait()
    return code if code >= 0 else 128 - code


def _pass_on(process: asyncio.subprocess.Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)
