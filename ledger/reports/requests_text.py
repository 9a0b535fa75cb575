"""Pure. Single requests as a table, and as a document for machines."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, tzinfo
from typing import Any

from ledger.figures.request_list import LISTED_COLUMNS, ListedRequest
from ledger.model.exchange import NO_MODEL
from ledger.model.money import usd_text
from ledger.reports.layout import Cell, Table, TableColumn, amount_of, unique_beginning
from ledger.text.figures import duration_text

_SCREEN_COLUMNS = (
    TableColumn(name="opened_at", heading="Time", is_number=False, is_whole=True),
    TableColumn(name="model", heading="Model", is_number=False),
    TableColumn(name="outcome", heading="Outcome", is_number=False),
    TableColumn(name="input_tokens", heading="Input", drop=3),
    TableColumn(name="cache_read_tokens", heading="Cached", drop=6),
    TableColumn(name="output_tokens", heading="Output", drop=2),
    TableColumn(name="cost_usd", heading="Cost"),
    TableColumn(name="duration_ms", heading="Duration", drop=4),
    TableColumn(name="first_token_ms", heading="First token", drop=9),
    TableColumn(name="key", heading="Key", is_number=False, drop=7),
    TableColumn(name="session_id", heading="Session", is_number=False, drop=8),
    TableColumn(name="id", heading="Id", is_number=False, drop=1),
)


def table(found: Sequence[ListedRequest], zone: tzinfo | None = None) -> Table:
    """The screen's table: what is estimated is marked, what a plan covers stands in brackets.
    `zone`: that of the requests' times; None: UTC."""
    return Table(
        columns=(
            replace(_SCREEN_COLUMNS[0], heading=f"Time ({zone or UTC})"),
            *_SCREEN_COLUMNS[1:],
        ),
        rows=tuple(_cells(each, [one.id for one in found]) for each in found),
    )


def flat(found: Sequence[ListedRequest]) -> Table:
    """Every field, for CSV."""
    documents = document(found)
    names = [*(name.replace("_picousd", "_usd") for name in LISTED_COLUMNS), "place"]
    return Table(
        columns=tuple(TableColumn(name=name, heading=name) for name in names),
        rows=tuple(tuple(each[name] for name in names) for each in documents),
    )


def document(found: Sequence[ListedRequest]) -> list[dict[str, Any]]:
    """Every field of each request; amounts as USD in text. `place` is for
    --before."""
    documents = []
    for each in found:
        values: dict[str, Any] = {"opened_at": each.opened_at.astimezone(UTC).isoformat()}
        for name in LISTED_COLUMNS:
            value = getattr(each, name)
            if name.endswith("_picousd"):
                usd = None if value is None else usd_text(value)
                values[name.removesuffix("picousd") + "usd"] = usd
            elif name != "opened_at":
                values[name] = value
        values["place"] = each.place
        documents.append(values)
    return documents


def _cells(one: ListedRequest, ids: list[str]) -> tuple[Cell, ...]:
    is_estimate = one.usage_source == "estimated"
    outcome = (one.outcome or "").replace("_", " ")
    outcome += "" if one.http_status in (None, 200) else f" {one.http_status}"
    outcome += ", degraded" if one.degraded else ""
    key = one.key_hint and f"…{one.key_hint}"
    if is_estimate:
        cost: Cell = amount_of(one.estimated_cost_picousd, "~")
    elif one.is_covered:
        cost = one.billing
    elif one.has_no_usage:
        cost = "no usage"
    elif one.cost_picousd is None and one.cost_state == "unpriced":
        cost = "unpriced"
    else:
        cost = amount_of(one.cost_picousd, "≥ " if one.cost_state == "partial" else "")
    return (
        f"{one.opened_at:%Y-%m-%d %H:%M:%S}",
        one.model or NO_MODEL,
        outcome,
        one.estimated_input_tokens if is_estimate else one.input_tokens,
        one.cache_read_tokens,
        one.estimated_output_tokens if is_estimate else one.output_tokens,
        cost,
        None if one.duration_ms is None else duration_text(one.duration_ms),
        None if one.first_token_ms is None else duration_text(one.first_token_ms),
        key or (one.key_fingerprint and one.key_fingerprint[:6]),
        one.session_id,
        unique_beginning(one.id, ids),
    )
