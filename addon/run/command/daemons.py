"""Edge. Processes that a command leaves behind, or finds when it comes: a client may have a helper
that makes the calls of all its commands, with the environment of the first one.

A helper that a run left calls a recorder that has ended: each of its calls fails. One from before
calls past the recorder. Linux only: elsewhere none is found.
"""

import os
import shlex
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from ledger.settings.small_files import first_bytes

ENVIRONMENT_BYTES_MAX, WORDS_BYTES_MAX = 1024 * 1024, 4_096
ENDING_SECONDS = 0.3
"""So long a process may take to end after the command that started it."""
NAMED_MAX = 5
_PROC = Path("/proc")
_INTERPRETERS = frozenset({"node", "bun", "deno", "python", "python3", "sh", "bash", "env", "npx"})


def of_program(command: str) -> set[int]:
    """The processes of a command's program, or of the npm package of its name."""
    name = Path(command).name
    return {
        process
        for process in _own()
        if name not in _INTERPRETERS
        and any(
            Path(word).stem == name or f"/node_modules/{name}/" in word
            for word in _words(process)[:2]
        )
    }


def left_behind(mark: str) -> list[str]:
    """A line for the processes whose environment has this text, if some are left."""
    found = _with_environment(mark.encode(), _own())
    if found:
        time.sleep(ENDING_SECONDS)
        found = _with_environment(mark.encode(), found)
    if not found:
        return []
    why = "still runs and calls this run's recorder, which ends now, so its calls will fail"
    return [f"{_named(found)} {why}; end it: {_ending(found)}"]


def from_before(processes: Iterable[int], command: str) -> list[str]:
    """A line for those of these processes that still run."""
    found = {process for process in processes if _words(process)}
    if not found:
        return []
    why = f"ran before: what it calls for {Path(command).name} is not recorded"
    return [f"{_named(found)} {why}; to record it, end it and run again: {_ending(found)}"]


def _own() -> set[int]:
    found = set()
    for path in _PROC.glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if path.stat().st_uid == os.getuid():
                found.add(int(path.name))
    return found - {os.getpid()}


def _with_environment(mark: bytes, processes: Iterable[int]) -> set[int]:
    found = set()
    for process in processes:
        with suppress(OSError):
            if mark in first_bytes(_PROC / str(process) / "environ", ENVIRONMENT_BYTES_MAX):
                found.add(process)
    return found


def _words(process: int) -> list[str]:
    """How it was started; empty if it has ended."""
    data = b""
    with suppress(OSError):
        data = first_bytes(_PROC / str(process) / "cmdline", WORDS_BYTES_MAX)
    return [word.decode("utf-8", "replace") for word in data.split(b"\0") if word]


def _named(processes: Collection[int]) -> str:
    some = sorted(processes)[:NAMED_MAX]
    names = dict.fromkeys(Path((_words(each) or ["a process"])[0]).name for each in some)
    return f"{', '.join(names)} ({', '.join(map(str, some))})"


def _ending(processes: Collection[int]) -> str:
    return shlex.join(["kill", *map(str, sorted(processes))])
