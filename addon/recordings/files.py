"""Edge (files). Finds files with recordings, and chooses the reader for each kind.

*.jsonl, *.jsonl.gz                      one exchange a line: captures, test corpora
*.mitm, *.flow, *.flows                  what mitmproxy saves
*.har, *.zhar                            what browsers and mitmproxy export
*.sse, *.json, *.ndjson, *.eventstream   the body of one answer; needs its URL

The first bytes of a file named `.har` or `.flow` decide its reader: mitmproxy reads both under any
name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from addon.recordings.formats import flow_files, har, lines
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
        elif _is_har(path):
            yield from har.entries(path, part=part, parts=parts)
        else:
            yield from flow_files.entries(path, part=part, parts=parts)
    except OSError as error:
        yield RecordedEntry.of(Unreadable(str(path), f"cannot be read: {error.strerror or error}"))


def read(path: Path, *, url: str | None) -> Iterator[Item]:
    """The entries of a file, parsed."""
    for entry in entries(path, url=url):
        yield entry.item()


def _is_har(path: Path) -> bool:
    if path.suffix == ".zhar":
        return True
    with path.open("rb") as file:
        return file.read(4).lstrip().startswith(_HAR_BEGINS)


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
