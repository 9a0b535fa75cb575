"""Edge. The ledger's rows of the demo's requests, read with SQL like any user does."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path

from addon.demo.scene import Figures

_COLUMNS = tuple(field.name for field in fields(Figures))
_TRUTHS = ("usage_asked", "usage_injected", "usage_stripped")
"""SQLite has no booleans."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of view `requests`."""

    session_id: str
    provider: str
    figures: Figures
    cost_picousd: int | None
    cost_state: str | None
    """`priced`, `unpriced`, `partial`, `reported`; None if there is nothing to price."""
    billing: str = "unknown"


def read(ledger: Path) -> list[Row]:
    """Every request that counts, in the order of time."""
    with closing(sqlite3.connect(f"{ledger.as_uri()}?mode=ro", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        return [
            _row(row) for row in connection.execute("SELECT * FROM requests ORDER BY opened_at, id")
        ]


def _row(row: sqlite3.Row) -> Row:
    values = {name: row[name] for name in _COLUMNS}
    if values["usage_source"] == "estimated":
        values |= {name: row[f"estimated_{name}"] for name in ("input_tokens", "output_tokens")}
    for name in _TRUTHS:
        values[name] = None if values[name] is None else bool(values[name])
    return Row(
        session_id=row["session_id"],
        provider=row["provider"],
        figures=Figures(**values),
        billing=row["billing"],
        cost_picousd=row["cost_picousd"]
        if row["estimated_cost_picousd"] is None
        else row["estimated_cost_picousd"],
        cost_state=row["cost_state"],
    )


def differences(expected: Figures, found: Figures) -> list[str]:
    """The differences between the ledger and the bytes that upstream sent, as lines.

    For estimated figures only their mark is checked.
    """
    names = set(_COLUMNS)
    if expected.usage_source == "estimated":
        names -= {"input_tokens", "output_tokens"}
    if expected.error_type == "transport":
        names -= {"error_message"}  # the text comes from the proxy
    return [
        f"{name} is {getattr(found, name)!r}, sent was {getattr(expected, name)!r}"
        for name in _COLUMNS
        if name in names and getattr(expected, name) != getattr(found, name)
    ]
