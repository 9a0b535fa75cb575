"""Pure. The id of an exchange that was recorded without one.

HAR files, exchange lines of test corpora and single bodies have no id of ours. It is derived from
method, URL, request body, answer and the recorded start, so that the same material gets the same
id at every reading, and two requests that got the same answer get two.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime

from addon.recordings.formats.recorded import Message, Origin, Recorded

_LENGTH = 32


def derived_id(
    *,
    method: str,
    origin: Origin,
    path: str,
    request_body: bytes,
    response_body: bytes,
    started_at: datetime | None,
    messages: Iterable[Message] = (),
) -> str:
    """32 hex digits. `started_at` is the start in the recording; None if there is none."""
    digest = hashlib.sha256()
    start = b"" if started_at is None else started_at.isoformat(timespec="microseconds").encode()
    where = f"{method} {origin.scheme}://{origin.host}:{origin.port}{path}"
    for part in (where.encode("utf-8", "surrogateescape"), request_body, response_body, start):
        # The length separates the parts: without it, bytes could move from one to the next.
        digest.update(b"%d:" % len(part))
        digest.update(part)
    for message in messages:
        side = b">" if message.from_client else b"<"
        digest.update(b"%d%b" % (len(message.content), side))
        digest.update(message.content)
    return digest.hexdigest()[:_LENGTH]


def id_in_version_0_1(item: Recorded) -> str:
    """The id that version 0.1 gave to a line or a body without one: from origin and answer only.

    Ledgers of that version have such rows, and their exchanges must be found.
    """
    origin = f"{item.origin.scheme}://{item.origin.host}:{item.origin.port}"
    return hashlib.sha256(origin.encode() + b"\0" + item.response_body).hexdigest()[:_LENGTH]
