"""Database. Which reading and which charges of an exchange count: the one definition.

The views, reports, repricing, corrections and lookups take it from here; `tokentee verify` states
it a second time, on purpose, to compare.

    reading   the highest revision, of equal ones the earliest, of those the smallest id
    charge    of one reading and ordinal: the highest revision, of equal ones the smallest id
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import sqlalchemy as sa

READING_ORDER = "{0}.revision DESC, {0}.read_at, {0}.id"
"""Readings of one exchange in the order in which they count; {0} names the table."""

# A first revision has no equal: its id is its reading's digest, which covers its charges. Later
# ones have an index of their own, since most charges are never superseded.
_CURRENT_CHARGE = """NOT EXISTS (
    SELECT 1 FROM charges n
    WHERE n.opened_at = {0}.opened_at AND n.exchange_id = {0}.exchange_id
      AND n.reading_id = {0}.reading_id AND n.ordinal = {0}.ordinal AND n.revision > 1
      AND (n.revision > {0}.revision OR (n.revision = {0}.revision AND n.id < {0}.id)))"""

_JOINED_READING = {
    "sqlite": """JOIN readings r
  ON r.opened_at = e.opened_at AND r.exchange_id = e.id AND {0}
  AND NOT EXISTS (
    SELECT 1 FROM readings n
    WHERE n.opened_at = r.opened_at AND n.exchange_id = r.exchange_id
      AND (n.revision > r.revision OR (n.revision = r.revision
           AND (n.read_at < r.read_at OR (n.read_at = r.read_at AND n.id < r.id)))))""",
    # One lookup in one partition per exchange. The planner does not infer that equal moments lie in
    # the same period, so a join over a period would read all of `readings`.
    "postgresql": """JOIN LATERAL (
    SELECT * FROM readings n
    WHERE n.opened_at = e.opened_at AND n.exchange_id = e.id
    ORDER BY """
    + READING_ORDER.format("n")
    + """ LIMIT 1) r ON {0}""",
}


def joined_reading(dialect: str, condition: str = "true") -> str:
    """A join of an exchange `e` with its current reading `r`."""
    return _JOINED_READING[dialect].format(condition)


def is_current_charge(name: str) -> str:
    """The condition that a charge is current; `name` is the table's name or alias."""
    return _CURRENT_CHARGE.format(name)


def current_charge(charge: sa.FromClause) -> sa.ColumnElement[bool]:
    """The same as an expression on `charges` or an alias of it."""
    import sqlalchemy as sa  # not above: a recording proxy makes the views, without SQLAlchemy

    name: Any = getattr(charge, "name")  # noqa: B009  # a FromClause that has one: table or alias
    return sa.literal_column(f"({is_current_charge(name)})", sa.Boolean)


def reading_order(name: str = "readings") -> sa.TextClause:
    """The order of an exchange's readings: the current one comes first."""
    import sqlalchemy as sa

    return sa.text(READING_ORDER.format(name))
