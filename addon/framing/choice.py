"""Pure. Chooses the framing of an answer: by its content type, checked against its first bytes.

Content types are wrong in both directions: event streams under `application/json` (recorded), plain
JSON errors under `text/event-stream` (Vertex), arrays and lines under `application/json`.
"""

import re
from collections.abc import Callable

from addon.framing.document import BLANKS, NDJSON, Document, JsonArray, Opaque
from addon.framing.eventstream import EventStream, begins_message
from addon.framing.frame import Framing
from addon.framing.grpc import Grpc
from addon.framing.sse import SSE

FRAMINGS: dict[str, Callable[[], Framing]] = {
    "sse": SSE,
    "ndjson": NDJSON,
    "json_array": JsonArray,
    "eventstream": EventStream,
    "grpc": Grpc,
    "document": Document,
    "opaque": Opaque,
}
_SSE_FIELD = re.compile(rb"(?:data|event|id|retry)?:")
_LINES = re.compile(r"ndjson|jsonl|json-seq|stream\+json")
_STREAMS = re.compile(rf"event-?stream|{_LINES.pattern}")
_BEGUN_BYTES_MAX = 4_096
"""Blanks before a body; a body with more of them is framed by its content type."""
_TELLING_BYTES = 12
"""An event stream's prelude; enough of any SSE field name too."""


def is_stream_type(content_type: str) -> bool:
    """Whether a content type is that of a stream: of events, messages or lines."""
    return _STREAMS.search(content_type.lower()) is not None


def framing_of(content_type: str, begun: bytes, *, is_over: bool) -> Framing | None:
    """The framing of a body with these first bytes; None if more bytes are needed."""
    content_type = content_type.lower()
    if content_type.startswith("application/grpc"):  # its text, too, which is decoded
        return FRAMINGS["grpc"]()
    if "amazon.eventstream" in content_type:
        return FRAMINGS["eventstream"]()
    if content_type.startswith(("audio/", "image/", "video/")):
        return Opaque()
    telling = begun.lstrip(BLANKS)
    if telling.startswith((b"{", b"[")):
        is_lines = _LINES.search(content_type)
        kind = "json_array" if telling[0] == b"["[0] else "ndjson" if is_lines else "document"
        return FRAMINGS[kind]()
    if len(telling) < _TELLING_BYTES and not is_over and len(begun) < _BEGUN_BYTES_MAX:
        return None
    if begins_message(begun):
        return FRAMINGS["eventstream"]()
    is_sse = "event-stream" in content_type or _SSE_FIELD.match(telling)
    return FRAMINGS["sse" if is_sse else "document"]()
