"""Pure. Money as integer pico-USD (10^-12 USD).

A price in micro-USD per million tokens equals pico-USD per token, so quantity x price is exact.
`Decimal` only reads and prints; no float ever holds an amount.
"""

from decimal import Decimal, InvalidOperation

PICOUSD_PER_USD = 10**12
AMOUNT_MAX = 2**63 - 1
"""About 9.2 million USD in one amount: what a BIGINT holds."""


def picousd_of(usd: object) -> int | None:
    """USD as the wire gives it (int, float or text) in pico-USD; None if it is no amount.

    A float is read by its shortest decimal form, which is what the provider wrote for any figure
    of up to 15 digits. Below a pico-USD it is rounded half even.
    """
    if isinstance(usd, bool) or not isinstance(usd, int | float | str | Decimal):
        return None
    try:
        amount = Decimal(str(usd)).scaleb(12)
        whole = int(amount.to_integral_value())
    except (InvalidOperation, ValueError, OverflowError):
        return None
    return whole if 0 <= whole <= AMOUNT_MAX else None


def usd_text(picousd: int) -> str:
    """Exact USD, no trailing zeros: 12_500_000_000 -> `0.0125`."""
    return f"{Decimal(picousd).scaleb(-12).normalize():f}"
