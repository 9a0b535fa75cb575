"""Wiring. The commands about money: report, show, prices, reprice, reconcile, export."""

import sys
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ledger.commands.options import LedgerOption

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ledger.reports.queries import Scope
    from ledger.reports.render import Table

Since = Annotated[
    str | None,
    typer.Option(metavar="WHEN", help="From then on: 2026-11-01, 24h, 7d, today, …; UTC."),
]
Until = Annotated[str | None, typer.Option(metavar="WHEN", help="Before then.")]


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"


Prices = Annotated[
    str | None,
    typer.Option(
        "--prices",
        metavar="FILE",
        envvar="TOKENTEE_PRICES",
        help="Your own prices (TOML); as tee_prices.",
    ),
]
prices = typer.Typer(
    no_args_is_help=True, help="What a model costs, and whether your price file is sound."
)


class ExportFormat(StrEnum):
    PARQUET = "parquet"
    CSV = "csv"


class What(StrEnum):
    REQUESTS = "requests"
    CHARGES = "charges"
    FOCUS = "focus"


class ShowFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


def add(app: typer.Typer) -> None:
    """Put the commands on the `tokentee` command."""
    app.command()(report)
    app.command()(show)
    app.command()(reprice)
    app.command()(reconcile)
    app.command()(export)
    app.add_typer(prices, name="prices")


def report(
    *,
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--by",
            metavar="WORD",
            help="model, provider, origin, dialect, operation, tier, outcome, key, tag, tag:NAME, "
            "session, end_user, user_agent, source, day, hour or month; several make a row of each "
            "combination.  [default: model]",
            show_default=False,
        ),
    ] = None,
    since: Since = None,
    until: Until = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="WORD=VALUE", help="Only requests of this model, key, tag:NAME, …"),
    ] = None,
    top: Annotated[
        int | None, typer.Option(min=1, help="The rows that cost most, the rest as one.")
    ] = None,
    format: Annotated[Format, typer.Option("--format", "-f")] = Format.TABLE,  # noqa: A002
    ledger: LedgerOption = None,
) -> None:
    """Tokens, cache, cost and times by model, key, day, …"""
    from ledger.reports import queries, report_tables
    from ledger.reports.queries import open_ledger
    from ledger.store import db

    words = [word.strip() for group in by or ["model"] for word in group.split(",")]
    scope = _scope(since, until, only)
    engine = open_ledger(ledger)
    found = queries.report(engine, words, scope, top=top)
    table = report_tables.flat(found) if format is Format.CSV else report_tables.screen(found)
    _write(format, table, report_tables.document(found))
    if not found.total.figures.requests:
        within = " in this period" if since or until or only else ""
        _say(f"the ledger {db.shown(engine.url)} has no requests{within}")
    for note in report_tables.notes(found):
        _say(note)


def show(
    word: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="The exchange's id, the response's id, or how either begins."
        ),
    ],
    *,
    format: Annotated[  # noqa: A002
        ShowFormat, typer.Option("--format", "-f")
    ] = ShowFormat.TEXT,
    ledger: LedgerOption = None,
) -> None:
    """Explain one request to the last line: frames, usage, prices and where each came from."""
    from ledger.reports import explain, render
    from ledger.reports.lookup import find
    from ledger.reports.queries import open_ledger

    found = find(open_ledger(ledger), word)
    if format is ShowFormat.JSON:
        sys.stdout.write(render.as_json(explain.document(found)))
        return
    _facts(explain.facts(found))
    for reading in found.readings:
        sys.stdout.write("\n")
        _facts(explain.reading_facts(reading))
    if found.charges:
        _print(explain.charge_table(found.charges))
    else:
        sys.stdout.write("\nNo charges: nothing was reported to charge.\n")
    if found.past_charges:
        sys.stdout.write("Before, and in no total:\n")
        _print(explain.charge_table(found.past_charges))


