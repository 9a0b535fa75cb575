"""Pure. A report as tables: all of it for machines, what fits a screen for people."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from ledger.reports.figures import Figures, Report, Row, plus
from ledger.reports.render import Cell, Column, Table, short_count, short_usd, usd

NONE = "(none)"
"""What a row is called that has no model, tag, session … of the kind."""

DROPPED = {"Tok/s": 7, "Duration": 6, "Reasoning": 5, "First token": 4, "Saved": 3, "Further": 2}
"""What goes first where the screen is narrow."""


def document(report: Report) -> dict[str, Any]:
    """The whole report as JSON-to-be: exact figures under stable names."""
    return {
        "by": list(report.by),
        "since": report.since.isoformat() if report.since else None,
        "until": report.until.isoformat() if report.until else None,
        "rows": [_members(report, row) for row in report.rows],
        "total": dict(_figures(report.total)),
        "open_requests": report.open_requests,
    }


def flat(report: Report) -> Table:
    """One line per row, for CSV; no total, so that a sum over the file is right."""
    names = [*report.by, "merged_groups", *(name for name, _ in _figures(report.total))]
    return Table(
        columns=tuple(Column(name=name, heading=name) for name in names),
        rows=tuple(tuple(_members(report, row).values()) for row in report.rows),
    )


def screen(report: Report) -> Table:
    """What fits a screen; columns in which nothing stands are left out."""
    headings = [*report.by, *(heading for heading, _ in _shown(report.total))]
    rows = [[*_labels(report, row), *(cell for _, cell in _shown(row))] for row in report.rows]
    total: list[Cell] = [*_total_labels(report), *(cell for _, cell in _shown(report.total))]
    keep = [
        place
        for place, heading in enumerate(headings)
        if place < len(report.by)
        or heading in ("Requests", "Input", "Output", "Cost")
        or any(row[place] for row in rows)
    ]
    return Table(
        columns=tuple(
            Column(
                name=headings[place],
                heading=headings[place],
                is_number=place >= len(report.by),
                drop=DROPPED.get(headings[place], 0) if place >= len(report.by) else 0,
            )
            for place in keep
        ),
        rows=tuple(tuple(row[place] for place in keep) for row in rows),
        total=tuple(total[place] for place in keep),
    )


def notes(report: Report) -> Iterator[str]:
    """What the reader must know before believing the sums."""
    total = report.total.figures
    if unpriced := total.unpriced + total.partial:
        yield (
            f"without a price, and so not in the cost: lines of {unpriced} of "
            f"{_requests(total.requests)}; the view `unpriced` says which, and why"
        )
    if total.estimated:
        tokens = short_count(total.estimated_output_tokens)
        cost = short_usd(total.estimated_cost_picousd)
        yield (
            f"ended before usage was reported: {_requests(total.estimated)}, ~{tokens} output "
            f"tokens by our estimate{f', {cost} of the cost' if cost else ''}"
        )
    if total.reported:
        yield f"at their provider's own figure, for want of a price: {_requests(total.reported)}"
    if total.difference_picousd:
        yield f"our cost less the providers' own figures: {short_usd(total.difference_picousd)}"
    if report.open_requests:
        yield f"still open, and in no figure: {_requests(report.open_requests)}"


def _requests(count: int) -> str:
    return "1 request" if count == 1 else f"{short_count(count)} requests"


def _members(report: Report, row: Row) -> dict[str, Cell]:
    return {
        **dict(zip(report.by, row.key, strict=True)),
        "merged_groups": row.merged,
        **dict(_figures(row)),
    }


def _figures(row: Row) -> Iterator[tuple[str, Cell]]:
    """Name and value, in the order of the columns."""
    f = row.figures
    yield "requests", f.requests
    yield "errors", f.errors
    yield "without_usage", f.without_usage
    yield "input_tokens", f.input_tokens
    yield "uncached_input_tokens", f.uncached_input_tokens
    yield "cache_read_tokens", f.cache_read_tokens
    yield "cache_write_tokens", f.cache_write_tokens
    yield "output_tokens", f.output_tokens
    yield "reasoning_tokens", f.reasoning_tokens
    yield "extra_input_tokens", f.extra_input_tokens
    yield "extra_output_tokens", f.extra_output_tokens
    yield "estimated_requests", f.estimated
    yield "estimated_input_tokens", f.estimated_input_tokens
    yield "estimated_output_tokens", f.estimated_output_tokens
    yield "cache_hit_rate", cache_hit_rate(f)
    yield "cost_usd", usd(f.cost_picousd)
    yield "cost_picousd", f.cost_picousd
    yield "cost_state", f.cost_state
    yield "estimated_cost_usd", usd(f.estimated_cost_picousd)
    yield "cache_saved_usd", usd(f.saved_picousd)
    yield "reported_cost_usd", usd(f.reported_cost_picousd)
    yield "cost_difference_usd", usd(f.difference_picousd)
    yield "priced_requests", f.priced
    yield "partial_requests", f.partial
    yield "unpriced_requests", f.unpriced
    yield "reported_cost_requests", f.reported
    yield "first_token_ms_p50", row.times.first_token_ms_p50
    yield "first_token_ms_p95", row.times.first_token_ms_p95
    yield "duration_ms_p50", row.times.duration_ms_p50
    yield "duration_ms_p95", row.times.duration_ms_p95
    yield "output_tokens_per_second", tokens_per_second(f)


def cache_hit_rate(figures: Figures) -> Decimal | None:
    """Cached input of the input of those requests that reported the cache at all."""
    if not figures.cacheable_input_tokens or figures.cache_read_tokens is None:
        return None
    rate = Decimal(figures.cache_read_tokens) / figures.cacheable_input_tokens
    return rate.quantize(Decimal("0.0001"))


def tokens_per_second(figures: Figures) -> Decimal | None:
    """Output tokens by the time from their first to their last."""
    if not figures.generation_ms or figures.generated_tokens is None:
        return None
    speed = Decimal(figures.generated_tokens * 1000) / figures.generation_ms
    return speed.quantize(Decimal("0.1"))


def _shown(row: Row) -> Iterator[tuple[str, Cell]]:
    f, times = row.figures, row.times
    rate = cache_hit_rate(f)
    yield "Requests", f.requests
    yield "Errors", f.errors or None
    yield "Input", f.input_tokens
    yield "Cached", None if rate is None else f"{rate * 100:.1f}%"
    yield "Output", f.output_tokens
    yield "Reasoning", f.reasoning_tokens
    yield "Further", plus(f.extra_input_tokens, f.extra_output_tokens)
    yield "Cost", _cost(f)
    yield "Saved", short_usd(f.saved_picousd) or None
    yield "Unpriced", f.unpriced + f.partial or None
    yield "First token", _spread(times.first_token_ms_p50, times.first_token_ms_p95)
    yield "Duration", _spread(times.duration_ms_p50, times.duration_ms_p95)
    yield "Tok/s", _plain(tokens_per_second(f))


def _cost(figures: Figures) -> str:
    """A cost with lines missing is a lower bound, and one with none known is not zero."""
    cost = short_usd(figures.cost_picousd)
    if not cost:
        return "unpriced" if figures.unpriced or figures.partial else "-"
    return f"≥ {cost}" if figures.unpriced or figures.partial else cost


def _spread(middle: int | None, high: int | None) -> str | None:
    """p50/p95 in one unit."""
    if middle is None or high is None:
        return None
    if high < 1000:
        return f"{middle}/{high} ms"
    return f"{_seconds(middle)}/{_seconds(high)} s"


def _seconds(milliseconds: int) -> str:
    return f"{Decimal(milliseconds) / 1000:.{1 if milliseconds >= 1000 else 2}f}"


def _labels(report: Report, row: Row) -> list[Cell]:
    if row.merged:
        return [f"({row.merged} more)", *[""] * (len(report.by) - 1)]
    return [NONE if part is None else part for part in row.key]


def _total_labels(report: Report) -> list[Cell]:
    return ["Total", *[""] * (len(report.by) - 1)] if report.by else []


def _plain(number: Decimal | None) -> str | None:
    return None if number is None else f"{number:f}"
