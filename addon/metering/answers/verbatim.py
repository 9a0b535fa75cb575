"""Pure. The text of a usage object as upstream wrote it: spacing, escapes, spelling of numbers and
duplicate keys included, which do not survive a JSON round trip.

A dialect returns the usage as a value. If that value is one object of the frame, this module finds
its text by its key and compares the two. If not, it writes the value as compact JSON. That is so
for collected figures (Ollama's line, llama.cpp's, response headers), for an Anthropic stream's
usage, which merges `message_start` and `message_delta` key by key, for usage in base64 (InvokeModel
streams), and for values that databases refuse as JSON (NaN).
"""

from typing import Any

from addon.framing import json_values

CANDIDATES_MAX = 4
"""Places with the right key to try, the last one first: parsers take the last of duplicate keys.
Each costs a parse of the object at that place."""
_DEPTH_MAX = 4
_ITEMS_MAX = 4
"""Usage is in `response.usage` or `choices[0].usage`, and never deeper."""


def key_of(body: dict[str, Any], usage: dict[str, Any], depth: int = _DEPTH_MAX) -> str | None:
    """The key of this object (by identity) in a frame; None if the frame does not have it."""
    for key, value in body.items():
        if value is usage:
            return key
        if depth:
            inner = value[:_ITEMS_MAX] if type(value) is list else (value,)
            for one in inner:
                if type(one) is dict and (found := key_of(one, usage, depth - 1)) is not None:
                    return found
    return None


def usage_text(data: bytes, key: str, usage: dict[str, Any]) -> str | None:
    """The text of the object under a key in a frame; None if no text parses to the same value."""
    needle = b'"' + key.encode("utf-8", "replace") + b'"'
    end = len(data)
    for _ in range(CANDIDATES_MAX):
        at = data.rfind(needle, 0, end)
        if at < 0:
            return None
        end = at
        try:
            rest = data[at + len(needle) :].decode("utf-8", "surrogatepass").lstrip(" \t\r\n:")
            value, length = json_values.LENIENT.raw_decode(rest)
        except (ValueError, RecursionError):
            continue
        if value == usage:
            text = rest[:length]
            is_json = json_values.strict_loads(text.encode("utf-8", "surrogatepass")) is not None
            return text if is_json else None
    return None
