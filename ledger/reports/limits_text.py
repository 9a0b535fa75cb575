"""Pure. Limits of plans and keys, as a table and as one line."""

import textwrap
from collections.abc import Iterator, Sequence
from datetime import datetime
from decimal import Decimal

from ledger.figures.limits import Limit
from ledger.figures.plans import PlanMonth
from ledger.reports.layout import Column, Table, amount_of, layout
from ledger.text.figures import percent, until_text
from ledger.text.printable import printable

METHOD = "full at: at the mean pace since the first answer of the window, if before its reset"
SESSIONS_MAX = 3
LINE_MAX = 3
"""Windows of the one line."""


def lines(found: Sequence[Limit], now: datetime, width: int) -> list[str]:
    """The table, and how its figures come about."""
    if not found:
        return ["no answer has stated a limit yet"]
    shown = layout(_table(found, now), width)
    lines = [shown.heading, shown.rule, *shown.rows]
    if any(each.full_at for each in found):
        lines += textwrap.wrap(METHOD, max(width, 20))
    return lines


def plan_table(months: Sequence[PlanMonth]) -> Table:
    """Plans by month; a list value with unpriced lines is a lower bound."""
    headings = ("Plan", "Month", "Requests", "List value", "Price", "Ratio", "Windows hit")
    return Table(
        columns=tuple(
            Column(name=name, heading=name, is_number=place > 1)
            for place, name in enumerate(headings)
        ),
        rows=tuple(
            (
                one.plan,
                one.month,
                one.requests,
                amount_of(one.list_value_picousd, mark),
                amount_of(one.picousd_per_month),
                None if one.ratio is None else f"{mark}{one.ratio:.2f}",
                one.windows_hit,
            )
            for one in months
            for mark in ["≥ " if one.is_lower_bound else ""]
        ),
    )


def one_line(found: Sequence[Limit], now: datetime) -> str:
    """For a status bar: `5h 42% (resets in 2 h 10 min) · 7d 81% (full in 9 h)`."""
    plans = [each for each in found if each.kind == "plan" and each.used_ppm is not None]
    plans.sort(key=lambda each: -(each.used_ppm or 0))
    return " · ".join(_short(each, now) for each in plans[:LINE_MAX]) or "no limits known"


def _short(limit: Limit, now: datetime) -> str:
    text = f"{printable(limit.window)} {used_share(limit.used_ppm)}"
    if limit.full_at is not None:
        return f"{text} (full in {until_text(limit.full_at, now)})"
    return f"{text} (resets in {until_text(limit.resets_at, now)})" if limit.resets_at else text


def _table(found: Sequence[Limit], now: datetime) -> Table:
    return Table(
        columns=(
            Column(name="provider", heading="Provider", is_number=False),
            Column(name="window", heading="Window", is_number=False),
            Column(name="used", heading="Used"),
            Column(name="remaining", heading="Left", drop=3),
            Column(name="resets", heading="Resets in"),
            Column(name="full", heading="Full in", drop=1),
            Column(name="status", heading="Status", is_number=False, drop=2),
            Column(name="key", heading="Key", is_number=False, drop=5),
            Column(name="sessions", heading="Used by", is_number=False, drop=4),
        ),
        rows=tuple(
            (
                each.provider,
                each.window,
                None if each.used_ppm is None else used_share(each.used_ppm),
                each.remaining,
                until_text(each.resets_at, now) or None,
                until_text(each.full_at, now) or None,
                each.status,
                each.key and each.key[:8],
                ", ".join(_sessions(each)) or None,
            )
            for each in found
        ),
    )


def _sessions(limit: Limit) -> Iterator[str]:
    for session, share in [*limit.shares_ppm.items()][:SESSIONS_MAX]:
        yield f"{(session or '(none)')[:12]} {used_share(share)}"
    if (more := len(limit.shares_ppm) - SESSIONS_MAX) > 0:
        yield f"{more:,} more"


def used_share(ppm: int | None) -> str:
    """A used share: `42%`, `3.5%`; a dash if it is not known."""
    return percent(None if ppm is None else Decimal(ppm) / 10**6)
