"""Pure. The rates file, as docs/using.md shows it, and amounts in another currency than USD.

Nothing fetches rates. A day is of the zone of the report.
"""

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, tzinfo
from decimal import Decimal

import msgspec

from ledger.model.errors import LedgerError
from ledger.settings import toml_tables
from ledger.settings.toml_tables import FaultError, TomlProblem

USD = "USD"
SIGNS: Mapping[str, str] = {USD: "$", "EUR": "€", "GBP": "£"}
"""Of any other currency, its code stands before the amount."""
RATE_MIN, RATE_MAX = Decimal("0.000001"), Decimal(1_000_000)
"""No currency has been worth more or less; beyond it is a slip."""
SCALE = 10**12
"""Rates are whole numbers of this part: products with amounts are exact, and rounded once."""
_CODE = re.compile("[A-Z]{3}")

type Amount = tuple[date, int]
"""Pico-USD of a day."""


@dataclass(frozen=True, slots=True)
class Currency:
    """A currency, and what a USD is worth in it from a day on."""

    code: str
    rates: tuple[tuple[date, int], ...]
    """From the earliest: first day, and rate x `SCALE`."""
    source: str
    """The file, for errors."""

    @property
    def sign(self) -> str:
        """`€`, or `CHF` and a blank."""
        return SIGNS.get(self.code, f"{self.code} ")

    def rate_on(self, day: date) -> int:
        """What a USD is worth on a day, x `SCALE`; LedgerError before the first rate."""
        place = bisect_right(self.rates, day, key=lambda rate: rate[0])
        if not place:
            raise LedgerError(
                f"no rate of {self.code} for {day}: {self.source} begins with {self.rates[0][0]}"
            )
        return self.rates[place - 1][1]

    def converted(self, amounts: list[Amount]) -> int:
        """The sum of amounts, each at its day's rate, in 10^-12 of the currency."""
        total = sum(picousd * self.rate_on(day) for day, picousd in amounts)
        return (total + SCALE // 2) // SCALE

    def converted_at(
        self, picousd: int | None, at: datetime, zone: tzinfo | None = None
    ) -> int | None:
        """One amount, at the rate of its moment's day."""
        if picousd is None:
            return None
        return self.converted([(at.astimezone(zone or UTC).date(), picousd)])


class RateEntry(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"since": "from"}
):
    """One `[[rate]]`."""

    currency: str
    since: date
    per_usd: Decimal | int | None = None
    usd: Decimal | int | None = None

    def __post_init__(self) -> None:
        """FaultError if it is no code of a currency, or not exactly one sensible rate."""
        if not _CODE.fullmatch(self.currency) or self.currency == USD:
            raise FaultError("currency", f"{self.currency!r} is not a code such as EUR")
        given = [name for name in ("per_usd", "usd") if getattr(self, name) is not None]
        if len(given) != 1:
            raise FaultError("per_usd", "give either per_usd or usd")
        value = Decimal(getattr(self, given[0]))
        if not (value.is_finite() and RATE_MIN <= value <= RATE_MAX):
            raise FaultError(given[0], f"{value} is not between {RATE_MIN} and {RATE_MAX:f}")

    @property
    def scaled(self) -> int:
        """What a USD is worth, x `SCALE`."""
        if self.per_usd is not None:
            return int((Decimal(self.per_usd) * SCALE).to_integral_value())
        assert self.usd is not None
        return int((SCALE / Decimal(self.usd)).to_integral_value())


def read(
    text: str, source: str = "the rates file"
) -> tuple[dict[str, Currency], list[TomlProblem]]:
    """The currencies of a file, and each problem."""
    document, problems = toml_tables.parse(text)
    problems += toml_tables.unknown_tables(text, document, ("rate",))
    values, faults = toml_tables.converted(text, document, "rate", RateEntry)
    problems += faults
    found: dict[str, dict[date, int]] = {}
    for place, rate in values:
        days = found.setdefault(rate.currency, {})
        if rate.since in days:
            fault = FaultError("from", f"{rate.currency} has a rate from {rate.since} already")
            problems.append(toml_tables.problem_of(text, "rate", place, fault))
        days[rate.since] = rate.scaled
    return {
        code: Currency(code, tuple(sorted(days.items())), source) for code, days in found.items()
    }, problems
