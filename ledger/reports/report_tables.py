"""Pure. A report as tables: complete for machines, and shortened to a screen for people."""

from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from ledger.figures.figures import Figures, Report, ReportRow, Times, plus, total_of
from ledger.figures.queries import DIFFERING
from ledger.model.money import usd
from ledger.reports.layout import Amount, Cell, Table, TableColumn, amount_of, key_text
from ledger.store.scope import NO_VALUE
from ledger.text.figures import (
    MILLISECOND,
    count,
    counted,
    duration_text,
    money,
    pair_text,
    percent,
)
from ledger.text.origins import shown_origin
from ledger.text.period import SPANS
from ledger.text.printable import printable

IN_PART = "*"
"""Behind a day, week, month or hour of which a part is outside the period."""

PAIRS = "times: median/95th percentile"
SHARE = "Share"
"""The heading of the bars."""
STAYS = ("Requests", "Input", "Output", "Cost")
"""Columns that every screen shows, beside the dimensions."""
DROPPED = {
    "Tok/s": 13,
    "Duration": 12,
    "First token": 11,
    "Reasoning": 10,
    "Further": 9,
    "Saved": 8,
    "Estimated": 7,
    "No usage": 6,
    "No price": 5,
    SHARE: 4,
    "Covered": 3,
    "Cached": 2,
    "Errors": 1,
}
"""Columns that a narrow screen drops: the highest number first. The notes tell what is left of
usage, prices and estimates."""

ATTRIBUTED = ("project", "branch", "commit")
"""Words of which a note tells what share of a report has no value."""
COUNTED = (
    *("requests", "errors", "without_usage", "complete_without_usage"),
    *("input_tokens", "uncached_input_tokens", "cache_read_tokens", "cache_write_tokens"),
    *("output_tokens", "reasoning_tokens", "extra_input_tokens", "extra_output_tokens"),
)
"""The first columns for machines."""
BAR_WIDTH = 10
"""Characters of the longest bar."""
EIGHTHS = " \u258f\u258e\u258d\u258c\u258b\u258a\u2589"
"""A block's parts, each an eighth of a character wider."""
STALE_DAYS_NOTED = 7
"""A few days are stale at times, and are summed up within the hour."""


def document(report: Report) -> dict[str, Any]:
    """The whole report as a document for JSON: exact figures under stable names."""
    return {
        "by": list(report.by),
        "timezone": report.zone.key if report.zone else "UTC",
        "since": report.since.isoformat() if report.since else None,
        "until": report.until.isoformat() if report.until else None,
        "currency": "USD",
        "first_request_at": report.first.isoformat() if report.first else None,
        "last_request_at": report.last.isoformat() if report.last else None,
        "only": [{"by": word, "value": value} for word, value in report.only],
        "rows": [_members(report, row) for row in report.rows],
        "total": dict(_figures(report.total)),
        "open_requests": report.open_requests,
    }


def flat(report: Report) -> Table:
    """One line per row, for CSV; no total, so that a sum over the file is right."""
    names = [*_members(report, report.total)]
    return Table(
        columns=tuple(TableColumn(name=name, heading=name) for name in names),
        rows=tuple(tuple(_members(report, row).values()) for row in report.rows),
    )


