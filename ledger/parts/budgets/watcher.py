"""Edge. Sends due alerts beside a running proxy, in a thread of its own that never touches
traffic."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ledger.model.errors import LedgerError
from ledger.parts.budgets import budgets_file
from ledger.settings import names_file
from ledger.store.processes.supervision import Companion, Log

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

FIRST_CHECK_SECONDS = 30.0
"""A proxy that runs for one command only should not check budgets at its start."""
CHECK_EVERY_SECONDS = 300.0
"""An alert may be this late."""


class BudgetWatcher(Companion):
    """Sends due alerts at intervals. Each kind of failure is logged once."""

    def __init__(self, url: str | URL, *, log: Log) -> None:
        super().__init__("budgets", log=log)
        self._url = url if isinstance(url, str) else url.render_as_string(hide_password=False)
        self._trouble = ""

    def stop(self, timeout_seconds: float) -> None:  # noqa: ARG002  # a Companion has it
        """Stop at once: a claim without a sent alert expires."""
        self._stopping.set()

    def check(self, now: datetime) -> int:
        """Send the due alerts; how many were taken."""
        # Imported here: a proxy without budgets needs none of it, nor SQLAlchemy.
        from ledger.parts.budgets.alerts import send_due
        from ledger.store import db

        budgets = budgets_file.load(None)
        if not (budgets.budgets or budgets.quotas or budgets.caps):
            return 0
        with db.disposing(db.open_existing(self._url)) as engine:
            return send_due(engine, budgets, names_file.load(None), now, self._log)[1]

    def _run(self) -> None:
        from sqlalchemy.exc import SQLAlchemyError

        pause_seconds = FIRST_CHECK_SECONDS
        while not self._stopping.wait(pause_seconds):
            pause_seconds, trouble = CHECK_EVERY_SECONDS, ""
            try:
                self.check(datetime.now(UTC))
            except (LedgerError, SQLAlchemyError) as error:
                is_ours = isinstance(error, LedgerError)
                trouble = str(error) if is_ours else type(error).__name__
                if trouble != self._trouble:
                    self._log("warn", f"tokentee: budgets are not checked: {trouble}")
            self._trouble = trouble


def watcher_of(url: str | URL, log: Log) -> tuple[BudgetWatcher, ...]:
    """A watcher if a budgets file exists; a wrong file is logged and stops nothing."""
    return (BudgetWatcher(url, log=log),) if budgets_file.path_of(None) is not None else ()
