"""Wiring. Options that commands about recordings share."""

from pathlib import Path
from typing import Annotated

import typer

Recordings = Annotated[
    list[Path],
    typer.Argument(
        help="Files or folders: captures and corpora (*.jsonl[.gz]), flow files (*.mitm, *.flow), "
        "*.har, or single bodies (*.sse, *.json, *.ndjson, *.eventstream) with --url.",
        show_default=False,
    ),
]
Url = Annotated[
    str | None, typer.Option(help="Where a single body came from: decides how it is read.")
]
