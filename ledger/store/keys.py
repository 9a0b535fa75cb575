"""Pure. The key of an exchange in a database, moments of days and as SQLite stores them, how a
statement takes many keys, and rows as the values they were written from."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

import orjson

from ledger.model.columns import columns_of
from ledger.model.exchange import Billing, Exchange, Outcome, Reading, Source, State, UsageSource
from ledger.model.usage import FurtherUsage, Usage

type Key = tuple[str, str]
"""opened_at as text, and the exchange's id."""

_EXCHANGE = tuple(columns_of(Exchange))
_COUNTS = tuple(
    name for name in Usage.__struct_fields__ if name not in ("tool_units", "further", "remarks")
)


def instant_text(moment: datetime) -> str:
    """A moment as text of fixed width, in UTC. With a `T`, a comparison with
    `datetime('now', '-1 hour')` would be wrong."""
    # Not with strftime, which does not pad years on some systems, so the text would not sort.
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(' ', 'microseconds')}Z"


def midnight(day: date) -> datetime:
    """The begin of a UTC day."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def parameters(keys: Sequence[Key]) -> dict[str, str]:
    """The parameter of `chosen`: one JSON text, however many keys there are."""
    return {"keys": orjson.dumps(keys).decode()}


def chosen(dialect: str) -> str:
    """A query for the opened_at and the id of each key."""
    if dialect == "sqlite":
        return "SELECT value ->> 0, value ->> 1 FROM json_each(:keys)"
    return (
        "SELECT (k ->> 0)::timestamptz, k ->> 1 FROM jsonb_array_elements(CAST(:keys AS jsonb)) k"
    )


def exchange_of(row: Mapping[str, Any]) -> Exchange:
    """The exchange of a row."""
    known = {name: row[name] for name in _EXCHANGE if row[name] is not None}
    known["state"] = State(row["state"])
    known["source"] = Source(row["source"])
    known["tags"] = _document(row["tags"])
    if row["outcome"] is not None:
        known["outcome"] = Outcome(row["outcome"])
    return Exchange(**known)


def reading_of(row: Mapping[str, Any]) -> Reading:
    """The reading of a row."""
    return Reading(
        exchange_id=row["exchange_id"],
        opened_at=row["opened_at"],
        revision=row["revision"],
        meter_version=row["meter_version"],
        usage_source=UsageSource(row["usage_source"]),
        usage=Usage(
            **{name: row[name] for name in _COUNTS},
            tool_units=_document(row["tool_units"]),
            further=tuple(
                FurtherUsage(
                    kind=further["kind"],
                    model=further["model"],
                    usage=Usage(
                        **{name: further["usage"][name] for name in _COUNTS},
                        tool_units=further["usage"]["tool_units"],
                    ),
                )
                for further in _document(row["further"])
            ),
            remarks=tuple(_document(row["remarks"])),
        ),
        usage_json=row["usage_json"],
        estimated_output_tokens=row["estimated_output_tokens"],
        read_at=row["read_at"],
        reason=row["reason"],
        billing=Billing(row["billing"]) if row["billing"] else None,
    )


def _document(text: str) -> Any:
    """Most documents are empty; those are not parsed."""
    return {} if text == "{}" else [] if text == "[]" else json.loads(text)
