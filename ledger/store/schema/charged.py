"""Database. What a charged request is: the one definition of its current reading and charges, its
cost, its state and its further tokens, as SQL for both databases.

    reading   the highest revision, of equal ones the earliest, of those the smallest id
    charge    of one reading and ordinal: the highest revision, of equal ones the smallest id

The view `requests` asks each term of one request; the sums of days, reports and pages ask the same
terms of all requests of a period at once (`ledger.store.adding_up`). `tokentee verify` states the
rules a second time, on purpose, to compare.

`c` is a current charge, `e` an exchange, `r` its current reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ledger.model.charge import PROVIDER
from ledger.model.exchange import COVERED

if TYPE_CHECKING:
    import sqlalchemy as sa

READING_ORDER = "{0}.revision DESC, {0}.read_at, {0}.id"
"""Readings of one exchange in the order in which they count; {0} names the table."""

_JOINED_READING = {
    "sqlite": """JOIN readings r
  ON r.opened_at = e.opened_at AND r.exchange_id = e.id AND {0}
  AND NOT EXISTS (
    SELECT 1 FROM readings n
    WHERE n.opened_at = r.opened_at AND n.exchange_id = r.exchange_id
      AND (n.revision > r.revision OR (n.revision = r.revision
           AND (n.read_at < r.read_at OR (n.read_at = r.read_at AND n.id < r.id)))))""",
    # One lookup in one partition per exchange. The planner does not infer that equal moments lie in
    # the same period, so a join over a period would read all of `readings`.
    "postgresql": """JOIN LATERAL (
    SELECT * FROM readings n
    WHERE n.opened_at = e.opened_at AND n.exchange_id = e.id
    ORDER BY """
    + READING_ORDER.format("n")
    + """ LIMIT 1) r ON {0}""",
}

PART = 10**9
"""A sum is the sum of its upper and lower part, so that no amount from an upstream overflows."""
PARTS_MAX = 9 * 10**9
"""Beyond 9.0e18, which 64 bits just hold, a sum is NULL: unknown."""
TOKENS_MAX = 10**9
"""No real request has more, and no token costs a thousandth of a USD. Upstream figures are
untrusted: larger ones are left out where a product would overflow 64 bits."""

NO_USAGE = "COALESCE({0}.usage_source, 'none') = 'none'"
"""Neither reported nor estimated; {0} names what has the column."""
IS_ERROR = "{0}.outcome IN ('error_frame', 'http_error')"
IS_ESTIMATED = "{0}.usage_source = 'estimated'"
BILLING = "COALESCE({0}.billing, 'unknown')"
_COVERED = ", ".join(f"'{each.value}'" for each in COVERED)
IS_COVERED = f"{{0}}.billing IN ({_COVERED})"
IS_REPORTED = "{0}.usage_source <> 'estimated'"
IS_BILLED = f"{IS_REPORTED} AND {{0}}.billing NOT IN ({_COVERED})"
"""Its charges are part of its cost: its usage was reported, and is billed by tokens."""

# Lines of a further iteration: its kind, a dot, the line. The first condition selects an index.
FURTHER_INPUT = (
    "c.line LIKE '%.%' AND "
    "(c.line LIKE '%.uncached_input' OR c.line LIKE '%.cache_%' OR c.line LIKE '%.input_%')"
)
FURTHER_OUTPUT = (
    "c.line LIKE '%.%' AND "
    "(c.line LIKE '%.output%' OR c.line LIKE '%.reasoning' OR c.line LIKE '%.citation')"
)
_CACHED = (
    "c.line IN ('cache_read', 'cache_write', 'cache_write_5m', 'cache_write_1h', 'cache_write_12h')"
    f" AND c.amount_picousd IS NOT NULL AND c.quantity <= {TOKENS_MAX}"
)


def joined_reading(dialect: str, condition: str = "true") -> str:
    """A join of an exchange `e` with its current reading `r`."""
    return _JOINED_READING[dialect].format(condition)


def is_current_charge(name: str) -> str:
    """The condition that a charge is current; `name` is the table's name or alias."""
    # A first revision has no equal: its id is its reading's digest, which covers its charges. Later
    # ones have an index of their own, since most charges are never superseded.
    return f"""NOT EXISTS (
    SELECT 1 FROM charges n
    WHERE n.opened_at = {name}.opened_at AND n.exchange_id = {name}.exchange_id
      AND n.reading_id = {name}.reading_id AND n.ordinal = {name}.ordinal AND n.revision > 1
      AND (n.revision > {name}.revision OR (n.revision = {name}.revision AND n.id < {name}.id)))"""


