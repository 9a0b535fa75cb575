"""Wiring. Options that several commands share, so that they read alike everywhere."""

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
