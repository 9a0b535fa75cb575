"""Wiring. `tokentee deploy`: files for containers, services and dashboards."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Kind(StrEnum):
    """The kinds of deployment."""

    DOCKER = "docker"
    COMPOSE = "compose"
    SYSTEMD = "systemd"
    KUBERNETES = "kubernetes"
    GRAFANA = "grafana"
    PROMETHEUS = "prometheus"


def deploy(
    kind: Annotated[
        Kind, typer.Argument(metavar="KIND", help=f"What to write files for: {', '.join(Kind)}.")
    ],
    *,
    to: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where the files go; made if need be.")
    ] = Path(),
    force: Annotated[
        bool, typer.Option("--force", help="Replace files that were changed.")
    ] = False,
) -> None:
    """Write the files for a container, a service, or dashboards and alerts.

    Nothing is started, and files that you changed are not replaced without --force. Images and
    manifests are made from the installed version.
    """
    from addon.deploy.writing import Occupied, write
    from ledger.model.errors import LedgerError

    try:
        written = write(kind, to, force=force)
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
