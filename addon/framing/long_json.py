"""Pure. Long JSON objects as values, in one turn of the event loop: pictures in base64 (2-6 MB),
embeddings (40 MB of numbers) and whole conversations are passed over, figures are read.

    up to LONG_BYTES         no business of this module: a parser reads it whole
    up to WHOLE_BYTES_MAX    msgspec decodes the members that the reader has named, at any depth,
    and MEMBERS_MAX          and checks the rest without making values of it
    up to PASSED_MAX         the same, if few of them are decoded: a conversation, `top_logprobs`
    beyond                   the members in the first and in the last END_BYTES

Measured: msgspec passes over 1 GB of numbers or text a second, over 230 MB of small objects, and
takes 0.5 us for each member of an object that is decoded: 45 ms for the costliest value.
"""

import contextlib
import re
from collections.abc import Generator
from enum import Enum
from types import GenericAlias
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
PASSED_MAX = 600_000
"""Where there are more: of the objects that are read, at their outside, together. A conversation of
30 000 messages is passed over (30 ms)."""
UNKNOWN_MAX = 1_000
"""Members of these objects without a name: 2 us each."""
DECODED_MAX = 20_000
"""Of the values that are decoded whole; of a list with more the first object is read."""
END_BYTES = 64 * 1024
OBJECTS_MAX = MEMBERS_MAX
"""Braces in a long list that is decoded: 30 ms. Of a list with more the first object is read."""
ELEMENTS_MAX = 8_000
"""Objects of a long list that are read: 20 ms. Of more, the first is."""
DEPTH_MAX = 6
"""Twice the depth of a usage object."""
TEXT_BYTES_MAX = 4 * 1024
"""Kept of a long text: a sign that there was some."""
TRIES_MAX = 64
"""Places in the last bytes that are tried as the beginning of the last members, the last ones."""
UNREAD = "the end of a long body was not read"
_MARK = b"\xef\xbb\xbf"
"""A byte order mark, which some servers write before a document."""
_BLANK = b" \t\r\n"
_KEY = re.compile(r'(?<!\s)\s*+(?:,\s*+)?"([^"\\]{1,128})"\s*+:\s*+')
_MEMBER = re.compile(rb',\s*("([^"\\]{1,128})"\s*:)')
_ENDS_VALUE = re.compile(r"(?<!\s)\s*+[,}\]]")
_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_OBJECTS = msgspec.json.Decoder(list[dict[str, Raw]])
_LIST = msgspec.json.Decoder(list[Raw])


def read(data: bytes, keys: frozenset[str]) -> tuple[dict[str, Any] | None, str | None]:
    """The members of a long object that are named in `keys`, with the objects and lists of objects
    in them; None for what is no object, or is not read. And why its last members are not known."""
    data = data.strip(_BLANK).removeprefix(_MARK).lstrip(_BLANK)
    if not data.startswith(b"{"):
        return None, None
    if len(data) <= WHOLE_BYTES_MAX:
        members = _members_at_most(data)
        try:
            if members <= MEMBERS_MAX:
                return _value(data, keys, DEPTH_MAX), None
            if members <= PASSED_MAX:
                return _Outside(keys).read(data, members), None
        except (msgspec.MsgspecError, ValueError, RecursionError):
            pass  # damaged, or cut: its ends may be whole
    head, tail = _head(data), _tail(data)
    found = {name: value for name, value in {**head, **(tail or {})}.items() if name in keys}
    return found or None, UNREAD if tail is None else None


def _members_at_most(data: bytes) -> int:
    """A member has a colon, and a quote that no backslash escapes."""
    return min(data.count(b":"), data.count(b'"') - data.count(b'\\"'))


class _Outside:
    """Reads what is outermost in many members: as `_value`, in bounded work. Raises ValueError or
    MsgspecError beyond that."""

    def __init__(self, keys: frozenset[str]) -> None:
        unknown_left = iter(range(UNKNOWN_MAX))

        class Name(Enum):
            # A parser asks it for each name that it does not know, so this can stop the parser.
            @classmethod
            def _missing_(cls, _value: object) -> Any:
                if next(unknown_left, None) is None:
                    raise ValueError("too many members")
                return cls._member_map_["other"]

        make: Any = Name
        names = make("names", [("other", ""), *((f"name_{key}", key) for key in keys)])
        kind: Any = GenericAlias(dict, (names, Raw))
        self._object = msgspec.json.Decoder(kind)
        self._objects = msgspec.json.Decoder(GenericAlias(list, (kind,)))
        self._keys = keys
        self._passed_left = PASSED_MAX
        self._decoded_left = DECODED_MAX

    def read(self, data: bytes, count: int) -> dict[str, Any]:
        self._passed_left -= count
        if self._passed_left < 0:
            raise ValueError("too many members")
        return self._named(self._object.decode(data))

    def _named(self, found: dict[Any, Raw]) -> dict[str, Any]:
        members: dict[str, Any] = {}
        for name, raw in found.items():
            if not name.value:
                continue
            value = bytes(raw)
            count = _members_at_most(value)
            if count <= self._decoded_left:
                self._decoded_left -= count
                members[name.value] = _value(value, self._keys, DEPTH_MAX - 1)
            elif value.startswith(b"{"):
                members[name.value] = self.read(value, count)
            else:
                members[name.value] = self._list(value, count)
        return members

    def _list(self, value: bytes, count: int) -> list[dict[str, Any]]:
        if count <= self._passed_left and value.count(b"{") <= OBJECTS_MAX:
            self._passed_left -= count
            with contextlib.suppress(msgspec.ValidationError):  # not objects alone
                found = self._objects.decode(value)
                if len(found) <= ELEMENTS_MAX:
                    return [self._named(each) for each in found]
        return _first_of(value[1:LONG_BYTES].decode("utf-8", "replace"))


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
    begin = data[1 : 1 + END_BYTES].lstrip(_BLANK)[:1]
    if begin == b'"' and data.count(b'"') <= 2 * ELEMENTS_MAX:  # pictures, billed by their number
        return [_value(bytes(raw), keys, 0) for raw in _LIST.decode(data)]
    if begin != b"{":
        return []  # numbers or many texts: no list of them is a figure
    if data.count(b"{") - data.count(b"{\\") <= OBJECTS_MAX:  # a backslash stands in texts alone
        with contextlib.suppress(msgspec.ValidationError):  # not objects alone
            found = _OBJECTS.decode(data)
            if len(found) <= ELEMENTS_MAX:
                return [_members(each, keys, depth) for each in found]
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
