"""Pure. Converts rows of the ledger to the values they were written from."""

import json
from collections.abc import Mapping
from typing import Any

from ledger.model.columns import columns_of
from ledger.model.exchange import Exchange, Outcome, Source, State
from ledger.model.reading import Billing, Reading, UsageSource
from ledger.model.usage import FurtherUsage, Usage

_EXCHANGE = tuple(columns_of(Exchange))
_COUNTS = tuple(
    name for name in Usage.__struct_fields__ if name not in ("tool_units", "further", "remarks")
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
            further=tuple(_further_of(further) for further in _document(row["further"])),
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


def _further_of(further: Mapping[str, Any]) -> FurtherUsage:
    usage = further["usage"]
    return FurtherUsage(
        kind=further["kind"],
        model=further["model"],
        usage=Usage(**{name: usage[name] for name in _COUNTS}, tool_units=usage["tool_units"]),
    )
