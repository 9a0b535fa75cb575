"""Edge. Checks budgets beside a running proxy, in a thread of its own.

It reads and sends, and never touches traffic. Each kind of failure is logged once, and the thread
goes on.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ledger.budgets import budgets_file
from ledger.model.errors import LedgerError
from ledger.settings import names_file as name_files
from ledger.store.processes.supervision import Companion, Log

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

FIRST_CHECK_SECONDS = 30.0
"""A proxy that runs for one command only should not check budgets at its start."""
CHECK_EVERY_SECONDS = 300.0
"""An alert may be this late. A check queries the ledger once per budget."""


class BudgetWatcher(Companion):
    """Checks budgets at intervals, and sends due alerts."""

    def __init__(self, url: str | URL, *, log: Log) -> None:
        super().__init__("budgets", log=log)
        self._url = url
        self._trouble = ""

    def stop(self, timeout_seconds: float) -> None:  # noqa: ARG002  # a Companion has it
        """Stop at once: a claim without a sent alert expires."""
        self._stopping.set()

    def check(self, now: datetime) -> int:
        """Send the due alerts; how many."""
        # Imported here: a proxy without budgets needs none of it, nor SQLAlchemy.
        from ledger.budgets.alerts import claim_alerts, mark_sent
        from ledger.budgets.sender import send
        from ledger.store import db

        budgets = budgets_file.load(None)
        if not (budgets.budgets or budgets.quotas or budgets.caps):
            return 0
        url = self._url
        engine = db.open_existing(
            url if isinstance(url, str) else url.render_as_string(hide_password=False)
        )
        try:
            due = claim_alerts(engine, budgets, name_files.load(None), now)
            taken = [
                alert
                for alert in due
                if send(alert, budgets.destinations, log=self._log, pause=self._stopping.wait)
            ]
            mark_sent(engine, taken, now)
        finally:
            engine.dispose()
        return len(taken)

    def _run(self) -> None:
        from sqlalchemy.exc import SQLAlchemyError

        pause_seconds = FIRST_CHECK_SECONDS
        while not self._stopping.wait(pause_seconds):
            pause_seconds = CHECK_EVERY_SECONDS
            try:
                self.check(datetime.now(UTC))
                self._trouble = ""
            except LedgerError as error:
                self._log_once(str(error))
            except SQLAlchemyError as error:
                self._log_once(type(error).__name__)

    def _log_once(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._log("warn", f"tokentee: budgets are not checked: {trouble}")
        self._trouble = trouble


def watcher_of(url: str | URL, log: Log) -> tuple[BudgetWatcher, ...]:
    """A watcher if a budgets file exists; a wrong file is logged and stops nothing."""
    return (BudgetWatcher(url, log=log),) if budgets_file.path_of(None) is not None else ()
