"""Database. The secret of the keyed hash of API keys; readers of a ledger cannot read it.

A reader who knows the secret can test guesses of a key against the fingerprints in a ledger. So
the secret is stored neither in the ledger nor in any copy of it:

    SQLite       one file for all ledgers of a user, mode 0600: `TOKENTEE_SECRET_FILE`, or `secret`
                 in the user's data directory. One secret, so ledgers that are merged show a key
                 under one fingerprint.
    PostgreSQL   `tokentee_private.secret`: a schema of its own, which a grant on all tables of the
                 ledger's schema does not reach. The proxies of a shared ledger take it from there.

A ledger of before version 0005 kept the secret in `meta`. It moves to the file of this user if that
is not there yet; else to a file beside the ledger (`NAME.secret`), so that its fingerprints stay
what they are.

A SQLite ledger stores in `meta` an id of the secret that it was written with: a keyed hash of a
constant, from which the secret cannot be computed. So any two ledgers can be compared.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import os
import secrets
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.model.errors import LedgerError
from ledger.settings import small_files
from ledger.store.engines import sqlite_file, urls

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine

logger = logging.getLogger(__name__)

KEY_SECRET_BYTES = 32
SECRET_FILE_BYTES_MAX = 4_096
KIND = "secret of key fingerprints"
ADVICE = "put it back from a copy, or remove it: keys then get other fingerprints"
_NOTED_ID = "secret_id"
_SHARED = "SELECT value FROM tokentee_private.secret"
_SHARING = (
    "INSERT INTO tokentee_private.secret (place, value) VALUES (1, %(value)s) "
    "ON CONFLICT DO NOTHING"
)
_IN_META = "SELECT value FROM meta WHERE key = ?"


def of_machine() -> bytes:
    """The secret of this user's ledgers; created at first use."""
    return _made(_machine_path(), secrets.token_bytes(KEY_SECRET_BYTES))


def of_ledger(engine: Engine) -> bytes:
    """The secret of a SQLite ledger."""
    with _file_of(engine) as (path, connection):
        return of_file(path, connection)


def of_file(path: Path, connection: sqlite3.Connection) -> bytes:
    """The same over a connection to its file."""
    _move_out_of_meta(path, connection)
    own = _own_path(path)
    place = own if own.is_file() else _machine_path()
    found = _read(own) if own.is_file() else of_machine()
    before = _in_meta(connection, _NOTED_ID)
    if before not in (None, id_of(found)):  # the id is then noted, so this is logged once
        logger.warning(
            "tokentee: the keys in %s were hashed with another secret than that in %s, so from now "
            "on each key shows as a new one; to keep them, stop, put the ledger's own secret "
            "there, and start again",
            *(path, place),
        )
    _note_id(connection, id_of(found))
    return found


def id_of(secret: bytes) -> str:
    """The id of a secret; the secret cannot be computed from it."""
    return hmac.digest(secret, b"tokentee: which secret", "sha256").hex()[:16]


def id_in(engine: Engine) -> str | None:
    """The id of the secret that a ledger was written with; None: not known."""
    if engine.dialect.name == "sqlite":
        with engine.connect() as connection:
            noted: str | None = connection.exec_driver_sql(_IN_META, (_NOTED_ID,)).scalar()
        if noted is not None:
            return noted
    found = known(engine)
    return None if found is None else id_of(found)


def known(engine: Engine) -> bytes | None:
    """The secret of a ledger, if it is readable here; nothing is created or changed."""
    if (path := urls.file_of(engine.url)) is not None:
        own = _own_path(path)
        found = own if own.is_file() else _machine_path()
        return _read(found) if found.is_file() else None
    import sqlalchemy as sa

    try:
        with engine.connect() as connection:
            kept = connection.exec_driver_sql(_SHARED).scalar()
    except sa.exc.ProgrammingError:
        # No right to read it, or a ledger older than the schema `tokentee_private`.
        return None
    return None if kept is None else bytes.fromhex(kept)


def store(engine: Engine, secret: bytes) -> bool:
    """Store this secret for a ledger that has no own secret; whether it has this one now."""
    if engine.dialect.name == "sqlite":
        with _file_of(engine) as (path, file):
            if known(engine) != secret:
                _made(_own_path(path), secret)
            if known(engine) == secret:
                _note_id(file, id_of(secret))
    else:
        with engine.begin() as connection:
            connection.exec_driver_sql(_SHARING, {"value": secret.hex()})
    return known(engine) == secret


