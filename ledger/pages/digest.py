"""Database. A day or a week on one screen, for cron and mail: as text, HTML and Slack's blocks.

Its figures and warnings are those of the page over the same period.
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy.engine import Engine

from ledger.budgets import status
from ledger.budgets.budgets import NO_BUDGETS, Budgets
from ledger.figures import limits
from ledger.pages import rendering, sections
from ledger.pages.period import Period
from ledger.pages.problems import Problem, Shipping
from ledger.pages.sections import Question, Ranking
from ledger.reports import limits_text
from ledger.settings.names import NO_NAMES, Names
from ledger.store.engines import urls
from ledger.text import figures
from ledger.text.period import WEEK, day_of, week_of
from ledger.text.printable import printable

DIGEST_ROWS_MAX = 5
"""Of each table."""
TEXT_WIDTH = 78
"""Of the text, as mail is read."""
SLACK_BLOCKS_MAX, BLOCK_LENGTH_MAX = 50, 3000
"""What Slack takes of a message (https://docs.slack.dev/reference/block-kit/blocks, read
2026-11-23)."""
MARKS = {"bad": "✕", "look": "!", "note": "i"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """What is said of a period."""

    title: str
    summary: tuple[str, ...]
    problems: tuple[Problem, ...]
    tables: tuple[Ranking, ...]
    limits: str
    """The fullest windows of plans, in one line; empty: no answer stated one."""


def last_whole(now: datetime, length: timedelta) -> Period:
    """The last whole day, or the last week from Monday to Sunday, of the zone of `now`."""
    end = (week_of if length == WEEK else day_of)(now).start
    return Period(since=(end - length).astimezone(UTC), until=end.astimezone(UTC), now=now)


def digest(
    engine: Engine,
    period: Period,
    *,
    names: Names = NO_NAMES,
    budgets: Budgets = NO_BUDGETS,
    shipping: Sequence[Shipping] = (),
) -> Digest:
    """The digest of a period."""
    question = Question(period=period, names=names)
    spent = status.statuses(engine, budgets.budgets, names, period.now)
    overview = sections.overview(engine, question, shipping, spent, urls.option(engine.url))
    _, teams = sections.teams(engine, question)
    stated = limits.limits(engine, period.now)
    tables = [overview.rankings[0], overview.rankings[1], teams]
    summary, total, before = [], overview.total, overview.before
    if not total.requests:
        summary.append("No requests.")
    else:
        cost = figures.money(total.cost_picousd, is_lower_bound=total.without_price > 0)
        change = figures.change(total.cost_picousd, before.cost_picousd) if before else ""
        against = (
            f" ({change} against {figures.money(before.cost_picousd)})" if before and change else ""
        )
        summary.append(f"Spent {cost}{against}.")
        if total.covered:
            value = figures.money(total.covered_value_picousd, is_lower_bound=total.unlisted > 0)
            covered = figures.requests(total.covered)
            summary.append(f"Plans covered {covered}, {value} at list prices.")
        errors = figures.percent(figures.ratio(total.errors, total.requests))
        cached = figures.ratio(total.cache_read_tokens, total.cacheable_input_tokens)
        summary.append(
            f"{figures.requests(total.requests)}, {errors} errors; "
            f"{figures.short(total.input_tokens)} tokens in ({figures.percent(cached)} from the "
            f"cache), {figures.short(total.output_tokens)} out."
        )
    return Digest(
        title=f"Tokentee: {overview.period}",
        summary=tuple(summary),
        problems=overview.problems,
        tables=tuple(
            replace(table, rows=table.rows[:DIGEST_ROWS_MAX])
            for table in tables
            if any(row.value is not None for row in table.rows)
        ),
        limits=limits_text.one_line(stated, period.now) if stated else "",
    )


def _cells(table: Ranking) -> list[tuple[str, str, str]]:
    return [
        (
            row.label,
            table.cost(row),
            figures.requests(row.sums.requests),
        )
        for row in table.rows
    ]


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(
        printable(text), TEXT_WIDTH, subsequent_indent=indent, break_on_hyphens=False
    )


def as_text(found: Digest) -> str:
    """At most 78 columns, but for commands, which are to be copied."""
    lines = [found.title, "=" * min(len(found.title), TEXT_WIDTH), ""]
    for one in found.summary:
        lines += _wrapped(one)
    for problem in found.problems:
        text = f"{MARKS[problem.level]} {problem.headline}. {problem.advice}."
        lines += ["", *_wrapped(text, "  ")]
        lines += [f"    {printable(problem.command)}"] if problem.command else []
    for table in found.tables:
        lines += ["", table.title]
        for label, cost, requests in _cells(table):
            name = textwrap.shorten(printable(label), 40, placeholder="…") or "…"
            lines.append(f"  {name[:40]:<40} {cost:>14} {requests:>19}")
    if found.limits:
        lines += ["", *_wrapped(f"Limits now: {found.limits}")]
    return "\n".join(lines) + "\n"


def as_html(found: Digest) -> str:
    """One document without scripts and references, its style in each element, as mail wants."""
    tables = [(table.title, _cells(table)) for table in found.tables]
    return rendering.render("digest.html", {"digest": found, "tables": tables, "marks": MARKS})


def as_slack(found: Digest) -> dict[str, Any]:
    """A message of Slack's Block Kit, for an incoming webhook."""
    texts = ["\n".join(found.summary)]
    texts += [
        f"*{MARKS[one.level]} {one.headline}*\n{one.advice}."
        + (f"\n`{one.command}`" if one.command else "")
        for one in found.problems
    ]
    texts += [
        f"*{table.title}*\n"
        + "\n".join(f"• {label}: {cost}, {requests}" for label, cost, requests in _cells(table))
        for table in found.tables
    ]
    texts += [f"*Limits now*\n{found.limits}"] if found.limits else []
    header = {"type": "header", "text": {"type": "plain_text", "text": found.title[:150]}}
    blocks = [
        {"type": "section", "text": {"type": "mrkdwn", "text": _of_slack(text)}} for text in texts
    ]
    summary = _of_slack(f"{found.title}: {' '.join(found.summary)}")
    return {"text": summary, "blocks": [header, *blocks][:SLACK_BLOCKS_MAX]}


def _of_slack(text: str) -> str:
    """Slack reads three characters as markup of its own; a text is cut before they are written out,
    so that none of them is cut in two."""
    shown = "\n".join(printable(line) for line in text.split("\n"))
    while True:
        written = shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        if len(written) <= BLOCK_LENGTH_MAX:
            return written
        shown = shown[: len(shown) - max(1, (len(written) - BLOCK_LENGTH_MAX) // 5)]
