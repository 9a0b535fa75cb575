"""What people ask of a large ledger, each with the seconds that it may take."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from ledger.exports.export import export
from ledger.figures.queries import report
from ledger.maintenance import checking, reprice
from ledger.pages import html_file
from ledger.pages.live import read_only
from ledger.pricing.prices import PriceBook
from ledger.settings.names import read as read_names
from ledger.store.scope import Scope
from tests.bench.big_ledger import END
from tests.ledger.pages.serving import pages

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
