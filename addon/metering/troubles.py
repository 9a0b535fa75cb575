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

    __slots__ = ("_left_out", "reasons")

    def __init__(self) -> None:
        # Nearly all exchanges have no trouble, and an empty list would cost each of them 56 bytes.
        self.reasons: list[str] | None = None
        self._left_out = 0

    def add(self, reason: str) -> None:
        """Note a reason, unless it is noted already."""
        reason = reason[:REASON_LENGTH_MAX]
        if self.reasons is None:
            self.reasons = [reason]
        elif reason in self.reasons:
            return
        elif len(self.reasons) < REASONS_MAX:
            self.reasons.append(reason)
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
        if self.reasons is None:
            return None
        more = [f"{self._left_out} more"] if self._left_out else []
        return "; ".join([*self.reasons, *more])
