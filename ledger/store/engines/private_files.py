"""Edge (files). A ledger's SQLite file: made so that only its owner can read it, and copied before
a migration."""

import contextlib
import glob
import os
import sqlite3
from pathlib import Path

from ledger.model.errors import LedgerError


def create(path: Path) -> None:
    """An empty file that only its owner can read; SQLite gives the WAL beside it the same mode."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        _make_private(path)
    except OSError as error:
        raise LedgerError(
            f"cannot create the ledger {path}: {error.strerror}; "
            "name a folder you can write to (ledger_url, TOKENTEE_LEDGER)"
        ) from error
    if not os.access(path, os.R_OK | os.W_OK) or not os.access(path.parent, os.W_OK):
        raise LedgerError(
            f"cannot write the ledger {path}: permission denied; "
            "name a file you can write to (ledger_url, TOKENTEE_LEDGER)"
        )


def _make_private(path: Path) -> None:
    """Remove the rights of other users on a ledger's files, if we own them."""
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        file = path.with_name(name)
        with contextlib.suppress(FileNotFoundError, PermissionError):
            if file.stat().st_mode & 0o077:
                file.chmod(0o600)


def copies_of(path: Path) -> list[Path]:
    """The copies that migrations have made beside a ledger."""
    return sorted(
        file
        for file in path.parent.glob(f"{glob.escape(path.name)}.before-*")
        if not file.name.endswith(("-wal", "-shm", ".part"))
    )


def copy_before(path: Path, revision: str, *, new_revision: str) -> Path:
    """Copy a ledger to a file beside it. Each migration step has one file name: a retry replaces
    the copy of the last attempt."""
    copy = path.with_name(f"{path.name}.before-{new_revision}-from-{revision}")
    part = copy.with_name(f"{copy.name}.part")
    part.unlink(missing_ok=True)
    try:
        create(part)
        with (
            contextlib.closing(sqlite3.connect(path)) as source,
            contextlib.closing(sqlite3.connect(part)) as target,
        ):
            source.backup(target)
        part.replace(copy)
    except (OSError, sqlite3.Error) as error:
        part.unlink(missing_ok=True)
        raise LedgerError(
            f"cannot copy the ledger {path} before its migration: {error}; it is as it was: "
            "free some disk space for a copy beside it"
        ) from error
    return copy
