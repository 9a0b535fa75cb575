"""Edge (the terminal). The output of `tokentee top`, as lines and as one line."""

import re
from collections.abc import Iterator, Mapping, Sequence

from ledger.figures.activity import SPEED_SECONDS, Activity, StatusLine
from ledger.figures.figures import Figures, Key, by_cost
from ledger.reports.layout import Table, TableColumn, wrapped
from ledger.reports.render import table_lines
from ledger.reports.report_tables import cost_cell, covered_cell
from ledger.store.scope import NO_VALUE
from ledger.text.figures import counted, money, percent, ratio, short, until_text
from ledger.text.period import zone_in
from ledger.text.printable import printable

ROWS_RUNNING_MAX = 8
ACTIVITY_ROWS_MAX = 6
"""Rows of each table: the output fits a screen of about 24 lines."""
STYLES = (
    (re.compile(r"^(tokentee top|Running now|Today by) ?.*$", re.MULTILINE), "bold"),
    (re.compile(r" answering$", re.MULTILINE), "green"),
    (re.compile(r" waiting$", re.MULTILINE), "yellow"),
    (re.compile(r"\b\d[\d,]{0,20} (errors?|without usage)\b"), "red"),
)
"""What stands out on a terminal, in colours that each terminal chooses for its background."""


def lines(
    activity: Activity,
    width: int,
    height: int | None = None,
    caps: Sequence[str] = (),
    further: Sequence[str] = (),
) -> list[str]:
    """The screen: a summary, running requests, today's sessions and models. `caps`: a text each;
    `further`: lines below the summary."""
    running = Table(
        columns=(
            TableColumn(name="model", heading="Model", is_number=False),
            TableColumn(name="provider", heading="Provider", is_number=False, drop=2),
            TableColumn(name="session", heading="Session", is_number=False, drop=1),
            TableColumn(name="seconds", heading="For"),
            TableColumn(name="state", heading="State", is_number=False),
        ),
        rows=tuple(
            (
                each.model or NO_VALUE,
                each.provider,
                each.session or NO_VALUE,
                until_text(activity.now, each.opened_at),
                {True: "answering", False: "waiting", None: "running"}[each.is_answered],
            )
            for each in activity.running[:ROWS_RUNNING_MAX]
        ),
    )
    screen = [f"tokentee top, {activity.now:%Y-%m-%d %H:%M:%S} {zone_in(activity.now)}"]
    screen += _broken(one_line(activity), width)
    for line in further:
        screen += _broken(line, width)
    screen += _broken(" · ".join(caps), width)
    screen += ["", *_table(running, width, "Running now", "nothing is running")]
    more = activity.running_count - min(len(activity.running), ROWS_RUNNING_MAX)
    if more > 0:
        screen.append(f"{more:,} more")
    screen += ["", *_table(_spent("Session", activity.sessions), width, "Today by session", "")]
    screen += ["", *_table(_spent("Model", activity.models), width, "Today by model", "")]
    return screen[:height]


def one_line(activity: Activity) -> str:
    """For a status bar: `2 running · 41 tok/s · $1.2345 today · 12 requests`."""
    today = activity.today
    parts = [
        f"{activity.running_count:,} running",
        f"{round(activity.output_tokens / SPEED_SECONDS)} tok/s",
        f"{_cost(today)} today",
        *([f"{money(today.covered_value_picousd)} covered"] if today.covered_value_picousd else ()),
        counted(today.requests, "request"),
    ]
    if today.errors:
        parts.append(counted(today.errors, "error"))
    if today.complete_without_usage:
        parts.append(f"{today.complete_without_usage:,} without usage")
    if today.refused:
        parts.append(f"{today.refused:,} refused")
    return " · ".join(filter(None, parts))


def status_line(
    status: StatusLine, context_size: int | None = None, words: Sequence[str] = ()
) -> str:
    """For an agent's status line, the most urgent first, as narrow terminals cut its end:
    `$1.20/h · 5h 42% (1 h 10 min left) · ctx 31% · session $0.42 · today $3.10 · claude-opus-5`.

    `context_size`: tokens of the model's context window; None: not known. `words`: of plan windows
    and caps."""
    parts = []
    if status.last_hour is not None and status.session is not None:
        hour = status.last_hour
        # What is billed, and the list value of what a plan covers.
        worth = sum(filter(None, (hour.cost_picousd, hour.covered_value_picousd)))
        is_part = hour.without_price > 0 or hour.unlisted > 0
        parts.append(f"{money(worth, is_lower_bound=is_part)}/h")
    parts += words
    if status.context_tokens is not None:
        share = percent(ratio(status.context_tokens, context_size))
        parts.append(f"ctx {share if context_size else short(status.context_tokens)}")
    if status.session is not None:
        parts.append(f"session {_spent_text(status.session)}")
    parts.append(f"today {_spent_text(status.today)}")
    if status.model:
        parts.append(printable(status.model))
    return " · ".join(parts)


def _spent_text(figures: Figures) -> str:
    """The cost, and what plans cover beside it; of both only what there is."""
    parts = [_cost(figures)] if figures.cost_picousd or not figures.covered else []
    if figures.covered:
        value = money(figures.covered_value_picousd, is_lower_bound=figures.unlisted > 0)
        parts.append(f"{value} covered")
    return " and ".join(parts)


def _broken(line: str, width: int) -> Iterator[str]:
    """The line in as many as it takes, none of its parts in two of them."""
    parts = "\xa0· ".join(part.replace(" ", "\xa0") for part in line.split(" · "))
    for each in wrapped(parts, width).splitlines():
        yield each.replace("\xa0", " ")


def _table(table: Table, width: int, title: str, empty: str) -> Iterator[str]:
    if not table.rows:
        if empty:
            yield empty
        return
    yield title
    yield from table_lines(table, width)


def _spent(heading: str, groups: Mapping[Key, Figures]) -> Table:
    ranked = sorted(groups.items(), key=lambda item: (*by_cost(item[1]), item[0][0] or ""))
    is_covered = any(f.covered for f in groups.values())
    return Table(
        columns=(
            TableColumn(name="name", heading=heading, is_number=False),
            TableColumn(name="requests", heading="Requests"),
            TableColumn(name="input", heading="Input", drop=1),
            TableColumn(name="output", heading="Output"),
            TableColumn(name="cost", heading="Cost"),
            *([TableColumn(name="covered", heading="Covered", drop=2)] if is_covered else ()),
        ),
        rows=tuple(
            (
                *(key[0] or NO_VALUE, f.requests, f.input_tokens, f.output_tokens, cost_cell(f)),
                *([covered_cell(f)] if is_covered else ()),
            )
            for key, f in ranked[:ACTIVITY_ROWS_MAX]
        ),
    )


def _cost(figures: Figures) -> str:
    is_part = figures.without_price > 0
    nothing = None if is_part else 0
    cost = nothing if figures.cost_picousd is None else figures.cost_picousd
    return money(cost, is_lower_bound=is_part)
