"""Database. Adds up single requests: for the sums of days, and for days that have no sums yet.

The terms are those of `schema/sums.py`.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ledger.store.schema import charged as terms
from ledger.store.schema.dimensions import DIMENSIONS
from ledger.store.schema.sums import COUNT_TERMS, HISTOGRAMS, REQUEST_TOKENS, SUM_TERMS
from ledger.store.scope import Scope, conditions, requests, within
from ledger.store.tables import current_charges, exchanges

_TERM_COLUMNS = (
    *dict.fromkeys(
        (
            *("usage_source", "outcome", "billing", "key_hint", "finish_reason", "response_id"),
            *("origin", *(row.column for row in DIMENSIONS)),
        )
    ),
    *REQUEST_TOKENS,
    *("estimated_input_tokens", "estimated_output_tokens", "first_token_ms", "duration_ms"),
    *("reported_cost_picousd", "reported_upstream_cost_picousd", "is_byok"),
    *("cost_picousd", "estimated_cost_picousd", "list_value_picousd", "saved_picousd"),
    *("extra_input_tokens", "extra_output_tokens", "cost_state"),
)
"""Columns of the view that are dimensions, or that the terms use."""


def charged() -> sa.FromClause:
    """Requests with their current charges, one row for each."""
    r, c = requests.c, current_charges.c
    is_its = (c.opened_at == r.opened_at) & (c.exchange_id == r.id)
    return requests.join(current_charges, is_its & (c.reading_id == r.reading_id))


def charged_requests(scope: Scope, dialect: str, figures: Iterable[str]) -> sa.Subquery:
    """`e`: the requests of a scope, each with the sum of its charges; `figures` are added up."""
    r = requests.c
    query = sa.select(
        r.opened_at,
        *(r[name] for name in _TERM_COLUMNS),
        sa.case((r.cost_state == "priced", r.cost_picousd)).label("own_cost_picousd"),
    ).where(*conditions(scope, dialect))
    if dialect == "sqlite" and not HISTOGRAMS.keys().isdisjoint(figures):
        # Without a limit SQLite merges this into the query around it, and works out the times of a
        # request anew wherever a term names them: twice the time (measured). Where no time is asked
        # for, the limit costs as much.
        query = query.limit(-1)
    return query.subquery("e")


def added_up(names: Iterable[str], dialect: str) -> Iterator[sa.ColumnElement[Any]]:
    """These figures of the requests of `e`."""
    for name in names:
        if name in COUNT_TERMS:
            yield sa.literal_column(COUNT_TERMS[name], sa.BigInteger).label(name)
        elif name in HISTOGRAMS:
            time: sa.ColumnElement[Any] = sa.literal_column(HISTOGRAMS[name], sa.BigInteger)
            yield joined(sa.cast(time, sa.Text), dialect).label(name)
        else:
            yield sa.func.sum(sa.literal_column(f"({SUM_TERMS[name]})", sa.BigInteger)).label(name)


def joined(texts: sa.ColumnElement[Any], dialect: str) -> sa.ColumnElement[Any]:
    """The texts of a group with spaces between; NULL if there are none."""
    gather = sa.func.string_agg if dialect == "postgresql" else sa.func.group_concat
    return gather(texts, sa.literal_column("' '"))


def histogram(text: str | None) -> Counter[int]:
    """Time in milliseconds -> how often it occurs, from texts as `1230*7 450`."""
    terms = (text or "").split()
    if "*" not in (text or ""):  # twice as fast, for the many small groups
        return Counter(map(int, terms))
    counts: Counter[int] = Counter()
    for term, often in Counter(terms).items():  # most terms of many rows are equal
        value, _, count = term.partition("*")
        counts[int(value)] += often * int(count or 1)
    return counts


def histogram_text(counts: Mapping[int, int]) -> str | None:
    """The text of a histogram; None: it is empty."""
    terms = (f"{value}*{count}" if count > 1 else f"{value}" for value, count in counts.items())
    return " ".join(terms) or None


class _WholeSum:
    """SUM of SQLite without a bound; integers beyond 64 bits are a text."""

    def __init__(self) -> None:
        self._sum: float | None = None

    def step(self, value: Any) -> None:
        """Add a value of a row: a number, the text of an integer, or None."""
        if value is not None:
            self._sum = (value if isinstance(value, float) else int(value)) + (self._sum or 0)

    def finalize(self) -> Any:
        """The sum; None if no row has a value."""
        is_long = isinstance(self._sum, int) and not -(2**63) <= self._sum < 2**63
        return str(self._sum) if is_long else self._sum


def sum_without_bound(connection: Connection) -> None:
    """From now on SUM of this connection has any size. SQLite refuses a sum beyond 64 bits, 9.2
    million USD; PostgreSQL's has no bound."""
    driver = connection.connection.driver_connection
    if isinstance(driver, sqlite3.Connection):
        driver.create_aggregate("sum", 1, _WholeSum)


def rows_of(connection: Connection, query: sa.Executable) -> Sequence[sa.Row[Any]]:
    """The rows of a query whose sums may have any size: it is repeated if one overflows, since
    SQLite's own SUM is ten times as fast."""
    try:
        return connection.execute(query).all()
    except sa.exc.DBAPIError as error:
        if "integer overflow" not in str(error.orig):
            raise
    sum_without_bound(connection)
    return connection.execute(query).all()


RUNS = {"tag:run": "json_extract(e.tags, '$.run')", "node": "e.node"}
"""Dimension that tells a run -> its expression in a SQLite ledger."""


def seen_of_run(engine: Engine, run: tuple[str, str], since: datetime | None) -> int:
    """How many exchanges of a run (dimension and value) a SQLite ledger has. Answers that were seen
    before count here, too. `since`: none of the run was opened earlier; None: that is not known."""
    e = exchanges.alias("e")
    query = sa.select(sa.func.count()).where(
        e.c.state != "open",
        sa.text(f"NOT {terms.IS_REFUSED.format('e')}"),
        sa.literal_column(RUNS[run[0]], sa.Text) == run[1],
        *within(Scope(since=since), e.c.opened_at),
    )
    with engine.connect() as connection:
        return int(connection.execute(query).scalar_one())
