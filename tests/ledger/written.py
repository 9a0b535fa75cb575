"""Exchanges, readings and charges to write, and ledgers to write them with."""

import contextlib
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
import sqlalchemy as sa
from msgspec.structs import asdict, replace
from sqlalchemy.engine import Engine

from ledger import recording
from ledger.model.charge import Charge, pricing_of
from ledger.model.exchange import Exchange, Outcome, Reading, State, UsageSource
from ledger.model.usage import Usage
from ledger.store import db, tables
from ledger.store.engines import urls
from ledger.store.keys import Key, instant_text
from ledger.store.writing import batch_insert
from ledger.store.writing.incoming import Receipt
from ledger.store.writing.writer import Ledger

on_sqlite = pytest.mark.parametrize("ledger_url", ["sqlite"], indirect=True)
on_postgres = pytest.mark.parametrize(
    "ledger_url", [pytest.param("postgresql", marks=pytest.mark.postgres)], indirect=True
)
"""The fixtures `engine` and `ledger_url` of one database alone."""

NOON = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)
ORIGIN = "https://api.example.com:443"


def opened(name: str, *, at: datetime = NOON, **more: Any) -> Exchange:
    """An exchange whose request goes upstream."""
    return Exchange(
        **{
            "id": name,
            "origin": ORIGIN,
            "provider": "example",
            "dialect": "openai.chat",
            "operation": "chat",
            "path": "/v1/chat/completions",
            "opened_at": at,
            "request_model": "model-1",
            "node": "host/1/1",
            **more,
        }
    )


def settled(name: str, *, at: datetime = NOON, seconds: float = 1, **more: Any) -> Exchange:
    """An exchange that has ended."""
    facts = {
        "state": State.SETTLED,
        "outcome": Outcome.COMPLETE,
        "settled_at": at + timedelta(seconds=seconds),
        "response_model": "model-1",
    }
    return replace(opened(name, at=at), **{**facts, **more})


def reading(exchange: Exchange, **more: Any) -> Reading:
    """What was read of it: 100 tokens in, of these 40 from the cache, and 20 out."""
    facts = {
        "meter_version": "1",
        "usage_source": UsageSource.REPORTED,
        "usage": Usage(input_tokens=100, cache_read_tokens=40, output_tokens=20),
        "usage_json": '{"in": 100,  "out": 20}',
        "read_at": exchange.opened_at,
    }
    return Reading(exchange_id=exchange.id, opened_at=exchange.opened_at, **{**facts, **more})


def charge(line: str, quantity: int, unit: int | None, **more: Any) -> Charge:
    facts = {"price_source": "list 1", "priced_at": NOON}
    return Charge(
        line=line,
        quantity=quantity,
        unit_picousd=unit,
        amount_picousd=None if unit is None else quantity * unit,
        **{**facts, **more},
    )


def priced(_: Exchange, read: Reading) -> tuple[Charge, ...]:
    """1 pico-USD for a token in, a tenth of 10 for a cached one, 5 for one out."""
    usage = read.usage
    if usage.input_tokens is None or usage.output_tokens is None:
        return ()
    cached = usage.cache_read_tokens or 0
    return (
        charge("uncached_input", usage.input_tokens - cached, 10, priced_at=read.read_at),
        charge("cache_read", cached, 1, priced_at=read.read_at),
        charge("output", usage.output_tokens, 50, priced_at=read.read_at),
    )


COST = 60 * 10 + 40 * 1 + 20 * 50
"""Of `reading`, as `priced` has it."""


def wait_until(is_so: Callable[[], object], why: Callable[[], object] = lambda: "too late") -> None:
    """Ask again and again, for a minute at most; `why` says what is wrong then."""
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, why()
        time.sleep(0.002)


@dataclass
class Written:
    """A ledger that runs, and what it said."""

    url: str
    ledger: Ledger
    said: list[tuple[str, str]] = field(default_factory=list)
    batches: list[Sequence[Receipt]] = field(default_factory=list)
    resolved: threading.Condition = field(default_factory=threading.Condition)

    def open(self, exchange: Exchange) -> None:
        """Open it, and wait until its row is committed."""
        self.ledger.open(exchange)
        with contextlib.closing(sqlite3.connect(self.ledger.file)) as connection:
            query = "SELECT 1 FROM exchanges WHERE id = ?"
            wait_until(lambda: connection.execute(query, (exchange.id,)).fetchall())

    def hand_over(self, exchange: Exchange) -> Receipt:
        """Settle it, and do not wait for what becomes of it."""
        return self.ledger.settle(exchange, reading(exchange))

    def settle(self, exchange: Exchange, read: Reading | None = None) -> Receipt:
        """Settle it, and wait for what becomes of it."""
        return self.wait(self.ledger.settle(exchange, read or reading(exchange)))

    def wait(self, *receipts: Receipt) -> Receipt:
        with self.resolved:
            done = self.resolved.wait_for(
                lambda: all(receipt.committed or receipt.error for receipt in receipts), 30
            )
        assert done, "a receipt was not resolved"
        return receipts[-1]

    def lines(self, *levels: str) -> list[str]:
        return [line for level, line in self.said if not levels or level in levels]


