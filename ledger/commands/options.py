"""Wiring. Options that several commands share, so that their help is the same everywhere; and
`--since`, `--until` and `--only` as a scope."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from ledger.store.scope import Scope


def _not_empty(value: str | None) -> str | None:
    """An empty one is a variable of the shell that is not set; the default ledger is not meant."""
    if value == "":
        raise typer.BadParameter("it is empty: name a ledger, or leave it out")
    return value


LedgerOption = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        metavar="URL",
        envvar="TOKENTEE_LEDGER",
        help="sqlite:///FILE or postgresql+psycopg://USER@HOST/NAME; default: the SQLite file in "
        "your data directory.",
        show_default=False,
        callback=_not_empty,
    ),
]

Since = Annotated[
    str | None,
    typer.Option(
        metavar="WHEN",
        help="First day or moment: 2026-11, 2026-11-01, last-month, this-week, 30d, today, …",
    ),
]
TimezoneOption = Annotated[
    str | None,
    typer.Option(
        "--timezone",
        metavar="ZONE",
        envvar="TOKENTEE_TIMEZONE",
        help="Time zone of days, weeks and months: Europe/Berlin, …; default: UTC.",
        show_default=False,
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        metavar="WHEN",
        help="End, not included: --since last-month --until this-month is last month.",
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option(
        metavar="WORD=VALUE",
        help="Only requests of this model, key, team, tag:NAME, …; a word that is given twice may "
        "have either value; * and ? stand for any characters, (none) for no value.",
    ),
]
Prices = Annotated[
    str | None,
    typer.Option(
        "--prices",
        metavar="FILE",
        envvar="TOKENTEE_PRICES",
        help="Your own prices (TOML); as tee_prices.",
    ),
]

NamesOption = Annotated[
    str | None,
    typer.Option(
        "--names",
        metavar="FILE",
        envvar="TOKENTEE_NAMES",
        help="Who is behind keys, hosts, tags, sessions and projects (TOML); default: names.toml "
        "in your configuration directory.",
        show_default=False,
    ),
]

Budgets = Annotated[
    str | None,
    typer.Option(
        "--budgets",
        metavar="FILE",
        envvar="TOKENTEE_BUDGETS",
        help="Your budgets (TOML); default: budgets.toml in your configuration directory.",
        show_default=False,
    ),
]

Format = Literal["table", "json", "csv", "markdown"]
"""Output formats of a table."""
TableFormat = Annotated[Format, typer.Option("--format", "-f")]
Form = Annotated[Literal["table", "json"], typer.Option("--format", "-f", help="Output format.")]


def scope_of(
    since: str | None,
    until: str | None,
    only: list[str] | None,
    names: str | None = None,
    timezone: str | None = None,
) -> "Scope":
    """The scope that the options select; LedgerError for an invalid word."""
    from ledger.model.errors import WrongCallError
    from ledger.settings import names_file
    from ledger.store.scope import Scope
    from ledger.text import period

    zone = period.zone_of(timezone) if timezone and timezone != "UTC" else None
    now = datetime.now(zone or UTC)
    pairs = []
    for condition in only or []:
        word, separator, value = condition.partition("=")
        if not separator:
            raise WrongCallError(f"not a condition: {condition!r}; write --only model=gpt-5")
        pairs.append((word.strip(), value.strip()))
    begin = period.moment(since, now) if since else None
    end = period.moment(until, now) if until else None
    if begin and end and begin >= end:
        raise WrongCallError(
            f"no time lies between --since {since} and --until {until}, which is not included"
        )
    return Scope(
        since=begin,
        until=end,
        only=tuple(pairs),
        names=names_file.load(names),
        zone=zone,
    )
