"""Wiring. The commands about the ledger itself: `db …` and `sync`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from ledger.commands.options import LedgerOption

if TYPE_CHECKING:
    from ledger.sync.serving import Place

db_commands = typer.Typer(
    no_args_is_help=True, help="The ledger's schema, and dropping old exchanges."
)


def add(app: typer.Typer) -> None:
    """Add the commands to the `tokentee` command."""
    app.add_typer(db_commands, name="db")
    app.command()(sync)


@db_commands.command()
def upgrade(*, ledger: LedgerOption = None) -> None:
    """Create the ledger, or migrate its schema.

    A SQLite file is copied first. Then days that are over and have no sums get them; reports are
    slow without.
    """
    from ledger.store import db, secret
    from ledger.store.engines import migration, urls

    with db.disposing(db.create(ledger or urls.default_url())) as engine:
        copy = migration.upgrade(engine)
        if urls.file_of(engine.url):
            secret.move_out_of_meta(engine)
        _print(f"{urls.shown(engine.url)} has the schema {migration.revision_of(engine)}")
    if copy:
        _print(f"as it was before: {copy}")
    _sum_up(ledger or urls.default_url())


@db_commands.command()
def current(*, ledger: LedgerOption = None) -> None:
    """Print the schema of the ledger.

    Exit code 1: it is not this version's.
    """
    from ledger.store import db
    from ledger.store.engines import migration, urls
    from ledger.store.engines.sqlite_file import REVISION

    with db.disposing(db.open_existing(ledger or urls.default_url())) as engine:
        found = migration.revision_of(engine)
    typer.echo(found)
    if found != REVISION:
        _print(f"this tokentee needs {REVISION}: run `tokentee db upgrade`")
        raise typer.Exit(1)


@db_commands.command()
def check(*, ledger: LedgerOption = None) -> None:
    """Name differences between tables and schema.

    Exit code 1: there are some.
    """
    from ledger.store import db
    from ledger.store.engines import migration, urls

    with db.disposing(db.open_existing(ledger or urls.default_url())) as engine:
        differences = migration.differences(engine)
    for difference in differences:
        typer.echo(difference)
    if differences:
        raise typer.Exit(1)
    _print(f"{urls.shown(engine.url)}: no difference")


@db_commands.command()
def describe(*, ledger: LedgerOption = None) -> None:
    """Describe every column of the public tables and views."""
    from ledger.commands.output import print_table
    from ledger.reports.layout import Table, TableColumn
    from ledger.store import db
    from ledger.store.engines import urls
    from ledger.store.schema import descriptions

    existing = db.open_existing(ledger or urls.default_url())
    with db.disposing(existing) as engine, engine.connect() as connection:
        columns = descriptions.describe(connection)
    for relation in dict.fromkeys(column.relation for column in columns):
        table = Table(
            columns=(
                TableColumn(name="column", heading="Column", is_number=False),
                TableColumn(name="type", heading="Type", is_number=False),
                TableColumn(name="holds", heading="Holds", is_number=False, wraps=True),
            ),
            rows=tuple((c.column, c.kind, c.text) for c in columns if c.relation == relation),
        )
        print_table(table, descriptions.heading(relation))
        typer.echo()


@db_commands.command()
def drop(
    *,
    before: Annotated[
        str,
        typer.Option(
            "--before",
            "--keep",
            metavar="WHEN",
            help="Exchanges opened before: 2026-01-01, 400d; UTC.",
        ),
    ],
    segments: Annotated[
        bool,
        typer.Option("--segments", help="Drop only what `tokentee cache` and `context` read."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Drop them; this cannot be undone.")] = False,
    ledger: LedgerOption = None,
) -> None:
    """Drop old exchanges, and free their disk space.

    Their readings and charges go with them. So do the old exchanges in the copies that migrations
    left beside a SQLite ledger.
    """
    from ledger.store import db, retention
    from ledger.store.engines import sqlite_file, urls
    from ledger.text import period

    moment = period.moment(before, datetime.now(UTC))
    drop_old = retention.drop_segments_before if segments else retention.drop_before
    dropping = "segments of {} requests were dropped" if segments else "{} exchanges were dropped"
    with db.disposing(db.ensure(ledger or urls.default_url())) as engine:
        if not (yes or segments):
            count = retention.count_before(engine, moment)
            _print(
                f"{count} exchanges were opened before {moment:%Y-%m-%d %H:%M} UTC; "
                "--yes drops them"
            )
            raise typer.Exit(1)
        _print(dropping.format(drop_old(engine, moment)))
    path = urls.file_of(engine.url)
    for copy in sqlite_file.copies_of(path) if path else ():
        with db.disposing(db.open_existing(f"sqlite:///{copy}")) as engine:
            _print(dropping.format(drop_old(engine, moment)) + f" from the copy {copy}")


@db_commands.command()
def forget_error_texts(*, ledger: LedgerOption = None) -> None:
    """Blank the messages of errors.

    They may quote prompts, answers and keys. Types and codes stay, unless they are free text,
    too. This cannot be undone. The copies that migrations left beside a SQLite ledger are blanked
    as well. A shared ledger that this one was shipped to has texts of its own.
    """
    from ledger.store import db, retention
    from ledger.store.engines import sqlite_file, urls

    with db.disposing(db.ensure(ledger or urls.default_url())) as engine:
        _print(f"texts of {retention.forget_error_texts(engine)} exchanges were blanked")
    path = urls.file_of(engine.url)
    for copy in sqlite_file.copies_of(path) if path else ():
        with db.disposing(db.open_existing(f"sqlite:///{copy}")) as engine:
            _print(f"{retention.forget_error_texts(engine)} in the copy {copy}")


def sync(
    source: Annotated[
        str | None, typer.Argument(metavar="SOURCE", help="The ledger to read.", show_default=False)
    ] = None,
    target: Annotated[
        str | None,
        typer.Argument(metavar="TARGET", help="The ledger to add to.", show_default=False),
    ] = None,
    *,
    stdio: Annotated[
        bool,
        typer.Option(
            "--stdio",
            help="Be the far side of `tokentee sync` on another machine, over standard input and "
            "output.",
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
    if stdio and source is None and not status:
        import sys

        from ledger.sync import serving

        added_to = serving.serve(sys.stdin.fileno(), sys.stdout.fileno())
        if added_to is not None:
            _sum_up(added_to)
        return
    if status and source is None:
        raise typer.Exit(_show_spools())
    if status or stdio or source is None or target is None:
        _print("give SOURCE and TARGET, or --status")
        raise typer.Exit(2)
    from ledger.sync import far
    from ledger.sync import merging as syncing

    with _progress("exchanges") as show:
        merged = syncing.sync(source, target, with_secret=with_secret, on_progress=show)
    taken = merged.exchanges - len(merged.refused)
    _print(f"{taken} exchanges are in the target, {len(merged.refused)} were refused")
    if merged.has_two_secrets:
        _print(
            "source and target hash keys with different secrets, so one key has two fingerprints; "
            "record with one secret file (TOKENTEE_SECRET_FILE), or sync into an empty ledger "
            "--with-secret"
        )
    if not far.is_far(target):  # else the far side does
        _sum_up(target)
    for refused in merged.refused:
        typer.echo(f"{refused.key[1]}\t{refused.error}")
    raise typer.Exit(1 if merged.refused else 0)


def _sum_up(url: "str | Place") -> None:
    """Store the sums of the days that are over."""
    from ledger.maintenance import rollup
    from ledger.store import db

    with db.disposing(db.ensure(url)) as engine, _progress("days summed up") as show:
        rollup.roll(
            engine, now=datetime.now(UTC), log=lambda _, line: _print(line), on_progress=show
        )


@contextmanager
def _progress(counted: str) -> Iterator[Callable[[int, int], None]]:
    """Shows how many of all are done, on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn(counted), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(counted, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _show_spools() -> int:
    from ledger.sync import spool

    paths = spool.all_paths()
    if not paths:
        _print("no spool: no ledger of this machine is shared")
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


def _print(text: str) -> None:
    typer.echo(text, err=True)


def _second(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
