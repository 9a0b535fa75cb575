"""Database. Reads requests, charges and FOCUS billing rows from the ledger, day by day.

Rows are streamed in the order of their time, which is the order of the primary key, so neither the
database nor Python holds more than a batch.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ledger.model.money import usd_of
from ledger.parts.exports import focus
from ledger.parts.exports.day_files import BATCH_ROWS, ExportedFile, FileFormat, write
from ledger.pricing.price_lists import PriceQuestion
from ledger.pricing.prices import PriceBook
from ledger.settings.names import GroupFacts
from ledger.store.adding_up import charged, sum_without_bound
from ledger.store.keys import object_of
from ledger.store.schema.columns import Instant
from ledger.store.scope import REQUEST_COLUMNS, Scope, as_text, conditions, requests, snapshot
from ledger.store.tables import current_charges
from ledger.text.origins import host_of

type Rows = Iterator[tuple[date, tuple[Any, ...]]]

FOCUS_NAMES = ("name", "team", "cost_centre")
"""Words of the names file that a FOCUS row carries."""
FOCUS: Mapping[str, str] = {"1.2": "focus", "1.4": "focus-1.4"}
"""Version -> name of the dataset."""
IN_USD = (
    "cost_picousd",
    "estimated_cost_picousd",
    "list_value_picousd",
    "reported_cost_picousd",
)
"""Columns of a request that are written in USD, too."""
EXPORTED_CHARGE_COLUMNS: Mapping[str, str] = {
    "opened_at": "instant",
    "exchange_id": "text",
    "reading_id": "text",
    "ordinal": "integer",
    "revision": "integer",
    "line": "text",
    "model": "text",
    "quantity": "integer",
    "unit_picousd": "integer",
    "amount_picousd": "integer",
    "price_source": "text",
    "priced_at": "instant",
    "supersedes": "text",
    "reason": "text",
}
ATTRIBUTION = ("provider", "origin", "key_fingerprint", "session_id", "end_user", "tags")
"""Columns of the request that are repeated on each of its charges."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """A data set for export: its columns, and the query of its rows."""

    columns: tuple[tuple[str, str], ...]
    rows: Callable[[Connection, Scope, "Wanted"], Rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What FOCUS rows carry beside the ledger's figures."""

    invoices: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """(provider, billing month as `2026-11`) -> the id of its invoice, where it is known."""
    """Of the bill; None: USD."""


def export(
    engine: Engine,
    name: str,
    directory: Path,
    form: FileFormat,
    scope: Scope,
    *,
    wanted: Wanted | None = None,
) -> Iterator[ExportedFile]:
    """Write a dataset, a file for each day; yields each when it is written."""
    dataset = DATASETS[name]
    with snapshot(engine) as connection:
        connection.execution_options(yield_per=BATCH_ROWS)
        rows = dataset.rows(connection, scope, wanted or Wanted())
        yield from write(directory, name, dataset.columns, rows, form)


def count_unpriced_charges(engine: Engine, scope: Scope) -> int:
    """The number of lines that a FOCUS export must leave out."""
    with engine.connect() as connection:
        return connection.execute(
            sa.select(sa.func.count())
            .select_from(charged())
            .where(
                current_charges.c.amount_picousd.is_(None),
                *conditions(scope, connection.dialect.name),
            )
        ).scalar_one()


def _requests(connection: Connection, scope: Scope, _: Wanted) -> Rows:
    query = (
        sa.select(*(as_text(requests.c[name]).label(name) for name in REQUEST_COLUMNS))
        .where(*conditions(scope, connection.dialect.name))
        .order_by(requests.c.opened_at)
    )
    for row in connection.execute(query):
        yield day_in(scope, row.opened_at), (*row, *(_usd(getattr(row, name)) for name in IN_USD))


def _charges(connection: Connection, scope: Scope, _: Wanted) -> Rows:
    query = (
        sa.select(
            *(current_charges.c[name] for name in EXPORTED_CHARGE_COLUMNS if name != "model"),
            sa.func.coalesce(current_charges.c.model, requests.c.model).label("priced_model"),
            *(as_text(requests.c[name]).label(name) for name in ATTRIBUTION),
        )
        .select_from(charged())
        .where(*conditions(scope, connection.dialect.name))
        .order_by(
            current_charges.c.opened_at, current_charges.c.exchange_id, current_charges.c.ordinal
        )
    )
    for row in connection.execute(query):
        known = row._mapping
        yield (
            day_in(scope, row.opened_at),
            (
                *(
                    known["priced_model" if name == "model" else name]
                    for name in EXPORTED_CHARGE_COLUMNS
                ),
                _usd(row.unit_picousd),
                _usd(row.amount_picousd),
                *(known[name] for name in ATTRIBUTION),
            ),
        )


