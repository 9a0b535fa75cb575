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
    known["tags"] = object_of(row["tags"], str)
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
        usage_source=usage_source_of(row["usage_source"]),
        usage=Usage(
            **_counts(row),
            tool_units=object_of(row["tool_units"], int),
            further=tuple(
                FurtherUsage(
                    kind=further["kind"],
                    model=further["model"],
                    usage=Usage(
                        **_counts(further["usage"]),
                        tool_units=further["usage"]["tool_units"],
                    ),
                )
                for further in list_of(row["further"], dict)
                if isinstance(further.get("usage"), dict) and "kind" in further
            ),
            remarks=tuple(list_of(row["remarks"], str)),
        ),
        usage_json=row["usage_json"],
        estimated_output_tokens=row["estimated_output_tokens"],
        read_at=row["read_at"],
        reason=row["reason"],
        billing=Billing(row["billing"]) if row["billing"] in Billing else None,
    )


def usage_source_of(word: Any) -> UsageSource:
    """The source that a row names; none where it names none that is known."""
    return UsageSource(word) if word in UsageSource else UsageSource.NONE


def object_of[T](text: str, kind: type[T]) -> dict[str, T]:
    """The members of a JSON object that are of this kind. A row that an older version merged may
    hold other JSON."""
    found = json_value(text)
    members = found.items() if isinstance(found, dict) else ()
    return {name: value for name, value in members if isinstance(value, kind)}


def list_of[T](text: str, kind: type[T]) -> list[T]:
    """The same of a JSON array."""
    found = json_value(text)
    return [each for each in found if isinstance(each, kind)] if isinstance(found, list) else []


def json_value(text: Any) -> Any:
    """The value of a JSON text; None if it is no JSON. Most are empty; those are not parsed."""
    if text in ("{}", "[]"):
        return {} if text == "{}" else []
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None


def _counts(row: Mapping[str, Any]) -> dict[str, Any]:
    counts = ((name, row.get(name)) for name in _COUNTS)
    return {name: value if isinstance(value, int) else None for name, value in counts}
