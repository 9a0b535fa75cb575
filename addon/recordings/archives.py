"""Edge (files, network). Archives of recordings: local files, and URLs that fsspec reads
(`s3://…`).

fsspec reads object stores, HDFS, SFTP and more, each with a package of its own; credentials and
endpoints come from the environment, as that package documents (`AWS_ENDPOINT_URL` …). A remote file
is copied to the machine that reads it, with its modification time, which is the start of exchanges
that were recorded without one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from addon.recordings.files import BODY_TYPES, files_of, is_recording
from ledger.model.errors import LedgerError
from ledger.text.hints import missing_extra, needs

COPY_BYTES = 8 * 1024 * 1024
"""Bytes per copy step: one request to an object store."""
_GLOB = frozenset("*?[")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveFile:
    """One file of an archive."""

    name: str
    """Its path, or its URL."""
    size: int
    modified_at: float | None = None
    """Seconds since 1970; for remote files only."""

    @property
    def is_local(self) -> bool:
        """Whether the file is local."""
        return not is_url(self.name)

    @classmethod
    def local(cls, path: Path) -> ArchiveFile:
        """A file of this machine."""
        return cls(name=str(path), size=path.stat().st_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivePart:
    """A file of an archive, or one of several equal shares of its entries."""

    file: ArchiveFile
    part: int = 0
    parts: int = 1

    @property
    def size(self) -> int:
        """The part's share of the file's bytes."""
        return self.file.size // self.parts


def is_url(name: str) -> bool:
    """Whether a path is a URL for fsspec."""
    return "://" in name


def files_in(names: Sequence[str], *, bodies_too: bool) -> list[ArchiveFile]:
    """The files of paths and URLs, each once; folders are searched, globs in URLs expanded.

    Raises LedgerError for a path that is missing or cannot be listed.
    """
    local = [Path(name) for name in names if not is_url(name)]
    files = [ArchiveFile.local(path.resolve()) for path in files_of(local, bodies_too=bodies_too)]
    for name in names:
        if is_url(name):
            files += _at_url(name, bodies_too=bodies_too)
    return list({one.name: one for one in files}.values())


def parts_of(files: Iterable[ArchiveFile], *, part_bytes: int, parts_max: int) -> list[ArchivePart]:
    """The parts to read, the largest first, so that nobody starts a long one at the end.
    `part_bytes`: what is larger is read in parts; `parts_max`: of one file."""
    parts = []
    for file in files:
        is_whole = not file.is_local or file.name.endswith(tuple(BODY_TYPES))
        count = 1 if is_whole else max(1, min(parts_max, -(-file.size // part_bytes)))
        parts += [ArchivePart(file=file, part=part, parts=count) for part in range(count)]
    return sorted(parts, key=lambda part: -part.size)


@contextmanager
def on_this_machine(file: ArchiveFile, folder: Path) -> Iterator[Path]:
    """A local path of the file; a remote file is copied to the folder. Raises OSError."""
    if file.is_local:
        yield Path(file.name)
        return
    system, path = _opened(file.name)
    copy = folder / (PurePosixPath(path).name or "recording")
    with system.open(path, "rb") as source, copy.open("wb") as target:
        shutil.copyfileobj(source, target, COPY_BYTES)
    if file.modified_at is not None:
        os.utime(copy, (file.modified_at, file.modified_at))
    try:
        yield copy
    finally:
        copy.unlink(missing_ok=True)


def _at_url(url: str, *, bodies_too: bool) -> list[ArchiveFile]:
    system, path = _opened(url)
    try:
        paths = _paths(system, path, bodies_too=bodies_too)
        found = [_remote(system, one) for one in sorted(paths)]
    except Exception as error:
        # Each store raises its own error types; each means that it cannot be listed.
        raise LedgerError(f"{url} cannot be listed: {type(error).__name__}: {error}") from error
    if not found:
        raise LedgerError(f"{url}: no such file or folder, or no recordings in it")
    return found


def _paths(system: Any, path: str, *, bodies_too: bool) -> list[str]:
    if _GLOB & set(path):
        return [one for one in system.glob(path) if system.isfile(one)]
    if system.isdir(path):
        inside = system.find(path)
        return [one for one in inside if is_recording(one, bodies_too=bodies_too)]
    return [path] if system.exists(path) else []


def _remote(system: Any, path: str) -> ArchiveFile:
    if "file" in (system.protocol if isinstance(system.protocol, tuple) else [system.protocol]):
        return ArchiveFile.local(Path(path).resolve())
    return ArchiveFile(
        name=system.unstrip_protocol(path),
        size=int(system.size(path) or 0),
        modified_at=_modified_at(system, path),
    )


def _modified_at(system: Any, path: str) -> float | None:
    try:
        found = system.modified(path)
    except (NotImplementedError, KeyError):
        return None
    if not isinstance(found, datetime):
        return None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _opened(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it. LedgerError if no file system supports it."""
    try:
        from fsspec.core import url_to_fs

        found: tuple[Any, str] = url_to_fs(url)
    except ModuleNotFoundError as error:
        raise LedgerError(missing_extra(error) or f"{url}: {error}") from error
    except ImportError as error:  # fsspec's message names the package that it needs
        is_s3 = url.startswith(("s3://", "s3a://"))
        raise LedgerError(needs("s3fs") if is_s3 else f"{url}: {error}") from error
    except ValueError as error:
        raise LedgerError(f"{url}: {error}") from error
    return found