def _focus(version: str, connection: Connection, scope: Scope, wanted: Wanted) -> Rows:
    r, c = requests.c, current_charges.c
    is_postgresql = connection.dialect.name == "postgresql"
    hour: sa.ColumnElement[Any] = (
        sa.func.date_trunc("hour", r.opened_at, "UTC", type_=Instant())
        if is_postgresql
        else sa.func.substr(sa.cast(r.opened_at, sa.Text), 1, 13)
    )
    by_session = "session" in scope.names.facts_of(FOCUS_NAMES)
    named: dict[str, sa.ColumnElement[Any]] = {
        "hour": hour,
        "line": c.line,
        "model": sa.func.coalesce(c.model, r.model),
        "unit_picousd": c.unit_picousd,
        "price_source": c.price_source,
        "provider": r.provider,
        "origin": r.origin,
        "operation": r.operation,
        "service_tier": r.service_tier,
        "billing": r.billing,
        "key_fingerprint": r.key_fingerprint,
        "key_hint": r.key_hint,
        "tags": as_text(r.tags),
        **({"session_id": r.session_id} if by_session else {}),
        "project": r.project,
    }
    group = [value.label(name) for name, value in named.items()]
    query = (
        sa.select(
            *group,
            sa.func.count(r.id.distinct()).label("requests"),
            sa.func.sum(c.quantity).label("quantity"),
            sa.func.sum(c.amount_picousd).label("amount_picousd"),
            # Of all requests of the row.
            sa.func.min(
                sa.case((r.cache_read_tokens + r.cache_write_tokens >= 0, 1), else_=0)
            ).label("has_cache_figures"),
        )
        .select_from(charged())
        .where(
            c.amount_picousd.is_not(None),
            r.usage_source != "estimated",  # part of no total
            *conditions(scope, connection.dialect.name),
        )
        .group_by(*named.values())
        .order_by(*named.values())
    )
    published = PriceBook()
    sum_without_bound(connection)  # rows are streamed, so an overflow could come late
    for row in connection.execute(query):
        known = dict(row._mapping)
        known["quantity"] = int(row.quantity)
        known["amount_picousd"] = int(row.amount_picousd)
        if not is_postgresql:
            known["hour"] = datetime.strptime(row.hour, "%Y-%m-%d %H").replace(tzinfo=UTC)
        month = f"{known['hour']:%Y-%m}"
        known["invoice_id"] = wanted.invoices.get((known["provider"], month))
        known["list_unit_picousd"] = _list_unit(published, known)
        known["day"] = day_in(scope, known["hour"])
        facts = GroupFacts(
            key=known["key_fingerprint"],
            key_hint=known["key_hint"],
            host=host_of(known["origin"]),
            tags=object_of(known["tags"], str),
            session=known.get("session_id"),
            project=known["project"],
            day=known["hour"].date(),
        )
        known["key_name"], known["team"], known["cost_centre"] = (
            scope.names.word_of(word, facts) for word in FOCUS_NAMES
        )
        yield known["day"], focus.row_of(known, version)


def day_in(scope: Scope, moment: datetime) -> date:
    """The day of the scope's zone, so that a period of whole days replaces whole files."""
    return (moment.astimezone(scope.zone) if scope.zone else moment).date()


def _list_unit(published: PriceBook, known: Mapping[str, Any]) -> int | None:
    """The published price of one unit, if the booked one is the operator's own; None if none is
    published, or if the booked price is the published one.

    It is the price for ordinary input lengths: a row sums an hour's requests, long ones included.
    """
    if not known["price_source"].startswith("override"):
        return None
    question = PriceQuestion(
        origin=known["origin"], provider=known["provider"], response_model=known["model"]
    )
    sheet = published.look_up(question, tier=known["service_tier"], at=known["hour"])
    rate = sheet.rate(known["line"].rpartition(".")[2])
    return None if rate is None or rate.is_once or rate.is_unknown else rate.picousd


def _usd(picousd: int | None) -> Decimal | None:
    return usd_of(picousd) if isinstance(picousd, int) else None


DATASETS: Mapping[str, Dataset] = {
    "requests": Dataset(
        (
            *REQUEST_COLUMNS.items(),
            *((name.replace("_picousd", "_usd"), "decimal") for name in IN_USD),
        ),
        _requests,
    ),
    "charges": Dataset(
        (
            *EXPORTED_CHARGE_COLUMNS.items(),
            ("unit_usd", "decimal"),
            ("amount_usd", "decimal"),
            *((name, "text") for name in ATTRIBUTION),
        ),
        _charges,
    ),
    **{
        FOCUS[version]: Dataset(tuple(columns.items()), partial(_focus, version))
        for version, columns in focus.VERSIONS.items()
    },
}
"""Name -> dataset: the public view `requests`, the current charges, FOCUS by version."""
