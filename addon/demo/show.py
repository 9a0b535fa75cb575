"""Edge. The ledger's rows of the demo's requests, read with SQL like any user does, compared with
what upstream sent, and shown."""

import os
import shlex
import sqlite3
import sys
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path

from rich.console import Console

from addon.demo.scene import ExpectedRow
from ledger.model.exchange import COVERED
from ledger.reports.layout import Amount, Cell, Column, Table

_FIGURES = tuple(field.name for field in fields(ExpectedRow))
_TRUTHS = ("usage_asked", "usage_injected", "usage_stripped")
"""SQLite has no booleans."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of view `requests`."""

    session_id: str
    provider: str
    figures: ExpectedRow
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
    values = {name: row[name] for name in _FIGURES}
    if values["usage_source"] == "estimated":
        values |= {name: row[f"estimated_{name}"] for name in ("input_tokens", "output_tokens")}
    for name in _TRUTHS:
        values[name] = None if values[name] is None else bool(values[name])
    return Row(
        session_id=row["session_id"],
        provider=row["provider"],
        figures=ExpectedRow(**values),
        billing=row["billing"],
        cost_picousd=row["cost_picousd"]
        if row["estimated_cost_picousd"] is None
        else row["estimated_cost_picousd"],
        cost_state=row["cost_state"],
    )


def differences(expected: ExpectedRow, found: ExpectedRow) -> list[str]:
    """The differences between the ledger and the bytes that upstream sent, as lines.

    For estimated figures only their mark is checked.
    """
    names = set(_FIGURES)
    if expected.usage_source == "estimated":
        names -= {"input_tokens", "output_tokens"}
    if expected.error_type == "transport":
        names -= {"error_message"}  # the text comes from the proxy
    return [
        f"{name} is {getattr(found, name)!r}, sent was {getattr(expected, name)!r}"
        for name in _FIGURES
        if name in names and getattr(expected, name) != getattr(found, name)
    ]


WIDTH_COLUMNS_MIN = 150
"""The width without a terminal: enough for one line per request."""
TOKENS_BY_PROVIDER = (
    "SELECT provider, count(*), sum(input_tokens), sum(cache_read_tokens), sum(output_tokens) "
    "FROM requests WHERE usage_source = 'reported' GROUP BY provider"
)
NOT_COMPLETE = (
    "SELECT response_id, response_model, outcome, error_code, error_message "
    "FROM requests WHERE outcome <> 'complete'"
)
_COLUMNS = (
    Column(name="response_id", heading="Response id", is_number=False),
    Column(name="provider", heading="Provider", is_number=False, drop=5),
    Column(name="model", heading="Model", is_number=False),
    Column(name="answered_by", heading="Answered by", is_number=False, drop=6),
    Column(name="input_tokens", heading="Input"),
    Column(name="cache_read_tokens", heading="Cached", drop=2),
    Column(name="cache_write_tokens", heading="Written", drop=4),
    Column(name="output_tokens", heading="Output"),
    Column(name="reasoning_tokens", heading="Reasoning", drop=3),
    Column(name="cost", heading="Cost"),
    Column(name="outcome", heading="Outcome", is_number=False, wraps=True),
)
"""Columns of the table of requests. At 80 columns the seven most important stay."""


def console(width: int = WIDTH_COLUMNS_MIN) -> Console:
    """Standard output, for people; at least so wide where it is no terminal."""
    found = Console(highlight=False)
    if not found.is_terminal:
        found = Console(highlight=False, width=max(found.width, width))
    return found


def tokens(row: Row) -> tuple[Cell, Cell]:
    """Input and output."""
    return _tokens(row, "input_tokens"), _tokens(row, "output_tokens")


def requests(rows: Sequence[Row]) -> Table:
    """One line a request."""
    return Table(columns=_COLUMNS, rows=tuple(_cells(row) for row in rows))


def notes(rows: Sequence[Row]) -> Iterable[str]:
    """Explanations below the table."""
    yield "-: not reported, which is not 0. ~: estimated from what passed."
    ours = [row for row in rows if row.figures.usage_stripped]
    yield (
        f"{len(ours)} streams would have carried no usage. It was asked for on the way up and "
        "taken out on the way down: each client got, byte for byte, what it would have got alone."
    )
    unpriced = [row.figures.usage_source for row in rows if row.cost_state == "unpriced"]
    estimated = unpriced.count("estimated")
    if unpriced:
        # Counted as in the report below, whose sums exclude estimates.
        beside = f", nor do the estimates of {estimated} more" if estimated else ""
        count = len(unpriced) - estimated
        yield f"{count} requests have no price; they do not count as $0{beside}."


def queries(ledger: Path) -> Iterable[str]:
    """Two questions to ask the ledger, as shell commands for the Python that runs this."""
    python = Path(sys.executable)
    if python.is_relative_to(Path.cwd()):
        python = python.relative_to(Path.cwd())
    for query in (TOKENS_BY_PROVIDER, NOT_COMPLETE):
        yield f'{shlex.quote(os.fspath(python))} -m sqlite3 {shlex.quote(str(ledger))} "{query}"'


def _cells(row: Row) -> tuple[Cell, ...]:
    figures = row.figures
    answered = figures.response_model
    return (
        figures.response_id,
        row.provider,
        figures.request_model,
        answered if answered not in (None, figures.request_model) else "",
        *(
            _tokens(row, column.name)
            for column in _COLUMNS
            if column.name.endswith("_tokens") and column.name != "reasoning_tokens"
        ),
        _tokens(row, "reasoning_tokens"),
        cost(row),
        _outcome(row),
    )


def _tokens(row: Row, name: str) -> Cell:
    count: int | None = getattr(row.figures, name)
    return f"~{count}" if count is not None and row.figures.usage_source == "estimated" else count


def _outcome(row: Row) -> str:
    figures = row.figures
    error = figures.error_code or figures.error_type
    reason = error if figures.outcome in ("error_frame", "http_error") else figures.finish_reason
    return f"{figures.outcome}: {reason}" if reason else figures.outcome


def cost(row: Row) -> Cell:
    """The cost, marked if it is an estimate; else why there is none."""
    if row.cost_picousd is None:
        return row.billing if row.billing in COVERED else row.cost_state
    mark = "~" if row.figures.usage_source == "estimated" else ""
    return Amount(picousd=row.cost_picousd, mark=mark)
