"""What is asked of a period reads that period: of requests no more than the days without sums."""

import json
import re
from datetime import timedelta

import pytest
import sqlalchemy as sa

from ledger.figures.queries import report
from ledger.maintenance import checking, reprice, rollup
from ledger.parts.exports.export import export
from ledger.pricing.prices import PriceBook
from ledger.store.scope import Scope
from tests.bench import big_ledger
from tests.bench.big_ledger import END
from tests.ledger.priced import BOTH, empty
from tests.ledger.written import row, rows

pytestmark = pytest.mark.large

ROWS = 4_000
"""Enough that a planner prefers an index for a day and not for everything."""
MIDNIGHT = END.replace(hour=0, minute=0)
MONTH = Scope(since=MIDNIGHT - timedelta(days=29))
WORDS = ("day", "model", "key", "hour", "session", "tag:team", "project")
OF_A_DAY = "opened_at >= '2026-11-10' AND opened_at < '2026-11-11'"
VIEWS = (
    "SELECT day, SUM(cost_usd) FROM usage_daily GROUP BY day",
    "SELECT SUM(opened) FROM completeness",
    "SELECT model, COUNT(*) FROM unpriced GROUP BY model",
    f"SELECT model, line, COUNT(*) FROM unpriced WHERE {OF_A_DAY} GROUP BY model, line",
    f"SELECT model, COUNT(*), SUM(cost_usd) FROM requests WHERE {OF_A_DAY} GROUP BY model",
)
DAY = Scope(since=MIDNIGHT - timedelta(days=8), until=MIDNIGHT - timedelta(days=7))
WHOLE = re.compile(
    r"SCAN (exchanges|readings|pricings|[eopr]\b)(?! USING (COVERING )?INDEX ix_exchanges_open)"
)
"""A walk through a table; the index of what is still open holds nothing else."""
ENDS = re.compile(r"SELECT exchanges\.opened_at\s+FROM exchanges\b[^()]* ORDER BY [^()]* LIMIT")
"""The first exchange of a period, and the last: one look at either end of an index."""
FACTOR = 4
"""Rows read for each exchange of the days that are added up: it, its reading, and some are
looked up more than once."""


@pytest.fixture(scope="module", params=BOTH)
def engine(request, tmp_path_factory):
    for engine in empty(request, tmp_path_factory):
        big_ledger.fill(engine, ROWS)
        assert rollup.roll(engine, now=END) == 90
        yield engine


def statements_of(engine, ask):
    found = []

    def note(_connection, _cursor, text, values, *_):
        if text.lstrip().upper().startswith(("SELECT", "WITH")):
            found.append((text, values))

    sa.event.listen(engine, "before_cursor_execute", note)
    try:
        ask()
    finally:
        sa.event.remove(engine, "before_cursor_execute", note)
    return found


def explained(engine, explain, text, values, *, scans=True):
    with engine.connect() as connection:
        if not scans:
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
            connection.exec_driver_sql("SET LOCAL enable_hashjoin = off")
        cursor = connection.connection.cursor()
        cursor.execute(f"{explain} {text}", values)
        found = cursor.fetchall()
        cursor.close()
    return found


def read_of(node, loops=1):
    """Rows of exchanges, readings and pricings that a plan reads."""
    found = 0
    if re.match(r"(exchanges|readings|pricings)", node.get("Relation Name", "")):
        removed = node.get("Rows Removed by Filter", 0)
        found += (node["Actual Rows"] + removed) * node["Actual Loops"]
    return found + sum(read_of(each) for each in node.get("Plans", ()))


def check(engine, ask, exchanges_max, *, scans=True):
    """`scans`: whether PostgreSQL may prefer a walk to an index, as it does with few rows."""
    for text, values in statements_of(engine, ask):
        if ENDS.match(text):
            continue
        if engine.dialect.name == "sqlite":
            plan = [line[-1] for line in explained(engine, "EXPLAIN QUERY PLAN", text, values)]
            # What a subquery has made is walked through: once, as `e`.
            made = [line for line in plan if line == "CO-ROUTINE e"]
            walked = [line for line in plan if WHOLE.match(line)]
            assert walked == ["SCAN e"] * len(made), "\n".join((text, *plan))
        else:
            explain = "EXPLAIN (ANALYZE, FORMAT JSON)"
            ((plan,),) = explained(engine, explain, text, values, scans=scans)
            plan = plan if isinstance(plan, list) else json.loads(plan)
            read = read_of(plan[0]["Plan"])
            assert read <= exchanges_max * 5 * FACTOR, json.dumps(plan, indent=1)[:5000]


def exports(engine, folder):
    assert list(export(engine, "requests", folder, "csv", DAY))


@pytest.mark.parametrize("scope", [MONTH, Scope()], ids=["month", "all-time"])
def test_reports_read_what_has_no_sums(engine, scope):
    query = "SELECT COUNT(*) FROM exchanges WHERE opened_at >= :at"
    (today,) = row(engine, query, at=f"{MIDNIGHT:%Y-%m-%d}")
    assert 0 < today < ROWS / 50
    for word in WORDS:
        check(engine, lambda word=word: report(engine, [word], scope), today)


@pytest.mark.parametrize("question", VIEWS)
def test_views_read_their_day(engine, question):
    check(engine, lambda: rows(engine, question), ROWS // 90 + 1)


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(
            lambda engine, _: list(checking.verify(engine, MIDNIGHT - timedelta(days=1))),
            id="verify",
        ),
        pytest.param(
            lambda engine, _: reprice.changes(engine, PriceBook(), DAY, now=END), id="reprice"
        ),
        pytest.param(exports, id="export"),
    ],
)
def test_work_on_a_period_reads_that_period(engine, tmp_path, ask):
    days = 2  # the last one is half over
    check(engine, lambda: ask(engine, tmp_path), days * (ROWS // 90 + 1), scans=False)
