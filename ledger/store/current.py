"""Database. Which reading and which charges of an exchange count."""

import sqlalchemy as sa

from ledger.store.tables import charges


def current_charge(charge: sa.FromClause) -> sa.ColumnElement[bool]:
    """No later charge supersedes it; as in the view."""
    later = charges.alias()
    return ~sa.exists().where(
        later.c.opened_at == charge.c.opened_at,
        later.c.exchange_id == charge.c.exchange_id,
        later.c.reading_id == charge.c.reading_id,
        later.c.ordinal == charge.c.ordinal,
        later.c.revision > 1,  # has an index: most charges are never superseded
        (later.c.revision > charge.c.revision)
        | ((later.c.revision == charge.c.revision) & (later.c.id < charge.c.id)),
    )