def screen(report: Report, *, has_bars: bool = False) -> Table:
    """The table for a screen; columns in which every figure is absent or 0 are left out.

    `has_bars`: with a bar for each row, as long as its cost at list prices, or its tokens if none
    has a price.
    """
    headings = [
        printable(word[4:] if word.startswith("tag:") else word.capitalize()).replace("_", " ")
        for word in report.by
    ]
    words = len(report.by)
    bars = _bars(report) if has_bars and words else []
    headings += [SHARE] if bars else []
    headings += [heading for heading, _ in _shown(report.total)]
    of_bars = words if bars else None
    rows: list[list[Cell]] = []
    for row in report.rows:
        labels: list[Cell] = []
        if row.merged:
            labels = [f"({row.merged:,} more)", *[""] * (words - 1)]
        for word, part in zip(report.by, row.key, strict=True) if not row.merged else ():
            if part is None:
                labels.append("(no commit)" if word == "commit" else NO_VALUE)
            elif _is_in_part(report, word, part):
                labels.append(part + IN_PART)
            elif word == "key":
                labels.append(row.name or key_text(part, row.hint))
            else:
                labels.append(shown_origin(part) if word == "origin" else part)
        rows.append([*labels, *bars[len(rows) : len(rows) + 1], *(cell for _, cell in _shown(row))])
    total: list[Cell] = [
        *(["Total", *[""] * (words - 1)] if words else []),
        *([""] if bars else []),
        *(cell for _, cell in _shown(report.total)),
    ]
    keep = [
        place
        for place, heading in enumerate(headings)
        if place < words or heading in STAYS or any(row[place] for row in [*rows, total])
    ]
    return Table(
        columns=tuple(
            TableColumn(
                name="" if place == of_bars else headings[place],
                heading=headings[place],
                is_number=place >= words and place != of_bars,
                wraps=headings[place] == "Subject",
                drop=DROPPED.get(headings[place], 0) if place >= words else 0,
                note=PAIRS if headings[place] in ("First token", "Duration") else "",
            )
            for place in keep
        ),
        rows=tuple(tuple(row[place] for place in keep) for row in rows),
        total=tuple(total[place] for place in keep),
    )


def title(report: Report) -> str:
    """The title of a report: its dimensions, period and conditions."""
    by = f" by {', '.join(report.by)}" if report.by else ""
    return f"Requests{by}, {asked_for(report)}"


def asked_for(report: Report) -> str:
    """The period and the conditions in words."""
    only = ", ".join(f"{word}={printable(value)}" for word, value in report.only)
    return f"{period_text(report)}{f'; only {only}' if only else ''}"


def period_text(report: Report) -> str:
    """The period in words: as requested, and for an open end the ledger's first or last request."""
    zone = report.zone or UTC
    name = report.zone.key if report.zone else "UTC"
    since, until, first_at, last_at = (
        moment and moment.astimezone(zone)
        for moment in (report.since, report.until, report.first, report.last)
    )
    if since and until:
        if not (since.time() == until.time() == time() and until > since):
            return f"{_minute(since)} to {_minute(until)} {name}"
        day = until - timedelta(days=1)
        to = "" if day == since else f" to {day:%Y-%m-%d}"
        return f"{since:%Y-%m-%d}{to} {name}"
    seen = ""
    if first_at and last_at:
        first, last = _minute(first_at), _minute(last_at)
        seen = f" ({first} to {last})" if not since else f" (last request {last})"
        if until and not since:
            seen = f" (first request {first})"
    if since:
        return f"from {_minute(since)} to now{seen} {name}"
    return f"before {_minute(until)}{seen} {name}" if until else f"all time{seen} {name}"


