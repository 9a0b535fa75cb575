"""Edge (files). Single bodies: one saved answer; the caller gives its URL."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from addon.recordings.formats import identity
from addon.recordings.formats.recorded import (
    Entry,
    Item,
    Recorded,
    RecordingError,
    Unreadable,
    split_url,
)

TYPES = {
    ".sse": "text/event-stream",
    ".json": "application/json",
    ".ndjson": "application/x-ndjson",
    ".eventstream": "application/vnd.amazon.eventstream",
}
"""Content type by suffix."""
BODY_BYTES_MAX = 512 * 1024 * 1024
"""Held in memory while it is read."""
_REQUEST_BODY = b"{}"


def entries(path: Path, *, url: str | None) -> Iterator[Entry]:
    """The one exchange of a file. Raises OSError."""
    yield Entry(path.stat().st_size, 0, None, partial(_exchange, path, url))


def _exchange(path: Path, url: str | None) -> Item:
    if url is None:
        return Unreadable(str(path), "a single body: say where it came from with --url")
    try:
        origin, target = split_url(url)
    except RecordingError as error:
        return Unreadable(str(path), f"--url {url}: {error}")
    status = path.stat()
    if status.st_size > BODY_BYTES_MAX:
        return Unreadable(str(path), f"larger than {BODY_BYTES_MAX >> 20} MiB: not an answer")
    try:
        body = path.read_bytes()
    except OSError as error:
        return Unreadable(str(path), f"cannot be read: {error.strerror or error}")
    exchange_id = identity.derived_id(
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
        response_headers=((b"content-type", TYPES[path.suffix].encode()),),
        response_body=body,
    )
