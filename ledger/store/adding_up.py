"""Database. Adds up single requests: for the sums of days, and for days that have no sums yet.

One pass over the requests of a period and one over their charges. The terms are those of
`schema/sums.py`.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from ledger.pricing.charges import PROVIDER
from ledger.store.current import current_charge
from ledger.store.requests_view import requests
from ledger.store.schema.sums import COUNTS, DIMENSIONS, REQUEST_TOKENS, SUMS, TIMES
from ledger.store.scope import Scope, conditions, within
from ledger.store.tables import charges

TOKENS_MAX = 10**9
"""No real request has more, and no token costs a thousandth of a USD. Upstream figures are
untrusted: larger ones are left out where a product would overflow 64 bits."""
SPLIT = 10**9
"""SQLite sums to 64 bits, which is 9.2 million USD. A larger sum is split into two columns."""
CACHE_LINES = ("cache_read", "cache_write", "cache_write_5m", "cache_write_1h")

_READ = (
    "usage_source",
    *REQUEST_TOKENS,
    "estimated_output_tokens",
    "reported_cost_picousd",
    "reported_upstream_cost_picousd",
    "is_byok",
    "first_token_ms",
    "duration_ms",
)
"""Columns of the view that the terms use, beside the dimensions."""


def charged_requests(scope: Scope, dialect: str) -> sa.Subquery:
    """`e`: the requests of a scope, each with the sum of its charges."""
    r, cost = requests.c, _costs(scope)
    c = cost.c
    is_own = (c.priced_lines == c.lines) & (c.provider_lines == 0)
    return (
        sa.select(
            r.opened_at,
            *(r[name] for name in (*DIMENSIONS, *_READ)),
            c.cost_picousd,
            c.saved_picousd,
            c.extra_input_tokens,
            c.extra_output_tokens,
            sa.case((is_own, c.cost_picousd)).label("own_cost_picousd"),
            _cost_state(c).label("cost_state"),
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
    c = charges.c
    cached = c.line.in_(CACHE_LINES)
    uncached_unit = sa.func.max(
        sa.case(((c.line == "uncached_input") & (c.unit_picousd <= TOKENS_MAX), c.unit_picousd))
    )
    is_comparable = c.amount_picousd.is_not(None) & (c.quantity <= TOKENS_MAX)
    return (
        sa.select(
            c.opened_at,
            c.exchange_id,
            c.reading_id,
            sa.func.count().label("lines"),
            sa.func.count(c.amount_picousd).label("priced_lines"),
            sa.func.count(sa.case((c.price_source == PROVIDER, 1))).label("provider_lines"),
            _bigint(sa.func.sum(c.amount_picousd)).label("cost_picousd"),
            _bigint(
                sa.func.sum(sa.case((cached & is_comparable, c.quantity))) * uncached_unit
                - sa.func.sum(sa.case((cached & is_comparable, c.amount_picousd)))
            ).label("saved_picousd"),
            _further(("output", "reasoning", "citation")).label("extra_output_tokens"),
            _further(("uncached_input", "cache_", "input_")).label("extra_input_tokens"),
        )
        .where(current_charge(charges), *within(scope, c.opened_at))
        .group_by(c.opened_at, c.exchange_id, c.reading_id)
        .subquery("costs")
    )


def _further(starts: tuple[str, ...]) -> sa.ColumnElement[Any]:
    """Tokens of further iterations, whose lines are named `<kind>.<line>`."""
    line = charges.c.line
    is_further = sa.or_(
        *(line.like(f"%.{start.replace('_', '^_')}%", escape="^") for start in starts)
    )
    is_further &= charges.c.quantity <= TOKENS_MAX
    return _bigint(sa.func.sum(sa.case((is_further, charges.c.quantity))))


def _cost_state(cost: Any) -> sa.ColumnElement[Any]:
    """As in the view."""
    return sa.case(
        (
            cost.lines.is_(None),
            sa.case((sa.func.coalesce(requests.c.usage_source, "none") != "none", "unpriced")),
        ),
        (cost.priced_lines == 0, "unpriced"),
        (cost.priced_lines < cost.lines, "partial"),
        (cost.provider_lines == cost.lines, "reported"),
        else_="priced",
    )


def _bigint(value: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """PostgreSQL sums to a numeric."""
    return sa.cast(value, sa.BigInteger)