def notes(report: Report) -> Iterator[str]:
    """Warnings that the reader needs to judge the sums."""
    total = report.total.figures
    if any(
        _is_in_part(report, word, part)
        for row in report.rows
        for word, part in zip(report.by, row.key, strict=True)
    ):
        yield f"{IN_PART} in part: the period or the ledger begins or ends within it"
    yield from _unattributed(report)
    if unpriced := total.without_price:
        yield (
            f"no price: lines of {count(unpriced)} of "
            f"{counted(total.requests, 'request')}, so the cost is a lower bound; "
            "`tokentee requests --unpriced` lists them"
        )
    if total.covered:
        value = money(total.covered_value_picousd, is_lower_bound=total.unlisted > 0)
        yield (
            f"covered by a plan or free, in no cost: {counted(total.covered, 'request')}, "
            f"{value} at list prices"
        )
    unknown = max(0, total.without_usage - total.complete_without_usage)
    ended_early = total.estimated + unknown
    if total.complete_without_usage or ended_early or total.estimated_output_tokens:
        tokens = [
            f"~{count(number)} {kind}"
            for number, kind in (
                (total.estimated_input_tokens, "input"),
                (total.estimated_output_tokens, "output"),
            )
            if number
        ]
        cost = total.estimated_cost_picousd
        estimates = [f"{' and '.join(tokens)} tokens"] if tokens else []
        estimates += [f"~{money(cost)}"] if cost else []
        yield (
            f"without usage, in no total: {count(total.complete_without_usage)} completed, "
            f"{count(ended_early)} ended early"
            f"{f'; by our estimate {", ".join(estimates)}' if estimates else ''}"
        )
    if total.reported:
        yield (
            f"no list price: {counted(total.reported, 'request')}, counted with the provider's own "
            "figure"
        )
    if total.difference_picousd:
        difference = money(total.difference_picousd)
        yield f"our cost minus the providers' own figures: {difference}"
    if report.differing:
        differing = counted(report.differing, "request")
        is_longer = report.first and report.last and report.last - report.first > DIFFERING
        of = f" of the last {duration_text(DIFFERING // MILLISECOND)}" if is_longer else ""
        yield f"providers' own figures differ in {differing}{of}; the column `remarks` says how"
    unanswered = sum(
        row.figures.requests for row in report.rows if row.figures.errors == row.figures.requests
    )
    if unanswered and "model" in report.by and "request_model" not in report.by:
        yield (
            f"no model answered {counted(unanswered, 'request')}: listed under the model that was "
            "asked for; --by request_model lists all requests so"
        )
    for (asked, answered), requests in report.other_models.items():
        answers = counted(requests, "request")
        yield printable(f"another model: {answered} answered {answers} for {asked}")
    if report.stale_days > STALE_DAYS_NOTED:
        yield (
            f"{counted(report.stale_days, 'day')} of the ledger have no sums yet, which makes "
            "reports slow: `tokentee db upgrade` makes them"
        )
    if report.open_requests:
        yield f"still open, in no figure: {counted(report.open_requests, 'request')}"


def _unattributed(report: Report) -> Iterator[str]:
    """What share of the requests has no project, branch or commit, by cost or else by tokens. With
    `--top` the rest may have some, and nothing is said."""
    for place, word in enumerate(report.by):
        rows = [row.figures for row in report.rows if row.key[place] is None]
        if word not in ATTRIBUTED or not rows or any(row.merged for row in report.rows):
            continue
        its, total = total_of(rows), report.total.figures
        share, of = its.list_value_picousd or 0, total.list_value_picousd or 0
        what = "value at list prices"
        if not of:
            share, of = (plus(f.input_tokens, f.output_tokens) or 0 for f in (its, total))
            what = "tokens"
        value = f", {percent(Decimal(share) / of)} of the {what}" if of else ""
        yield (
            f"without a {word}: {count(its.requests)} of "
            f"{counted(total.requests, 'request')}{value}"
        )


def _minute(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d}" if moment.time() == time() else f"{moment:%Y-%m-%d %H:%M}"


def _members(report: Report, row: ReportRow) -> dict[str, Cell]:
    key = row.key or (None,) * len(report.by)
    return {
        **dict(zip(report.by, key, strict=True)),
        **({"key_hint": row.hint, "key_name": row.name} if "key" in report.by else {}),
        "merged_groups": row.merged,
        **dict(_figures(row)),
    }


def _figures(row: ReportRow) -> Iterator[tuple[str, Cell]]:
    """Name and value, in the order of the columns."""
    f, times = row.figures, row.times
    for name in COUNTED:
        yield name, getattr(f, name)
    yield "estimated_requests", f.estimated
    yield "estimated_input_tokens", f.estimated_input_tokens
    yield "estimated_output_tokens", f.estimated_output_tokens
    yield "cache_hit_rate", cache_hit_rate(f)
    yield "cost_usd", usd(f.cost_picousd)
    yield "cost_picousd", f.cost_picousd
    yield "cost_state", f.cost_state
    yield "estimated_cost_usd", usd(f.estimated_cost_picousd)
    yield "list_value_usd", usd(f.list_value_picousd)
    yield "list_value_picousd", f.list_value_picousd
    yield "covered_requests", f.covered
    yield "covered_list_value_usd", usd(f.covered_value_picousd)
    yield "cache_saved_usd", usd(f.saved_picousd)
    yield "reported_cost_usd", usd(f.reported_cost_picousd)
    yield "cost_difference_usd", usd(f.difference_picousd)
    for name in ("priced", "partial", "unpriced"):
        yield f"{name}_requests", getattr(f, name)
    yield "reported_cost_requests", f.reported
    yield from ((each.name, getattr(times, each.name)) for each in fields(Times))
    yield "output_tokens_per_second", tokens_per_second(f)


