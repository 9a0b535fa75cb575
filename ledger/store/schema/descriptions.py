"""Database. Describes every column of the public tables and views.

A view's column has the meaning of the table's column of the same name, unless it is described here.
The descriptions of tables are in the schema (`tables.py`). PostgreSQL shows both as comments;
`tokentee db describe` shows both for every database.
"""

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ledger.model.usage import TOKENS
from ledger.store.tables import charges, exchanges, metadata, readings

PUBLIC_TABLES = ("exchanges", "readings", "pricings")
LINES = ("charges", "current_charges")

PUBLIC_VIEWS = {
    "requests": "One row per exchange that counts, with its current reading and charges: ended, "
    "and not a duplicate",
    "charges": "Priced lines of readings, all that were ever booked",
    "current_charges": "The lines of each reading that count: those of its newest pricing",
    "usage_daily": "Requests by UTC day, provider, model and key",
    "unpriced": "Lines without a price, of readings that count",
    "completeness": "Exchanges by the hour in which they were opened, and their states",
}

_OVER_ROWS = "Sum over requests whose usage was reported or partial; NULL: none reported it. "

_DERIVED: dict[str, dict[str, str]] = {
    "requests": {
        "model": "response_model; if the answer names none, meant_model, or else request_model",
        "first_token_ms": "From opened_at to first_token_at",
        "duration_ms": "From opened_at to settled_at",
        "uncached_input_tokens": "input_tokens without cache reads and writes",
        **{
            name: f"{readings.c[name].comment}; NULL where the usage is an estimate"
            for name in TOKENS
        },
        "estimated_input_tokens": "Estimate of the input where no usage was reported",
        "estimated_output_tokens": "Estimate of the output that was not reported",
        "cost_picousd": "Sum of the priced lines of reported usage that is billed by tokens, in "
        "pico-USD; NULL: none is priced, the usage is an estimate, or billing is plan or free",
        "estimated_cost_picousd": "The same of estimated usage; part of no total",
        "billing": "metered (billed by tokens), plan (covered by a flat price), free, or unknown: "
        "then it counts as billed by tokens",
        "list_value_picousd": "What the reported tokens cost at list prices, in pico-USD, whoever "
        "pays them: beside cost_picousd, never to be added to it; NULL: no price is known",
        "reading_id": "The current reading",
        "reading_revision": "Revision of the current reading",
    },
    "usage_daily": {
        "day": "UTC day of opened_at",
        "provider": "The vendor or gateway that answers",
        "model": "The model that answered, or was asked for",
        "requests": "Requests that count",
        "errors": "Of these, ended in an HTTP error or an error frame",
        "without_usage": "Of these, neither errors nor with reported or estimated usage",
        "estimated_input_tokens": "Estimates for requests without reported usage; in no other "
        "column",
        "estimated_output_tokens": "Estimates of output that was not reported; in no other column",
        "cache_hit_rate": "Cache reads per input token of requests that report cache reads",
        "cost_picousd": "Sum of the priced lines of reported usage, in pico-USD; NULL: none is "
        "priced",
        "complete_without_usage": "Of these, complete and without usage",
        "estimated": "Of these, with estimated usage, which is in no total",
        "estimated_cost_picousd": "Cost of estimated usage, in pico-USD; beside cost_picousd",
        "unpriced": "Requests with reported usage, billed by tokens, of which a line, or every "
        "line, has no price",
        "refused": "Requests that a cap refused; in no other column",
        "covered": "Requests that a plan covers, or that are free: their cost is NULL",
        "list_value_picousd": "What the reported tokens cost at list prices, in pico-USD; beside "
        "cost_picousd, never to be added to it",
    },
    "unpriced": {
        "exchange_id": "The exchange",
        "model": "The model that has no price",
        "line": "The line that has no price; NULL: no line was charged",
        "quantity": "Number of units",
        "reason": "Why there is no price",
    },
    "completeness": {
        "hour": "UTC hour of opened_at",
        "opened": "Exchanges seen",
        "still_open": "Of these, open",
        "settled": "Of these, ended",
        "lost": "Of these, lost: the recording process died before the end",
        "without_usage": "Ended without an error or lost, and neither reported nor estimated; "
        "without duplicates, as in usage_daily",
        "estimated": "Ended, and their usage is an estimate",
        "errors": "Ended in an HTTP error or an error frame",
        "degraded": "Exchanges that were not read or edited to the end",
        "duplicates": "The same billed response seen again; in no total",
        "refused": "Requests that a cap refused; in no other column",
    },
}
_SUMMED = {
    name: f"{_OVER_ROWS}{readings.c[name].comment}"
    for name in readings.c.keys()  # noqa: SIM118  # a ColumnCollection iterates over columns
    if name.endswith("_tokens") and not name.startswith("estimated")
} | {
    name: f"{_OVER_ROWS}{text}"
    for name, text in _DERIVED["requests"].items()
    if name.endswith("_tokens")
}


@dataclass(frozen=True, slots=True)
class Described:
    """A column and its description."""

    relation: str
    column: str
    kind: str
    text: str


def heading(relation: str) -> str:
    """The description of a table or view, in one line."""
    text = PUBLIC_VIEWS.get(relation) or metadata.tables[relation].comment
    return f"{relation}: {text}"


def describe(connection: Connection) -> list[Described]:
    """Every column of the public tables and views of this ledger."""
    inspector = sa.inspect(connection)
    return [
        Described(
            relation,
            column["name"],
            # SQLite knows no type of an expression.
            "" if isinstance(kind := column["type"], sa.types.NullType) else str(kind).lower(),
            description_of(relation, column["name"]),
        )
        for relation in (*PUBLIC_VIEWS, *PUBLIC_TABLES)
        for column in inspector.get_columns(relation)
    ]


def description_of(relation: str, column: str) -> str:
    """The description of a column."""
    if relation in PUBLIC_TABLES:
        return metadata.tables[relation].c[column].comment or ""
    if relation in LINES:
        return charges.c[column].comment or ""
    if column in _DERIVED[relation]:
        return _DERIVED[relation][column]
    if column.endswith("_usd"):
        return f"{column.removesuffix('_usd')}_picousd in USD"
    if relation == "usage_daily" and column in _SUMMED:
        return _SUMMED[column]
    for table in (exchanges, readings):
        if column in table.c:
            return table.c[column].comment or ""
    raise LookupError(f"{relation}.{column} is not described")


def comment_on_all(connection: Connection) -> None:
    """Store all descriptions as comments in PostgreSQL: of tables, views and their columns."""
    comments = {f"VIEW {view}": text for view, text in PUBLIC_VIEWS.items()}
    for table in metadata.tables.values():
        comments[f"TABLE {table.name}"] = table.comment or ""
        for kept in table.columns:
            comments[f"COLUMN {table.name}.{kept.name}"] = kept.comment or ""
    for each in describe(connection):
        comments[f"COLUMN {each.relation}.{each.column}"] = each.text
    for place, text in comments.items():
        # A literal: COMMENT takes no parameters.
        quoted = "'" + text.replace("'", "''").replace(":", "\\:") + "'"
        connection.execute(sa.text(f"COMMENT ON {place} IS {quoted}"))
