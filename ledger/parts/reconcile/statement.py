"""Pure. A vendor's statement as values, and the parsing of its days, counts and amounts.

Input tokens are all input and output tokens all output here, as everywhere in the ledger.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from ledger.model.money import PICOUSD_PER_USD, decimal_of
from ledger.model.usage import COUNT_MAX
from ledger.text.printable import printable

STATEMENT_FIGURES = (
    "requests",
    "input_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "output_tokens",
    "cost_picousd",
)
"""The figures that a statement may report, in display order."""

LIST_COST = "list_picousd"
"""What the costs of a line are at list prices, before the vendor's discount."""

_CSV_COUNT = re.compile(r"\d{1,18}(\.0*)?")
USD_DIGITS_MAX = 12
"""Digits of an amount before the point: a line of a trillion USD is a mistake, and an exponent of
a million is an attack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The figures of a statement for one model, key and project on one UTC day."""

    day: date
    model: str | None
    """None: the line names no model."""
    item: str | None = None
    """The billed item, if it is not a model's tokens (`web search tool calls`); None: the line
    names no item."""
    through: date | None = None
    """The last of several days that the line sums; None: `day` alone."""
    project: str | None = None
    """The vendor's id of the project or workspace; None: not reported."""
    session: str | None = None
    """The session's id, which is the ledger's own; None: outside of sessions, or not reported."""
    key: str | None = None
    """The vendor's id of the API key, never the key itself; None: not reported."""
    invoice: str | None = None
    """The vendor's invoice that the line is on; None: not reported."""
    figures: Mapping[str, int]
    """Names of `STATEMENT_FIGURES`, and LIST_COST -> values; a name that is missing is not
    reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One export of a vendor."""

    kind: str
    """The name of the export: `OpenAI usage`."""
    provider: str | None
    """The provider's name in the ledger; None: the export does not name it."""
    lines: tuple[Line, ...]
    warnings: tuple[str, ...] = ()
    looked_for: str = "rows"
    """What of the export is read."""


class UnreadableValue(Exception):  # noqa: N818  # it describes one line, on its way to the file's error
    """An invalid value in an export; the text names the value."""


def line_of(
    day: date,
    model: object,
    *,
    item: object = None,
    project: object = None,
    session: object = None,
    key: object = None,
    invoice: object = None,
    **figures: int | None,
) -> Line:
    """A line; empty texts and figures of None count as not reported."""
    return Line(
        day=day,
        model=_text(model),
        item=_text(item),
        project=_text(project),
        session=_text(session),
        key=_text(key),
        invoice=_text(invoice),
        figures={name: figure for name, figure in figures.items() if figure is not None},
    )


def value_at(row: Mapping[str, Any], path: str) -> Any:
    """A value of a row; a path `a.b` is key b of the object at a. None: it is not there."""
    value: Any = row
    for key in path.split("."):
        if value is None:
            return None
        if not isinstance(value, dict):
            raise UnreadableValue(f"{path}: {str(value)[:40]!r} is not an object")
        value = value.get(key)
    return value


def count(row: Mapping[str, Any], path: str) -> int | None:
    """A count of a row, in CSV with or without thousands separators; None: not reported."""
    value = value_at(row, path)
    if isinstance(value, str):
        text = value.strip().replace(",", "")
        value = int(text.partition(".")[0]) if _CSV_COUNT.fullmatch(text) else text or None
    if value is None:
        return None
    if type(value) is not int or not 0 <= value <= COUNT_MAX:
        raise UnreadableValue(f"{path}: {str(value)[:40]!r} is not a count")
    return value


def picousd(value: object, *, per_usd: int = 1) -> int | None:
    """An amount in pico-USD, rounded to one, in CSV with or without signs of thousands and dollars;
    `per_usd` units of it are one USD. Refunds are negative. None: not reported."""
    text = str(value).strip().replace(",", "").replace("$", "")
    if value is None or not text:
        return None
    amount = decimal_of(text, tiny=Decimal(0))  # a remainder of floats
    if amount is None or amount.adjusted() > USD_DIGITS_MAX:
        raise UnreadableValue(f"{str(value)[:40]!r} is not an amount")
    return int((amount * PICOUSD_PER_USD / per_usd).to_integral_value())


def require_usd(currency: object) -> None:
    """Raises `UnreadableValue` for an amount in another currency."""
    if str(currency).upper() != "USD":
        raise UnreadableValue(f"an amount that is not in USD: {printable(str(currency)[:20])}")


def epoch_day(value: object) -> date:
    """The UTC day of seconds since 1970."""
    if type(value) is int and 0 <= value < 1 << 33:
        return datetime.fromtimestamp(value, UTC).date()
    raise UnreadableValue(f"start_time: {str(value)[:40]!r} is not a time")


def iso_day(value: object) -> date:
    """The UTC day of an ISO date or time; without an offset it is UTC."""
    if value is None:
        raise UnreadableValue("a row without a day; ask for the report by day")
    text = str(value).strip()
    try:
        moment = datetime.fromisoformat(text.removesuffix(" UTC"))
        return moment.astimezone(UTC).date() if moment.tzinfo else moment.date()
    except (ValueError, OverflowError):
        raise UnreadableValue(f"{text[:40]!r} is not a day; write 2026-11-01") from None


def _text(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise UnreadableValue(f"{str(value)[:40]!r} is not a text")
    return value or None
