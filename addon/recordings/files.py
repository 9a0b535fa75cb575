"""Edge (files). Which files hold recordings, and the reader for each kind.

*.jsonl, *.jsonl.gz                      one exchange a line: captures, test corpora
*.mitm, *.flow, *.flows                  what mitmproxy saves
*.har, *.zhar                            what browsers and mitmproxy export
*.sse, *.json, *.ndjson, *.eventstream   one answer's body; needs the URL that it came from

A file named `.har` or `.flow` is read by what it begins with: mitmproxy reads both under any name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from addon.recordings.formats import bodies, flow_files, har, lines
from addon.recordings.formats.recorded import Entry, Item, Unreadable
from ledger.model.errors import LedgerError

LINE_SUFFIXES = (".jsonl", ".jsonl.gz")
HAR_SUFFIXES = (".har", ".zhar")
FLOW_SUFFIXES = (".mitm", ".flow", ".flows")
_HAR_BEGINS = (b"{", b"\xef\xbb\xbf{")


def files_of(paths: Iterable[Path], *, bodies_too: bool) -> list[Path]:
    """The files to read, folders searched through, in a fixed order and each once.

    `bodies_too`: also single bodies in folders; a body named itself is always read. Raises
    LedgerError for a path that is not there.
    """
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
    return list(found)


def is_recording(name: str, *, bodies_too: bool) -> bool:
    """Whether a file of a folder is read, by its name."""
    return name.endswith((*LINE_SUFFIXES, *HAR_SUFFIXES, *FLOW_SUFFIXES)) or (
        bodies_too and name.endswith(tuple(bodies.TYPES))
    )


def entries(path: Path, *, url: str | None, part: int = 0, parts: int = 1) -> Iterator[Entry]:
    """What a file holds, not parsed yet. `url`: where a single body came from.

    Several processes read one large file as `parts`, each its `part`, from 0.
    """
    try:
        if path.name.endswith(LINE_SUFFIXES):
            yield from lines.entries(path, part=part, parts=parts)
        elif path.suffix in bodies.TYPES:
            if part == 0:
                yield from bodies.entries(path, url=url)
        elif _is_har(path):
            yield from har.entries(path, part=part, parts=parts)
        else:
            yield from flow_files.entries(path, part=part, parts=parts)
    except OSError as error:
        item = Unreadable(str(path), f"cannot be read: {error.strerror or error}")
        yield Entry(0, 0, None, lambda: item)


def read(path: Path, *, url: str | None) -> Iterator[Item]:
    """What a file holds, parsed."""
    for entry in entries(path, url=url):
        yield entry.parse()


def _is_har(path: Path) -> bool:
    if path.suffix == ".zhar":
        return True
    with path.open("rb") as file:
        return file.read(4).lstrip().startswith(_HAR_BEGINS)
