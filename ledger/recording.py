"""Wiring. Opens a ledger for recording: the writer, and the threads that work beside it.

SQLite       the writer, the keeper of its sums, the threads of parts
PostgreSQL   a writer into this machine's spool, the shipper of the spool, the keeper of the
             shared ledger's sums, the threads of parts
"""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ledger.attach import attached
from ledger.maintenance.keeper import Keeper
from ledger.model.errors import LedgerError
from ledger.store.engines import urls
from ledger.store.processes.supervision import Companion, Log
from ledger.store.writing.batches import Price
from ledger.store.writing.incoming import Receipt
from ledger.store.writing.writer import Ledger

YOUNG_OBJECTS_MAX = 100_000
"""Objects between two collections of garbage; Python's own default is 700. All that is in flight
has about half as many, and reference counts free it, so that nearly every collection would walk it
for nothing: a fifth of a replay's CPU, a tenth of an import's (measured)."""


@contextmanager
def few_collections() -> Iterator[None]:
    """Look for garbage seldom, and never among what was loaded before: it stays until the process
    ends, which would otherwise walk it twice more."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS_MAX, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def open_ledger(
    url: str,
    *,
    node: str,
    price: Price | None = None,
    price_again: Price | None = None,
    on_commit: Callable[[Sequence[Receipt]], None] | None = None,
    log: Log,
    has_companions: bool = True,
    is_bulk: bool = False,
) -> Ledger:
    """A ledger that is open for writing, with its threads running. LedgerError if it cannot be
    opened.

    `price_again`: of what is booked anew in a shared ledger, where `price` also tells others what
    it prices. `has_companions`: False if the threads beside the writer run in another process,
    which sums up the days, ships and watches when all is written. `is_bulk`: this process only
    fills the ledger.
    """
    path = urls.sqlite_path(url)
    companions: tuple[Companion, ...] = (
        Keeper(url, log=log, is_bulk=is_bulk),
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
        is_bulk=is_bulk,
        companions=companions if has_companions else (),
    )
    ledger.start()
    return ledger
