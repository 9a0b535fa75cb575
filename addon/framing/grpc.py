"""Pure. gRPC's messages, and the fields of a protobuf message by their numbers.

    https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
    https://protobuf.dev/programming-guides/encoding/

A message is a byte of flags, four bytes of length, the protobuf, which may be compressed (gzip or
deflate: its first bytes tell). gRPC-Web ends with a message whose highest flag is set: the
trailers. Which fields are read says a table; the others are stepped over.
"""

import zlib
from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from addon.framing.frame import Frame, LengthPrefixed

MESSAGE_BYTES_MAX = 4 * 1024 * 1024
"""What gRPC's own clients take at most by default. A longer message is stepped over."""
FIELDS_MAX = 10_000
"""Fields read of one message, in about 10 ms: answers have a few hundred."""
TRAILERS = "trailers"
_PREFIX_BYTES = 5
_COMPRESSED = 1
_IS_TRAILERS = 0x80
_GZIP_OR_ZLIB = 47
"""zlib's window bits for either."""
INFLATED_BYTES_FREE = 16 * 1024
INFLATED_RATIO_MAX = 100
"""Bytes beyond the free ones, for each compressed one. A longer message is not read."""
_VARINT_BYTES_MAX = 10
_FIXED_BYTES = {1: 8, 5: 4}


def is_grpc(content_type: str) -> bool:
    """Whether a content type is that of gRPC, or of gRPC-Web in binary."""
    kind = content_type.lower()
    return kind.startswith("application/grpc") and "-text" not in kind


class FieldKind(Enum):
    """What a field holds."""

    COUNT = "count"
    """A number; absent is 0, as protobuf says."""
    NUMBER = "number"
    """A number; absent is not stated."""
    ITEMS = "items"
    """Repeated numbers, of which we want to know how many."""
    TEXT = "text"
    WORD = "word"
    """A number with a name."""
    MESSAGE = "message"
    MESSAGES = "messages"
    """A repeated message."""
    ANY = "any"
    """What is not read, where a table names all that may stand in a message."""


class Field(NamedTuple):
    """Where a field stands in the JSON that the same provider writes; dots lead into objects."""

    name: str
    kind: FieldKind = FieldKind.COUNT
    of: Mapping[int, Any] = {}  # never changed
    """Number -> field of a message, or number -> name of a word."""


type Message = Mapping[int, Field]


class Grpc(LengthPrefixed):
    """Bytes of a body -> messages."""

    __slots__ = ()
    UNIT = "a gRPC message"
    PREFIX_BYTES = _PREFIX_BYTES
    READ_BYTES_MAX = MESSAGE_BYTES_MAX

    def _length_at(self, data: bytes | bytearray, at: int) -> int | None:
        """The length that a prefix gives; None if its flags are none of gRPC's."""
        if data[at] & ~(_COMPRESSED | _IS_TRAILERS):
            return None
        return _PREFIX_BYTES + int.from_bytes(data[at + 1 : at + _PREFIX_BYTES], "big")

    def _step_over(self, held: bytearray, at: int) -> int:
        self.lost = "what is no gRPC message was not read"
        self._is_over = True
        del held[at:]
        return at

    def count(self, run: bytes) -> int:
        """How many messages a run has."""
        return len(self.split(run))

    def split(self, run: bytes) -> list[bytes]:
        """Cut a run into messages, the last of which may be cut."""
        blocks = []
        at = 0
        while at < len(run):
            length = int.from_bytes(run[at + 1 : at + _PREFIX_BYTES], "big")
            blocks.append(run[at : at + _PREFIX_BYTES + length])
            at += _PREFIX_BYTES + length
        return blocks

    def parse(self, block: bytes) -> Frame | None:
        """The message of a block, inflated; None if it is cut, or compressed in another way."""
        if len(block) < _PREFIX_BYTES:
            return None
        if len(block) - _PREFIX_BYTES != int.from_bytes(block[1:_PREFIX_BYTES], "big"):
            return None
        data = block[_PREFIX_BYTES:]
        if block[0] & _COMPRESSED and data:
            free = INFLATED_BYTES_FREE + INFLATED_RATIO_MAX * len(data)
            inflating = zlib.decompressobj(_GZIP_OR_ZLIB)
            try:
                data = inflating.decompress(data, min(MESSAGE_BYTES_MAX, free))
            except zlib.error:
                data = b""
            if not inflating.eof:
                self.lost = "a compressed gRPC message was not read"
                return None
        return Frame(TRAILERS if block[0] & _IS_TRAILERS else "", data)


