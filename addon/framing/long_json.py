"""Pure. Long JSON objects as values, in one turn of the event loop: pictures in base64 (2-6 MB),
embeddings (40 MB of numbers) and whole conversations are passed over, figures are read.

    up to LONG_BYTES         no business of this module: a parser reads it whole
    up to WHOLE_BYTES_MAX    msgspec decodes the members that the reader has named, at any depth,
                             and checks the rest without making values of it
    beyond                   the members in the first and in the last END_BYTES

Measured: msgspec passes over 1 GB of numbers or text a second, over 230 MB of members without a
name: 35 ms for the costliest value of `WHOLE_BYTES_MAX`. orjson takes 40 ms for 8 MB of numbers.
"""

import contextlib
import re
from collections.abc import Generator
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from addon.framing import json_values

LONG_BYTES = 64 * 1024
"""Nearly all frames with usage are shorter (52 KB is the longest recorded); a parser takes 1 ms."""
WHOLE_BYTES_MAX = 8 * 1024 * 1024
END_BYTES = 64 * 1024
OBJECTS_MAX = 20_000
"""Braces in a long list that is decoded: 10 ms. Of a list with more the first object is read."""
DEPTH_MAX = 6
"""Twice the depth of a usage object."""
TEXT_BYTES_MAX = 4 * 1024
"""Kept of a long text: a sign that there was some."""
TRIES_MAX = 64
"""Places in the last bytes that are tried as the beginning of the last members."""
_BLANK = b" \t\r\n"
_KEY = re.compile(r'(?<!\s)\s*+(?:,\s*+)?"([^"\\]{1,128})"\s*+:\s*+')
_MEMBER = re.compile(rb',\s*("([^"\\]{1,128})"\s*:)')
_ENDS_VALUE = re.compile(r"(?<!\s)\s*+[,}\]]")


def read(data: bytes, keys: frozenset[str]) -> dict[str, Any] | None:
    """The members of a long object that are named in `keys`, with the objects and lists of objects
    in them; None for what is no object, or is not read."""
    if len(data) <= WHOLE_BYTES_MAX:
        try:
            value = _value(data.strip(_BLANK), keys, DEPTH_MAX)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass  # damaged, or cut: its ends may be whole
        else:
            return value if type(value) is dict else None
    return _ends(data, keys) or None


def _value(data: bytes, keys: frozenset[str], depth: int) -> Any:
    if len(data) <= LONG_BYTES:
        return json_values.value_of(data)
    first = data[:1]
    if first == b'"':
        return data[1:TEXT_BYTES_MAX].decode("utf-8", "replace")
    if not depth or first not in (b"{", b"["):
        return None
    one, several = _decoders(keys)
    if first == b"{":
        return _members(one.decode(data), keys, depth)
    if not data[1 : 1 + END_BYTES].lstrip(_BLANK).startswith(b"{"):
        return []  # numbers or texts: no list of them is a figure
    if data.count(b"{") <= OBJECTS_MAX:
        with contextlib.suppress(msgspec.ValidationError):  # not objects alone
            return [_members(each, keys, depth) for each in several.decode(data)]
    try:
        return [json_values.LENIENT.raw_decode(data[:LONG_BYTES].decode("utf-8", "replace"), 1)[0]]
    except (ValueError, RecursionError):
        return []


def _members(found: msgspec.Struct, keys: frozenset[str], depth: int) -> dict[str, Any]:
    return {
        name: _value(bytes(raw), keys, depth - 1)
        for field, name in zip(found.__struct_fields__, found.__struct_encode_fields__, strict=True)
        if (raw := getattr(found, field)) is not UNSET
    }


@lru_cache(maxsize=64)  # a set of keys for each dialect
def _decoders(keys: frozenset[str]) -> tuple[msgspec.json.Decoder[Any], msgspec.json.Decoder[Any]]:
    """Of an object of which these members are wanted, and of a list of such."""
    names = dict(enumerate(sorted(keys)))
    wanted = msgspec.defstruct(
        "Wanted",
        [(f"f{at}", Raw | msgspec.UnsetType, UNSET) for at in names],
        rename={f"f{at}": name for at, name in names.items()},
    )
    return msgspec.json.Decoder(wanted), msgspec.json.Decoder(list[wanted])  # type: ignore[valid-type]  # made here


def _ends(data: bytes, keys: frozenset[str]) -> dict[str, Any]:
    """The members in the first bytes of an object, up to the first that is not whole there, and
    those in its last bytes, from the first that is outermost there."""
    members: dict[str, Any] = {}
    head = data[:END_BYTES].decode("utf-8", "replace")
    at = head.find("{") + 1
    while at and (key := _KEY.match(head, at)):
        try:
            members[key[1]], at = json_values.LENIENT.raw_decode(head, key.end())
        except (ValueError, RecursionError):
            break
        if not _ENDS_VALUE.match(head, at):  # a number that goes on
            del members[key[1]]
            break
    tail = data[-END_BYTES:]
    for _, member in zip(range(TRIES_MAX), _MEMBER.finditer(tail), strict=False):
        # Outermost: what stands behind it closes exactly the one object.
        if (last := json_values.value_of(b"{" + tail[member.start(1) :])) is not None:
            members.update(last)
            break
    return {name: value for name, value in members.items() if name in keys}


def without_pauses[T](steps: Generator[None, None, T]) -> T:
    """The result of work that pauses, done in one go."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
