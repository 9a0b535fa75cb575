"""Edge. Where the names file lies, and reading it."""

import os
from pathlib import Path

import platformdirs

from ledger.model import toml_tables
from ledger.model.errors import LedgerError
from ledger.model.toml_tables import Problem
from ledger.names.names import NO_NAMES, Names, read

FILE_BYTES_MAX = 4 * 1024 * 1024
"""Far more than anybody writes by hand; a wrong path to a dump is noticed before it is parsed."""


def config_directory() -> Path:
    """The user's folder for tokentee's settings."""
    return platformdirs.user_config_path("tokentee", appauthor=False)


def path_of(named: str | None) -> Path | None:
    """The file that an option or `TOKENTEE_NAMES` names, or `names.toml` among the settings if it
    is there."""
    return file_in_force(named, "TOKENTEE_NAMES", "names.toml")


def file_in_force(named: str | None, variable: str, file_name: str) -> Path | None:
    """The file that an option or this variable names, or the one of this name among the settings
    if it is there."""
    if named or (named := os.environ.get(variable)):
        return Path(named)
    found = config_directory() / file_name
    return found if found.is_file() else None


def check(path: Path) -> tuple[Names, list[Problem]]:
    """The names of a file as far as it is valid, and each problem; LedgerError if it cannot be
    read."""
    return read(text_of(path, "names file"))


def load(named: str | None) -> Names:
    """The names that are in force here; none without a file. LedgerError for a wrong file."""
    path = path_of(named)
    if path is None:
        return NO_NAMES
    names, problems = check(path)
    if problems:
        raise toml_tables.refusal(path, problems, "tokentee names check")
    return names


def text_of(path: Path, kind: str) -> str:
    """The text of a settings file; LedgerError if it cannot be read."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise LedgerError(f"cannot read the {kind} {path}: {error.strerror}") from None
    if len(data) > FILE_BYTES_MAX:
        raise LedgerError(f"{path}: not a {kind}, it is larger than {FILE_BYTES_MAX} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise LedgerError(f"{path}: not UTF-8 at byte {error.start}") from None
