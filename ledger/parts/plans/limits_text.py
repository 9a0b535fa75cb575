"""Edge (the terminal). Limits of plans and keys, as a table and as one line."""

import textwrap
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from ledger.model.money import PICOUSD_PER_USD
from ledger.parts.plans.limit_values import LimitValue
from ledger.parts.plans.limits import PLANS_SHOWN, RATES_SHOWN, Limit
from ledger.parts.plans.plans import PlanMonth
from ledger.reports.layout import Amount, Table, TableColumn, amount_of, key_text
from ledger.reports.render import table_lines
from ledger.text.figures import MILLISECOND, duration_text, money, until_text, used_share
from ledger.text.printable import printable

FULL_AT_METHOD = "full at: at the average pace of this window so far; empty if it resets before"
VALUE_METHOD = (
    "1% buys: list value of recorded requests; the true value lies between the two ends with a "
    "probability of 90%; unrecorded: use that was not recorded (another device, the web page)"
)
NO_LIMITS = (
    f"no answer of the last {duration_text(RATES_SHOWN // MILLISECOND)} stated a limit, and none "
    f"of the last {duration_text(PLANS_SHOWN // MILLISECOND)} stated that of a plan"
)
SESSIONS_MAX = 3
LINE_MAX = 3
"""Windows of the one line."""


def lines(found: Sequence[Limit], now: datetime, width: int) -> list[str]:
    """The table, and how its figures come about."""
    if not found:
        return [NO_LIMITS]
    rows = []
    for each in found:
        sessions = [
            f"{(session or '(none)')[:12]} {used_share(share)}"
            for session, share in [*each.shares_ppm.items()][:SESSIONS_MAX]
        ]
        if (more := len(each.shares_ppm) - SESSIONS_MAX) > 0:
            sessions.append(f"{more:,} more")
        rows.append(
            (
                each.provider,
                each.window,
                None if each.used_ppm is None else used_share(each.used_ppm),
                each.remaining,
                until_text(each.resets_at, now) or None,
                until_text(each.full_at, now) or None,
                each.status,
                each.key and key_text(each.key, each.key_hint),
                ", ".join(sessions) or None,
            )
        )
    table = Table(
        columns=(
            TableColumn(name="provider", heading="Provider", is_number=False),
            TableColumn(name="window", heading="Window", is_number=False),
            TableColumn(name="used", heading="Used"),
            TableColumn(name="remaining", heading="Left", drop=3),
            TableColumn(name="resets", heading="Resets in"),
            TableColumn(name="full", heading="Full in", drop=1),
            TableColumn(name="status", heading="Status", is_number=False, drop=2),
            TableColumn(name="key", heading="Key", is_number=False, drop=5),
            TableColumn(name="sessions", heading="Used by", is_number=False, drop=4),
        ),
        rows=tuple(rows),
    )
    lines = table_lines(table, width)
    if any(each.full_at for each in found):
        lines += textwrap.wrap(FULL_AT_METHOD, max(width, 20))
    return lines


def value_table(values: Sequence[LimitValue]) -> Table:
    """What a percent buys, of each limit over all models and of each; `notes` has the rest."""
    headings = (
        *("Provider", "Account", "Window", "Model", "1% buys", "From", "To", "Windows"),
        *("Recorded", "Unrecorded"),
    )
    drops = (3, 5, 0, 0, 0, 1, 1, 4, 2, 2)
    return Table(
        columns=tuple(
            TableColumn(name=name, heading=name, is_number=place > 3, drop=drops[place])
            for place, name in enumerate(headings)
        ),
        rows=tuple(
            (
                each.provider,
                each.holder[:8],
                each.window,
                model or "(all)",
                *(
                    None if usd is None else Amount(picousd=round(usd * PICOUSD_PER_USD))
                    for usd in value
                ),
                each.estimate.intervals if model is None else None,
                None if percent is None else f"{percent:.0f}%",
                None if model or unrecorded is None else f"{unrecorded:.0f}%",
            )
            for each in values
            for unrecorded in [each.estimate.unrecorded]
            for model, value, percent in each.estimate.rows()
            if model is None or len(each.estimate.models) > 1
        ),
    )


def value_notes(values: Sequence[LimitValue]) -> Iterator[str]:
    """What the table has no column for: why a value is not known, and changes."""
    for each in values:
        known, name = each.estimate, f"{each.provider} {each.window}"
        if known.why:
            yield f"{name}: not known yet: {known.why}"
        for change in known.changes:
            day = datetime.fromtimestamp(change.at, UTC)
            yield (
                f"{name}: changed on {day:%Y-%m-%d}: a percent bought "
                f"${change.before:.4g} before and ${change.after:.4g} since"
            )


def worths(values: Sequence[LimitValue]) -> Iterator[str]:
    """What a whole window of each limit is worth, where it is known."""
    for each in values:
        usd, low, high = (
            None if usd is None else money(round(usd * 100 * PICOUSD_PER_USD))
            for usd in each.estimate.value
        )
        if usd is not None:
            name = f"{each.provider} {each.window} of account {each.holder[:8] or '(not known)'}"
            yield f"{name}: a whole window is worth {usd} at list prices ({low} to {high})"


def plan_table(months: Sequence[PlanMonth]) -> Table:
    """Plans by month; a list value with unpriced lines is a lower bound."""
    headings = ("Plan", "Month", "Requests", "List value", "Price", "Ratio", "Windows hit")
    return Table(
        columns=tuple(
            TableColumn(name=name, heading=name, is_number=place > 1)
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
    """For `top`: `5h 42% (resets in 2 h 10 min) · 7d 81% (full in 9 h)`."""
    plans = [each for each in found if each.kind == "plan" and each.used_ppm is not None]
    plans.sort(key=lambda each: -(each.used_ppm or 0))
    texts = []
    for each in plans[:LINE_MAX]:
        text = f"{printable(each.window)} {used_share(each.used_ppm)}"
        if each.full_at is not None:
            text += f" (full in {until_text(each.full_at, now)})"
        elif each.resets_at:
            text += f" (resets in {until_text(each.resets_at, now)})"
        texts.append(text)
    return " · ".join(texts) or "no limits known"


def windows_left(found: Sequence[Limit], now: datetime) -> list[str]:
    """Of plans, for a status line: `5h 42% (1 h 10 min left)`, the shortest first."""
    plans = sorted(
        (each for each in found if each.kind == "plan"), key=lambda each: each.window_minutes or 0
    )
    texts = []
    for each in plans[:LINE_MAX]:
        if each.used_ppm is not None:
            left = until_text(each.resets_at, now)
            used = f"{printable(each.window)} {used_share(each.used_ppm)}"
            texts.append(f"{used} ({left} left)" if left else used)
    return texts
