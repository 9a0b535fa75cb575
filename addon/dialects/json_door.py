"""Pure. The one place where wire JSON becomes values: `Any` stops here (STYLE 33)."""

import json
import re
from typing import Any

import orjson

_BEYOND_64_BITS = re.compile(rb"\d{20}")
"""orjson makes floats of integers that long; Python's reader keeps every digit."""


def loads(data: bytes) -> dict[str, Any] | None:
    """A JSON object, or None for anything else. Never raises.

    orjson refuses NaN, infinities and lone surrogates, and Python's own reader takes them; a
    provider's oddity in a field nobody bills by must not cost the figures beside it. NaN and the
    infinities come back as text, so that what is kept verbatim stays valid JSON.
    """
    try:
        value = orjson.loads(data) if not _BEYOND_64_BITS.search(data) else _slowly(data)
    except orjson.JSONDecodeError:
        value = _slowly(data)
    return value if isinstance(value, dict) else None


def dumps(value: object) -> str:
    """Compact JSON, keys in their order, integers of any size."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _slowly(data: bytes) -> object:
    try:
        return json.loads(data, parse_constant=str)
    except (ValueError, RecursionError):
        return None
