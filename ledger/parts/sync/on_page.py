"""Edge. What a page says of this machine's spool: exchanges that the shared ledger lacks."""

from datetime import datetime, timedelta

from sqlalchemy.engine import Engine

from ledger.model.errors import LedgerError
from ledger.reports.page_parts import Problem
from ledger.settings.names import Names
from ledger.store import spool
from ledger.store.engines import urls
from ledger.store.spool import SpoolStatus
from ledger.text import figures
from ledger.text.period import zone_in

LATE_AFTER = timedelta(minutes=5)
"""Shipping takes seconds; an exchange that waits longer than this is late."""


def problems(engine: Engine, names: Names, now: datetime, option: str) -> list[Problem]:
    """Exchanges that wait for long or were refused; a SQLite ledger has no spool."""
    del names
    if urls.file_of(engine.url) is not None:
        return []
    path = spool.path_for(engine.url)
    if not path.is_file():
        return []
    try:
        return problems_of(spool.status_of(path), now, option)
    except LedgerError:
        return []


def problems_of(status: SpoolStatus, now: datetime, option: str) -> list[Problem]:
    """The lines about a spool in this state."""
    found = []
    if status.waiting and status.oldest is not None and now - status.oldest > LATE_AFTER:
        zone = zone_in(now)
        found.append(
            Problem(
                kind="late shipping",
                level="bad",
                count=status.waiting,
                headline=f"{figures.requests(status.waiting)} of this machine not shipped yet",
                advice=f"The oldest is of {status.oldest.astimezone(zone):%Y-%m-%d %H:%M} {zone} "
                "and stays in the spool until the shared database takes it"
                f"{': ' + status.trouble if status.trouble else ''}",
                command=f"tokentee db check{option}",
            )
        )
    refused = len(status.refused)
    if refused:
        found.append(
            Problem(
                kind="refused",
                level="bad",
                count=refused,
                headline=f"{figures.requests(refused)} refused by the shared database",
                advice="They are set aside in the spool, each with its reason",
                command=f"tokentee db check{option}",
            )
        )
    return found
