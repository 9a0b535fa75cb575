"""Pure. The one place where wire JSON becomes values: `Any` stops here."""

import contextlib
import json
import math
import re
from collections import Counter
from typing import Any

import orjson

_LONG_NUMBER = b"0" * 19
"""In JSON that may hold an integer beyond 64 bits, of which orjson makes a float; with each digit
as a 0, since a search for a text takes a tenth of the time of one for a pattern (measured)."""
_AS_ZERO = bytes.maketrans(b"123456789", b"000000000")
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_TEXT_OR_COMMA = re.compile(r'("[^"\\]*+(?:\\.[^"\\]*+)*+")|,(?=\s*[,}\]])|(?<=[{\[]),', re.DOTALL)
"""A text, or a comma with nothing behind or before it."""
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
    """A JSON object, or None for anything else. Never raises."""
    value = value_of(data)
    return value if type(value) is dict else None


def value_of(data: bytes) -> Any:
    """The value of JSON; None for what is no JSON, and for `null`. Never raises.

    orjson refuses NaN, infinities and lone surrogates, and rounds an integer beyond 64 bits;
    Python's own reader takes all of them. An odd value in a field without billing must not lose the
    figures beside it. NaN and the infinities become text, so that the verbatim usage stays valid
    JSON.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return _slowly(data)
    return _slowly(data) or value if _LONG_NUMBER in data.translate(_AS_ZERO) else value


def repaired(data: bytes) -> dict[str, Any] | None:
    """The object in damaged JSON, where the damage leaves no doubt about its members: bytes that
    are no UTF-8, control characters in a text, a comma too many, bytes behind its end. None: there
    is none."""
    text = data.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    for written in (text, _TEXT_OR_COMMA.sub(lambda found: found[1] or "", text)):
        try:
            value, _ = _DAMAGED.raw_decode(written)
        except (ValueError, RecursionError):
            continue
        return value if type(value) is dict else None
    return None


def is_cut(data: bytes) -> bool:
    """Whether JSON ends before its own end: inside a text, or with a bracket open."""
    data = _TEXT.sub(b"", data)
    opened = data.count(b"{") + data.count(b"[")
    return b'"' in data or opened > data.count(b"}") + data.count(b"]")


def strict_loads(data: bytes) -> Any:
    """The value of JSON that every reader accepts: no NaN, no infinity, no lone surrogate. None for
    other input, and for `null`."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return None


def repeated_key(data: bytes, value: object) -> str | None:
    """A key that stands twice in one object of JSON; None: each stands once. `value`: what the JSON
    says. Writing it again gives the same bytes where no key was lost, and takes a twentieth of the
    time of looking at each key."""
    with contextlib.suppress(TypeError):
        if orjson.dumps(value) == data:
            return None
    repeated: list[str] = []

    def members(pairs: list[tuple[str, Any]]) -> None:
        if len(dict(pairs)) < len(pairs):
            (key, _), *_ = Counter(key for key, _ in pairs).most_common(1)
            repeated.append(key)

    with contextlib.suppress(ValueError, RecursionError):
        json.loads(data, object_pairs_hook=members)
    return repeated[0] if repeated else None


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


LENIENT = json.JSONDecoder(parse_constant=str, parse_float=_finite)
"""Python's reader: every digit of an integer of any size, up to its own limit of 4 300."""
_DAMAGED = json.JSONDecoder(strict=False, parse_constant=str, parse_float=_finite)
"""The same, which takes control characters in texts."""
