"""Wiring. `tokentee reconcile`: compare vendors' statements with the ledger."""

from decimal import Decimal, InvalidOperation
from typing import Annotated

import typer

from ledger.commands.options import (
    LedgerOption,
    NamesOption,
    Only,
    Since,
    TableFormat,
    Until,
    scope_of,
)
from ledger.commands.output import print_line, write
from ledger.parts.reconcile.comparison import Dimension
from ledger.parts.reconcile.statement import Line, Statement
from ledger.store.scope import Scope

ITEMS_SHOWN_MAX = 10
"""Items without a model that are listed; the row of the table has the sum of all."""


def reconcile(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="Exports of a vendor: OpenAI usage and costs (JSON), Anthropic usage and cost "
            "(JSON or CSV), OpenRouter activity, AWS Cost and Usage Report, Azure cost details, "
            "Google Cloud billing export (JSON lines), or a CSV of day, model, tokens, cost_usd.",
        ),
    ],
    *,
    since: Since = None,
    until: Until = None,
    only: Only = None,
    provider: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The provider of the statement, if the export does not name it."
        ),
    ] = None,
    by: Annotated[
        Dimension, typer.Option(help="Compare by model, session, or the vendor's keys or projects.")
    ] = Dimension.MODEL,
    same: Annotated[
        list[str] | None,
        typer.Option(
            metavar="THEIRS=OURS",
            help="With --by key or project: the vendor's id, and the end of the ledger's name "
            "for the same key or project; may be repeated.",
        ),
    ] = None,
    tolerance: Annotated[
        str,
        typer.Option(
            metavar="PERCENT", help="The largest difference that still counts as agreement."
        ),
    ] = "0.1",
    details: Annotated[
        bool, typer.Option("--details", help="Show every figure, by day and model.")
    ] = False,
    differences: Annotated[
        bool, typer.Option("--differences", help="The same without the figures that agree.")
    ] = False,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Show the smallest set of causes that turns the ledger's costs into the "
            "statement's, each with its amount, and the rest.",
        ),
    ] = False,
    format: TableFormat = "table",  # noqa: A002
    names: NamesOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Compare vendors' statements with the ledger; exit code 1 if they do not agree.

    A table begins with the totals; --details, --differences and --explain say more. CSV and JSON
    have every figure.
    """
    from ledger.figures.queries import existing_ledger
    from ledger.model.money import sum_of_known
    from ledger.parts.reconcile import output, reconciliation, statement_files
    from ledger.parts.reconcile.comparison import AGREES, unnamed_items
    from ledger.text.figures import counted, money

    scope, part = scope_of(since, until, only, names), _percent(tolerance)
    alike = _pairs(same or [])
    statements = [statement_files.load(file, provider=provider) for file in files]
    for file, statement in zip(files, statements, strict=True):
        of = f" of {statement.provider}" if statement.provider else ""
        costs = sum_of_known(line.figures.get("cost_picousd") for line in statement.lines)
        text = f"{file}: {statement.kind}{of}, {counted(len(statement.lines), 'line')}"
        print_line(text if costs is None else f"{text}, {money(costs)}")
        for warning in statement.warnings:
            print_line(f"{file}: {warning}")
    stated = _stated(files, statements, scope)
    with existing_ledger(ledger) as engine:
        entries = reconciliation.reconcile(
            engine, statements, scope, by=by, same=alike, tolerance=part
        )
        explained = (
            reconciliation.explain(engine, statements, scope, by=by, same=alike, tolerance=part)
            if explain
            else ()
        )
    document = output.document(entries)
    is_read = format in ("table", "markdown")
    if is_read:
        write(format, output.totals_table(entries), document)
    if explain:
        document["explained"] = output.causes_document(explained)
        write(format, output.causes_table(explained), document)
    elif details or differences or not is_read:
        shown = [entry for entry in entries if not differences or entry.verdict not in AGREES]
        write(format, output.table(shown, by), document)
    if by is Dimension.MODEL and any(entry.item for entry in entries):
        items = unnamed_items([line for statement in statements for line in statement.lines])
        for item, amount in sorted(items.items(), key=lambda pair: -pair[1])[:ITEMS_SHOWN_MAX]:
            print_line(f"without a model: {item}: {money(amount)}")
    if discount := _discount(stated):
        print_line(f"the statements' discount off list prices: {money(discount)}")
    print_line(output.summary(entries) or "both sides report nothing for this period")
    if any(entry.verdict not in AGREES for entry in entries):
        if is_read and not (explain or details or differences):
            print_line("more: --explain, --differences, --details")
        raise typer.Exit(1)


def _stated(files: list[str], statements: list[Statement], scope: Scope) -> list[Line]:
    """The lines to compare; LedgerError if there are none."""
    from ledger.model.errors import LedgerError
    from ledger.parts.reconcile import reconciliation

    lines = [line for of in reconciliation.by_provider(statements, scope).values() for line in of]
    if lines:
        return lines
    days = [line.day for statement in statements for line in statement.lines if line.figures]
    if days:
        raise LedgerError(
            f"nothing to compare: the statements are of {min(days)} to {max(days)}, "
            "and none of their days is in the period; choose another with --since and --until"
        )
    looked = (
        f"{file} ({statement.kind}) has no {statement.looked_for} with figures"
        for file, statement in zip(files, statements, strict=True)
    )
    raise LedgerError(f"nothing to compare: {'; '.join(looked)}")


def _discount(lines: list[Line]) -> int:
    """What the vendor takes off its list prices, by the statements themselves."""
    from ledger.parts.reconcile.statement import LIST_COST

    return sum(
        line.figures[LIST_COST] - line.figures["cost_picousd"]
        for line in lines
        if LIST_COST in line.figures and "cost_picousd" in line.figures
    )


def _pairs(words: list[str]) -> dict[str, str]:
    from ledger.model.errors import LedgerError

    pairs = {}
    for word in words:
        theirs, equals, ours = word.partition("=")
        if not equals or not theirs or not ours:
            raise LedgerError(f"--same {word!r} is not THEIRS=OURS; write --same key_abc=1111")
        pairs[theirs] = ours
    return pairs


def _percent(text: str) -> Decimal:
    from ledger.model.errors import WrongCallError

    try:
        percent = Decimal(text.removesuffix("%"))
    except InvalidOperation:
        percent = Decimal(-1)
    if not 0 <= percent <= 100:
        raise WrongCallError(f"not a percentage: {text!r}; write --tolerance 0.1")
    return percent / 100
