"""Pure. What providers export -> lines of day, model, tokens and cost.

Known by their content, not by their names:

    OpenAI      usage and costs API, JSON pages      platform.openai.com/docs/api-reference/usage
    Anthropic   usage_report/messages and cost_report, JSON pages; the Console's usage and cost CSV
                platform.claude.com/docs/en/api/admin
    OpenRouter  activity API JSON, activity CSV      openrouter.ai/docs/api-reference/analytics
    any         CSV with the columns day, model, and some of requests, input_tokens,
                cache_read_tokens, cache_write_tokens, output_tokens, cost_usd

Input tokens are all input and output tokens all output here, as everywhere in the ledger.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from ledger.model.errors import LedgerError
from ledger.model.money import PICOUSD_PER_USD
from ledger.model.usage import COUNT_MAX

FIGURES = (
    "requests",
    "input_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "output_tokens",
    "cost_picousd",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What a statement says of one model on one UTC day; None: it does not say."""

    day: date
    model: str | None
    figures: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One export."""

    kind: str
    provider: str | None
    """As the ledger names it; None: the export does not say."""
    lines: tuple[Line, ...]
    warnings: tuple[str, ...] = field(default=())


class _Unreadable(Exception):  # noqa: N818  # what is wrong with one line, on its way to its file
    pass


def read(name: str, text: str) -> Statement:
    """The statement in a file's text; LedgerError if it is none."""
    try:
        if text.lstrip("\ufeff \t\r\n")[:1] in ("{", "["):
            return _read_json(text)
        return _read_csv(text)
    except _Unreadable as error:
        raise LedgerError(f"{name}: {error}") from None


def _read_json(text: str) -> Statement:
    pages = _pages(text)
    rows = [(bucket, result) for page in pages for bucket, result in _results(page)]
    warnings: tuple[str, ...] = ()
    if pages and pages[-1].get("has_more") is True:
        warnings = ("has_more is true in its last page: the report goes on in another",)
    for shape in _JSON_SHAPES:
        if rows and all(shape.fits(result) for _, result in rows):
            return Statement(
                kind=shape.kind,
                provider=shape.provider,
                lines=tuple(shape.line(bucket, result) for bucket, result in rows),
                warnings=warnings,
            )
    if pages and not rows:
        return Statement(kind="empty report", provider=None, lines=(), warnings=warnings)
    raise _Unreadable(_NOT_KNOWN)


def _pages(text: str) -> list[dict[str, Any]]:
    """One page, a list of pages, or a page on each line."""
    text = text.lstrip("\ufeff")
    try:
        whole = json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError) as error:
        try:
            whole = [json.loads(line, parse_float=Decimal) for line in text.splitlines() if line]
        except (ValueError, RecursionError):
            raise _Unreadable(f"not JSON: {error}") from None
    pages = whole if isinstance(whole, list) else [whole]
    if not all(isinstance(page, dict) for page in pages):
        raise _Unreadable(_NOT_KNOWN)
    return pages


