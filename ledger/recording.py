"""Wiring. Opens a ledger for recording: the writer, and the threads that work beside it.

SQLite       the writer, the keeper of its sums, the watcher of budgets where there are any
PostgreSQL   a writer into this machine's spool, the shipper of the spool, the keeper of the
             shared ledger's sums, the watcher of budgets where there are any
"""

from collections.abc import Callable, Sequence

from ledger.budgets.watcher import watcher_of
from ledger.maintenance.rollup import Keeper
from ledger.store import db
from ledger.store.engines import urls
from ledger.store.writing.batches import Price
from ledger.store.writing.jobs import Receipt
from ledger.store.writing.trouble import Log
from ledger.store.writing.writer import Ledger


def open_ledger(
    url: str,
    *,
    node: str,
    price: Price | None = None,
    on_commit: Callable[[Sequence[Receipt]], None] | None = None,
    log: Log,
    makes_sums: bool = True,
) -> Ledger:
    """A ledger that is open for writing, with its threads running. LedgerError if it cannot be
    opened.

    `makes_sums`: False if another process sums up the days when all is written.
    """
    parsed = urls.parse_url(url)
    keepers = (Keeper(parsed, log=log),) if makes_sums else ()
    if parsed.drivername == "sqlite":
        return _started(
            Ledger(
                db.ensure(parsed),
                node=node,
                price=price,
                on_commit=on_commit,
                log=log,
                companions=(*keepers, *watcher_of(parsed, log)),
            )
        )
    from ledger.sync.shipper import open_spool

    engine, shipper = open_spool(parsed, log=log)
    return _started(
        Ledger(
            engine,
            node=node,
            price=price,
            on_commit=on_commit,
            log=log,
            shown_url=urls.shown(parsed),
            spooling=True,
            companions=(shipper, *keepers, *watcher_of(parsed, log)),
        )
    )


def _started(ledger: Ledger) -> Ledger:
    ledger.start()
    return ledger
