"""Edge (files). Which config files are trusted, and what one that is not may set.

A file in the current folder was found, not named: whoever wrote the folder wrote it. It may set
what is harmless. What runs commands, sends data away, decrypts more or moves the ledger needs
`--config FILE`, or `tokentee config trust FILE`, which remembers the digest of the file and of the
files that it names, as direnv and git do (https://direnv.net/, git-config `safe.directory`).
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from addon.run.call.settings import FILES, ConfigFile, beside
from ledger.budgets.budgets import read as read_budgets
from ledger.model.errors import LedgerError
from ledger.settings.small_files import config_directory, read_bytes

HARMLESS = frozenset({"tags", "client_tags", "log", "log_format", "names", "budgets"})
"""Keys that any file may set; `budgets` only if they have no alerts. A key that is not listed here
is not harmless."""
STORE = "trusted.json"
FILES_MAX = 1_000
"""Trusted files that are remembered."""


def digest_of(path: Path, settings: ConfigFile) -> str:
    """Digest of a config file and of the files that it names. LedgerError if it cannot be read."""
    found = hashlib.sha256(read_bytes(path, "config file"))
    for key in FILES:
        named = getattr(settings, key)
        if named is not None:
            content = file_digest(beside(path.parent, named)) or "none"
            found.update(f"\0{key}\0{content}".encode())
    return found.hexdigest()


def file_digest(path: Path) -> str | None:
    """Digest of a regular file; None if it is none, or cannot be read."""
    try:
        if not path.is_file():
            return None
        return hashlib.sha256(read_bytes(path, "file")).hexdigest()
    except (LedgerError, OSError, ValueError):
        return None


def is_trusted(path: Path, settings: ConfigFile) -> bool:
    """Whether the file, with this content, was trusted."""
    return remembered().get(str(path.resolve())) == digest_of(path, settings)


def restricted(path: Path, settings: ConfigFile) -> tuple[ConfigFile, list[str]]:
    """What an untrusted file may set, and the keys that are left out."""
    empty = ConfigFile()
    left_out = [
        name
        for name in ConfigFile.__struct_fields__
        if getattr(settings, name) != getattr(empty, name)
        and (name not in HARMLESS or (name in FILES and not _is_harmless(path, settings, name)))
    ]
    values = {name: getattr(empty, name) for name in left_out}
    return msgspec.structs.replace(settings, **values), left_out


def _is_harmless(path: Path, settings: ConfigFile, key: str) -> bool:
    """Whether a file that a key names lies beside the config file, and runs and sends nothing."""
    named = beside(path.parent, getattr(settings, key))
    if not named.is_file() or not named.resolve().is_relative_to(path.parent.resolve()):
        return False
    if key != "budgets":
        return True
    budgets, problems = read_budgets(read_bytes(named, "budgets file").decode("utf-8", "replace"))
    return not problems and not budgets.destinations


def remembered() -> Mapping[str, str]:
    """Path of each trusted file -> its digest. LedgerError for a damaged list."""
    store = config_directory() / STORE
    if not store.is_file():
        return {}
    try:
        return msgspec.json.decode(read_bytes(store, "list of trusted files"), type=dict[str, str])
    except msgspec.MsgspecError as error:
        raise LedgerError(f"{store}: {error}; remove it, and trust your files again") from None


def remember(path: Path, digest: str | None) -> None:
    """Trust a file with this digest; None: no longer. LedgerError if the list cannot be written."""
    files = {**remembered()}
    key = str(path.resolve())
    files.pop(key, None)
    if digest is not None:
        files[key] = digest
    store = config_directory() / STORE
    try:
        store.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=store.parent, delete=False) as made:  # mode 0600
            json.dump(dict(list(files.items())[-FILES_MAX:]), made, indent=1)
            made.flush()
            os.fsync(made.fileno())
        Path(made.name).replace(store)
    except OSError as error:
        raise LedgerError(f"cannot write {store}: {error.strerror}") from None
