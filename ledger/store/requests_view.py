"""Database. The public view `requests` for queries: one row per exchange that counts."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from ledger.store.schema import views
from ledger.store.schema.columns import Instant
from ledger.store.tables import exchanges, readings

_SQL_TYPES: Mapping[str, Any] = {
    "instant": Instant,
    "boolean": sa.Boolean,
    "integer": sa.BigInteger,
    "text": sa.Text,
}
_FIGURES = ("_tokens", "_ms", "_picousd", "_revision")
"""How the names of the figures end that the view computes."""


def _kind_of(name: str) -> str:
    """The type of a column: as in the table that has it."""
    for table in (exchanges, readings):
        if name in table.c:
            kind = table.c[name].type
            of_table = {Instant: "instant", sa.Boolean: "boolean", sa.Integer: "integer"}
            return next((word for each, word in of_table.items() if isinstance(kind, each)), "text")
    return "integer" if name.endswith(_FIGURES) else "text"


REQUEST_COLUMNS: Mapping[str, str] = {
    name: _kind_of(name) for name in views.REQUEST_COLUMNS if not name.endswith("_usd")
}
"""Column -> type of its values: all columns of the view but those in USD, which are for reading."""

requests = sa.table(
    "requests",
    *(sa.column(name, _SQL_TYPES[kind]) for name, kind in REQUEST_COLUMNS.items()),
)


def as_text(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """A column whose JSON comes as text from both databases."""
    return sa.cast(column, sa.Text) if isinstance(column.type, sa.Text) else column
