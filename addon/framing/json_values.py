"""Pure. The one place where wire JSON becomes values: `Any` stops here."""

import json
import math
import re
from typing import Any

import orjson

_DEPTH_MAX = 6
"""Twice the greatest depth of a usage object (`response.usage.input_tokens_details…`)."""

_ESCAPED_IN_KEY = re.compile(
    rb"\\u00(?:2[dDeE]|3[0-9]|4[1-9a-fA-F]|5[0-9aAfF]|6[1-9a-fA-F]|7[0-9aA])"
)
"""Escapes of the characters in keys and types of wire formats: letters, digits, `_`, `.` and `-`.
They do not include the escapes that servers write (`\\u003c`, `\\u4f60`)."""


def has_escaped_key(run: bytes) -> bool:
    """Whether a key or a type may be written with escapes, so that no byte search can find it.

    `"\\u0075sage"` is `"usage"`. True for some text that holds such an escape, too.
    """
    return b"\\u00" in run and _ESCAPED_IN_KEY.search(run) is not None


def loads(data: bytes) -> dict[str, Any] | None:
    """A JSON object, or None for anything else. Never raises.

    orjson refuses NaN, infinities and lone surrogates; Python's own reader accepts them. An odd
    value in a field without billing must not lose the figures beside it. NaN and the infinities
    become text, so that the verbatim usage stays valid JSON.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        value = _slowly(data)
    if type(value) is not dict:
        return None
    return (_slowly(data) or value) if _has_rounded(value, _DEPTH_MAX) else value


def strict_loads(data: bytes) -> Any:
    """The value of JSON that every reader accepts: no NaN, no infinity, no lone surrogate. None for
    other input, and for `null`."""
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
    """As `LENIENT`, in any encoding of Unicode."""
    try:
        return json.loads(data, parse_constant=str, parse_float=_finite)
    except (ValueError, RecursionError):
        return None


def _finite(text: str) -> float | str:
    """The float, or the text if no float can hold it: `1e999` is legal JSON."""
    value = float(text)
    return value if math.isfinite(value) else text


def _has_rounded(value: dict[str, Any], depth: int) -> bool:
    """Whether orjson turned an integer beyond 64 bits into a float, which loses digits.

    Only objects are searched: no list holds a figure worth a second read, and embeddings are lists
    of thousands of floats.
    """
    for inner in value.values():
        kind = type(inner)
        if kind is float:
            if abs(inner) >= 2**63:
                return True
        elif kind is dict and depth and _has_rounded(inner, depth - 1):
            return True
    return False


LENIENT = json.JSONDecoder(parse_constant=str, parse_float=_finite)
"""Python's reader: every digit of an integer of any size, up to its own limit of 4 300."""
