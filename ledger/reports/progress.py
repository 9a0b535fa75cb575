"""Edge (the terminal). Progress on stderr: one bar with rate and remaining time for every command.

Also the line that every command prints after a shortened list.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

PROGRESS_COLUMNS = 200
"""A pipe has no width, and grep cannot use a wrapped line."""
RATE_SECONDS = 10.0
"""The rate is averaged over this time, because files of different kinds alternate."""

type Advance = Callable[[int, str], None]
"""Called with the total done so far, and the current step."""


def console_on_stderr() -> Console:
    """Messages of commands go here; results go to stdout."""
    from rich.console import Console

    width = None if sys.stderr.isatty() else PROGRESS_COLUMNS
    return Console(stderr=True, highlight=False, width=width)


@contextmanager
def progress(
    console: Console, what: str, total: int | None, *, is_bytes: bool = False
) -> Iterator[Advance]:
    """A bar that ends with the block. `total` is None if it is not known beforehand."""
    from rich.markup import escape
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    amounts: tuple[ProgressColumn, ...] = (
        (DownloadColumn(), TransferSpeedColumn())
        if is_bytes
        else (MofNCompleteColumn(), TextColumn("{task.fields[rate]}"))
    )
    columns = (TextColumn("{task.description}"), BarColumn(), *amounts, TimeRemainingColumn())
    with Progress(
        *columns, console=console, transient=True, speed_estimate_period=RATE_SECONDS
    ) as bar:
        task = bar.add_task(escape(what), total=total, rate="")

        def advance(done: int, now: str = "") -> None:
            speed = bar.tasks[0].speed
            rate = f"{speed:,.0f}/s" if speed else ""
            description = escape(f"{what} {now}".strip())
            bar.update(task, completed=done, description=description, rate=rate)

        yield advance


@contextmanager
def files_progress(
    console: Console, what: str, files: Sequence[Path]
) -> Iterator[Callable[[Path, int], None]]:
    """A bar over the bytes of files; called with a file and the bytes read of it."""
    done = dict.fromkeys(files, 0)
    total = sum(path.stat().st_size for path in files)
    with progress(console, what, total, is_bytes=True) as advance:
        read_bytes = 0

        def show(path: Path, file_bytes: int) -> None:
            nonlocal read_bytes
            read_bytes += file_bytes - done[path]
            done[path] = file_bytes
            advance(read_bytes, path.name)

        yield show


def rest_line(total: int, shown: int, what: str = "") -> str | None:
    """The line after a shortened list; None if the list is complete."""
    if total <= shown:
        return None
    return f"… and {total - shown:,} more {what}".rstrip() + " not shown"
