"""Pure. Money as integer pico-USD (10^-12 USD).

A price in micro-USD per million tokens equals pico-USD per token, so quantity x price is exact.
`Decimal` only reads and prints; no float ever holds an amount.
"""

from collections.abc import Iterable
from decimal import Decimal, InvalidOperation

PICOUSD_PER_USD = 10**12
AMOUNT_MAX = 10**17
"""100 000 USD in one amount. Upstream figures are untrusted: a BIGINT holds 9.2 million USD, and
two amounts near that would overflow every sum that includes them."""
DIGITS_MAX = 64
"""The longest number that is read; a longer one is neither a price nor a cost."""
EXPONENT_MAX = 30
"""The largest and, negated, the smallest power of ten that is read."""


def decimal_of(value: object, *, tiny: Decimal | None = None) -> Decimal | None:
    """The exact value of a number from the wire or a file (int, float, text); None if it is not a
    number. `tiny` is that of one below the smallest power of ten.

    Its length and its exponent are bounded before any arithmetic: `1e999999` costs nothing.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    if isinstance(value, int) and value.bit_length() > 4 * DIGITS_MAX:
        return None
    text = str(value).strip()
    if len(text) > DIGITS_MAX:
        return None
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    if number.is_finite() and abs(number.adjusted()) > EXPONENT_MAX:
        beyond = tiny if number.adjusted() < 0 else None
        return beyond if number else Decimal(0)
    return number if number.is_finite() else None


def picousd_of(usd: object) -> int | None:
    """USD from the wire (int, float or text) in pico-USD; None if it is not an amount.

    A float is read by its shortest decimal form, which equals the provider's text for any figure of
    up to 15 digits. Below a pico-USD it is rounded half even.
    """
    number = decimal_of(usd)
    if number is None or not 0 <= number.scaleb(12) <= AMOUNT_MAX:
        return None
    return int(number.scaleb(12).to_integral_value())


def sum_of_known(amounts: Iterable[int | None]) -> int | None:
    """The sum of the known amounts; None if none is known."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None


def usd_text(picousd: int) -> str:
    """Exact USD, no trailing zeros: 12_500_000_000 -> `0.0125`."""
    return f"{usd_of(picousd).normalize():f}"


def usd_of(picousd: int) -> Decimal:
    """The exact amount in USD."""
    return Decimal(picousd).scaleb(-12)


def usd(picousd: int | None) -> Decimal | None:
    """The same without trailing zeros, if it is known."""
    return None if picousd is None else Decimal(usd_text(picousd))


def money_text(picousd: int) -> str:
    """One amount at a glance: `$1,204.12`, `$0.0031`; of less than a cent the first two digits,
    so that it does not look like nothing: `$0.000045`."""
    size = abs(picousd)
    if size == 0:
        return "$0"
    tiny = min(12, 14 - len(str(size)))
    places = 2 if size >= 995 * 10**9 else 4 if size >= 10**10 else tiny
    minus = "\N{MINUS SIGN}" if picousd < 0 else ""
    return f"{minus}${usd_of(size):,.{places}f}"
