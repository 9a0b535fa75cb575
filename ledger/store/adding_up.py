"""Database. Adds up single requests: for the sums of days, and for days that have no sums yet.

The terms are those of `schema/sums.py`.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from ledger.store.schema import charged as terms
from ledger.store.schema.charged import FURTHER_PRICING, PART, joined_reading
from ledger.store.schema.sums import COUNTS, DIMENSIONS, REQUEST_TOKENS, SUMS, TIMES, UNSUMMED
from ledger.store.schema.views import MODEL
from ledger.store.scope import Scope, conditions, requests
from ledger.store.tables import current_charges

SPLIT = PART
"""SQLite sums to 64 bits, which is 9.2 million USD. A larger sum is split into two columns."""

_READ = (
    "usage_source",
    *REQUEST_TOKENS,
    "estimated_input_tokens",
    "estimated_output_tokens",
    "reported_cost_picousd",
    "reported_upstream_cost_picousd",
    "is_byok",
    "first_token_ms",
    "duration_ms",
    "cost_picousd",
    "estimated_cost_picousd",
    "list_value_picousd",
    "saved_picousd",
    "extra_input_tokens",
    "extra_output_tokens",
    "cost_state",
)
"""Columns of the view that the terms use, beside the dimensions."""


def charged() -> sa.FromClause:
    """Requests with their current charges, one row for each."""
    r, c = requests.c, current_charges.c
    is_its = (c.opened_at == r.opened_at) & (c.exchange_id == r.id)
    return requests.join(current_charges, is_its & (c.reading_id == r.reading_id))


def charged_requests(scope: Scope, dialect: str) -> sa.Subquery:
    """`e`: the requests of a scope, each with the sum of its charges."""
    r = requests.c
    return (
        sa.select(
            r.opened_at,
            *(r[name] for name in (*DIMENSIONS, *UNSUMMED, *_READ)),
            sa.case((r.cost_state == "priced", r.cost_picousd)).label("own_cost_picousd"),
        )
        .where(*conditions(scope, dialect))
        .subquery("e")
    )


def added_up(
    names: Sequence[str], dialect: str, *, is_split: bool
) -> Iterator[sa.ColumnElement[Any]]:
    """These figures of the requests of `e`. Split sums have two columns, `_high` and `_low`."""
    for name in names:
        if name in COUNTS:
            yield sa.literal_column(COUNTS[name], sa.BigInteger).label(name)
        elif name in TIMES:
            term: sa.ColumnElement[Any] = sa.literal_column(TIMES[name], sa.BigInteger)
            yield joined(sa.cast(term, sa.Text), dialect).label(name)
        else:
            yield from summed(sa.literal_column(f"({SUMS[name]})"), name, is_split=is_split)


def seen_by_model(engine: Engine, run: str, tokens: Sequence[str]) -> Sequence[sa.Row[Any]]:
    """(model, requests, sums of these reported tokens, list value in pico-USD) of the exchanges of
    a run in a SQLite ledger. Answers that were seen before count here, too."""
    value = terms.reported(terms.pricing("list_value_picousd"), "r")
    estimated = terms.IS_ESTIMATED.format("r")
    sums = (f"SUM(CASE WHEN NOT {estimated} THEN r.{name} END)" for name in tokens)
    query = sa.text(
        f"SELECT {MODEL} AS model, COUNT(*), {', '.join(sums)}, SUM({value}) "
        f"FROM exchanges e LEFT {joined_reading('sqlite')} {FURTHER_PRICING} "
        "WHERE e.state <> 'open' AND json_extract(e.tags, '$.run') = :run GROUP BY 1"
    )
    with engine.connect() as connection:
        return connection.execute(query, {"run": run}).all()


def summed(
    value: sa.ColumnElement[Any], name: str, *, is_split: bool
) -> Iterator[sa.ColumnElement[Any]]:
    """The sum of a value, in one column or in two."""
    if not is_split:
        yield sa.func.sum(value).label(name)
        return
    for half, part in halves(value, name):
        yield sa.func.sum(part).label(half)


def halves(value: sa.ColumnElement[Any], name: str) -> Iterator[tuple[str, sa.ColumnElement[Any]]]:
    """A value split into two parts, with the names of their columns."""
    split: sa.ColumnElement[int] = sa.literal_column(str(SPLIT), sa.BigInteger)
    yield f"{name}_high", value.op("/")(split)
    yield f"{name}_low", value.op("%")(split)


def joined(texts: sa.ColumnElement[Any], dialect: str) -> sa.ColumnElement[Any]:
    """The texts of a group with spaces between; NULL if there are none."""
    gather = sa.func.string_agg if dialect == "postgresql" else sa.func.group_concat
    return gather(texts, sa.literal_column("' '"))


def whole(row: Any, name: str, *, is_split: bool) -> int | None:
    """The sum that `summed` asked for."""
    values = row._mapping
    if not is_split:
        return None if values[name] is None else int(values[name])
    high, low = values[f"{name}_high"], values[f"{name}_low"]
    return None if high is None else int(high) * SPLIT + int(low)


def is_overflow(error: sa.exc.DBAPIError) -> bool:
    """Whether a sum overflowed in SQLite."""
    return "integer overflow" in str(error.orig)