def has_first_message(body: bytes) -> bool:
    """Whether the first message of a body has come whole, or is longer than is read."""
    length = int.from_bytes(body[1:_PREFIX_BYTES], "big")
    is_whole = len(body) >= _PREFIX_BYTES + min(length, MESSAGE_BYTES_MAX)
    return len(body) >= _PREFIX_BYTES and is_whole


def read_request(body: bytes, message: Message) -> dict[str, Any] | None:
    """The fields of the one message of a request; None: there are more messages, it is compressed,
    or has a field that the table does not name."""
    if (
        body[:1] != b"\0"
        or int.from_bytes(body[1:_PREFIX_BYTES], "big") != len(body) - _PREFIX_BYTES
    ):
        return None
    return read_message(body[_PREFIX_BYTES:], message, is_strict=True)


def read_message(
    data: bytes, message: Message, *, is_strict: bool = False
) -> dict[str, Any] | None:
    """The fields of a protobuf message that a table names, as JSON has them; None: it is none, or
    has more fields than are read, or, if that `is_strict`, one that the table does not name."""
    try:
        return _read(memoryview(data), message, [FIELDS_MAX], is_strict=is_strict)
    except ValueError:
        return None


def _read(
    data: memoryview, message: Message, left: list[int], *, is_strict: bool
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    at = 0
    while at < len(data):
        left[0] -= 1
        if left[0] < 0:
            raise ValueError("too many fields")
        tag, at = _varint(data, at)
        wire = tag & 7
        value: int | memoryview
        if wire == 0:
            value, at = _varint(data, at)
        else:
            length = _FIXED_BYTES.get(wire)
            if length is None:
                if wire != 2:
                    raise ValueError("no wire type")
                length, at = _varint(data, at)
            value = data[at : at + length]
            at += length
        if at > len(data) or not tag >> 3:
            raise ValueError("a length or a number that lies")
        field = message.get(tag >> 3)
        if field is None and is_strict:
            raise ValueError("a field that is not known")
        if field is not None and wire in {0, 2}:
            _keep(found, field, value, left, is_strict=is_strict)
    return found


def _keep(
    found: dict[str, Any],
    field: Field,
    value: int | memoryview,
    left: list[int],
    *,
    is_strict: bool,
) -> None:
    """Put a field where it stands. A value of another type than the table says is left out."""
    *into, name = field.name.split(".")
    for key in into:
        found = found.setdefault(key, {})
    if isinstance(value, int):
        if field.kind in {FieldKind.COUNT, FieldKind.NUMBER}:
            found[name] = value
        elif field.kind is FieldKind.WORD:
            found[name] = field.of.get(value, str(value))
        elif field.kind is FieldKind.ITEMS:
            found[name] = found.get(name, 0) + 1
    elif field.kind is FieldKind.ITEMS:
        items = sum(byte < 0x80 for byte in value[:FIELDS_MAX])
        found[name] = found.get(name, 0) + items
    elif field.kind is FieldKind.TEXT:
        found[name] = bytes(value[:FIELDS_MAX]).decode("utf-8", "replace")
    elif field.kind in {FieldKind.MESSAGE, FieldKind.MESSAGES}:
        said = _read(value, field.of, left, is_strict=is_strict)
        for its in field.of.values():
            if its.kind is FieldKind.COUNT:
                holder = said
                *path, key = its.name.split(".")
                for step in path:
                    holder = holder.setdefault(step, {})
                holder.setdefault(key, 0)
        if field.kind is FieldKind.MESSAGE:
            found[name] = said
        else:
            found.setdefault(name, []).append(said)


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for step in range(_VARINT_BYTES_MAX):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << (7 * step)
        if byte < 0x80:
            return value, at
    raise ValueError("a varint without an end")
