"""Database. Exchanges from one ledger to another, as JSON that the databases write and read.

The source database puts whole exchanges, with their readings and charges, into one JSON text. The
target database parses it. Python passes the text on and reads no row, so a shipper costs a busy
event loop nearly nothing, and each database needs one statement to read and one to write, whatever
the other database is.

Writing a bundle is idempotent, and the order of bundles does not matter: readings and charges have
digests of their content as keys, and an exchange keeps the later state of open, lost and settled.
Links depend on the set of exchanges alone (`duplicates.py`). They are computed after the facts are
written, so the later of two writers sees both members of a pair.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import orjson
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ledger.store.keys import Key
from ledger.store.schema import links
from ledger.store.schema.columns import Instant
from ledger.store.tables import charges, exchanges, quotas, readings, segments
from ledger.store.writing import batch_insert

LINK_LOCK = 0x746F6B656E6C6E6B
"""`tokenlnk` as a number: the advisory lock that a process holds while it links on PostgreSQL, so
that two processes agree on a group."""

_SENT = {
    exchanges: batch_insert.EXCHANGE_COLUMNS,
    readings: tuple(readings.c.keys()),
    charges: tuple(charges.c.keys()),
    segments: tuple(segments.c.keys()),
    quotas: tuple(quotas.c.keys()),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """Exchanges, readings and charges: per table the columns, and JSON arrays of their values."""

    keys: tuple[Key, ...]
    columns: tuple[tuple[str, ...], ...]
    rows: tuple[str, ...]


def read(connection: Connection, keys: Sequence[Key]) -> Bundle:
    """Everything that a ledger knows of these exchanges."""
    columns = tuple(_columns(connection, table) for table in _SENT)
    rows = tuple(
        connection.execute(
            _reading(connection.dialect.name, table, names), {"keys": orjson.dumps(keys).decode()}
        ).scalar_one()
        if names
        else "[]"
        for table, names in zip(_SENT, columns, strict=True)
    )
    return Bundle(keys=tuple(keys), columns=columns, rows=rows)


@dataclass(frozen=True, slots=True)
class Known:
    """What a ledger has of an exchange. Readings and charges are append-only, and their ids are
    digests of their content, so equal ids are equal facts."""

    state: str
    readings: str | None
    """Their ids, with spaces between."""
    charges: str | None

    def covers(self, other: "Known") -> bool:
        """Whether merging the other one would change nothing."""
        return self == other or (
            _STATES.index(self.state) >= _STATES.index(other.state)
            and _are_in(other.readings, self.readings)
            and _are_in(other.charges, self.charges)
        )


_STATES = ("open", "lost", "settled")
"""In the order in which they replace each other."""


def _are_in(ids: str | None, others: str | None) -> bool:
    return {*(ids or "").split()} <= {*(others or "").split()}


def known_after(connection: Connection, last: Key | None, count: int) -> dict[Key, Known]:
    """The exchanges that follow in the order of keys."""
    opened_at, one = last or _FIRST[connection.dialect.name]
    rows = connection.execute(
        _known_after(connection.dialect.name), {"opened_at": opened_at, "id": one, "count": count}
    )
    return {(row[0], row[1]): Known(*row[2:]) for row in rows}


def known_of(connection: Connection, keys: Sequence[Key]) -> dict[Key, Known]:
    """These exchanges, as far as the ledger has them."""
    rows = connection.execute(
        _known_of(connection.dialect.name), {"keys": orjson.dumps(keys).decode()}
    )
    return {(row[0], row[1]): Known(*row[2:]) for row in rows}


def write(connection: Connection, bundle: Bundle) -> None:
    """Insert the rows of a bundle that a ledger does not have. Call `link` afterwards."""
    for table, names, rows in zip(_SENT, bundle.columns, bundle.rows, strict=True):
        if rows == "[]":
            continue
        connection.execute(
            _writing(connection.dialect.name, table, names), {"rows": _storable(rows)}
        )


def link(connection: Connection, keys: Sequence[Key]) -> None:
    """Compute the links of these exchanges, and of the exchanges whose links they change."""
    parameters = {"keys": orjson.dumps(keys).decode()}
    if connection.dialect.name == "sqlite":
        for text in batch_insert.relink_setup():
            connection.exec_driver_sql(text)
        for statement in _RELINKING:
            connection.execute(statement, parameters)
        return
    if connection.execute(_HAVE_COMPANY, parameters).first() is None:
        return
    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LINK_LOCK)))
    connection.execute(_LINK, parameters)


def _columns(connection: Connection, table: sa.Table) -> tuple[str, ...]:
    """The columns that both this version and the ledger have: an older ledger has fewer."""
    if connection.dialect.name == "sqlite":
        # Asked with each bundle: reflection took a fifth of the CPU of a turn (measured).
        there = set(connection.scalars(_COLUMNS, {"table": table.name}))
    elif (inspected := sa.inspect(connection)).has_table(table.name):
        there = {column["name"] for column in inspected.get_columns(table.name)}
    else:
        there = set()
    return tuple(name for name in _SENT[table] if name in there)


def _storable(rows: str) -> str:
    """Rows that PostgreSQL can store: it refuses NUL in a text. SQLite stores it, and an
    upstream may send it."""
    if "\\u0000" not in rows:
        return rows
    return orjson.dumps(_without_nul(orjson.loads(rows))).decode()


def _without_nul(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_nul(item) for item in value]
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}") if isinstance(value, str) else value


@cache
def _reading(dialect: str, table: sa.Table, names: tuple[str, ...]) -> sa.TextClause:
    key = "opened_at, id" if table is exchanges else "opened_at, exchange_id"
    if dialect == "sqlite":
        values = ", ".join(f'"{name}"' for name in names)
        return sa.text(
            f"SELECT json_group_array(json_array({values})) FROM {table.name} WHERE ({key}) IN "
            "(SELECT value ->> 0, value ->> 1 FROM json_each(:keys))"
        )
    values = ", ".join(
        f"""to_char({name} AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US"Z"')"""
        if isinstance(table.c[name].type, Instant)
        else f"{name}::text"
        if isinstance(table.c[name].type, sa.types.TypeDecorator)
        else f'"{name}"'  # `window` is a word of SQL
        for name in names
    )
    return sa.text(
        f"SELECT coalesce(json_agg(json_build_array({values})), '[]')::text FROM {table.name} "
        f"WHERE ({key}) IN (SELECT (k ->> 0)::timestamptz, k ->> 1 "
        "FROM jsonb_array_elements(CAST(:keys AS jsonb)) k)"
    )


