"""Pure. Meters and hashes a complete recorded answer in one step.

It does the work of the tap without the parts that only live traffic needs: event loop turns,
backlog and chunk times. It uses the same meter.
"""

from __future__ import annotations

import hashlib

from addon.metering.answers.meter import Meter
from addon.metering.digests import hash_into
from addon.metering.settlement import Passed
from addon.metering.troubles import Troubles

SHORT_BYTES_MAX = 32 * 1024
"""A body up to this size is hashed with the interpreter lock held (`digests.HASH_BYTES`): waiting
for the ledger's writer to release the lock takes longer than hashing."""


class WholeAnswer:
    """One recorded, unedited answer; replaces a `Tap`."""

    __slots__ = ("_body", "_is_read", "_troubles", "meter")

    def __init__(self, meter: Meter, body: bytes, *, troubles: Troubles) -> None:
        self.meter = meter
        self._body = body
        self._troubles = troubles
        self._is_read = True

    def end(self) -> None:
        """Read the body. Call it once."""
        try:
            if self._body:
                self.meter.feed(self._body)
            self.meter.end()
        except Exception as failure:  # noqa: BLE001  # the row must still be settled
            self._is_read = False
            self._troubles.add_failure(failure, "the rest of this exchange is not read")

    def passed(self) -> Passed:
        """The lengths and digests of the recorded body, for the ledger."""
        if not self._is_read:
            return Passed(is_whole=False)
        size, digest = len(self._body), _digest(self._body)
        return Passed(
            response_bytes=size,
            client_bytes=size,
            removed_bytes=0,
            upstream_digest=digest,
            client_digest=digest,
        )


def _digest(body: bytes) -> str:
    if len(body) > SHORT_BYTES_MAX:
        return hashlib.sha256(body).hexdigest()
    digest = hashlib.sha256()
    hash_into(digest, body)
    return digest.hexdigest()
