"""Database. Adds up single requests: for the sums of days, and for days that have no sums yet.

One pass over the requests of a period and one over their charges. The terms are those of
`schema/sums.py`.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from ledger.store.schema import charged as terms
from ledger.store.schema.charged import (
    NO_USAGE,
    PART,
    TERMS,
    cost_state,
    current_charge,
    joined_reading,
)
from ledger.store.schema.sums import COUNTS, DIMENSIONS, REQUEST_TOKENS, SUMS, TIMES, UNSUMMED
from ledger.store.schema.views import CHARGES, MODEL
from ledger.store.scope import Scope, conditions, requests, within
from ledger.store.tables import charges

SPLIT = PART
"""SQLite sums to 64 bits, which is 9.2 million USD. A larger sum is split into two columns."""

_NO_USAGE = NO_USAGE.format("requests")
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
)
"""Columns of the view that the terms use, beside the dimensions."""


def charged(lines: sa.FromClause) -> sa.FromClause:
    """Requests with their current charges, one row for each; `lines`: `charges`, or an alias of
    it."""
    r, c = requests.c, lines.c
    is_its = (c.opened_at == r.opened_at) & (c.exchange_id == r.id)
    return requests.join(lines, is_its & (c.reading_id == r.reading_id) & current_charge(lines))


def charged_requests(scope: Scope, dialect: str) -> sa.Subquery:
    """`e`: the requests of a scope, each with the sum of its charges."""
    r, cost = requests.c, _costs(scope)
    c = cost.c
    state = cost_state("costs.lines", "costs.priced_lines", "costs.provider_lines", _NO_USAGE)
    is_own = (c.priced_lines == c.lines) & (c.provider_lines == 0)
    reported = _text(terms.cost("costs.amount_picousd", "requests"))
    return (
        sa.select(
            r.opened_at,
            *(r[name] for name in (*DIMENSIONS, *UNSUMMED, *_READ)),
            reported.label("cost_picousd"),
            _text(terms.estimated_cost("costs.amount_picousd", "requests")).label(
                "estimated_cost_picousd"
            ),
            _text(terms.reported("costs.list_value_picousd", "requests")).label(
                "list_value_picousd"
            ),
            c.saved_picousd,
            c.extra_input_tokens,
            c.extra_output_tokens,
            sa.case((is_own, reported)).label("own_cost_picousd"),
            sa.literal_column(state, sa.Text).label("cost_state"),
        )
        .select_from(
            requests.outerjoin(
                cost,
                (c.opened_at == r.opened_at)
                & (c.exchange_id == r.id)
                & (c.reading_id == r.reading_id),
            )
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
    value = terms.reported(f"(SELECT {TERMS['list_value_picousd']} {CHARGES})", "r")
    estimated = terms.IS_ESTIMATED.format("r")
    sums = (f"SUM(CASE WHEN NOT {estimated} THEN r.{name} END)" for name in tokens)
    query = sa.text(
        f"SELECT {MODEL} AS model, COUNT(*), {', '.join(sums)}, SUM({value}) "
        f"FROM exchanges e LEFT {joined_reading('sqlite')} "
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


def _costs(scope: Scope) -> sa.Subquery:
    """The current charges of each reading, summed: one walk along the clustered table."""
    c = charges.alias("c")
    return (
        sa.select(
            c.c.opened_at,
            c.c.exchange_id,
            c.c.reading_id,
            # PostgreSQL sums to a numeric.
            *(sa.cast(_text(f"({term})"), sa.BigInteger).label(n) for n, term in TERMS.items()),
        )
        .where(current_charge(c), *within(scope, c.c.opened_at))
        .group_by(c.c.opened_at, c.c.exchange_id, c.c.reading_id)
        .subquery("costs")
    )


def _text(term: str) -> sa.ColumnElement[Any]:
    return sa.literal_column(term, sa.BigInteger)
