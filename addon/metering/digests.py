"""Pure. Lengths and digests of an answer's bytes: as upstream sent them, as the client got them,
and of the removed ones.
"""

import hashlib

HASH_BYTES = 2_000
"""Bytes hashed at a time. hashlib releases the interpreter lock from 2 048 bytes on, and waiting
for the ledger's writer to release it again can cost the event loop 5 ms."""


class Digests:
    """Of one answer, while it passes. Each digest is of the bytes added so far."""

    __slots__ = (
        "_client_hash",
        "_removed_hash",
        "_upstream_hash",
        "_wire_hash",
        "removed_bytes",
        "upstream_bytes",
        "wire_bytes",
    )

    def __init__(self, *, edits: bool, decodes: bool) -> None:
        """`edits`: the client's bytes may differ from upstream's. `decodes`: upstream's bytes are
        decoded before they are edited."""
        self.wire_bytes = 0
        self.upstream_bytes = 0
        """Decoded, if upstream's bytes are decoded."""
        self.removed_bytes = 0
        self._wire_hash = hashlib.sha256() if decodes else None
        self._upstream_hash = hashlib.sha256()
        self._client_hash = hashlib.sha256() if edits else None
        self._removed_hash = hashlib.sha256() if edits else None

    def add_wire(self, data: bytes) -> None:
        """Add encoded bytes from upstream."""
        assert self._wire_hash is not None
        self.wire_bytes += len(data)
        hash_into(self._wire_hash, data)

    def add_upstream(self, data: bytes) -> None:
        """Add bytes from upstream, decoded if they were encoded."""
        self.upstream_bytes += len(data)
        hash_into(self._upstream_hash, data)

    def add_edited(self, kept: bytes, removed: bytes) -> None:
        """Add bytes that the client got, and bytes that were removed."""
        assert self._client_hash is not None
        assert self._removed_hash is not None
        hash_into(self._client_hash, kept)
        self.removed_bytes += len(removed)
        hash_into(self._removed_hash, removed)

    @property
    def upstream(self) -> str:
        """The digest of the bytes from upstream, as they were on the wire."""
        return (self._wire_hash or self._upstream_hash).hexdigest()

    @property
    def client(self) -> str | None:
        """The digest of the bytes that the client got; None if it got upstream's."""
        return self._client_hash.hexdigest() if self._client_hash is not None else None

    @property
    def removed(self) -> str | None:
        """The digest of the removed bytes; None if there are none."""
        if self._removed_hash is None or not self.removed_bytes:
            return None
        return self._removed_hash.hexdigest()


def hash_into(digest: "hashlib._Hash", data: bytes) -> None:
    """Hash bytes without releasing the interpreter lock."""
    if len(data) <= HASH_BYTES:
        digest.update(data)
        return
    view = memoryview(data)
    for at in range(0, len(data), HASH_BYTES):
        digest.update(view[at : at + HASH_BYTES])
