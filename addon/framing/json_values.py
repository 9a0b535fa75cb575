"""Pure. The one place where wire JSON becomes values: `Any` stops here."""

import json
import math
import re
from typing import Any

import orjson

_DEPTH_MAX = 6
"""How deep usage objects are nested at most (`response.usage.input_tokens_details…`), twice."""

_ESCAPED_IN_KEY = re.compile(
    rb"\\u00(?:2[dDeE]|3[0-9]|4[1-9a-fA-F]|5[0-9aAfF]|6[1-9a-fA-F]|7[0-9aA])"
)
"""Escapes of the characters that the keys and types of wire formats are made of: letters, digits,
`_`, `.` and `-`. The escapes that servers do write (`\\u003c`, `\\u4f60`) are not among them."""


def has_escaped_key(run: bytes) -> bool:
    """Whether a key or a type may be written with escapes, so that no byte search can find it.

    `"\\u0075sage"` is `"usage"`. True for some text that holds such an escape, too.
    """
    return b"\\u00" in run and _ESCAPED_IN_KEY.search(run) is not None


def loads(data: bytes) -> dict[str, Any] | None:
    """A JSON object, or None for anything else. Never raises.

    orjson refuses NaN, infinities and lone surrogates, and Python's own reader takes them; a
    provider's oddity in a field nobody bills by must not cost the figures beside it. NaN and the
    infinities come back as text, so that what is kept verbatim stays valid JSON.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        value = _slowly(data)
    if type(value) is not dict:
        return None
    return (_slowly(data) or value) if _has_rounded(value, _DEPTH_MAX) else value


def strict_loads(data: bytes) -> Any:
    """The value of JSON that every reader takes: no NaN, no infinity, no lone surrogate. None for
    anything else, and for `null`."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return None


def dumps(value: object) -> str:
    """Compact JSON, keys in their order, integers of any size."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # an integer beyond 64 bits, a lone surrogate
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _slowly(data: bytes) -> Any:
    """Python's reader: every digit of an integer of any size, up to its own limit of 4 300."""
    try:
        return json.loads(data, parse_constant=str, parse_float=_finite)
    except (ValueError, RecursionError):
        return None


def _finite(text: str) -> float | str:
    """`1e999` is legal JSON and no float."""
    value = float(text)
    return value if math.isfinite(value) else text


def _has_rounded(value: dict[str, Any], depth: int) -> bool:
    """orjson makes a float of an integer beyond 64 bits, which loses digits.

    Only objects are looked into: no list holds a figure that would be worth reading twice, and
    embeddings are lists of thousands of floats.
    """
    for inner in value.values():
        kind = type(inner)
        if kind is float:
            if abs(inner) >= 2**63:
                return True
        elif kind is dict and depth and _has_rounded(inner, depth - 1):
            return True
    return False
