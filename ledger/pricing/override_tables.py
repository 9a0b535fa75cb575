"""Pure. The tables of a price file, validated by msgspec, and the rates in them."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import msgspec

from ledger.model.money import AMOUNT_MAX, decimal_of
from ledger.pricing.price_lines import NO_TIME, TOKEN_LINES, Rate
from ledger.pricing.published import MTOK, picousd_of_price
from ledger.settings.toml_tables import FaultError
from ledger.text.hints import suggestion

MEANT = {
    "input": "uncached_input",
    "prompt": "uncached_input",
    "completion": "output",
    "cached": "cache_read",
    "cached_input": "cache_read",
    "cache_creation": "cache_write",
    "thinking": "reasoning",
}
"""What vendors' pages call a line -> its name."""
_UNIT_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")

type Figures = Mapping[str, int | Decimal]
"""Line -> price in USD."""


class StepTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[price.above]]`."""

    input_tokens: int
    usd_per_mtok: dict[str, int | Decimal] = {}

    def __post_init__(self) -> None:
        """FaultError for a threshold that no request can exceed."""
        if self.input_tokens < 0:
            raise FaultError("above.input_tokens", f"{self.input_tokens} is not a number of tokens")


class FiguresTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The prices of a `[[price]]` or a `[[rule]]`."""

    usd_per_mtok: dict[str, int | Decimal] = {}
    usd_each: dict[str, int | Decimal] = {}
    above: list[StepTable] = []


class PriceTable(FiguresTable, frozen=True, kw_only=True, rename={"since": "from"}):
    """One `[[price]]`."""

    host: str | None = None
    provider: str | None = None
    model: str | None = None
    since: Any = None
    until: Any = None
    service_tier: str | None = None
    free: bool = False

    def __post_init__(self) -> None:
        """FaultError unless the table names a host, provider or model."""
        for key in ("host", "provider", "model", "service_tier"):
            if getattr(self, key) == "":
                raise FaultError(key, "empty")
        if self.host is None and self.provider is None and self.model is None:
            raise FaultError(
                "host, provider or model", "one of them must say what the price is for"
            )


class GatewayTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[gateway]]`."""

    host: str
    prices: str
    models: dict[str, str] = {}

    def __post_init__(self) -> None:
        """FaultError for an empty text."""
        for key in ("host", "prices"):
            if not getattr(self, key):
                raise FaultError(key, "empty")


def rates_of(table: FiguresTable, source: str) -> Iterator[tuple[str, Rate]]:
    """Line -> rate; FaultError for an invalid line or price."""
    above: dict[str, list[tuple[int, int]]] = {}
    for step in table.above:
        for line, picousd in _per_mtok(step.usd_per_mtok, "above.usd_per_mtok"):
            above.setdefault(line, []).append((step.input_tokens, picousd))
    for line, picousd in _per_mtok(table.usd_per_mtok, "usd_per_mtok"):
        yield line, Rate(picousd, source, tuple(sorted(above.pop(line, []))))
    if above:
        raise FaultError(
            f"above.usd_per_mtok.{next(iter(above))}", "usd_per_mtok has no price of it"
        )
    for line, figure in table.usd_each.items():
        where = f"usd_each.{line}"
        if line in TOKEN_LINES or not _UNIT_NAME.fullmatch(line):
            raise FaultError(where, "not a unit; token lines stand in usd_per_mtok")
        yield line, Rate(_picousd(figure, where, 1), source)


def span_of(since: object, until: object) -> tuple[datetime, datetime]:
    """The moments between which a table is in force; FaultError if there is none."""
    begin = _moment_of(since, "from", NO_TIME[0])
    end = _moment_of(until, "until", NO_TIME[1])
    if end <= begin:
        raise FaultError("until", "it is not after from")
    return begin, end


def _moment_of(value: object, key: str, default: datetime) -> datetime:
    """A date or time of the file in UTC; FaultError if it is neither."""
    if value is None:
        return default
    try:
        if isinstance(value, datetime):
            if value.tzinfo is None:
                shown = f"{value} has no offset; write {value.isoformat()}Z for UTC"
                raise FaultError(key, shown)
            return value.astimezone(UTC)
        if isinstance(value, date):
            return datetime.combine(value, time(), UTC)
    except OverflowError:
        pass
    raise FaultError(key, f"{str(value)[:60]!r} is not a date, write {key} = 2026-09-01")


def _per_mtok(figures: Figures, within: str) -> Iterator[tuple[str, int]]:
    for line, figure in figures.items():
        where = f"{within}.{line}"
        if line not in TOKEN_LINES:
            hint = suggestion(line, TOKEN_LINES, MEANT)
            raise FaultError(where, f"unknown line{hint}; one of {', '.join(TOKEN_LINES)}")
        yield line, _picousd(figure, where, MTOK)


def _picousd(figure: int | Decimal, where: str, units: int) -> int:
    """Checked before any arithmetic: `1e400` and numbers of thousands of digits are refused."""
    price = decimal_of(figure)
    if price is None or price < 0:
        raise FaultError(where, f"{_shown(figure)} is not a price")
    picousd = picousd_of_price(price, units)
    if picousd > AMOUNT_MAX:
        raise FaultError(where, f"{_shown(figure)} is more than the ledger holds")
    return picousd


def _shown(figure: int | Decimal) -> str:
    if isinstance(figure, int) and figure.bit_length() > 256:
        return "a number of more than 64 digits"
    return str(figure)[:60]
