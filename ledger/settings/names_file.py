"""Edge. Finds and reads the names file."""

import shlex
from collections.abc import Callable
from pathlib import Path

from ledger.model.errors import LedgerError
from ledger.settings import small_files, toml_tables
from ledger.settings.names import NO_NAMES, Names, read
from ledger.settings.small_files import file_in_force
from ledger.settings.toml_tables import TomlProblem


def path_of(named: str | None) -> Path | None:
    """The file that an option or `TOKENTEE_NAMES` names, or an existing `names.toml` in the
    settings folder."""
    return file_in_force(named, "TOKENTEE_NAMES", "names.toml")


def check(path: Path) -> tuple[Names, list[TomlProblem]]:
    """The valid names of a file, and each problem; LedgerError if it cannot be read."""
    return read(small_files.read_text(path, "names file"))


def load(named: str | None) -> Names:
    """The names in force; none without a file. LedgerError for a wrong file."""
    path = path_of(named)
    if path is None:
        return NO_NAMES
    return toml_tables.valid(path, check(path), _command(path))


def load_valid(log: Callable[[str, str], None]) -> Names:
    """The valid names in force, for a recorder: a wrong line is logged, and stops nothing."""
    path = path_of(None)
    if path is None:
        return NO_NAMES
    try:
        names, problems = check(path)
    except LedgerError as error:
        log("warning", str(error))
        return NO_NAMES
    if problems:
        log("warning", str(toml_tables.refusal(path, problems, _command(path))))
    return names


def _command(path: Path) -> str:
    return f"tokentee names check {shlex.quote(str(path))}"
