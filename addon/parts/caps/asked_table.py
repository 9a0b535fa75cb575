"""Edge (a thread). Asks the table of caps that all processes of a ledger share, off the event loop.

One thread opens the table (`ledger/parts/budgets/shared.py`), which SQLite and PostgreSQL let one
thread use at a time. Trouble with it is logged once when it begins and once when it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ledger.model.errors import LedgerError
from ledger.parts.budgets.book import Account, Change, Standing, Waiting
from ledger.settings.names import Names

if TYPE_CHECKING:
    from ledger.parts.budgets.shared import SharedCaps

logger = logging.getLogger(__name__)

CLOSE_SECONDS_MAX = 5.0


class AskedTable:
    """The table, as the event loop asks it."""

    def __init__(self, opens: Callable[[], SharedCaps]) -> None:
        self._opens = opens
        self._table: SharedCaps | None = None
        """The thread's alone."""
        self._thread: ThreadPoolExecutor | None = None
        self._trouble = ""
        """Why it cannot be asked."""

    async def turn(
        self, changes: Sequence[Change], asking: Sequence[Waiting], names: Names
    ) -> Sequence[Sequence[Standing] | str | None]:
        """What it answers to those that ask, or why it does not."""
        wanted = [(one.shared, one.hold) for one in asking]
        try:
            answers = await self._in_thread(
                lambda table: table.turn(changes, wanted, names, datetime.now(UTC))
            )
        except Exception as error:  # noqa: BLE001  # the guard between our bugs and the money
            self._noted(error)
            # A client is not told where the ledger is.
            return ["Tokentee's log says why"] * len(asking)
        self._noted(None)
        return answers

    async def look(self, accounts: Sequence[Account], names: Names) -> Sequence[Standing]:
        """What it has of these accounts; none: it cannot be asked."""
        try:
            standings = await self._in_thread(
                lambda table: table.look(accounts, names, datetime.now(UTC))
            )
        except LedgerError as error:
            self._noted(error)
            return ()
        self._noted(None)
        return standings

    def release(self, changes: Sequence[Change], names: Names) -> None:
        """Tell it what is left to tell, and leave it."""
        if self._thread is None:
            return

        def leave() -> None:
            table = self._opened()
            with contextlib.suppress(LedgerError):  # what was held counts then
                table.turn(changes, (), names, datetime.now(UTC))
            table.leave()

        done = self._thread.submit(leave)
        with contextlib.suppress(Exception):
            done.result(CLOSE_SECONDS_MAX)
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _in_thread[T](self, call: Callable[[SharedCaps], T]) -> T:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="tokentee: caps")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, lambda: call(self._opened()))

    def _opened(self) -> SharedCaps:
        if self._table is None:
            self._table = self._opens()
        return self._table

    def _noted(self, error: Exception | None) -> None:
        is_known, before = isinstance(error, LedgerError), self._trouble
        self._trouble = str(error) if is_known else "Tokentee failed"
        if error is None:
            self._trouble = ""
            if before:
                logger.warning("tokentee: the caps are shared with other proxies again")
        elif self._trouble != before:
            logger.warning(
                "tokentee: other proxies cannot be asked what they have spent of the caps: %s",
                self._trouble,
                exc_info=None if is_known else error,
            )