_FIRST = {"sqlite": ("", ""), "postgresql": ("-infinity", "")}
"""A key before all others."""


def _select_known(dialect: str, source: str) -> str:
    """Key, state, ids of readings and ids of charges."""
    if dialect == "sqlite":
        opened_at, ids = "e.opened_at", "group_concat(id, ' ')"  # in the order of the primary key
    else:
        opened_at = """to_char(e.opened_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US"Z"')"""
        ids = "string_agg(id, ' ')"
    of_tables = ", ".join(
        f"(SELECT {ids} FROM {table} WHERE opened_at = e.opened_at AND exchange_id = e.id)"
        for table in ("readings", "charges")
    )
    return f"SELECT {opened_at}, e.id, e.state, {of_tables} FROM {source}"


@cache
def _known_after(dialect: str) -> sa.TextClause:
    moment = ":opened_at" if dialect == "sqlite" else "CAST(:opened_at AS timestamptz)"
    return sa.text(
        _select_known(dialect, f"exchanges e WHERE (e.opened_at, e.id) > ({moment}, :id)")
        + " ORDER BY e.opened_at, e.id LIMIT :count"
    )


@cache
def _known_of(dialect: str) -> sa.TextClause:
    source = (
        "json_each(:keys) k CROSS JOIN exchanges e "
        "ON e.opened_at = k.value ->> 0 AND e.id = k.value ->> 1"
        if dialect == "sqlite"
        else "jsonb_array_elements(CAST(:keys AS jsonb)) k JOIN exchanges e "
        "ON e.opened_at = (k ->> 0)::timestamptz AND e.id = k ->> 1"
    )
    return sa.text(_select_known(dialect, source))


@cache
def _writing(dialect: str, table: sa.Table, names: tuple[str, ...]) -> sa.TextClause:
    if dialect == "sqlite":
        values = ", ".join(f"r.value ->> {at}" for at in range(len(names)))
        source = "json_each(:rows) r"
    else:
        from sqlalchemy.dialects import postgresql  # slow to import, and not for a SQLite ledger

        spelling = postgresql.dialect()  # type: ignore[no-untyped-call]  # not annotated
        values = ", ".join(
            f"CAST(r ->> {at} AS {table.c[name].type.compile(spelling)})"
            for at, name in enumerate(names)
        )
        source = "jsonb_array_elements(CAST(:rows AS jsonb)) r"
    if table is exchanges:
        facts = ", ".join(f"{n} = excluded.{n}" for n in names if n not in ("opened_at", "id"))
        conflict = f"(opened_at, id) DO UPDATE SET {facts} WHERE {batch_insert.FURTHER}"
    else:
        conflict = "DO NOTHING"
    quoted = ", ".join(f'"{name}"' for name in names)
    return sa.text(
        f"INSERT INTO {table.name} ({quoted}) SELECT {values} FROM {source} "
        f"WHERE true ON CONFLICT {conflict}"
    )


def _relinking(name: str) -> sa.TextClause:
    columns = ", ".join(f"e.{column}" for column in links.LINK_COLUMNS)
    return sa.text(
        f"INSERT INTO {name} SELECT {columns} FROM exchanges e WHERE (opened_at, id) IN "
        "(SELECT value ->> 0, value ->> 1 FROM json_each(:keys)) AND e.state = 'settled' "
        f"AND {links.has_company('e')}"
    )


_COLUMNS = sa.text("SELECT name FROM pragma_table_info(:table)")
_RELINKING = tuple(_relinking(name) for name, _ in links.sqlite_views())

_HAVE_COMPANY = sa.text(f"""
SELECT 1 FROM jsonb_array_elements(CAST(:keys AS jsonb)) k
JOIN exchanges e ON e.opened_at = (k ->> 0)::timestamptz AND e.id = k ->> 1
WHERE {links.has_company("e")} LIMIT 1
""")
_LINK = sa.text(f"SELECT {links.FUNCTION}(CAST(:keys AS jsonb))")
