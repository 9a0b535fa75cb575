"""Edge. Prints what the ledger says of the demo's requests."""

import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from addon.demo.rows import Row
from ledger.model.money import usd_text

WIDTH_COLUMNS_MIN = 150
"""Where no terminal says how wide it is, wide enough for one line a request."""
TOKENS_BY_PROVIDER = (
    "SELECT provider, count(*), sum(input_tokens), sum(cache_read_tokens), sum(output_tokens) "
    "FROM requests WHERE usage_source = 'reported' GROUP BY provider"
)
NOT_COMPLETE = (
    "SELECT response_id, response_model, outcome, error_code, error_message "
    "FROM requests WHERE outcome <> 'complete'"
)
_TOKENS = (
    ("input_tokens", "input"),
    ("cache_read_tokens", "cache\nread"),
    ("cache_write_tokens", "cache\nwrite"),
    ("output_tokens", "output"),
    ("reasoning_tokens", "reason-\ning"),
)


def console() -> Console:
    """Standard output, for people."""
    found = Console(highlight=False)
    if not found.is_terminal:
        found = Console(highlight=False, width=max(found.width, WIDTH_COLUMNS_MIN))
    return found


def requests(rows: Sequence[Row]) -> Table:
    """One line a request, and the totals of what providers reported."""
    table = Table(box=box.SIMPLE_HEAD, show_footer=True, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("provider", "total", no_wrap=True)
    table.add_column("response id", f"{len(rows)} requests", overflow="fold")
    table.add_column("model asked for\n-> answered by", overflow="fold")
    reported = [row for row in rows if row.figures.usage_source in ("reported", "partial")]
    for name, title in _TOKENS:
        counts = [getattr(row.figures, name) for row in reported]
        total = sum(count for count in counts if count is not None)
        table.add_column(title, f"{total}", justify="right")
    table.add_column("cost", _cost_of_all(reported), justify="right", no_wrap=True)
    table.add_column("outcome", overflow="fold")
    for row in rows:
        figures = row.figures
        table.add_row(
            row.provider,
            escape(figures.response_id or "-"),
            escape(_models(figures.request_model, figures.response_model)),
            *(_tokens(row, name) for name, _ in _TOKENS),
            _cost(row),
            escape(_outcome(row)),
        )
    return table


def notes(rows: Sequence[Row]) -> Iterable[str]:
    """What the table does not say by itself."""
    yield "- : not reported (which is not 0).  ~ : estimated from what passed; not in the totals."
    ours = [row for row in rows if row.figures.usage_stripped]
    yield (
        f"{len(ours)} streams would have carried no usage. It was asked for on the way up and "
        "taken out on the way down: each client got, byte for byte, what it would have got alone."
    )
    unpriced = [row for row in rows if row.cost_state == "unpriced"]
    if unpriced:
        yield f"{len(unpriced)} requests have no price, and are not counted as $0."


def queries(ledger: Path) -> Iterable[str]:
    """Two questions to ask the ledger, as shell commands for the Python that runs this."""
    python = Path(sys.executable)
    if python.is_relative_to(Path.cwd()):
        python = python.relative_to(Path.cwd())
    for query in (TOKENS_BY_PROVIDER, NOT_COMPLETE):
        yield f'{shlex.quote(os.fspath(python))} -m sqlite3 {shlex.quote(str(ledger))} "{query}"'


def _tokens(row: Row, name: str) -> str:
    count = getattr(row.figures, name)
    if count is None:
        return "-"
    return f"~{count}" if row.figures.usage_source == "estimated" else str(count)


def _models(asked: str | None, answered: str | None) -> str:
    if answered is None or answered == asked:
        return asked or "-"
    return f"{asked or '-'}\n-> {answered}"


def _outcome(row: Row) -> str:
    figures = row.figures
    said = figures.error_code or figures.error_type
    reason = said if figures.outcome in ("error_frame", "http_error") else figures.finish_reason
    return f"{figures.outcome}: {reason}" if reason else figures.outcome


def _cost(row: Row) -> str:
    if row.cost_picousd is None:
        return row.cost_state or "-"
    mark = "~" if row.figures.usage_source == "estimated" else ""
    return f"{mark}${usd_text(row.cost_picousd)}"


def _cost_of_all(rows: Sequence[Row]) -> str:
    costs = [row.cost_picousd for row in rows if row.cost_picousd is not None]
    return f"${usd_text(sum(costs))}" if costs else "unpriced"
