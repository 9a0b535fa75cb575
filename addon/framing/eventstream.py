"""Pure. The binary event stream of AWS (Bedrock), checksums checked.

https://docs.aws.amazon.com/AmazonS3/latest/API/RESTSelectObjectAppendix.html

A message is: total length, header length, CRC-32 of these two; headers; payload; CRC-32 of all
before. A message whose own checksum is wrong is skipped. If its prelude is wrong, its length cannot
be trusted, and reading continues at the next valid prelude.
"""

import re
from zlib import crc32

from addon.framing import json_values
from addon.framing.frame import Frame, LengthPrefixed

MESSAGE_BYTES_MAX = 24 * 1024 * 1024
"""AWS' own limit: 16 MB of payload with its headers, and room."""
READ_BYTES_MAX = 1024 * 1024
"""A longer message is skipped: it holds a picture or a document, and usage comes in a message of
its own."""
SEARCH_BYTES_MAX = 128 * 1024
"""How much of one stream is searched for the next message after a bad prelude. After that the rest
is not read: it is not an event stream."""
CANDIDATES_MAX = 2_048
"""Places in one stream that are tried as the beginning of a message after a bad prelude, at two
microseconds each and three times over. Payloads, which are text, have none."""
HEADERS_MAX = 64
"""Headers read of one message; Bedrock sends three."""
_PRELUDE_BYTES = 12
_POSSIBLE_PRELUDE = re.compile(
    rb"(?=[\x00\x01](?!\x00\x00[\x00-\x0f])[\x00-\xff]{3}[\x00\x01][\x00-\xff]{7})"
)
"""A length of 16 or more and below 32 MB, and a length of headers below 32 MB."""
_OVERHEAD_BYTES = 16
_NUMBER_BYTES = {2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Header value types of a fixed size; 0 and 1 are true and false, 6 bytes, 7 text."""


class EventStream(LengthPrefixed):
    """Bytes of an event stream -> messages."""

    __slots__ = ("_candidates_left", "_searched_bytes")
    UNIT = "an event-stream message"
    PREFIX_BYTES = _PRELUDE_BYTES
    READ_BYTES_MAX = READ_BYTES_MAX

    def __init__(self) -> None:
        super().__init__()
        self._searched_bytes = 0
        self._candidates_left = CANDIDATES_MAX

    def _length_at(self, data: bytes | bytearray, at: int) -> int | None:
        """The length that a prelude gives; None if there is no valid one."""
        return _message_length(data, at)

    def _step_over(self, held: bytearray, at: int) -> int:
        self.lost = "an event-stream message with a bad prelude was skipped"
        found, tried = _next_prelude(held, at + 1, self._candidates_left)
        self._searched_bytes += found - at
        self._candidates_left -= tried
        self._is_over = self._searched_bytes > SEARCH_BYTES_MAX or self._candidates_left <= 0
        if self._candidates_left <= 0:
            del held[found:]
        return found

    def count(self, run: bytes) -> int:
        """How many messages of a run are whole, with both checksums right."""
        return sum(_is_sound(block) for block in self.split(run))

    def split(self, run: bytes) -> list[bytes]:
        """Cut a run into messages; bytes that are no message come as a block too."""
        blocks = []
        at = 0
        while at < len(run):
            length = _message_length(run, at) if len(run) - at >= _PRELUDE_BYTES else None
            end = at + length if length is not None else _next_prelude(run, at + 1)[0]
            blocks.append(run[at:end])
            at = end
        return blocks

    def parse(self, block: bytes) -> Frame | None:
        """The frame of a message; None if it is incomplete or a checksum is wrong."""
        if not _is_sound(block):
            if _message_length(block, 0) == len(block):
                self.lost = "an event-stream message with a bad checksum was skipped"
            return None
        headers_end = _PRELUDE_BYTES + int.from_bytes(block[4:8], "big")
        # Text headers by name; the others have a size and no meaning here.
        headers: dict[str, str] = {}
        at, data = _PRELUDE_BYTES, block[:headers_end]
        for _ in range(HEADERS_MAX):
            if at >= headers_end:
                break
            name_end = at + 1 + data[at]
            name = data[at + 1 : name_end].decode("utf-8", "replace")
            kind = data[name_end] if name_end < headers_end else 0
            at = name_end + 1
            if kind in (6, 7):
                value_end = at + 2 + int.from_bytes(data[at : at + 2], "big")
                if kind == 7:
                    headers[name] = data[at + 2 : value_end].decode("utf-8", "replace")
                at = value_end
            else:
                at += _NUMBER_BYTES.get(kind, 0)
        payload = block[headers_end:-4]
        if headers.get(":message-type") == "error":
            # It has no payload: the error is in the headers.
            body = {"code": headers.get(":error-code"), "message": headers.get(":error-message")}
            return Frame("error", json_values.dumps(body).encode())
        return Frame(headers.get(":event-type") or headers.get(":exception-type") or "", payload)


def begins_message(data: bytes) -> bool:
    """Whether a body begins as an event stream does; for answers whose content type is wrong."""
    if len(data) < _PRELUDE_BYTES or data[0] > MESSAGE_BYTES_MAX >> 24:
        return False  # text, nearly always
    return _message_length(data, 0) is not None


def _is_sound(block: bytes) -> bool:
    """Whether a block is one whole message, both checksums right."""
    is_whole = len(block) >= _OVERHEAD_BYTES and _message_length(block, 0) == len(block)
    return is_whole and crc32(block[:-4]) == int.from_bytes(block[-4:], "big")


def _message_length(data: bytes | bytearray, at: int) -> int | None:
    """The length that a prelude gives; None if there is no valid one."""
    prelude = data[at : at + _PRELUDE_BYTES]
    length = int.from_bytes(prelude[:4], "big")
    headers_length = int.from_bytes(prelude[4:8], "big")
    if not headers_length + _OVERHEAD_BYTES <= length <= MESSAGE_BYTES_MAX:
        return None
    return length if crc32(prelude[:8]) == int.from_bytes(prelude[8:], "big") else None


def _next_prelude(
    data: bytes | bytearray, at: int, candidates_max: int = CANDIDATES_MAX
) -> tuple[int, int]:
    """The next place at or after `at` that a message could begin, short of a prelude the end; and
    how many places were tried. After `candidates_max` of them the place is where the search ended.

    A length below 16 MB begins with a zero byte, and one below 24 MB with at most a one; so does
    the length of the headers. Zeros alone, which are most of what is searched, are no length.
    """
    last = len(data) - _PRELUDE_BYTES
    tried = 0
    while at <= last:
        if tried >= candidates_max:
            return at, tried
        found = _POSSIBLE_PRELUDE.search(data, at)
        if found is None:
            break
        at = found.start()
        if _message_length(data, at) is not None:
            return at, tried
        tried += 1
        at += 1
    return max(at, last + 1), tried