def reprice(
    *,
    since: Since = None,
    until: Until = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="WORD=VALUE", help="Only requests of this model, provider, …"),
    ] = None,
    reason: Annotated[
        str, typer.Option(help="Why; it stands on every charge that is added.")
    ] = "repriced",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")
    ] = False,
    prices: Prices = None,
    ledger: LedgerOption = None,
) -> None:
    """Price what is booked once more. Superseding charges are added; the old ones stay."""
    from ledger.maintenance import reprice
    from ledger.pricing.prices import PriceBook
    from ledger.reports.price_tables import difference
    from ledger.reports.queries import open_ledger

    book = PriceBook.load(prices)
    scope, now = _scope(since, until, only), datetime.now(UTC)
    engine = open_ledger(ledger)
    changes = reprice.changes(engine, book, scope, now=now)
    if not changes:
        _say("nothing changes: every line has the price it would get today")
        return
    _print(difference(changes))
    if dry_run:
        _say("nothing was written")
        return
    added = reprice.apply(engine, book, scope, now=now, reason=reason)
    _say(f"{added} charges were added; the ones they replace stay in the table charges")


@prices.command("check")
def check_prices(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A price file (TOML).")],
) -> None:
    """Say what is wrong in a price file; exit code 1 if anything is."""
    from ledger.pricing import overrides

    found, problems = overrides.check(file)
    for problem in problems:
        _say(f"{file}: {problem}")
    if problems:
        raise typer.Exit(1)
    count = f"{len(found.entries)} prices, {len(found.gateways)} gateways"
    models = f", {len(found.litellm.models)} models of LiteLLM's" if found.litellm else ""
    typer.echo(f"{file}: {count}{models}; sha256:{found.digest}")


@prices.command("show")
def show_prices(
    model: Annotated[str, typer.Argument(help="The model as the wire names it.")],
    *,
    host: Annotated[str, typer.Option(help="The host it is asked at.")] = "",
    provider: Annotated[str, typer.Option(help="The provider, as the ledger names it.")] = "",
    tier: Annotated[str | None, typer.Option(help="The service tier of the answer.")] = None,
    at: Annotated[str, typer.Option(metavar="WHEN", help="The moment of the request.")] = "now",
    prices: Prices = None,
) -> None:
    """What each line of a model costs at a host and a moment, and where that price stands."""
    from ledger.model import period
    from ledger.pricing.price_lists import VENDOR, Question
    from ledger.pricing.prices import PriceBook
    from ledger.reports.price_tables import sheet_table

    moment = period.moment(at, datetime.now(UTC))
    question = Question(
        origin=f"https://{host}" if host else "",
        provider=provider or host or VENDOR,
        response_model=model,
    )
    sheet = PriceBook.load(prices).look_up(question, tier=tier, at=moment)
    if not sheet.rates and sheet.rest is None:
        _say(sheet.absent)
        raise typer.Exit(1)
    _print(sheet_table(sheet))


def reconcile(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="What a provider exports: OpenAI usage and costs (JSON), Anthropic usage and cost "
            "(JSON or CSV), OpenRouter activity, or a CSV of day, model, tokens, cost_usd.",
        ),
    ],
    *,
    since: Since = None,
    until: Until = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="WORD=VALUE", help="Only the ledger's requests of this key, …"),
    ] = None,
    provider: Annotated[
        str | None, typer.Option(help="Whose statement it is, where the export does not say.")
    ] = None,
    tolerance: Annotated[
        str, typer.Option(metavar="PERCENT", help="What may differ and still agree.")
    ] = "0.1",
    differences: Annotated[
        bool, typer.Option("--differences", help="Leave out what agrees.")
    ] = False,
    format: Annotated[Format, typer.Option("--format", "-f")] = Format.TABLE,  # noqa: A002
    ledger: LedgerOption = None,
) -> None:
    """Lay providers' statements beside the ledger; exit code 1 if they do not agree."""
    from ledger.reconcile import booked, comparison_tables, statement_files
    from ledger.reconcile.comparison import AGREES
    from ledger.reports.queries import open_ledger

    scope, part = _scope(since, until, only), _percent(tolerance)
    statements = [statement_files.load(file, provider=provider) for file in files]
    for file, statement in zip(files, statements, strict=True):
        of = f" of {statement.provider}" if statement.provider else ""
        _say(f"{file}: {statement.kind}{of}, {len(statement.lines)} lines")
        for warning in statement.warnings:
            _say(f"{file}: {warning}")
    engine = open_ledger(ledger)
    entries = booked.reconcile(engine, statements, scope, tolerance=part)
    shown = [entry for entry in entries if not differences or entry.verdict not in AGREES]
    _write(format, comparison_tables.table(shown), comparison_tables.document(entries))
    _say(comparison_tables.summary(entries) or "the statements say nothing of this period")
    if any(entry.verdict not in AGREES for entry in entries):
        raise typer.Exit(1)