def _results(page: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each result with the bucket of time that it is in; where there are no buckets, itself."""
    data = page.get("data")
    if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
        raise _Unreadable(_NOT_KNOWN)
    for item in data:
        results = item.get("results", item.get("result"))
        if isinstance(results, list):
            yield from ((item, result) for result in results if isinstance(result, dict))
        else:
            yield item, item


@dataclass(frozen=True, slots=True)
class _Shape:
    kind: str
    provider: str
    fits: Callable[[dict[str, Any]], bool]
    line: Callable[[dict[str, Any], dict[str, Any]], Line]


def _openai_usage(bucket: dict[str, Any], result: dict[str, Any]) -> Line:
    return _line(
        _epoch_day(bucket.get("start_time")),
        result.get("model"),
        requests=_count(result, "num_model_requests"),
        input_tokens=_count(result, "input_tokens"),
        cache_read_tokens=_count(result, "input_cached_tokens"),
        cache_write_tokens=_count(result, "input_cache_write_tokens"),
        output_tokens=_count(result, "output_tokens"),
    )


def _openai_costs(bucket: dict[str, Any], result: dict[str, Any]) -> Line:
    amount = result.get("amount")
    if not isinstance(amount, dict) or str(amount.get("currency", "usd")).lower() != "usd":
        raise _Unreadable(f"an amount that is not in USD: {str(amount)[:80]}")
    # Grouped by line item, an item reads `gpt-5-2025-08-07, cached input`; some name no model.
    model, separator, _ = str(result.get("line_item") or "").rpartition(", ")
    return _line(
        _epoch_day(bucket.get("start_time")),
        model if separator else None,
        cost_picousd=_picousd(amount.get("value")),
    )


def _anthropic_usage(bucket: dict[str, Any], result: dict[str, Any]) -> Line:
    creation = result.get("cache_creation")
    parts = creation if isinstance(creation, dict) else {}
    written = _sum(
        _count(parts, "ephemeral_5m_input_tokens"), _count(parts, "ephemeral_1h_input_tokens")
    )
    read_from_cache = _count(result, "cache_read_input_tokens")
    return _line(
        _iso_day(bucket.get("starting_at")),
        result.get("model"),
        input_tokens=_sum(_count(result, "uncached_input_tokens"), read_from_cache, written),
        cache_read_tokens=read_from_cache,
        cache_write_tokens=written,
        output_tokens=_count(result, "output_tokens"),
    )


def _anthropic_cost(bucket: dict[str, Any], result: dict[str, Any]) -> Line:
    if str(result.get("currency", "USD")).upper() != "USD":
        raise _Unreadable(f"an amount that is not in USD: {str(result.get('currency'))[:20]}")
    # "Cost amount in lowest currency units (e.g. cents) as a decimal string": 123.45 is $1.23.
    return _line(
        _iso_day(bucket.get("starting_at")),
        result.get("model"),
        cost_picousd=_picousd(result.get("amount"), per_usd=100),
    )


def _openrouter(_: dict[str, Any], result: dict[str, Any]) -> Line:
    return _line(
        _iso_day(result.get("date")),
        result.get("model"),
        requests=_count(result, "requests"),
        input_tokens=_count(result, "prompt_tokens"),
        output_tokens=_count(result, "completion_tokens"),
        cost_picousd=_sum(
            _picousd(result.get("usage")), _picousd(result.get("byok_usage_inference"))
        ),
    )


_JSON_SHAPES = (
    _Shape(
        "OpenAI usage",
        "openai",
        lambda result: str(result.get("object", "")).startswith("organization.usage."),
        _openai_usage,
    ),
    _Shape(
        "OpenAI costs",
        "openai",
        lambda result: result.get("object") == "organization.costs.result",
        _openai_costs,
    ),
    _Shape(
        "Anthropic usage",
        "anthropic",
        lambda result: "uncached_input_tokens" in result,
        _anthropic_usage,
    ),
    _Shape(
        "Anthropic cost",
        "anthropic",
        lambda result: "amount" in result and "currency" in result,
        _anthropic_cost,
    ),
    _Shape(
        "OpenRouter activity",
        "openrouter",
        lambda result: {"date", "model", "usage"} <= result.keys(),
        _openrouter,
    ),
)

_CSV_SHAPES: tuple[tuple[str, str | None, frozenset[str], dict[str, tuple[str, ...]]], ...] = (
    (
        "Anthropic usage CSV",
        "anthropic",
        frozenset({"usage_date_utc", "usage_output_tokens"}),
        {
            "day": ("usage_date_utc",),
            "model": ("model_version",),
            "input_tokens": (
                "usage_input_tokens_no_cache",
                "usage_input_tokens_cache_write_5m",
                "usage_input_tokens_cache_write_1h",
                "usage_input_tokens_cache_read",
            ),
            "cache_read_tokens": ("usage_input_tokens_cache_read",),
            "cache_write_tokens": (
                "usage_input_tokens_cache_write_5m",
                "usage_input_tokens_cache_write_1h",
            ),
            "output_tokens": ("usage_output_tokens",),
        },
    ),
    (
        "Anthropic cost CSV",
        "anthropic",
        frozenset({"usage_date_utc", "cost_usd"}),
        {"day": ("usage_date_utc",), "model": ("model",), "cost_picousd": ("cost_usd",)},
    ),
    (
        "OpenRouter activity CSV",
        "openrouter",
        frozenset({"generation_id", "created_at", "cost_total"}),
        {
            "day": ("created_at",),
            "model": ("model_permaslug",),
            "input_tokens": ("tokens_prompt",),
            "cache_read_tokens": ("tokens_cached",),
            "output_tokens": ("tokens_completion",),
            "cost_picousd": ("cost_total", "byok_usage_inference"),
            "requests": (),
        },
    ),
    (
        "OpenRouter activity CSV",
        "openrouter",
        frozenset({"date", "model", "usage", "prompt_tokens"}),
        {
            "day": ("date",),
            "model": ("model",),
            "requests": ("requests",),
            "input_tokens": ("prompt_tokens",),
            "output_tokens": ("completion_tokens",),
            "cost_picousd": ("usage", "byok_usage_inference"),
        },
    ),
    (
        "CSV",
        None,
        frozenset({"day", "model"}),
        {
            "day": ("day",),
            "model": ("model",),
            **{name: (name,) for name in FIGURES},
            "cost_picousd": ("cost_usd",),
        },
    ),
)
"""Kind, provider, the columns it is known by, and the columns that each of ours is the sum of.
No column at all for requests: each row is one."""

_NOT_KNOWN = (
    "not a statement that is known: OpenAI usage or costs JSON, Anthropic usage or cost JSON or "
    "CSV, OpenRouter activity CSV, or a CSV with the columns day, model, input_tokens, "
    "output_tokens, cost_usd"
)


def _read_csv(text: str) -> Statement:
    reader = csv.DictReader(io.StringIO(text.lstrip("\ufeff")))
    names = frozenset(reader.fieldnames or ())
    for kind, provider, known_by, columns in _CSV_SHAPES:
        if known_by <= names:
            lines = []
            for row in reader:
                try:
                    lines.append(_csv_line(row, columns, names))
                except _Unreadable as error:
                    raise _Unreadable(f"line {reader.line_num}: {error}") from None
            return Statement(kind=kind, provider=provider, lines=tuple(lines))
    raise _Unreadable(_NOT_KNOWN)


def _csv_line(
    row: Mapping[str, str], columns: Mapping[str, tuple[str, ...]], names: frozenset[str]
) -> Line:
    figures: dict[str, int | None] = {}
    for name, parts in columns.items():
        if name in ("day", "model"):
            continue
        if not parts:
            figures[name] = 1
            continue
        read_one = _csv_picousd if name == "cost_picousd" else _csv_count
        figures[name] = _sum(*(read_one(row, part) for part in parts if part in names))
    return _line(_iso_day(row[columns["day"][0]]), row[columns["model"][0]], **figures)


def _line(day: date, model: object, **figures: int | None) -> Line:
    return Line(
        day=day,
        model=model if isinstance(model, str) and model else None,
        figures={name: figure for name, figure in figures.items() if figure is not None},
    )


def _count(row: Mapping[str, Any], name: str) -> int | None:
    value = row.get(name)
    if value is None:
        return None
    if type(value) is not int or not 0 <= value <= COUNT_MAX:
        raise _Unreadable(f"{name}: {str(value)[:40]!r} is not a count")
    return value


def _csv_count(row: Mapping[str, str], name: str) -> int | None:
    text = (row.get(name) or "").strip().replace(",", "")
    if not text:
        return None
    if not re.fullmatch(r"\d{1,18}(\.0*)?", text):
        raise _Unreadable(f"{name}: {text[:40]!r} is not a count")
    return int(text.partition(".")[0])


def _picousd(value: object, per_usd: int = 1) -> int | None:
    """An amount in pico-USD; statements have refunds, so it may be negative."""
    if value is None:
        return None
    try:
        amount = Decimal(str(value)) * PICOUSD_PER_USD / per_usd
        whole = int(amount.to_integral_value())
    except (InvalidOperation, ValueError, OverflowError):
        raise _Unreadable(f"{str(value)[:40]!r} is not an amount") from None
    return whole


def _csv_picousd(row: Mapping[str, str], name: str) -> int | None:
    text = (row.get(name) or "").strip().lstrip("$").replace(",", "")
    return _picousd(text) if text else None


def _sum(*parts: int | None) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def _epoch_day(value: object) -> date:
    if type(value) is int and 0 <= value < 1 << 33:
        return datetime.fromtimestamp(value, UTC).date()
    raise _Unreadable(f"start_time: {str(value)[:40]!r} is not a time")


def _iso_day(value: object) -> date:
    text = str(value).strip()
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise _Unreadable(f"{text[:40]!r} is not a day; write 2026-11-01") from None
    return moment.astimezone(UTC).date() if moment.tzinfo else moment.date()
