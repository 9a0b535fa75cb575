"""Edge (files, network). Finds files with recordings, and chooses the reader for each kind.

*.jsonl, *.jsonl.gz                      one exchange a line: captures, test corpora
*.mitm, *.flow, *.flows                  what mitmproxy saves
*.har, *.zhar                            what browsers and mitmproxy export
*.sse, *.json, *.ndjson, *.eventstream   the body of one answer; needs its URL

The first bytes of a file named `.har` or `.flow` decide its reader: mitmproxy reads both under any
name.

An archive also has files at URLs that fsspec reads (`s3://…`): object stores, HDFS, SFTP and more,
each with a package of its own; credentials and endpoints come from the environment, as that package
documents (`AWS_ENDPOINT_URL` …). A remote file is copied to the machine that reads it, with its
modification time, which is the start of exchanges that were recorded without one.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from addon.recordings.formats import lines, saved_flows
from addon.recordings.formats.recorded import (
    Item,
    Recorded,
    RecordedEntry,
    RecordingError,
    Skipped,
    Unreadable,
    Why,
    derived_id,
    split_url,
)
from ledger.model.errors import LedgerError
from ledger.reports.progress import rest_line
from ledger.settings.extras import missing_extra, needs
from ledger.text.printable import printable

LINE_SUFFIXES = (".jsonl", ".jsonl.gz")
HAR_SUFFIXES = (".har", ".zhar")
FLOW_SUFFIXES = (".mitm", ".flow", ".flows")
BODY_TYPES = {
    ".sse": "text/event-stream",
    ".json": "application/json",
    ".ndjson": "application/x-ndjson",
    ".eventstream": "application/vnd.amazon.eventstream",
}
"""Content type by suffix."""
BODY_BYTES_MAX = 512 * 1024 * 1024
"""Held in memory while it is read."""
UNREADABLE_MAX = 1_000
"""Faults with a stored text; all are counted."""
UNREADABLE_SHOWN_MAX = 10
_REQUEST_BODY = b"{}"
_HAR_BEGINS = (b"{", b"\xef\xbb\xbf{")
COPY_BYTES = 8 * 1024 * 1024
"""Bytes per copy step: one request to an object store."""
_GLOB = frozenset("*?[")


@dataclass(slots=True)
class EntryCounts:
    """Counts of the entries of files that are read for no row."""

    foreign: int = 0
    """Exchanges that are not LLM calls."""
    skipped: Counter[Why] = field(default_factory=Counter)
    faults: int = 0
    """Entries that could not be read."""
    unreadable: list[Unreadable] = field(default_factory=list)
    """The first of these entries, and files of another kind."""

    def add_unread(self, item: Skipped | Unreadable) -> None:
        """Count an entry that is skipped or cannot be read."""
        if isinstance(item, Skipped):
            self.skipped[item.why] += 1
            return
        self.faults += not item.is_other_kind
        if len(self.unreadable) < UNREADABLE_MAX:
            self.unreadable.append(item)

    def unread_lines(self, *, refused: int = 0) -> Iterator[str]:
        """A line for each reason to skip, and for the first entries that could not be read.
        `refused`: entries that were read and have a text among these."""
        for why, count in self.skipped.items():
            yield f"{count:,} skipped: {why.value}"
        if self.faults:
            yield f"{self.faults:,} not readable"
        for item in self.unreadable[:UNREADABLE_SHOWN_MAX]:
            yield f"not read: {printable(item.where)}: {printable(item.why)}"
        total = max(len(self.unreadable), self.faults + refused)
        if line := rest_line(total, UNREADABLE_SHOWN_MAX):
            yield line


def files_of(paths: Iterable[Path], *, bodies_too: bool) -> list[Path]:
    """The files to read, with folders searched, in a fixed order and each once.

    `bodies_too`: also single bodies in folders; a body named itself is always read. Raises
    LedgerError for a missing path, and for folders without recordings.
    """
    paths = list(paths)
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            inside = (file for file in path.rglob("*") if file.is_file())
            kept = (file for file in inside if is_recording(file.name, bodies_too=bodies_too))
            found.update(dict.fromkeys(sorted(kept)))
        elif path.is_file():
            found[path] = None
        elif path.exists():
            raise LedgerError(f"{path}: a pipe or a device is not read; name a file or a folder")
        else:
            raise LedgerError(f"{path}: no such file or folder")
    if paths and not found:
        raise LedgerError(f"nothing to read in {', '.join(map(str, paths))}")
    return list(found)


def is_recording(name: str, *, bodies_too: bool) -> bool:
    """Whether a file of a folder is read, by its name."""
    return name.endswith((*LINE_SUFFIXES, *HAR_SUFFIXES, *FLOW_SUFFIXES)) or (
        bodies_too and name.endswith(tuple(BODY_TYPES))
    )


def entries(
    path: Path, *, url: str | None, part: int = 0, parts: int = 1
) -> Iterator[RecordedEntry]:
    """The entries of a file, not parsed yet. `url`: the URL of a single body.

    Several processes read one large file as `parts`, each its `part`, from 0.
    """
    try:
        if path.name.endswith(LINE_SUFFIXES):
            yield from lines.entries(path, part=part, parts=parts)
        elif path.suffix in BODY_TYPES:
            if part == 0:
                yield RecordedEntry(
                    path.stat().st_size, 0, None, partial(_body, path, url), str(path)
                )
        else:
            is_har = path.suffix == ".zhar"
            if not is_har:
                with path.open("rb") as file:
                    is_har = file.read(4).lstrip().startswith(_HAR_BEGINS)
            reader = saved_flows.har_entries if is_har else saved_flows.flow_entries
            yield from reader(path, part=part, parts=parts)
    except OSError as error:
        yield RecordedEntry.of(Unreadable(str(path), f"cannot be read: {error.strerror or error}"))


def read(path: Path, *, url: str | None) -> Iterator[Item]:
    """The entries of a file, parsed."""
    for entry in entries(path, url=url):
        yield entry.item()


def _body(path: Path, url: str | None) -> Item:
    """The one exchange of a file. Raises OSError."""
    if url is None:
        return Unreadable(str(path), "a single body: say where it came from with --url")
    try:
        origin, target = split_url(url)
    except RecordingError as error:
        return Unreadable(str(path), f"--url {url}: {error}")
    status = path.stat()
    if status.st_size > BODY_BYTES_MAX:
        return Unreadable(str(path), f"larger than {BODY_BYTES_MAX >> 20} MiB: not an answer")
    body = path.read_bytes()
    exchange_id = derived_id(
        method="POST",
        origin=origin,
        path=target,
        request_body=_REQUEST_BODY,
        response_body=body,
        started_at=None,
    )
    return Recorded(
        name=path.name,
        where=str(path),
        id=exchange_id,
        has_own_id=False,
        method="POST",
        origin=origin,
        path=target,
        request_body=_REQUEST_BODY,
        opened_at=datetime.fromtimestamp(status.st_mtime, UTC),
        status=200,
        response_headers=((b"content-type", BODY_TYPES[path.suffix].encode()),),
        response_body=body,
    )


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
    for name in filter(is_url, names):
        system, path = _opened(name)
        try:
            if _GLOB & set(path):
                paths = [one for one in system.glob(path) if system.isfile(one)]
            elif system.isdir(path):
                inside = system.find(path)
                paths = [one for one in inside if is_recording(one, bodies_too=bodies_too)]
            else:
                paths = [path] if system.exists(path) else []
            protocols = system.protocol if isinstance(system.protocol, tuple) else [system.protocol]
            remote = []
            for one in sorted(paths):
                if "file" in protocols:
                    remote.append(ArchiveFile.local(Path(one).resolve()))
                    continue
                modified_at = None
                with suppress(NotImplementedError, KeyError):
                    moment = system.modified(one)
                    if isinstance(moment, datetime):
                        utc = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
                        modified_at = utc.timestamp()
                size = int(system.size(one) or 0)
                url = system.unstrip_protocol(one)
                remote.append(ArchiveFile(name=url, size=size, modified_at=modified_at))
        except Exception as error:
            # Each store raises its own error types; each means that it cannot be listed.
            raise LedgerError(
                f"{name} cannot be listed: {type(error).__name__}: {error}"
            ) from error
        if not remote:
            raise LedgerError(f"{name}: no such file or folder, or no recordings in it")
        files += remote
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
