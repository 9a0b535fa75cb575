"""Edge (the log). The errors of our own code during one exchange.

Tap, capture and hooks report here. `degraded` in the row is built from
this list once, when the exchange ends.
"""

from __future__ import annotations

import logging

from ledger.model.errors import named

logger = logging.getLogger(__name__)

REASONS_MAX = 8
"""Reasons kept for one exchange. Further ones usually follow from the first."""
REASON_LENGTH_MAX = 300
"""Characters of one reason."""


class Troubles:
    """The reasons why an exchange was not read, edited or captured in full."""

    __slots__ = ("_left_out", "_reasons")

    def __init__(self) -> None:
        # Nearly all exchanges have no trouble, and an empty list would cost each of them 56 bytes.
        self._reasons: list[str] | None = None
        self._left_out = 0

    def __bool__(self) -> bool:
        return self._reasons is not None

    def add(self, reason: str) -> None:
        """Note a reason, unless it is noted already."""
        reason = reason[:REASON_LENGTH_MAX]
        if self._reasons is None:
            self._reasons = [reason]
        elif reason in self._reasons:
            return
        elif len(self._reasons) < REASONS_MAX:
            self._reasons.append(reason)
        else:
            self._left_out += 1

    def add_failure(self, failure: Exception, consequence: str) -> None:
        """Note an exception of our code, and log one line that names the `consequence`."""
        reason = named(failure)
        self.add(reason)
        logger.warning("tokentee: %s; %s", reason, consequence)

    @property
    def text(self) -> str | None:
        """All reasons in one line, oldest first; None if there are none."""
        if self._reasons is None:
            return None
        more = [f"{self._left_out} more"] if self._left_out else []
        return "; ".join([*self._reasons, *more])
