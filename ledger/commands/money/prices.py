"""Wiring. `tokentee prices`: the prices of a model, and the check of a price file."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from ledger.commands.money import price_updates
from ledger.commands.options import Prices
from ledger.commands.output import print_line, print_table

prices = typer.Typer(
    no_args_is_help=True,
    help="Show the prices of a model; check a price file; read newer price lists.",
)
prices.command("update")(price_updates.update)
prices.command("history")(price_updates.history)
prices.command("rollback")(price_updates.rollback)


@prices.command("check")
def check_prices(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A price file (TOML).")],
) -> None:
    """List the problems of a price file; exit code 1 if there are any."""
    from ledger.pricing import overrides
    from ledger.text.figures import counted

    found, problems = overrides.check(file)
    for problem in problems:
        print_line(f"{file}: {problem}")
    if problems:
        raise typer.Exit(1)
    count = f"{counted(len(found.entries), 'price')}, {counted(len(found.gateways), 'gateway')}"
    if found.litellm:
        count += f", {counted(len(found.litellm.models), 'model')} of LiteLLM's"
    typer.echo(f"{file}: {count}; sha256:{found.digest}")


@prices.command("show")
def show_prices(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model as the wire names it.")],
    *,
    host: Annotated[str, typer.Option(metavar="HOST", help="The host it is asked at.")] = "",
    provider: Annotated[
        str, typer.Option(metavar="NAME", help="The provider, as the ledger names it.")
    ] = "",
    tier: Annotated[
        str | None, typer.Option(metavar="TIER", help="The service tier of the answer.")
    ] = None,
    at: Annotated[str, typer.Option(metavar="WHEN", help="The moment of the request.")] = "now",
    prices: Prices = None,
) -> None:
    """Show the price of each line of a model.

    At a host and a moment, with the source of each price.
    """
    from ledger.model.providers import VENDOR
    from ledger.pricing.price_lists import PriceQuestion
    from ledger.pricing.prices import PriceBook
    from ledger.reports.price_tables import sheet_table, sheet_title
    from ledger.text import period

    moment = period.moment(at, datetime.now(UTC))
    question = PriceQuestion(
        origin=f"https://{host}" if host else "",
        provider=provider or host or VENDOR,
        response_model=model,
    )
    sheet = PriceBook.load(prices).look_up(question, tier=tier, at=moment)
    if not sheet.rates and sheet.rest is None:
        print_line(sheet.absent)
        raise typer.Exit(1)
    if sheet.partial:
        for reason in sheet.partial:
            print_line(reason)
        raise typer.Exit(1)
    print_table(sheet_table(sheet), sheet_title(sheet, model, moment))
