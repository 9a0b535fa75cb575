"""Wiring. Options that commands about recordings share."""

from pathlib import Path
from typing import Annotated

import typer

_KINDS = (
    "captures and corpora (*.jsonl[.gz]), flow files (*.mitm, *.flow), *.har, or single bodies "
    "(*.sse, *.json, *.ndjson, *.eventstream) with --url"
)
Recordings = Annotated[
    list[Path],
    typer.Argument(metavar="PATHS...", help=f"Files or folders: {_KINDS}.", show_default=False),
]
Archives = Annotated[
    list[str],
    typer.Argument(
        metavar="PATHS...",
        help=f"Files or folders: {_KINDS}; with --dask also URLs and globs (s3://bucket/2026/*).",
        show_default=False,
    ),
]
Url = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Where a single body came from: decides how it is read."),
]
