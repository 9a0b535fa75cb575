"""Wiring. The commands about the ledger itself: `db …`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from ledger.commands.options import LedgerOption
from ledger.commands.output import print_line, print_table

if TYPE_CHECKING:
    from ledger.store.engines.urls import Place

db_commands = typer.Typer(
    no_args_is_help=True, help="The ledger's schema, and dropping old exchanges."
)


@db_commands.command()
def upgrade(*, ledger: LedgerOption = None) -> None:
    """Create the ledger, or migrate its schema.

    A SQLite file is copied first. PostgreSQL gets the partitions of this month and the next two.
    Then days that are over and have no sums get them; reports are slow without.
    """
    from ledger.store import db, retention, secret
    from ledger.store.engines import migration, urls

    with db.disposing(db.create(ledger or urls.default_url())) as engine:
        before = migration.revision_of(engine)
        copy = migration.upgrade(engine)
        if urls.file_of(engine.url):
            secret.move_out_of_meta(engine)
        else:
            today = datetime.now(UTC).date()
            months = retention.coming_months(today)
            made = retention.make_partitions(engine, months, today)
            for month, trouble in made.items():
                if trouble is not None:
                    print_line(f"no partition for {month:%Y-%m}: {trouble}")
        now = migration.revision_of(engine)
        was = f"; it had {before}" if before not in (None, now) else ""
        print_line(f"{urls.shown(engine.url)} has the schema {now}{was}")
    if copy:
        print_line(f"as it was before, it lies in {copy} until you delete that")
    sum_up(ledger or urls.default_url())


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
        print_line(f"this tokentee needs {REVISION}: run `tokentee db upgrade`")
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
    print_line(f"{urls.shown(engine.url)}: no difference")


@db_commands.command()
def describe(*, ledger: LedgerOption = None) -> None:
    """Describe every column of the public tables and views."""
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
            print_line(
                f"{count} exchanges were opened before {moment:%Y-%m-%d %H:%M} UTC; "
                "--yes drops them"
            )
            raise typer.Exit(1)
        print_line(dropping.format(drop_old(engine, moment)))
    path = urls.file_of(engine.url)
    for copy in sqlite_file.copies_of(path) if path else ():
        with db.disposing(db.open_existing(f"sqlite:///{copy}")) as engine:
            print_line(dropping.format(drop_old(engine, moment)) + f" from the copy {copy}")


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
        print_line(f"texts of {retention.forget_error_texts(engine)} exchanges were blanked")
    path = urls.file_of(engine.url)
    for copy in sqlite_file.copies_of(path) if path else ():
        with db.disposing(db.open_existing(f"sqlite:///{copy}")) as engine:
            print_line(f"{retention.forget_error_texts(engine)} in the copy {copy}")


def sum_up(url: "Place") -> None:
    """Store the sums of the days that are over."""
    from ledger.maintenance import rollup
    from ledger.store import db

    with db.disposing(db.ensure(url)) as engine, progress("days summed up") as show:
        rollup.roll(
            engine, now=datetime.now(UTC), log=lambda _, line: print_line(line), on_progress=show
        )


@contextmanager
def progress(counted: str) -> Iterator[Callable[[int, int], None]]:
    """Shows how many of all are done, on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn(counted), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(counted, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
