"""Edge. What `tokentee replay` shows while it works and when it is done."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from addon.metering.opening import Rules
from addon.recordings import serving
from addon.recordings.reading import Recorded, files_of, read
from addon.recordings.replay import Commits, Tally, replay
from ledger import recording
from ledger.model.errors import LedgerError
from ledger.pricing.prices import PriceBook
from ledger.store.db import default_url

CLOSE_SECONDS_MAX = 60.0
"""Nobody waits for a stream here; a slow disk may take its time."""
UNREADABLE_SHOWN_MAX = 10


def main(paths: Sequence[Path], *, ledger: str | None, url: str | None, prices: Path | None) -> int:
    """Replay the files; 0 if every exchange in them is in the ledger, 1 if not."""
    console = Console(stderr=True, highlight=False)
    files = files_of(paths, bodies=url is not None)
    if not files:
        raise LedgerError(f"nothing to replay in {', '.join(map(str, paths))}")
    ledger_url = ledger or default_url()
    book = PriceBook.load(str(prices) if prices else None)
    node = f"replay/{os.getpid()}/{int(time.time())}"
    commits = Commits()
    writer = recording.open_ledger(
        ledger_url,
        node=node,
        price=book.price,
        on_commit=commits.on_commit,
        log=lambda _, text: console.print(escape(text)),
    )
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        task = progress.add_task("replaying", total=len(files))

        def show(path: Path) -> None:
            progress.update(task, description=escape(path.name), advance=1)

        try:
            tally = replay(
                writer,
                Rules(node=node, secret=writer.secret),
                files,
                url=url,
                commits=commits,
                progress=show,
            )
        finally:
            writer.close(CLOSE_SECONDS_MAX)
    _show(console, tally, ledger_url)
    bad = [item for item in tally.unreadable if not item.is_other_kind]
    return 1 if bad or tally.refused or not tally.metered else 0


def serve(paths: Sequence[Path], *, url: str | None, address: str, speed: float) -> int:
    """Serve what the files hold as an upstream, until interrupted."""
    host, _, port = address.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise LedgerError(f"--serve {address}: not [HOST:]PORT")
    items = [
        item for path in files_of(paths, bodies=url is not None) for item in read(path, url=url)
    ]
    answers = serving.Answers(item for item in items if isinstance(item, Recorded))
    if not len(answers):
        raise LedgerError(f"nothing to serve in {', '.join(map(str, paths))}")
    console = Console(stderr=True, highlight=False)

    async def run() -> None:
        server = await serving.serve(answers, host or "127.0.0.1", int(port), speed=speed)
        where = "{}:{}".format(*server.sockets[0].getsockname()[:2])
        console.print(f"serving {len(answers)} recorded answers on http://{where}; Ctrl-C ends it")
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, ended.set)
        await ended.wait()
        server.close()

    try:
        asyncio.run(run())
    except OSError as error:
        raise LedgerError(f"--serve {address}: {error.strerror}") from error
    return 0


def _show(console: Console, tally: Tally, url: str) -> None:
    table = Table(title=f"{tally.metered} exchanges read into {escape(url)}", box=None)
    table.add_column("dialect")
    table.add_column("outcome")
    table.add_column("exchanges", justify="right")
    for (dialect, outcome), count in sorted(tally.by_dialect.items()):
        table.add_row(dialect, outcome, str(count))
    console.print(table)
    if tally.foreign:
        console.print(f"{tally.foreign} exchanges are no LLM calls")
    if tally.refused:
        console.print(f"{tally.refused} readings could not be written")
    for item in tally.unreadable[:UNREADABLE_SHOWN_MAX]:
        console.print(escape(f"not read: {item.where}: {item.why}"))
    if len(tally.unreadable) > UNREADABLE_SHOWN_MAX:
        console.print(f"… and {len(tally.unreadable) - UNREADABLE_SHOWN_MAX} more not read")
