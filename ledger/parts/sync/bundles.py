"""Database. Exchanges from one ledger to another, as JSON that the databases write and read.

The source database puts whole exchanges, with their readings and charges, into one JSON text. The
target database parses it. Python passes the text on and reads no row, so a shipper costs a busy
event loop nearly nothing, and each database needs one statement to read and one to write, whatever
the other database is.

Writing a bundle is idempotent, and the order of bundles does not matter: readings and pricings have
digests of their content as keys, and an exchange keeps the later state of open, lost and settled.
Links depend on the set of exchanges alone (`schema/links.py`). They are computed after the facts
are written, so the later of two writers sees both members of a pair.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import orjson
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ledger.store.keys import Key, chosen, parameters
from ledger.store.schema import links
from ledger.store.schema.columns import Instant, JsonText
from ledger.store.tables import exchanges, pricings, quotas, readings, segments
from ledger.store.writing import batch_insert

LINK_LOCK = 0x746F6B656E6C6E6B
"""`tokenlnk` as a number: the advisory lock that a process holds while it links on PostgreSQL, so
that two processes agree on a group."""

SENT = {
    exchanges: batch_insert.EXCHANGE_COLUMNS,
    readings: tuple(readings.c.keys()),
    pricings: tuple(pricings.c.keys()),
    segments: tuple(segments.c.keys()),
    quotas: tuple(quotas.c.keys()),
}

type Bundle = list[tuple[sa.Table, tuple[str, ...], str]]
"""Each table with rows: the columns, and a JSON array of their values."""


def read(connection: Connection, keys: Sequence[Key]) -> Bundle:
    """Everything that a ledger knows of these exchanges."""
    bundle: Bundle = []
    for table, names in SENT.items():
        statement = _reading(connection.dialect.name, table, names)
        rows = connection.execute(statement, parameters(keys)).scalar_one()
        if rows != "[]":
            bundle.append((table, names, rows))
    return bundle


@dataclass(frozen=True, slots=True)
class Known:
    """What a ledger has of an exchange. Readings and pricings are append-only, and their ids are
    digests of their content, so equal ids are equal facts."""

    state: str
    readings: str | None
    """Their ids, with spaces between."""
    pricings: str | None
    quotas: str | None = None

    def covers(self, other: "Known") -> bool:
        """Whether merging the other one would change nothing."""
        return self == other or (
            STATES.index(self.state) >= STATES.index(other.state)
            and _are_in(other.readings, self.readings)
            and _are_in(other.pricings, self.pricings)
            and _are_in(other.quotas, self.quotas)
        )


STATES = ("open", "lost", "settled")
"""In the order in which they replace each other."""


def _are_in(ids: str | None, others: str | None) -> bool:
    return {*(ids or "").split()} <= {*(others or "").split()}


def known_after(connection: Connection, last: Key | None, count: int) -> dict[Key, Known]:
    """The exchanges that follow in the order of keys."""
    begin, moment = ("", ":opened_at")
    if connection.dialect.name == "postgresql":
        begin, moment = ("-infinity", "CAST(:opened_at AS timestamptz)")
    opened_at, one = last or (begin, "")
    return _known(
        connection,
        f"(e.opened_at, e.id) > ({moment}, :id) ORDER BY e.opened_at, e.id LIMIT :count",
        {"opened_at": opened_at, "id": one, "count": count},
    )


def known_of(connection: Connection, keys: Sequence[Key]) -> dict[Key, Known]:
    """These exchanges, as far as the ledger has them."""
    condition = f"(e.opened_at, e.id) IN ({chosen(connection.dialect.name)})"
    return _known(connection, condition, parameters(keys))


def _known(connection: Connection, condition: str, values: dict[str, Any]) -> dict[Key, Known]:
    """Key, state, ids of readings, of further pricings and of what was stated of limits."""
    if connection.dialect.name == "sqlite":
        opened_at, ids = "e.opened_at", "group_concat"  # in the order of the primary key
    else:
        opened_at, ids = _moment_text("e.opened_at"), "string_agg"
    its = "WHERE opened_at = e.opened_at AND exchange_id = e.id"
    of_tables = ", ".join(
        f"(SELECT {ids}({one}, ' ') FROM {table} {its})"
        for table, one in (
            (readings, "id"),
            (pricings, "reading_id || id"),
            (quotas, 'kind || "window"'),
        )
    )
    query = f"SELECT {opened_at}, e.id, e.state, {of_tables} FROM exchanges e WHERE {condition}"
    rows = connection.execute(sa.text(query), values)
    return {(row[0], row[1]): Known(*row[2:]) for row in rows}


def write(connection: Connection, bundle: Bundle) -> None:
    """Insert the rows of a bundle that a ledger does not have. Call `link` afterwards."""
    for table, names, rows in bundle:
        statement = _writing(connection.dialect.name, table, names)
        # PostgreSQL refuses NUL in a text. SQLite stores it, and an upstream may send it.
        if "\\u0000" in rows:
            stored = orjson.dumps(_without_nul(orjson.loads(rows))).decode()
        else:
            stored = rows
        connection.execute(statement, {"rows": stored})


def link(connection: Connection, keys: Sequence[Key]) -> None:
    """Compute the links of these exchanges, and of the exchanges whose links they change."""
    values = parameters(keys)
    are_these = f"(e.opened_at, e.id) IN ({chosen(connection.dialect.name)})"
    if connection.dialect.name == "sqlite":
        for statement in links.sqlite_relinking(f"{are_these} AND e.state = 'settled'"):
            connection.exec_driver_sql(statement, values)
        return
    have_company = f"SELECT 1 FROM exchanges e WHERE {are_these} AND {links.has_company('e')}"
    if connection.execute(sa.text(f"{have_company} LIMIT 1"), values).first() is not None:
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LINK_LOCK)))
        connection.execute(sa.text(f"SELECT {links.FUNCTION}(CAST(:keys AS jsonb))"), values)


def _without_nul(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_nul(item) for item in value]
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}") if isinstance(value, str) else value


@cache
def _reading(dialect: str, table: sa.Table, names: tuple[str, ...]) -> sa.TextClause:
    key = "opened_at, id" if table is exchanges else "opened_at, exchange_id"
    if dialect == "sqlite":
        values = ", ".join(f'"{name}"' for name in names)
        rows = f"json_group_array(json_array({values}))"
    else:
        values = ", ".join(
            _moment_text(name)
            if isinstance(table.c[name].type, Instant)
            else f"{name}::text"
            if isinstance(table.c[name].type, JsonText)
            else f'"{name}"'  # `window` is a word of SQL
            for name in names
        )
        rows = f"coalesce(json_agg(json_build_array({values})), '[]')::text"
    return sa.text(f"SELECT {rows} FROM {table.name} WHERE ({key}) IN ({chosen(dialect)})")


def _moment_text(column: str) -> str:
    """A moment of PostgreSQL as the text of SQLite."""
    return f"""to_char({column} AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US"Z"')"""


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