def _write(format: Format, table: "Table", document: object) -> None:  # noqa: A002
    """One table in the format that was asked for."""
    from ledger.reports import render

    if format is Format.JSON:
        sys.stdout.write(render.as_json(document))
    elif format is Format.CSV:
        sys.stdout.write(render.as_csv(table))
    elif format is Format.MARKDOWN:
        sys.stdout.write(render.as_markdown(table))
    elif table.rows:
        _print(table)


def _percent(text: str) -> Decimal:
    from ledger.model.errors import LedgerError

    try:
        percent = Decimal(text.removesuffix("%"))
    except InvalidOperation:
        percent = Decimal(-1)
    if not 0 <= percent <= 100:
        raise LedgerError(f"not a percentage: {text!r}; write --tolerance 0.1")
    return percent / 100


def export(
    directory: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", help="Where the files go, a folder for each day.")
    ],
    *,
    what: Annotated[
        What, typer.Option(help="requests (the view), charges (its lines), or FOCUS 1.2 billing.")
    ] = What.REQUESTS,
    format: Annotated[  # noqa: A002
        ExportFormat, typer.Option("--format", "-f")
    ] = ExportFormat.PARQUET,
    since: Since = None,
    until: Until = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="WORD=VALUE", help="Only requests of this model, key, tag:NAME, …"),
    ] = None,
    ledger: LedgerOption = None,
) -> None:
    """Write requests, charges or FOCUS billing rows as Parquet or CSV, partitioned by day."""
    from ledger.reports import export as exporting
    from ledger.reports.day_files import FileFormat
    from ledger.reports.queries import open_ledger

    scope = _scope(since, until, only)
    engine = open_ledger(ledger)
    rows = 0
    for written in exporting.export(engine, what, directory, FileFormat(format), scope):
        rows += written.rows
        _say(f"{written.path}: {written.rows:,} rows")
    _say(f"{rows:,} rows in all" if rows else "nothing to export in this period")
    if what is What.FOCUS and (left := exporting.unpriced_lines(engine, scope)):
        _say(f"{left:,} lines have no price and are left out: FOCUS knows no unknown cost")


def _facts(pairs: "Iterable[tuple[str, str]]") -> None:
    from ledger.reports.render import printable

    for heading, text in pairs:
        sys.stdout.write(f"{heading:<26}{printable(text)}\n")


def _scope(since: str | None, until: str | None, only: list[str] | None) -> "Scope":
    from ledger.model import period
    from ledger.model.errors import LedgerError
    from ledger.reports.queries import Scope

    now = datetime.now(UTC)
    pairs = []
    for condition in only or []:
        word, separator, value = condition.partition("=")
        if not separator:
            raise LedgerError(f"not a condition: {condition!r}; write --only model=gpt-5")
        pairs.append((word, value))
    return Scope(
        since=period.moment(since, now) if since else None,
        until=period.moment(until, now) if until else None,
        only=tuple(pairs),
    )


def _print(table: "Table") -> None:
    from rich.console import Console

    from ledger.reports import render

    # A pipe has no width of its own, and a table that wraps is of no use to grep.
    console = Console(width=None if sys.stdout.isatty() else 200)
    render.print_table(table, console)


def _say(line: str) -> None:
    """Everything that is not the result goes to stderr."""
    typer.echo(line, err=True)
