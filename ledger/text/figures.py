"""Pure. The one spelling of money, counts, shares, changes and durations on screens, pages and in
messages. A column of amounts is aligned by `ledger.reports.layout`."""

from datetime import datetime, timedelta
from decimal import Decimal

from ledger.model.money import money_text, usd_text

NONE = "\N{EN DASH}"
"""Not reported, or not known."""
MINUS = "\N{MINUS SIGN}"
TIMES = "\N{MULTIPLICATION SIGN}"
MILLISECOND = timedelta(milliseconds=1)
STEPS = ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k"))


def money(picousd: int | None, *, is_lower_bound: bool = False) -> str:
    """One amount with a readable number of decimals: `$1,204.12`, `$0.0031`."""
    if picousd is None:
        return "unpriced" if is_lower_bound else NONE
    return f"{'≥ ' if is_lower_bound else ''}{money_text(picousd)}"


def exact_money(picousd: int | None) -> str:
    """Every digit, for a tooltip."""
    return "no price is known" if picousd is None else f"{usd_text(picousd)} USD"


def count(number: int | None) -> str:
    """`1,204`; a dash if nothing was reported."""
    return NONE if number is None else f"{number:,}"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """`1 request`, `2 requests`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def requests(number: int) -> str:
    """`1 request`, `204 requests`."""
    return counted(number, "request")


def short(number: int | None) -> str:
    """`1.2M`; a dash if nothing was reported."""
    if number is None:
        return NONE
    for step, unit in STEPS:
        if abs(number) >= step:
            scaled = Decimal(number) / step
            return f"{scaled:.{0 if scaled >= 100 else 1}f}{unit}"
    return str(number)


def percent(part: Decimal | None, *, in_column: bool = False) -> str:
    """`34.2%` of a ratio, `42%` if it is that; a dash if it is not known. `in_column`: with its
    decimal in any case, so that shares align."""
    if part is None:
        return NONE
    scaled = part * 100
    if in_column:
        return f"{scaled:.1f}%"
    return f"{scaled:.{0 if abs(scaled) >= 100 else 1}f}".removesuffix(".0") + "%"


def used_share(ppm: int | None) -> str:
    """The used share of a limit, in millionths: `42%`, `3.5%`; a dash if it is not known."""
    return percent(None if ppm is None else Decimal(ppm) / 10**6)


def ratio(part: int | None, whole: int | None) -> Decimal | None:
    """A part divided by its whole; None if either is unknown or the whole is 0."""
    return Decimal(part) / whole if part is not None and whole else None


def change(now: int | None, before: int | None) -> str:
    """`+12%`; an empty text if there is no value to compare with."""
    if now is None or not before:
        return ""
    part = Decimal(now - before) / before
    if abs(part) >= 10:
        return f"{TIMES}{Decimal(now) / before:.0f}"
    text = f"{abs(part * 100):.{0 if abs(part) >= Decimal('0.1') else 1}f}"
    sign = "±" if text == "0.0" else "+" if part > 0 else MINUS
    return f"{sign}{text.removesuffix('.0')}%"


def duration(milliseconds: int | None) -> str:
    """`540 ms`, `1.2 s`, `3.5 min`; a dash if nothing was measured."""
    return NONE if milliseconds is None else duration_text(milliseconds)


def duration_text(milliseconds: int) -> str:
    """A duration at a glance, in two digits or whole units: `540 ms`, `1.2 s`, `42 s`, `3.5 min`,
    `42 min`, `2 h 05 min`, `3 d 4 h`."""
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    seconds = Decimal(milliseconds) / 1000
    if seconds < 120:
        return f"{_two_digits(seconds)} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{_two_digits(seconds / 60)} min"
    hours = round(seconds / 3600)
    if hours < 48:
        return f"{minutes // 60} h {minutes % 60:02} min"
    return f"{hours // 24} d {hours % 24} h"


def seconds_text(seconds: float) -> str:
    """The same, of seconds."""
    return duration_text(round(seconds * 1000))


def exact_duration_text(milliseconds: int) -> str:
    """Every digit, where one request is explained: `12,345 ms`."""
    return f"{milliseconds:,} ms"


def pair_text(middle: int, high: int) -> str:
    """Two durations in milliseconds, in the unit of the second: `230/880 ms`, `0.88/12 s`."""
    if high < 1000:
        return f"{middle}/{high} ms"
    shown = [_two_digits(Decimal(each) / 1000) for each in (middle, high)]
    return f"{shown[0]}/{shown[1]} s"


def until_text(moment: datetime | None, now: datetime) -> str:
    """How long until a moment: `2 h 05 min`, `now`; nothing if it is not known."""
    if moment is None:
        return ""
    return duration_text((moment - now) // MILLISECOND) if moment >= now else "now"


def _two_digits(number: Decimal) -> str:
    """`0.042`, `0.42`, `4.2`, `42`, `420`; a whole number without decimals."""
    places = max(0, 1 - number.adjusted()) if number else 0
    text = f"{number:.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
