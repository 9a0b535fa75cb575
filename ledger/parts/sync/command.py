"""Wiring. `tokentee sync`."""

import sys
from datetime import datetime
from typing import Annotated

import typer

from ledger.commands.db import progress, sum_up
from ledger.commands.output import print_line
from ledger.model.errors import LedgerError
from ledger.text.printable import printable


def sync(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="SOURCE", help="The ledger to read; - is a stream.", show_default=False
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Argument(metavar="TARGET", help="The ledger to add to.", show_default=False),
    ] = None,
    *,
    dump: Annotated[
        bool,
        typer.Option(
            "--dump",
            help="Write SOURCE as a stream, which `tokentee sync - TARGET` reads. With - a line of "
            "standard input names the ledger.",
        ),
    ] = False,
    status: Annotated[
        bool, typer.Option("--status", help="Show the state of the spools of shared ledgers.")
    ] = False,
    with_secret: Annotated[
        bool,
        typer.Option(
            "--with-secret",
            help="Give an empty TARGET the secret of key fingerprints of SOURCE, so that a key "
            "keeps its fingerprint.",
        ),
    ] = False,
) -> None:
    """Merge a ledger into another one. Exchanges that the target has are not added again.

    tokentee sync sqlite:///laptop.sqlite3 postgresql+psycopg://team@db/ledger

    tokentee sync ssh://me@laptop ledger.sqlite3

    ssh://[user@]host[:port][/path] is a ledger of another machine, over your own ssh. Without a
    path it is that machine's own. tokentee has to be installed there, in the same version.

    With --status: the waiting and refused exchanges in the spools of this machine; exit code 1 if
    anything is wrong.
    """
    if status and source is None and not dump:
        raise typer.Exit(_show_spools())
    if not status and target is None and (dump or source == "-"):
        _stream(source, is_dump=dump, with_secret=with_secret)
        return
    if status or dump or source is None or target is None:
        print_line("give SOURCE and TARGET, or --status")
        raise typer.Exit(2)
    from ledger.parts.sync import merging, over_ssh

    with progress("exchanges") as show:
        over = [url for url in (source, target) if url.startswith(over_ssh.SCHEME)]
        if source == "-":
            merged = over_ssh.load(over_ssh.messages(sys.stdin.buffer), target, show)
        elif len(over) == 2:
            raise LedgerError("one of SOURCE and TARGET has to be on this machine")
        else:
            merge = over_ssh.merge if over else merging.sync
            merged = merge(source, target, with_secret=with_secret, on_progress=show)
    taken = merged.exchanges - len(merged.refused)
    print_line(f"{taken} exchanges are in the target, {len(merged.refused)} were refused")
    if merged.has_two_secrets:
        print_line(
            "source and target hash keys with different secrets, so one key has two fingerprints; "
            "record with one secret file (TOKENTEE_SECRET_FILE), or sync into an empty ledger "
            "--with-secret"
        )
    if not target.startswith(over_ssh.SCHEME):  # else the far side does
        sum_up(target)
    for refused in merged.refused:
        typer.echo(f"{printable(refused.key[1])}\t{printable(refused.error)[:300]}")
    raise typer.Exit(1 if merged.refused else 0)


def _stream(source: str | None, *, is_dump: bool, with_secret: bool) -> None:
    """Write a stream, or be the side that the other one tells which ledger it means."""
    from ledger.parts.sync import over_ssh
    from ledger.store.engines import urls

    def write(data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    if source != "-":
        over_ssh.dump(source or urls.default_url(), write, with_secret=with_secret)
        return
    added_to = over_ssh.answer(sys.stdin.buffer, write, is_dump=is_dump)
    if added_to is not None:
        sum_up(added_to)


def _show_spools() -> int:
    from ledger.store import spool

    paths = spool.all_paths()
    if not paths:
        print_line("no spool: no ledger of this machine is shared")
    is_wrong = False
    for path in paths:
        status = spool.status_of(path)
        is_wrong |= bool(status.trouble or status.refused)
        typer.echo(f"{status.target}\t{status.path}")
        oldest = f", the oldest of {_second(status.oldest)}" if status.oldest else ""
        typer.echo(f"  waiting: {status.waiting}{oldest}")
        shipped = datetime.fromisoformat(status.shipped_at) if status.shipped_at else None
        typer.echo(f"  last shipped: {_second(shipped) if shipped else 'never'}")
        if status.trouble:
            typer.echo(f"  trouble: {status.trouble}")
        for refused in status.refused:
            typer.echo(f"  refused: {refused.key[1]} ({refused.key[0]}): {refused.error}")
    return 1 if is_wrong else 0


def _second(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
