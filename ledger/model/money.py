"""Pure. Money as integer pico-USD (10^-12 USD).

A price in micro-USD per million tokens equals pico-USD per token, so quantity x price is exact.
`Decimal` only reads and prints; no float ever holds an amount.
"""

from decimal import Decimal, InvalidOperation

PICOUSD_PER_USD = 10**12
AMOUNT_MAX = 10**17
"""100 000 USD in one amount. Upstreams are not to be trusted: a BIGINT holds 9.2 million USD, and
two amounts near that would overflow every sum they are in."""
DIGITS_MAX = 64
"""The longest number that is read; a longer one is no price and no cost."""
EXPONENT_MAX = 30
"""The largest and, negated, the smallest power of ten that is read."""


def decimal_of(value: object) -> Decimal | None:
    """A number as the wire or a file gives it (int, float, text), exactly; None if it is none.

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
    if not number.is_finite() or abs(number.adjusted()) > EXPONENT_MAX:
        return Decimal(0) if number.is_finite() and not number else None
    return number


def picousd_of(usd: object) -> int | None:
    """USD as the wire gives it (int, float or text) in pico-USD; None if it is no amount.

    A float is read by its shortest decimal form, which is what the provider wrote for any figure
    of up to 15 digits. Below a pico-USD it is rounded half even.
    """
    number = decimal_of(usd)
    if number is None or not 0 <= number.scaleb(12) <= AMOUNT_MAX:
        return None
    return int(number.scaleb(12).to_integral_value())


def usd_text(picousd: int) -> str:
    """Exact USD, no trailing zeros: 12_500_000_000 -> `0.0125`."""
    return f"{Decimal(picousd).scaleb(-12).normalize():f}"
