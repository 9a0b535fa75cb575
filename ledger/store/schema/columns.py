"""Database. Types of columns, and the columns of a record."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from types import NoneType
from typing import Any, get_args, get_origin

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine, UserDefinedType

from ledger.model.columns import columns_of
from ledger.store.keys import instant_text

FAR_YEAR = 9_000
"""A moment before it can be moved by years and zones."""
NO_MOMENT = datetime.fromtimestamp(0, UTC)
"""How a moment is read that cannot be."""


class Instant(TypeDecorator[datetime]):
    """A moment in UTC: `timestamptz` on PostgreSQL; on SQLite text of fixed width, which sorts by
    time and which the date functions accept: `2026-01-02 03:04:05.000000Z`."""

    impl = sa.Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """`timestamptz` on PostgreSQL, text on SQLite."""
        if dialect.name == "postgresql":
            return dialect.type_descriptor(sa.TIMESTAMP(timezone=True))
        return dialect.type_descriptor(sa.Text())

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        """The value as the database takes it."""
        if value is None or dialect.name == "postgresql":
            return value
        return instant_text(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:  # noqa: ARG002  # SQLAlchemy names it
        """The value in UTC, whatever the database returns. A row that an older version merged may
        hold anything: what is no moment, or one outside of 1970 to 9000, is read as 1970, so that
        what compares and shows moments can go on. `tokentee verify` names the row."""
        if value is None:
            return None
        try:
            found = value if isinstance(value, datetime) else datetime.fromisoformat(value)
            is_usual = NO_MOMENT.year <= found.year < FAR_YEAR
        except (TypeError, ValueError):
            is_usual = False
        return found.astimezone(UTC) if is_usual else NO_MOMENT


class Figure(TypeDecorator[int]):
    """A count of at most `most`; None is read for what is none or beyond it."""

    impl = sa.BigInteger
    cache_ok = True

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def process_result_value(self, value: Any, dialect: Dialect) -> int | None:  # noqa: ARG002  # SQLAlchemy names it
        """The count, if it is one."""
        return value if isinstance(value, int) and 0 <= value <= self.most else None


class _Json(UserDefinedType[str]):
    """PostgreSQL's `json`, passed as text: the driver neither serializes nor parses it."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "JSON"


class JsonText(TypeDecorator[str]):
    """JSON as its original text: `json` on PostgreSQL keeps every byte and supports `->>`; text on
    SQLite supports the same operators."""

    impl = sa.Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """`json` on PostgreSQL, text on SQLite."""
        return dialect.type_descriptor(_Json() if dialect.name == "postgresql" else sa.Text())

    def column_expression(self, column: sa.ColumnElement[str]) -> sa.ColumnElement[str]:
        """Select it as text, so that the driver does not parse it."""
        return sa.cast(column, sa.Text)

    def compare_against_backend(self, dialect: Dialect, found: TypeEngine[Any]) -> bool:
        """The comparison for `alembic check`."""
        return isinstance(found, sa.JSON if dialect.name == "postgresql" else sa.Text)


SMALL = ("http_status", "revision")
"""Counts that are a 32-bit integer; all others have 64 bits."""
DOCUMENTS = ("usage_json",)
"""Text columns that hold JSON."""


def sql_columns(record: type) -> Iterator[sa.Column[Any]]:
    """The columns of a record, as a table has them."""
    for name, (kind, column) in columns_of(record).items():
        kinds = get_args(kind) if NoneType in get_args(kind) else (kind,)
        sql_type = _sql_type(name, kinds[0])
        nullable = NoneType in kinds
        default = sa.false() if sql_type is sa.Boolean and not nullable else None
        yield sa.Column(
            name, sql_type, comment=column.text, nullable=nullable, server_default=default
        )


def _sql_type(name: str, kind: Any) -> Any:
    if get_origin(kind) in (dict, Mapping, tuple) or name in DOCUMENTS:
        return JsonText
    if kind is bool:
        return sa.Boolean
    if kind is int:
        return sa.Integer if name in SMALL else sa.BigInteger
    if kind is datetime:
        return Instant
    assert kind is str or issubclass(kind, StrEnum), name
    return sa.Text
