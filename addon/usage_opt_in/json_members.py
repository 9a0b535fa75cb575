"""Pure. Finds the byte spans of the members of a JSON object.

Editing by span keeps every other byte of a frame or a request: spacing, key order, escapes, floats
and duplicate keys do not survive a JSON round trip.
"""

import re
from typing import NamedTuple

from addon.framing import json_values

_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]:,]', re.DOTALL)
_BLANK = b" \t\r\n"


class Member(NamedTuple):
    """One `"key": value` of an object; offsets into the bytes it was found in."""

    key: bytes
    """The raw key without its quotes; escapes are not decoded."""
    start: int
    """Of the key's opening quote."""
    value: int
    end: int
    """Just after the value."""


def members(data: bytes, start: int = 0) -> list[Member]:
    """The members of the object that begins at or after `start`; [] if there is no whole object.

    The bytes must be valid JSON. For other bytes the spans are meaningless, but lie inside `data`.
    """
    found: list[Member] = []
    depth = 0
    key: tuple[bytes, int] | None = None
    value_start = -1
    for token in _TOKEN.finditer(data, start):
        kind = data[token.start()]
        if kind in b"{[":
            depth += 1
        elif kind in b"}]":
            depth -= 1
            if depth == 0:
                if key and value_start >= 0:
                    found.append(_member(data, key, value_start, token.start()))
                return found
        elif depth != 1:
            if depth == 0:
                return []  # not an object
        elif kind == ord(":"):
            value_start = token.end()
            while value_start < len(data) and data[value_start] in _BLANK:
                value_start += 1
        elif kind == ord(","):
            if key and value_start >= 0:
                found.append(_member(data, key, value_start, token.start()))
            key, value_start = None, -1
        elif key is None:
            key = (data[token.start() + 1 : token.end() - 1], token.start())
    return []


def is_named(member: Member, name: bytes) -> bool:
    """Whether a member has this name, also if its key has escapes."""
    if b"\\" not in member.key:
        return member.key == name
    return json_values.loads(b'{"' + member.key + b'":0}') == {name.decode(): 0}


def last_named(found: list[Member], name: bytes) -> Member | None:
    """The effective member: parsers use the last of duplicate keys."""
    return next((member for member in reversed(found) if is_named(member, name)), None)


def spans_of(name: bytes, found: list[Member]) -> list[tuple[int, int]]:
    """The spans to cut, in order, to remove all members of this name with their commas."""
    spans: list[tuple[int, int]] = []
    begins = 0  # number of members to remove at the beginning
    for at, member in enumerate(found):
        if not is_named(member, name):
            continue
        if at == begins:
            begins += 1
        else:
            spans.append((found[at - 1].end, member.end))
    if begins:
        end = found[begins].start if begins < len(found) else found[-1].end
        spans.insert(0, (found[0].start, end))
    return spans


def _member(data: bytes, key: tuple[bytes, int], value: int, stop: int) -> Member:
    end = stop
    while end > value and data[end - 1] in _BLANK:
        end -= 1
    return Member(key[0], key[1], value, end)
