"""Database. The exchanges that the spools of this machine have not shipped to a shared ledger
yet."""

from sqlalchemy.engine import URL

from ledger.model.errors import LedgerError
from ledger.pages.problems import Shipping
from ledger.store.engines import urls
from ledger.sync import spool


def shipping_to(target: URL) -> tuple[Shipping, ...]:
    """The spool of a shared ledger on this machine, if any; nothing for a SQLite ledger, which has
    no spool."""
    if urls.file_of(target) is not None:
        return ()
    path = spool.path_for(target)
    if not path.is_file():
        return ()
    try:
        found = spool.status_of(path)
    except LedgerError as error:
        return (Shipping(waiting=0, oldest=None, refused=0, trouble=str(error)),)
    return (
        Shipping(
            waiting=found.waiting,
            oldest=found.oldest,
            refused=len(found.refused),
            trouble=found.trouble,
        ),
    )
