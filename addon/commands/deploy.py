"""Wiring. `tokentee deploy`: files for containers, services and dashboards."""

import re
import shlex
import sys
import textwrap
from pathlib import Path
from typing import Annotated, Literal

import typer

from addon.deploy.kinds import KINDS, Occupied, next_steps, write
from ledger.model.errors import LedgerError


def deploy(
    kind: Annotated[
        Literal["docker", "compose", "systemd", "kubernetes", "grafana", "prometheus"],
        typer.Argument(metavar="KIND", help=f"What to write files for: {', '.join(KINDS)}."),
    ],
    *,
    to: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where the files go; made if need be.")
    ] = Path(),
    wheel: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Copy this wheel (`uv build --wheel` makes it), from which the image is made.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace files that were changed.")
    ] = False,
) -> None:
    """Write the files for a container, a service, or dashboards and alerts.

    Nothing is started, and files that you changed are not replaced without --force. Images and
    manifests are for the installed version. The commands that come next are printed.
    """
    if wheel is not None:
        if "Dockerfile" not in KINDS[kind]:
            raise LedgerError("--wheel is for kinds with an image: docker, compose")
        if not re.fullmatch(r"tokentee-[\w.+!]+-py3-none-any\.whl", wheel.name):
            raise LedgerError(
                f"--wheel {wheel} is not the name of a wheel of tokentee; `uv build` makes one"
            )
        if not wheel.is_file():
            raise LedgerError(f"--wheel {wheel} is not a file")
    try:
        written = write(kind, to, force=force, wheel=wheel)
    except Occupied as occupied:
        listed = ", ".join(map(str, occupied.paths))
        raise LedgerError(
            f"not written: {listed} is there with other content; --force replaces it"
        ) from None
    except OSError as error:
        raise LedgerError(
            f"cannot write to {to}: {error.strerror}; name a folder with --to"
        ) from error
    for one in written:
        sys.stderr.write(f"{one.path}{'' if one.is_new else ' (unchanged)'}\n")
    steps = f"cd {shlex.quote(str(to))}\n{next_steps(kind)}"
    sys.stderr.write(f"\nNext:\n{textwrap.indent(steps, '  ')}")
