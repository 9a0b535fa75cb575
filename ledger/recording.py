"""Wiring. Opens a ledger for recording: the writer, and the threads that work beside it.

SQLite       the writer, the keeper of its sums, the threads of parts
PostgreSQL   a writer into this machine's spool, the shipper of the spool, the keeper of the
             shared ledger's sums, the threads of parts
"""

from collections.abc import Callable, Sequence

from ledger.attach import attached
from ledger.maintenance.keeper import Keeper
from ledger.model.errors import LedgerError
from ledger.store.engines import urls
from ledger.store.processes.supervision import Companion, Log
from ledger.store.writing.batches import Price
from ledger.store.writing.incoming import Receipt
from ledger.store.writing.writer import Ledger


def open_ledger(
    url: str,
    *,
    node: str,
    price: Price | None = None,
    price_again: Price | None = None,
    on_commit: Callable[[Sequence[Receipt]], None] | None = None,
    log: Log,
    has_companions: bool = True,
) -> Ledger:
    """A ledger that is open for writing, with its threads running. LedgerError if it cannot be
    opened.

    `price_again`: of what is booked anew in a shared ledger, where `price` also tells others what
    it prices. `has_companions`: False if the threads beside the writer run in another process,
    which sums up the days, ships and watches when all is written.
    """
    path = urls.sqlite_path(url)
    companions: tuple[Companion, ...] = (
        Keeper(url, log=log),
        *(thread for companions_of in attached("companion") for thread in companions_of(url, log)),
    )
    is_shared = path is None
    if path is None:
        openers = attached("shared ledger")
        if not openers:
            raise LedgerError(
                f"{urls.shown(url)}: recording into PostgreSQL needs the part `sync`, which is "
                "missing; name a file, sqlite:///ledger.sqlite3"
            )
        path, shipper = openers[0](urls.parse_url(url), log=log, price=price_again or price)
        companions = (shipper, *companions)
    ledger = Ledger(
        path,
        node=node,
        price=price,
        on_commit=on_commit,
        log=log,
        shown_url=urls.shown(url),
        spooling=is_shared,
        companions=companions if has_companions else (),
    )
    ledger.start()
    return ledger
