"""Pure. Long JSON objects as values, in one turn of the event loop: pictures in base64 (2-6 MB),
embeddings (40 MB of numbers) and whole conversations are passed over, figures are read.

    up to LONG_BYTES         no business of this module: a parser reads it whole
    up to WHOLE_BYTES_MAX    msgspec decodes the members that the reader has named, at any depth,
    and MEMBERS_MAX          and checks the rest without making values of it
    beyond                   the members in the first and in the last END_BYTES

Measured: msgspec passes over 1 GB of numbers or text a second, over 230 MB of small objects, and
takes 0.5 us for each member of an object that is decoded: 45 ms for the costliest value.
"""

import contextlib
import re
from collections.abc import Generator
from typing import Any

import msgspec
from msgspec import Raw

from addon.framing import json_values

LONG_BYTES = 64 * 1024
"""Nearly all frames with usage are shorter (52 KB is the longest recorded); a parser takes 1 ms."""
WHOLE_BYTES_MAX = 8 * 1024 * 1024
MEMBERS_MAX = 80_000
"""Of all objects, whether they are decoded or passed over: 1 200 tokens with 20 `top_logprobs` each
have as many."""
NESTED_MEMBERS_MAX = 600_000
MEMBERS_OF_OBJECT = 20
"""In a body of so many members an object has no more on average: a conversation of 30 000 messages,
whose members are passed over (50 ms); a body that is made to be decoded takes 170 ms."""
END_BYTES = 64 * 1024
OBJECTS_MAX = MEMBERS_MAX
"""Braces in a long list that is decoded: 30 ms. Of a list with more the first object is read."""
DEPTH_MAX = 6
"""Twice the depth of a usage object."""
TEXT_BYTES_MAX = 4 * 1024
"""Kept of a long text: a sign that there was some."""
TRIES_MAX = 64
"""Places in the last bytes that are tried as the beginning of the last members, the last ones."""
UNREAD = "the end of a long body was not read"
_BLANK = b" \t\r\n"
_KEY = re.compile(r'(?<!\s)\s*+(?:,\s*+)?"([^"\\]{1,128})"\s*+:\s*+')
_MEMBER = re.compile(rb',\s*("([^"\\]{1,128})"\s*:)')
_ENDS_VALUE = re.compile(r"(?<!\s)\s*+[,}\]]")
_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_OBJECTS = msgspec.json.Decoder(list[dict[str, Raw]])


def read(data: bytes, keys: frozenset[str]) -> tuple[dict[str, Any] | None, str | None]:
    """The members of a long object that are named in `keys`, with the objects and lists of objects
    in them; None for what is no object, or is not read. And why its last members are not known."""
    data = data.strip(_BLANK)
    if not data.startswith(b"{"):
        return None, None
    # A member has a colon, and a quote that no backslash escapes.
    members = min(data.count(b":"), data.count(b'"') - data.count(b'\\"'))
    objects = data.count(b"{") - data.count(b"{}")
    is_nested = members <= min(NESTED_MEMBERS_MAX, MEMBERS_OF_OBJECT * objects)
    if len(data) <= WHOLE_BYTES_MAX and (members <= MEMBERS_MAX or is_nested):
        try:
            return _value(data, keys, DEPTH_MAX), None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass  # damaged, or cut: its ends may be whole
    head, tail = _head(data), _tail(data)
    found = {name: value for name, value in {**head, **(tail or {})}.items() if name in keys}
    return found or None, UNREAD if tail is None else None


def _value(data: bytes, keys: frozenset[str], depth: int) -> Any:
    if len(data) <= LONG_BYTES:
        return json_values.value_of(data)
    first = data[:1]
    if first == b'"':
        return data[1:TEXT_BYTES_MAX].decode("utf-8", "replace")
    if not depth or first not in (b"{", b"["):
        return None
    if first == b"{":
        return _members(_OBJECT.decode(data), keys, depth)
    if not data[1 : 1 + END_BYTES].lstrip(_BLANK).startswith(b"{"):
        return []  # numbers or texts: no list of them is a figure
    if data.count(b"{") - data.count(b"{\\") <= OBJECTS_MAX:  # a backslash stands in texts alone
        with contextlib.suppress(msgspec.ValidationError):  # not objects alone
            return [_members(each, keys, depth) for each in _OBJECTS.decode(data)]
    return _first_of(data[1:LONG_BYTES].decode("utf-8", "replace"))


def _members(found: dict[str, Raw], keys: frozenset[str], depth: int) -> dict[str, Any]:
    return {
        name: _value(bytes(raw), keys, depth - 1) for name, raw in found.items() if name in keys
    }


def _first_of(inside: str) -> list[dict[str, Any]]:
    """A list with its first object alone, from what follows its bracket; empty without one."""
    try:
        value = json_values.LENIENT.raw_decode(inside.lstrip(" \t\r\n"))[0]
    except (ValueError, RecursionError):
        return []
    return [value] if type(value) is dict else []


def _head(data: bytes) -> dict[str, Any]:
    """The members in the first bytes of an object, up to the first that is not whole there. Of that
    one, if it is a list, the first object."""
    members: dict[str, Any] = {}
    head = data[:END_BYTES].decode("utf-8", "replace")
    at = head.find("{") + 1
    while at and (key := _KEY.match(head, at)):
        try:
            members[key[1]], at = json_values.LENIENT.raw_decode(head, key.end())
        except (ValueError, RecursionError):
            if head.startswith("[", key.end()) and (first := _first_of(head[key.end() + 1 :])):
                members[key[1]] = first
            break
        if not _ENDS_VALUE.match(head, at):  # a number that goes on
            del members[key[1]]
            break
    return members


def _tail(data: bytes) -> dict[str, Any] | None:
    """The members in the last bytes of an object, from the first that is outermost there; None if
    none is found."""
    tail = data[-END_BYTES:]
    for place in [member.start(1) for member in _MEMBER.finditer(tail)][-TRIES_MAX:]:
        # Outermost: what stands behind it closes exactly the one object.
        last: dict[str, Any] | None = json_values.loads(b"{" + tail[place:])
        if last is not None:
            return last
    return None


def without_pauses[T](steps: Generator[None, None, T]) -> T:
    """The result of work that pauses, done in one go."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
