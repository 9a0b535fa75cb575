"""Edge. The paths of the operator's settings files."""

import os
from pathlib import Path

import platformdirs


def config_directory() -> Path:
    """The user's folder for tokentee's settings."""
    return platformdirs.user_config_path("tokentee", appauthor=False)


def data_directory() -> Path:
    """The user's folder for tokentee's data."""
    return platformdirs.user_data_path("tokentee", appauthor=False)


def file_in_force(named: str | None, variable: str, file_name: str) -> Path | None:
    """The file that an option or this variable names, or an existing file of this name in the
    settings folder."""
    if named or (named := os.environ.get(variable)):
        return Path(named)
    found = config_directory() / file_name
    return found if found.is_file() else None