def current_charge(charge: sa.FromClause) -> sa.ColumnElement[bool]:
    """The same as an expression on `charges` or an alias of it."""
    import sqlalchemy as sa  # not above: a recording proxy makes the views, without SQLAlchemy

    name: Any = getattr(charge, "name")  # noqa: B009  # a FromClause that has one: table or alias
    return sa.literal_column(f"({is_current_charge(name)})", sa.Boolean)


def sum_of(term: str) -> str:
    """The sum of a term, which cannot overflow."""
    high, low = f"SUM({term} / {PART})", f"SUM({term} % {PART})"
    return f"CASE WHEN {high} < {PARTS_MAX} THEN {high} * {PART} + {low} END"


def _tokens(condition: str) -> str:
    return f"SUM(CASE WHEN {condition} AND c.quantity <= {TOKENS_MAX} THEN c.quantity END)"


TERMS: Mapping[str, str] = {
    "lines": "COUNT(*)",
    "priced_lines": "COUNT(c.amount_picousd)",
    "provider_lines": f"COUNT(CASE WHEN c.price_source = '{PROVIDER}' THEN 1 END)",
    "amount_picousd": sum_of("c.amount_picousd"),
    # A provider's own figure is no list price.
    "list_value_picousd": sum_of(
        f"CASE WHEN c.price_source <> '{PROVIDER}' THEN c.amount_picousd END"
    ),
    # What the cached tokens would have cost as uncached input, less what they cost.
    "saved_picousd": f"SUM(CASE WHEN {_CACHED} THEN c.quantity END) * MAX(CASE WHEN c.line = "
    f"'uncached_input' AND c.unit_picousd <= {TOKENS_MAX} THEN c.unit_picousd END) "
    f"- SUM(CASE WHEN {_CACHED} THEN c.amount_picousd END)",
    "extra_input_tokens": _tokens(FURTHER_INPUT),
    "extra_output_tokens": _tokens(FURTHER_OUTPUT),
}
"""Name -> aggregate over the current charges of one reading."""


def cost_state(lines: str, priced: str, provider: str, no_usage: str) -> str:
    """priced, partial, unpriced or reported, from the counts of lines; NULL: no usage to price."""
    return f"""CASE
     WHEN COALESCE({lines}, 0) = 0 THEN CASE WHEN {no_usage} THEN NULL ELSE 'unpriced' END
     WHEN {priced} = 0 THEN 'unpriced'
     WHEN {priced} < {lines} THEN 'partial'
     WHEN {provider} = {lines} THEN 'reported'
     ELSE 'priced' END"""


def without_usage(exchange: str, reading: str) -> str:
    """An answer whose usage is unknown. Of an error none is expected: it counts as an error."""
    return f"{NO_USAGE.format(reading)} AND NOT {IS_ERROR.format(exchange)}"


def reported(figure: str, name: str) -> str:
    """A figure of reported usage; NULL of an estimate, which has columns of its own. So is the list
    value of a request: what its tokens cost at list prices, whoever pays them, beside the cost."""
    return f"CASE WHEN {IS_ESTIMATED.format(name)} THEN NULL ELSE {figure} END"


def cost(amount: str, name: str) -> str:
    """The cost of a request: of reported usage that is billed by tokens. An estimate is part of no
    total, and neither is what a plan covers."""
    not_billed = f"{IS_ESTIMATED.format(name)} OR {IS_COVERED.format(name)}"
    return f"CASE WHEN {not_billed} THEN NULL ELSE {amount} END"


def estimated_cost(amount: str, name: str) -> str:
    """The cost of a request whose usage is our estimate."""
    is_billed = f"({IS_COVERED.format(name)}) IS NOT TRUE"
    return f"CASE WHEN {IS_ESTIMATED.format(name)} AND {is_billed} THEN {amount} END"
