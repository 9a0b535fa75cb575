"""Pure. Where the members of a JSON object stand in its bytes.

Editing by span is what keeps everything else of a frame or a request byte for byte: spacing, key
order, escapes, floats and duplicate keys do not survive a JSON round trip.
"""

import re
from typing import NamedTuple

_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]:,]', re.DOTALL)
_BLANK = b" \t\r\n"


class Member(NamedTuple):
    """One `"key": value` of an object; offsets into the bytes it was found in."""

    key: bytes
    """As written, without the quotes, escapes not undone."""
    start: int
    """Of the key's opening quote."""
    value: int
    end: int
    """Just after the value."""


def members(data: bytes, start: int = 0) -> list[Member]:
    """The members of the object that begins at or after `start`; [] if there is no whole object.

    The bytes must be JSON that a parser has accepted, or garbage in gives garbage out: spans then
    still lie inside `data`.
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
            value_start = _skip_blank(data, token.end())
        elif kind == ord(","):
            if key and value_start >= 0:
                found.append(_member(data, key, value_start, token.start()))
            key, value_start = None, -1
        elif key is None:
            key = (data[token.start() + 1 : token.end() - 1], token.start())
    return []


def span_of(member: Member, siblings: list[Member]) -> tuple[int, int]:
    """What to cut for a member to be gone: itself and the one comma that it needed."""
    index = siblings.index(member)
    if index > 0:
        return siblings[index - 1].end, member.end
    if len(siblings) > 1:
        return member.start, siblings[1].start
    return member.start, member.end


def _member(data: bytes, key: tuple[bytes, int], value: int, stop: int) -> Member:
    end = stop
    while end > value and data[end - 1] in _BLANK:
        end -= 1
    return Member(key[0], key[1], value, end)


def _skip_blank(data: bytes, index: int) -> int:
    while index < len(data) and data[index] in _BLANK:
        index += 1
    return index
