"""Edge. Finds and reads the config file in force."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from addon.run.call import trust
from addon.run.call.settings import Settings, read
from ledger.settings import toml_tables
from ledger.settings.places import config_directory
from ledger.settings.small_files import read_text
from ledger.settings.toml_tables import Problem

NAME = "tokentee.toml"
SYSTEM_FOLDER = Path("/etc/tokentee")


def path_of(named: str | None, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The file that `--config` or TOKENTEE_CONFIG names; otherwise the first existing one of
    `places`; None if there is none."""
    if named or (named := environment.get("TOKENTEE_CONFIG")):
        return Path(named)
    return next((path for path in places() if path.is_file()), None)


def in_force(path: Path, named: str | None, environment: Mapping[str, str]) -> Settings:
    """The settings of a file; of one that was only found in the current folder and is not trusted,
    the harmless ones. One line says what is left out. LedgerError for the first problem."""
    settings = load(path)
    was_named = named or environment.get("TOKENTEE_CONFIG")
    if was_named or path != Path(NAME) or trust.is_trusted(path, settings):
        return settings
    settings, left_out = trust.restricted(path, settings)
    if left_out:
        sys.stderr.write(
            f"tokentee: {path} was found, not named, and is not trusted: it does not set "
            f"{', '.join(left_out)}; --config {path} does, or tokentee config trust {path}\n"
        )
    return settings


def places() -> tuple[Path, ...]:
    """The paths that are searched for a config file, in this order."""
    return (Path(NAME), config_directory() / NAME, SYSTEM_FOLDER / NAME)


def check(path: Path) -> tuple[Settings, list[Problem]]:
    """The valid settings of a file, and each problem. LedgerError if the file cannot be read."""
    text = read_text(path, "config file")
    settings, problems = read(text)
    for key in ("prices", "names", "budgets", "ledger_file"):
        named = getattr(settings, key)
        if named is not None and not beside(path, named).is_file():
            problems.append(
                Problem(line=toml_tables.line_of_key(text, key), text=f"{key}: no file {named!r}")
            )
    return settings, problems


def load(path: Path) -> Settings:
    """The settings of a file. LedgerError for the first problem."""
    settings, problems = check(path)
    if problems:
        raise toml_tables.refusal(path, problems, "tokentee config check")
    return settings


def beside(path: Path, named: str) -> Path:
    """A file that a config file names: relative to the config file's folder."""
    return path.parent / Path(named).expanduser()


def ledger_url(settings: Settings, path: Path) -> str | None:
    """The ledger's URL, from the file that `ledger_file` names if it is set."""
    if settings.ledger_file is None:
        return settings.ledger
    return read_text(beside(path, settings.ledger_file), "file with the ledger URL").strip()
