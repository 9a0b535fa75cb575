"""Edge (the clock). The callable on `flow.response.stream`: every byte of an answer passes here.

Two ways of standing in the stream:

    listening   the very object that came goes on; a copy of the reference is kept until about
                2 KB are together, and then hashed and metered in one go
    editing     usage that we asked for is taken out; what is complete goes on at once

It never raises: mitmproxy loses the chunk of a callable that does (MITMPROXY.md). A bug of ours
makes this exchange plain pass-through from there on, and its row says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import datetime

from addon.exchange import Passed
from addon.meter import Meter
from addon.rewrite import Stripper

BATCH_BYTES = 1_900
"""What is kept before it is looked at. hashlib gives up the interpreter lock from 2 048 bytes
on, and getting it back from the ledger's writer can cost the event loop 5 ms."""


class Tap:
    """One answer's way through the proxy. Give it each chunk, and b"" at the end of the body."""

    __slots__ = (
        "_client_hash",
        "_clock",
        "_eager",
        "_first_byte_at",
        "_first_token_at",
        "_kept",
        "_on_failure",
        "_pending",
        "_pending_bytes",
        "_removed_bytes",
        "_removed_hash",
        "_stripper",
        "_upstream_bytes",
        "_upstream_hash",
        "degraded",
        "meter",
    )

    def __init__(
        self,
        meter: Meter,
        *,
        stripper: Stripper | None,
        clock: Callable[[], datetime],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self.meter = meter
        self._stripper = stripper
        self._clock = clock
        self._on_failure = on_failure
        self._eager = True
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._kept: list[bytes] = []
        self._upstream_bytes = 0
        self._upstream_hash = hashlib.sha256()
        self._client_hash = hashlib.sha256() if stripper else None
        self._removed_bytes = 0
        self._removed_hash = hashlib.sha256() if stripper else None
        self._first_byte_at: datetime | None = None
        self._first_token_at: datetime | None = None
        self.degraded: str | None = None

    @property
    def edits(self) -> bool:
        """Whether what goes on may differ from what came."""
        return self._stripper is not None

    @property
    def callable(self) -> Callable[[bytes], bytes | list[bytes]]:
        """What to set as `flow.response.stream`."""
        return self._listen if self._stripper is None else self._edit

    def _listen(self, data: bytes) -> bytes | list[bytes]:
        # `b""` would end a chunked body early (mitmproxy PR #8242), so the end is `[]`.
        if self.degraded is not None:
            return data or []
        try:
            self._pending.append(data)
            self._pending_bytes += len(data)
            if self._eager or self._pending_bytes >= BATCH_BYTES:
                self._look()
        except Exception as failure:  # noqa: BLE001  # the guard between our bugs and the client
            self._give_way(failure)
        return data or []

    def _edit(self, data: bytes) -> bytes | list[bytes]:
        if self.degraded is not None:
            return data or []
        stripper = self._stripper
        assert stripper is not None
        held = stripper.held
        try:
            self._pending.append(data)
            self._pending_bytes += len(data)
            kept = stripper.feed(data) if data else stripper.end()
            self._kept.append(kept)
            if self._eager or self._pending_bytes >= BATCH_BYTES:
                self._look()
            return kept or []
        except Exception as failure:  # noqa: BLE001  # the guard between our bugs and the client
            self._give_way(failure)
        return held + data or []

    def end(self) -> None:
        """Look at what is left; to be called once, when the exchange ends in any way."""
        if self.degraded is None:
            try:
                self._look()
                self.meter.end()
            except Exception as failure:  # noqa: BLE001  # as above: the row must still be settled
                self._give_way(failure)

    def passed(self) -> Passed:
        """What went through, for the ledger."""
        if self.degraded is not None:
            # Digests and lengths stop where we gave way; half a proof is none.
            return Passed(
                first_byte_at=self._first_byte_at,
                first_token_at=self._first_token_at,
                stripped=bool(self._removed_bytes),
                degraded=self.degraded,
            )
        digest = self._upstream_hash.hexdigest()
        held = len(self._stripper.held) if self._stripper else 0
        return Passed(
            response_bytes=self._upstream_bytes,
            client_bytes=self._upstream_bytes - self._removed_bytes - held,
            removed_bytes=self._removed_bytes,
            upstream_digest=digest,
            client_digest=self._client_hash.hexdigest() if self._client_hash else digest,
            removed_digest=self._removed_hash.hexdigest()
            if self._removed_hash and self._removed_bytes
            else None,
            first_byte_at=self._first_byte_at,
            first_token_at=self._first_token_at,
            stripped=bool(self._removed_bytes),
        )

    def _look(self) -> None:
        """Hash and meter what has come since the last time."""
        if not self._pending:
            return
        if self._first_byte_at is None:
            self._first_byte_at = self._clock()
        run = self._pending[0] if len(self._pending) == 1 else b"".join(self._pending)
        self._pending.clear()
        self._pending_bytes = 0
        self._upstream_bytes += len(run)
        self._upstream_hash.update(run)
        if self._stripper is not None:
            self._account_for_edits(self._stripper)
        self.meter.feed(run)
        if self._eager and self.meter.token_seen:
            self._first_token_at = self._clock()
            self._eager = False

    def _account_for_edits(self, stripper: Stripper) -> None:
        assert self._client_hash is not None
        assert self._removed_hash is not None
        self._client_hash.update(b"".join(self._kept))
        self._kept.clear()
        removed = b"".join(stripper.removed)
        stripper.removed.clear()
        self._removed_bytes += len(removed)
        self._removed_hash.update(removed)

    def _give_way(self, failure: Exception) -> None:
        """Plain pass-through from here on."""
        self.degraded = f"{type(failure).__name__} in {place_of(failure)}"
        self._pending.clear()
        self._on_failure(failure)


def place_of(failure: Exception) -> str:
    """Module and line that raised: no message, for it may hold what passed."""
    trace = failure.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "unknown place"
    return f"{trace.tb_frame.f_globals.get('__name__')}:{trace.tb_lineno}"
