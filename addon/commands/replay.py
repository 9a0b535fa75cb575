"""Edge (the terminal). `tokentee replay`: its progress display and its result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from addon.commands.options import Archives, Url
from addon.recordings.files import files_in, files_of, is_url, read
from addon.recordings.formats.recorded import Recorded
from addon.recordings.replay import JOBS_MAX, ReplayJob, replay_here, replay_with
from ledger.commands.options import LedgerOption
from ledger.model.errors import LedgerError
from ledger.reports.layout import Table, TableColumn
from ledger.reports.progress import console_on_stderr, files_progress, progress
from ledger.reports.render import print_table
from ledger.store.engines.urls import default_url, shown
from ledger.text.origins import listen_address
from ledger.text.printable import printable


def replay_command(
    paths: Archives,
    *,
    ledger: LedgerOption = None,
    url: Url = None,
    prices: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Price override file (TOML).")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "-j",
            metavar="N",
            help="Processes that read at a time; 1 if not given, with --dask local as many as "
            "there are processors.",
            show_default=False,
        ),
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Read with the workers of this Dask scheduler (tcp://HOST:8786), or with "
            "processes of this machine (local); PATHS may be URLs then. Needs tokentee[dask], "
            "for s3:// also tokentee[s3].",
        ),
    ] = None,
    serve: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:]PORT",
            help="Serve the recorded answers as an upstream instead, in the pieces and at the pace "
            "in which they came, until Ctrl-C.",
        ),
    ] = None,
    speed: Annotated[
        float,
        typer.Option(
            min=0, metavar="FACTOR", help="With --serve: 2 is twice as fast, 0 without pauses."
        ),
    ] = 1.0,
    in_turn: Annotated[
        bool,
        typer.Option(
            "--in-turn",
            help="With --serve: equal requests get their recorded answers in the order of the "
            "recording; else each gets the first one.",
        ),
    ] = False,
) -> None:
    """Read recorded exchanges into the ledger, with the meter that reads live traffic.

    Reading the same recordings again adds nothing, and takes a tenth of the time: after an
    interruption, run it again to continue. At the end it prints how many exchanges were new, how
    many the ledger had, and which were skipped and why.

    With --dask the work is cut into files and parts of files. A part whose worker dies is read
    by another one, and each is merged into the ledger once.

    Exit code 1: something was not readable or not written, or there was no LLM call in it.
    """
    if dask is not None and serve is not None:
        raise LedgerError("--serve answers from this machine: leave out --dask")
    if serve is not None:
        local = _local_paths(paths)
        raise typer.Exit(
            serve_recordings(local, url=url, address=serve, speed=speed, in_turn=in_turn)
        )
    if jobs is not None and not 1 <= jobs <= JOBS_MAX:
        raise LedgerError(f"--jobs {jobs}: from 1 to {JOBS_MAX}")
    job = ReplayJob(
        ledger_url=ledger or default_url(), url=url, prices=str(prices) if prices else None
    )
    raise typer.Exit(main(paths, job, jobs=jobs, dask=dask))


def _local_paths(names: Sequence[str]) -> list[Path]:
    for name in names:
        if is_url(name):
            raise LedgerError(f"{name}: a URL is read with --dask local, or --dask ADDRESS")
    return [Path(name) for name in names]


def main(names: Sequence[str], job: ReplayJob, *, jobs: int | None, dask: str | None = None) -> int:
    """Replay files and URLs, with as many processes, or with those of a Dask scheduler; 0 if every
    exchange in them is in the ledger, 1 if not."""
    console = console_on_stderr()

    def log(_level: str, line: str) -> None:
        console.print(escape(printable(line)))

    bodies_too = job.url is not None
    if dask is not None:
        from addon.recordings.replay_dask import replay_on_dask

        archive = files_in(names, bodies_too=bodies_too)
        total = sum(file.size for file in archive)
        with progress(console, "replaying", total, is_bytes=True) as advance:
            tally = replay_on_dask(dask, job, archive, workers=jobs, log=log, advance=advance)
    else:
        files = files_of(_local_paths(names), bodies_too=bodies_too)
        if jobs is None or jobs == 1:
            with files_progress(console, "replaying", files) as advance_file:
                tally = replay_here(job, files, log=log, advance=advance_file)
        else:
            total = sum(path.stat().st_size for path in files)
            with progress(console, "replaying", total, is_bytes=True) as advance:
                tally = replay_with(jobs, job, files, log=log, advance=advance)
    where = shown(job.ledger_url)
    console.print(escape(f"{tally.read:,} exchanges read, {tally.new:,} new in {where}"))
    if tally.by_dialect:
        columns = (
            TableColumn(name="dialect", heading="Dialect", is_number=False),
            TableColumn(name="outcome", heading="Outcome", is_number=False),
            TableColumn(name="exchanges", heading="New"),
        )
        counted = sorted(tally.by_dialect.items())
        rows = tuple((dialect, outcome.value, count) for (dialect, outcome), count in counted)
        print_table(Table(columns=columns, rows=rows), console)
    for count, what in (
        (tally.known, "known: the ledger has them"),
        (tally.foreign, "skipped: no LLM calls"),
        (tally.refused, "not written: the ledger refused them"),
    ):
        if count:
            console.print(f"{count:,} {what}")
    for line in tally.unread_lines(refused=tally.refused):
        console.print(escape(line))
    return 1 if tally.faults or tally.refused or not tally.new + tally.known else 0


def serve_recordings(
    paths: Sequence[Path], *, url: str | None, address: str, speed: float, in_turn: bool
) -> int:
    """Serve the answers in the files as an upstream, until interrupted."""
    # With h11 and asyncio, which replay into a ledger does not need.
    import asyncio
    import signal

    from addon.recordings import serving

    listening = listen_address(address)
    if listening is None:
        raise LedgerError(f"--serve {address}: not [HOST:]PORT")
    host, port = listening
    files = files_of(paths, bodies_too=url is not None)
    items = (item for path in files for item in read(path, url=url))
    recorded = (item for item in items if isinstance(item, Recorded))
    answers = serving.ServedAnswers(recorded, in_turn=in_turn)
    if not len(answers):
        raise LedgerError(f"nothing to serve in {', '.join(map(str, paths))}")
    console = console_on_stderr()

    async def run() -> None:
        server = await serving.serve(answers, host or "127.0.0.1", port, speed=speed)
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
