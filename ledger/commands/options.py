"""Wiring. Options that several commands share, so that they read alike everywhere."""

from enum import StrEnum
from typing import Annotated

import typer

LedgerOption = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        metavar="URL",
        envvar="TOKENTEE_LEDGER",
        help="sqlite:///FILE or postgresql+psycopg://USER@HOST/NAME; default: the SQLite file in "
        "your data directory.",
        show_default=False,
    ),
]

Since = Annotated[
    str | None,
    typer.Option(metavar="WHEN", help="From then on: 2026-11-01, 24h, 7d, today, …; UTC."),
]
Until = Annotated[str | None, typer.Option(metavar="WHEN", help="Before then.")]
Only = Annotated[
    list[str] | None,
    typer.Option(metavar="WORD=VALUE", help="Only requests of this model, key, tag:NAME, …"),
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


class Format(StrEnum):
    """What a table can be written as."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"


TableFormat = Annotated[Format, typer.Option("--format", "-f")]