def cache_hit_rate(figures: Figures) -> Decimal | None:
    """Cached input per input, over the requests that reported cache reads."""
    if not figures.cacheable_input_tokens or figures.cache_read_tokens is None:
        return None
    rate = Decimal(figures.cache_read_tokens) / figures.cacheable_input_tokens
    return rate.quantize(Decimal("0.0001"))


def tokens_per_second(figures: Figures) -> Decimal | None:
    """Output tokens per second between the first and the last token."""
    if not figures.generation_ms or figures.generated_tokens is None:
        return None
    speed = Decimal(figures.generated_tokens * 1000) / figures.generation_ms
    return speed.quantize(Decimal("0.1"))


def _shown(row: ReportRow) -> Iterator[tuple[str, Cell]]:
    f, times = row.figures, row.times
    rate = cache_hit_rate(f)
    yield "Requests", f.requests
    yield "Errors", f.errors
    yield "No usage", f.complete_without_usage
    yield "Input", f.input_tokens
    yield "Cached", None if rate is None else percent(rate, in_column=True)
    yield "Output", f.output_tokens
    yield "Reasoning", f.reasoning_tokens
    yield "Further", plus(f.extra_input_tokens, f.extra_output_tokens)
    yield "Cost", cost_cell(f)
    yield "Covered", covered_cell(f)
    yield "Estimated", amount_of(f.estimated_cost_picousd or None, "~")
    yield "Saved", amount_of(f.saved_picousd or None)
    yield "No price", f.without_price
    for heading, middle, high in (
        ("First token", times.first_token_ms_p50, times.first_token_ms_p95),
        ("Duration", times.duration_ms_p50, times.duration_ms_p95),
    ):
        yield heading, None if middle is None or high is None else pair_text(middle, high)
    speed = tokens_per_second(f)
    # Of a slow model the tenths tell something, of any other they are noise.
    yield "Tok/s", speed if speed is None or speed < 10 else round(speed)


def _bars(report: Report) -> list[str]:
    """A bar for each row; empty without two rows to compare."""
    figures = [row.figures for row in report.rows]
    values = [(f.cost_picousd or 0) + (f.covered_value_picousd or 0) for f in figures]
    if not any(values):
        values = [(f.input_tokens or 0) + (f.output_tokens or 0) for f in figures]
    longest = max(values, default=0)
    if len(values) < 2 or longest <= 0:
        return []
    eighths = [max(0, value) * BAR_WIDTH * 8 // longest for value in values]
    return [("\u2588" * (each // 8) + EIGHTHS[each % 8]).rstrip() for each in eighths]


def cost_cell(figures: Figures) -> Cell:
    """The cell of a cost: a lower bound if lines lack a price, empty and not zero if all do."""
    is_missing = bool(figures.without_price)
    if figures.cost_picousd is None:
        return "unpriced" if is_missing else None
    return Amount(picousd=figures.cost_picousd, mark="≥ " if is_missing else "")


def covered_cell(figures: Figures) -> Cell:
    """The list value of what plans cover and what is free; a lower bound if prices are missing."""
    if not figures.covered:
        return None
    if figures.covered_value_picousd is None:
        return "unpriced" if figures.unlisted else None
    return Amount(picousd=figures.covered_value_picousd, mark="≥ " if figures.unlisted else "")


def _is_in_part(report: Report, word: str, part: str | None) -> bool:
    """Of a month `2026-11`, a day or a week by its Monday `2026-11-23`, or an hour `… 09`."""
    if part is None or word not in SPANS:
        return False
    whole = f"{part}-01" if word == "month" else part
    try:
        span = SPANS[word](datetime.fromisoformat(whole).replace(tzinfo=report.zone or UTC))
    except (OverflowError, ValueError):  # of a row whose time is none
        return False
    begin = report.since or report.first
    end = min(report.until or report.now, report.now)
    return span.end > end or (begin is not None and span.start < begin)