@contextlib.contextmanager
def writing(url: str, *, node: str = "host/1/1", price: Any = priced) -> Iterator[Written]:
    """A running ledger; closed at the end."""
    said: list[tuple[str, str]] = []
    written: Written | None = None

    def on_commit(receipts: Sequence[Receipt]) -> None:
        assert written is not None
        with written.resolved:
            written.batches.append(receipts)
            written.resolved.notify_all()

    ledger = recording.open_ledger(
        url,
        node=node,
        price=price,
        on_commit=on_commit,
        log=lambda level, line: said.append((level, line)),
    )
    written = Written(url, ledger, said)
    try:
        yield written
    finally:
        ledger.close(30)


type Entry = tuple[Exchange, Reading | None, Sequence[Charge]]


@contextlib.contextmanager
def on(place: Engine | str) -> Iterator[Engine]:
    """An engine on a ledger: the one that is given, or one of its own for a URL."""
    if isinstance(place, str):
        with db.disposing(db.open_engine(place)) as engine:
            yield engine
    else:
        yield place


def put(place: Engine | str, *entries: Entry) -> None:
    """Write entries straight into a ledger on either database, one after the other."""
    with on(place) as engine:
        if engine.dialect.name != "sqlite":
            # Of a part: the core's tests on SQLite do without it.
            from tests.ledger import bundled

            bundled.put(engine, *entries)
            return
        with contextlib.closing(intake_on(engine)) as connection:
            for exchange, read, lines in entries:
                row = (
                    batch_insert.open_row(exchange, exchange.node)
                    if read is None
                    else batch_insert.settled_row(exchange, read, lines, exchange.node)
                )
                connection.execute(*batch_insert.statement([row]))


def charge_again(
    place: Engine | str,
    exchange_id: str,
    ordinal: int,
    unit: int | None,
    *,
    name: str | None = None,
    revision: int = 2,
) -> None:
    """Append another pricing, in which one line has another price."""
    c, names = tables.current_charges.c, batch_insert.CHARGE_COLUMNS
    with on(place) as engine, db.writing(engine) as connection:
        query = sa.select(tables.current_charges).where(c.exchange_id == exchange_id)
        booked = connection.execute(query.order_by(c.ordinal)).all()
        lines = [Charge(**{name: getattr(old, name) for name in names}) for old in booked]
        old = lines[ordinal]
        amount = None if unit is None else unit * old.quantity
        lines[ordinal] = replace(old, unit_picousd=unit, amount_picousd=amount)
        name = name or f"{exchange_id}.{ordinal}.again"
        own = [name, ordinal, revision, booked[ordinal].id, None]
        places = [
            [old.id, at, old.revision, old.supersedes, "kept"] for at, old in enumerate(booked)
        ]
        places[ordinal] = own
        documents = [
            [*batch_insert.charge_values(line), *where]
            for line, where in zip(lines, places, strict=True)
        ]
        connection.execute(
            sa.insert(tables.pricings).values(
                id=name,
                exchange_id=exchange_id,
                opened_at=booked[0].opened_at,
                reading_id=booked[0].reading_id,
                revision=revision,
                **asdict(pricing_of(lines, UsageSource.REPORTED)),
                charges=orjson.dumps(documents).decode(),
            )
        )


def key_of(entry: Entry) -> Key:
    return instant_text(entry[0].opened_at), entry[0].id


def whole(exchange: Exchange, lines: Sequence[Charge] | None = None, **more: Any) -> Entry:
    """An exchange with the ordinary reading, charged as `priced` has it or with these lines."""
    read = reading(exchange, **more)
    return exchange, read, priced(exchange, read) if lines is None else lines


def intake_on(engine: Engine, *, spooling: bool = False) -> sqlite3.Connection:
    """A connection as the writer has one, which is not of the engine's pool."""
    pooled = engine.raw_connection()
    found = pooled.driver_connection
    assert isinstance(found, sqlite3.Connection)
    pooled.detach()
    for statement in batch_insert.setup(spooling=spooling):
        found.execute(statement)
    return found


def totals(place: Engine | str) -> tuple[Any, ...]:
    """Requests, input tokens, output tokens and cost of a ledger."""
    sums = ", ".join(f"SUM({name})" for name in ("input_tokens", "output_tokens", "cost_picousd"))
    return tuple(row(place, f"SELECT COUNT(*), {sums} FROM requests"))


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program in a process of its own, to its end, with nothing on standard input."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(
        command, input="", capture_output=True, text=True, check=False, timeout=90
    )


def file_of(url: str) -> Path:
    """The file of a SQLite ledger."""
    path = urls.file_of(urls.parse_url(url))
    assert path is not None
    return path


def rows(place: Engine | str, query: str, **parameters: Any) -> list[Any]:
    with on(place) as engine, engine.connect() as connection:
        return list(connection.execute(sa.text(query), parameters).all())


def row(place: Engine | str, query: str, **parameters: Any) -> Any:
    """The one row that a query finds."""
    (found,) = rows(place, query, **parameters)
    return found


def by_id(place: Engine | str, column: str) -> list[Any]:
    """Each exchange of a ledger with what stands in this column, in the order of their ids."""
    return rows(place, f"SELECT id, {column} FROM exchanges ORDER BY id")


def alter(place: Engine | str, *statements: str) -> None:
    """Run statements in a transaction of their own."""
    with on(place) as engine, db.writing(engine) as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