def move_out_of_meta(engine: Engine) -> None:
    """Move the secret of an older SQLite ledger out of it."""
    with _file_of(engine) as (path, connection):
        _move_out_of_meta(path, connection)


def share(spool: Engine, shared: Engine) -> bool:
    """Copy the secret of the shared ledger into its spool, or the spool's into a shared ledger that
    has none; whether the spool's secret changed."""
    own = of_ledger(spool)
    with shared.begin() as connection:
        kept = connection.exec_driver_sql(_SHARED).scalar()
        if kept is None:
            connection.exec_driver_sql(_SHARING, {"value": own.hex()})
            kept = connection.exec_driver_sql(_SHARED).scalar()
    assert isinstance(kept, str)
    if bytes.fromhex(kept) == own:
        return False
    with _file_of(spool) as (path, connection):
        small_files.write_whole(_own_path(path), bytes.fromhex(kept).hex().encode())
        _note_id(connection, id_of(bytes.fromhex(kept)))
    return True


@contextlib.contextmanager
def _file_of(engine: Engine) -> Iterator[tuple[Path, sqlite3.Connection]]:
    """The file of a SQLite ledger, and a connection to it."""
    path = urls.file_of(engine.url)
    assert path is not None
    with contextlib.closing(sqlite_file.connect(path)) as connection:
        yield path, connection


def _move_out_of_meta(path: Path, connection: sqlite3.Connection) -> None:
    text = _in_meta(connection, "secret")
    if text is None:
        return
    kept = bytes.fromhex(text)
    if _made(_machine_path(), kept) != kept:
        _made(_own_path(path), kept)
    # SQLite overwrites deleted content in the file.
    connection.execute("PRAGMA secure_delete = ON")
    with sqlite_file.writing(connection):
        connection.execute("DELETE FROM meta WHERE key = 'secret'")
    connection.execute("PRAGMA secure_delete = OFF")


def _note_id(connection: sqlite3.Connection, name: str) -> None:
    if _in_meta(connection, _NOTED_ID) != name:
        with sqlite_file.writing(connection):
            connection.execute("DELETE FROM meta WHERE key = ?", (_NOTED_ID,))
            connection.execute("INSERT INTO meta (key, value) VALUES (?, ?)", (_NOTED_ID, name))


def _in_meta(connection: sqlite3.Connection, key: str) -> str | None:
    found = connection.execute(_IN_META, (key,)).fetchone()
    return None if found is None else str(found[0])


def _machine_path() -> Path:
    named = os.environ.get("TOKENTEE_SECRET_FILE")
    return small_files.expanded(named) if named else small_files.data_directory() / "secret"


def _own_path(ledger: Path) -> Path:
    return ledger.with_name(f"{ledger.name}.secret")


def _made(path: Path, secret: bytes) -> bytes:
    """The secret in a file; a missing file is created with this one."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            # The complete file is linked into place, so of two processes that start together one
            # wins.
            with tempfile.NamedTemporaryFile("w", dir=path.parent) as file:
                file.write(secret.hex())
                file.flush()
                os.fsync(file.fileno())
                with contextlib.suppress(FileExistsError):
                    os.link(file.name, path)
    except OSError as error:
        raise LedgerError(
            f"cannot write the secret of key fingerprints {path}: {error.strerror}; "
            "name a file you can write to (TOKENTEE_SECRET_FILE)"
        ) from error
    return _read(path)


def _read(path: Path) -> bytes:
    text = small_files.read_text(path, KIND, bytes_max=SECRET_FILE_BYTES_MAX, advice=ADVICE)
    try:
        found = bytes.fromhex(text.strip())
    except ValueError as error:
        raise LedgerError(f"{path} is not a {KIND}: {error}; {ADVICE}") from error
    if len(found) < KEY_SECRET_BYTES // 2:
        raise LedgerError(f"{path} is not a {KIND}: it is too short; {ADVICE}")
    # Others lose their rights, now that it is known to be a secret: the path may be mistyped.
    # Rights of a group on a file that is not ours are meant: Kubernetes mounts secrets so.
    status = path.stat()
    if status.st_mode & (0o077 if status.st_uid == os.geteuid() else 0o007):
        try:
            path.chmod(0o600)
        except OSError as error:
            raise LedgerError(
                f"others can read the {KIND} {path}, and its mode cannot be changed: "
                f"{error.strerror}; give it to this user alone"
            ) from error
        logger.warning("tokentee: others could read %s: its mode is 0600 now", path)
    return found
