"""Pure. The segments of a request: its tools, system prompt and parts of messages in wire order.

No text of a prompt is kept. A segment has a keyed hash of its content, from which the hash of the
prefix up to it follows: `prefix = BLAKE2b(prefix before + hash)`, both of 64 bits. Two requests
share a prefix where these are equal.
"""

import binascii
import zlib
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b
from typing import NamedTuple

import msgspec

OPERATIONS = ("chat", "generate_content")
"""The operations whose requests have segments: OpenTelemetry's names of a chat, and of Gemini's."""
HASH_BYTES = 8
NAME_MAX = 64
"""Characters of a role or of a tool's name."""
HOUR_ASKED = 2
"""`Segment.breakpoint` for an hour."""
DAY_ASKED = 3
"""`Segments.automatic` of a request that asks for a day (OpenAI's `prompt_cache_retention`)."""
SEGMENTS_MAX = 256
PACKED_CHARACTERS_MAX = 65_536
"""Of one request: 256 hashes and names of 64 characters take less."""
UNPACKED_BYTES_MAX = 262_144
VERSION = 2
"""Of what is packed. Those of another version are not read: their hashes are made in another way,
and would look like changes."""
PLAIN_BYTES_MAX = 128
"""The segments of some six parts, which are packed as they are: to deflate them takes four times
as long and saves no byte of four parts; of eight it saves a quarter (measured)."""
_ARRAY_OF_4 = b"\x94"
"""How MessagePack begins what is packed; a deflated text begins in another way."""
WINDOW_BITS = 13
MEMORY_LEVEL = 6
"""Of zlib, which clears 256 KB for its usual ones: with these, the segments of a short request are
packed in 3 µs instead of 27, those of 256 parts in 34 instead of 61, as small (measured)."""


class Kind(IntEnum):
    """Where a segment stands in the request."""

    TOOLS = 0
    SYSTEM = 1
    MESSAGES = 2


class SegmentType(IntEnum):
    """What a segment is."""

    TEXT = 0
    TOOL_CALL = 1
    TOOL_RESULT = 2
    IMAGE = 3
    JOINED = 4
    """Older messages together; `digest` is that of the prefix up to their end."""


class Segment(NamedTuple):
    """One part of a request."""

    kind: Kind
    type: SegmentType
    name: str
    """The tool's name, of a definition or a call; else the role."""
    size: int
    """Bytes of its text, or as compact JSON without cache breakpoints."""
    breakpoint: int
    """The lifetime that a cache breakpoint at its end asks for: 0 none, 1 five minutes, 2 an
    hour."""
    digest: bytes
    """Keyed hash of the content."""


@dataclass(frozen=True, slots=True)
class Segments:
    """The segments of a request."""

    parts: tuple[Segment, ...]
    automatic: int = 0
    """The lifetime that is asked for the whole request; as `Segment.breakpoint`, or `DAY_ASKED`."""

    @property
    def lifetime(self) -> int:
        """The longest that is asked for."""
        return max(self.automatic, *(each.breakpoint for each in self.parts), 0)

    def prefixes(self) -> list[bytes]:
        """The hash of the prefix up to the end of each segment."""
        return _prefixes(self.parts)


type Row = tuple[Kind, SegmentType, str, int, int, bytes]
"""The fields of a `Segment`, which takes eight times as long to make."""


def pack(parts: Sequence[Row], *, automatic: int = 0) -> str:
    """The segments as one compact text. Of more than `SEGMENTS_MAX`, older messages are joined."""
    if len(parts) > SEGMENTS_MAX:
        # Tools and system, at most half, and the newest messages stay.
        messages = (at for at, (kind, *_) in enumerate(parts) if kind is Kind.MESSAGES)
        begun = next(messages, len(parts))
        head = min(begun, SEGMENTS_MAX // 2)
        tail = len(parts) - (SEGMENTS_MAX - head - 1)
        kinds, _, _, sizes, marks, _ = zip(*parts[head:tail], strict=True)
        prefix = _prefixes(parts[:tail])[-1]
        joined = (kinds[-1], SegmentType.JOINED, "", sum(sizes), max(marks), prefix)
        parts = [*parts[:head], joined, *parts[tail:]]
    rows = [each[:-1] for each in parts]
    hashes = b"".join([each[-1] for each in parts])
    packed = msgspec.msgpack.encode((VERSION, automatic, rows, hashes))
    if len(packed) <= PLAIN_BYTES_MAX:
        return b64encode(packed).decode()
    deflate = zlib.compressobj(1, zlib.DEFLATED, WINDOW_BITS, MEMORY_LEVEL)
    return b64encode(deflate.compress(packed) + deflate.flush()).decode()


def unpack(text: str) -> Segments | None:
    """The segments of a packed text; None: it is none, as a foreign bundle may hold."""
    try:
        data = b64decode(text[:PACKED_CHARACTERS_MAX])
        if not data.startswith(_ARRAY_OF_4):
            data = zlib.decompressobj().decompress(data, UNPACKED_BYTES_MAX)
        version, automatic, rows, hashes = msgspec.msgpack.decode(data, type=_Packed)
        if version != VERSION:
            return None
        parts = tuple(
            Segment(Kind(kind), SegmentType(part), name, size, mark, hashes[at * 8 : at * 8 + 8])
            for at, (kind, part, name, size, mark) in enumerate(rows[:SEGMENTS_MAX])
        )
    except (ValueError, zlib.error, binascii.Error, msgspec.MsgspecError):
        return None
    return Segments(parts, automatic)


type _Packed = tuple[int, int, list[tuple[int, int, str, int, int]], bytes]


def _prefixes(parts: Sequence[Row]) -> list[bytes]:
    found: list[bytes] = []
    prefix = bytes(HASH_BYTES)
    for _, part, _, _, _, digest in parts:
        is_joined = part is SegmentType.JOINED
        prefix = digest if is_joined else blake2b(prefix + digest, digest_size=HASH_BYTES).digest()
        found.append(prefix)
    return found
