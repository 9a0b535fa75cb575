"""Pure. The parts of a chat request in wire order, without their text (`ledger/model/segments.py`),
and the shape that tells its purpose (`requests/purpose.py`), in one reading.

A part's hash leaves out cache breakpoints, which clients move with each turn. Shapes that are read:
OpenAI chat and Responses, Anthropic messages, Bedrock Converse, Gemini.
"""

import hmac
import re
from collections.abc import Generator, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

import orjson

from addon.dialects.request import PARSED_BYTES_MAX
from addon.framing import json_values
from addon.metering.requests.purpose import Shape, shape_of
from ledger.model.segments import DAY_ASKED, HASH_BYTES, NAME_MAX, Kind, Part, Segment, pack

BODY_BYTES_MAX = 4 * 1024 * 1024
VALUES_MAX = 250_000
"""Commas and brackets in a body that is longer than one that is parsed in one step anyway: it has
no more values than that, which take 25 ms. Those in its text count, too."""
PIECES_MAX = 2_000
"""Parts of a request; each costs 2 µs."""
STEP_BYTES = 256 * 1024
STEP_PIECES = 250
SHORT_BYTES = 4_096
MAX_KEY_SIZE = blake2b.MAX_KEY_SIZE
_MARKS = frozenset(("cache_control", "prompt_cache_breakpoint"))
"""The breakpoints of Anthropic and its followers, and of OpenAI."""
_HELD = ("previous_response_id", "conversation", "cachedContent", "cached_content")
"""What names a conversation, or the beginning of one, that the provider has."""
_IDENTIFIER = re.compile(r"[A-Za-z0-9_.:/@-]+")
_TTL = {"5m": 1, "1h": 2}
_CALLS = ("tool_use", "function_call", "custom_tool_call", "server_tool_use", "mcp_call")
_RESULTS = (
    "tool_result",
    "function_call_output",
    "custom_tool_call_output",
    "web_search_tool_result",
)
_TEXTS = ("text", "input_text", "output_text")
_CALLS_AND_RESULTS = _CALLS + _RESULTS
_IMAGES = ("image", "image_url", "input_image", "document", "input_file", "file", "input_audio")
_KEYS = {  # Bedrock's Converse and Gemini name a part by its only key
    "toolUse": Part.TOOL_CALL,
    "functionCall": Part.TOOL_CALL,
    "toolResult": Part.TOOL_RESULT,
    "functionResponse": Part.TOOL_RESULT,
    "image": Part.IMAGE,
    "inlineData": Part.IMAGE,
    "inline_data": Part.IMAGE,
    "fileData": Part.IMAGE,
    "document": Part.IMAGE,
}


type _Piece = tuple[Kind, Part, str, object, int]
"""Kind, part, name, content without breakpoints, and the lifetime that a breakpoint asks for."""
_CACHE_POINT = "cachePoint"
"""The key of Bedrock's breakpoints, which are parts of their own."""
_POINT = object()
"""The content of such a part."""


class ChatRequest(NamedTuple):
    """What is read of a chat request."""

    segments: str | None = None
    """Packed. None: it is no chat request, it is longer or has more values than is read, or the
    provider has a part of the conversation and the request has not."""
    shape: Shape | None = None
    """For its purpose; None: the body is not read."""
    values: dict[str, Any] | None = None
    """The parsed body."""


NOT_READ = ChatRequest()


def read_in_steps(body: bytes, secret: bytes) -> Generator[None, None, ChatRequest]:
    """What is kept of a decoded chat request. With pauses: between two, the body is passed once, by
    native code, or `STEP_PIECES` parts are read."""
    if not secret or not 0 < len(body) <= BODY_BYTES_MAX or body.startswith(b"--"):
        return NOT_READ
    if len(body) > PARSED_BYTES_MAX and (yield from _values_in_steps(body)) > VALUES_MAX:
        return NOT_READ
    values = json_values.strict_loads(body)
    yield
    if not isinstance(values, dict):
        return NOT_READ
    shape = shape_of(values)
    if not _messages_of(values) or any(values.get(name) for name in _HELD):
        return ChatRequest(None, shape, values)
    return ChatRequest((yield from _segments_in_steps(values, secret)), shape, values)


def _segments_in_steps(values: dict[str, Any], secret: bytes) -> Generator[None, None, str | None]:
    found: list[Segment] = []
    read = 0
    for kind, part, name, content, mark in _pieces(values):
        if content is _POINT:
            if found:
                found[-1] = found[-1]._replace(breakpoint=mark)
            continue
        try:
            data = orjson.dumps(content)
        except TypeError:  # it is nested deeper than orjson writes
            return None
        if len(data) > STEP_BYTES:
            yield
        found.append(Segment(kind, part, name, len(data), mark, _digest_of(data, secret)))
        if len(found) > PIECES_MAX:
            return None
        read += len(data)
        if read > STEP_BYTES or len(found) % STEP_PIECES == 0:
            read = 0
            yield
    if not found:
        return None
    is_for_a_day = values.get("prompt_cache_retention") == "24h"
    return pack(
        found, automatic=DAY_ASKED if is_for_a_day else _ttl_of(values.get("cache_control"))
    )


def _digest_of(data: bytes, secret: bytes) -> bytes:
    """The keyed hash. BLAKE2 starts in a third of the time of an HMAC; SHA-256 takes two thirds of
    its time a byte, where the processor has instructions for it."""
    if len(data) <= SHORT_BYTES:
        return blake2b(data, key=secret[:MAX_KEY_SIZE], digest_size=HASH_BYTES).digest()
    return hmac.digest(secret, data, "sha256")[:HASH_BYTES]


def _values_in_steps(body: bytes) -> Generator[None, None, int]:
    count = 0
    for mark in (b",", b"[", b"{"):
        count += body.count(mark)
        yield
    return count


def _pieces(values: dict[str, Any]) -> Iterator[_Piece]:
    tools = values.get("tools")
    if not isinstance(tools, list):
        config = values.get("toolConfig")
        tools = _list(config.get("tools")) if isinstance(config, dict) else []
    for tool in tools:
        declared = tool.get("functionDeclarations") if isinstance(tool, dict) else None
        for each in declared if isinstance(declared, list) else (tool,):
            yield _piece(Kind.TOOLS, Part.TEXT, _tool_name(each), each)
    for name in ("system", "instructions", "systemInstruction", "system_instruction"):
        given = values.get(name)
        if isinstance(given, dict):
            given = given.get("parts")
        for each in _parts(given):
            yield _piece(Kind.SYSTEM, Part.TEXT, "system", each)
    messages = _messages_of(values)
    is_head = True
    for message in _parts(messages):
        role = _name(message.get("role")) if isinstance(message, dict) else "user"
        is_head = is_head and role in ("system", "developer")
        kind = Kind.SYSTEM if is_head else Kind.MESSAGES
        if isinstance(message, dict):
            yield from _of_message(message, role, kind)
        else:
            yield kind, Part.TEXT, role, (role, message), 0


def _messages_of(values: dict[str, Any]) -> Any:
    return values.get("messages", values.get("contents", values.get("input")))


def _of_message(message: dict[str, Any], role: str, kind: Kind) -> Iterator[_Piece]:
    content = message.get("content", message.get("parts"))
    if (not role and content is None) or message.get("type") in _CALLS_AND_RESULTS:
        yield _piece(kind, *_part_of(message, role or "assistant"), message)
        return
    is_result = role in ("tool", "function")
    for each in _parts(content):
        part, name = _part_of(each, role)
        if is_result:
            part = Part.TOOL_RESULT
        yield _piece(kind, part, name, each, role)
    for call in _list(message.get("tool_calls")):
        yield _piece(kind, Part.TOOL_CALL, _tool_name(call), call, role)


def _piece(kind: Kind, part: Part, name: str, value: Any, role: str | None = None) -> _Piece:
    """A part as it is hashed. `role`: of the message that has it, which breaks a cache, too."""
    content, mark = value, 0
    if isinstance(value, dict):
        if _CACHE_POINT in value:
            return kind, part, name, _POINT, _ttl_of(value[_CACHE_POINT]) or 1
        content, mark = _without_breakpoints(value)
    return kind, part, name, content if role is None else (role, content), mark


def _part_of(value: Any, role: str) -> tuple[Part, str]:
    """What a part is, and its role or, of a call, the name of the tool."""
    if not isinstance(value, dict):
        return Part.TEXT, role
    shape = value.get("type")
    if shape in _CALLS:
        return Part.TOOL_CALL, _name(value.get("name")) or role
    if shape in _RESULTS:
        return Part.TOOL_RESULT, role
    if shape in _IMAGES:
        return Part.IMAGE, role
    if shape is None:
        for key, part in _KEYS.items():
            if key in value:
                held = value[key]
                called = _name(held.get("name")) if isinstance(held, dict) else ""
                return part, (called or role) if part is Part.TOOL_CALL else role
    return Part.TEXT, role


def _without_breakpoints(value: dict[str, Any]) -> tuple[Any, int]:
    """A part without breakpoints in it and in the parts of its content (a tool's result), and
    its lifetime: 0 none, 1 five minutes, 2 an hour."""
    bare, mark = _bare(value)
    content = bare.get("content") if isinstance(bare, dict) else None
    if isinstance(content, list):
        inner = [_bare(each) for each in content[:PIECES_MAX]]
        mark = max(mark, *(ttl for _, ttl in inner), 0)
        parts = [*(each for each, _ in inner), *content[PIECES_MAX:]]
        is_text = len(parts) == 1 and isinstance(parts[0], str)
        bare = {**bare, "content": parts[0] if is_text else parts}
    return bare, mark


def _bare(value: Any) -> tuple[Any, int]:
    """A part of a content without its breakpoint, and its lifetime. A text part without anything
    else is its text: clients write the one for the other where a breakpoint moves on."""
    if not isinstance(value, dict):
        return value, 0
    ttl = 0
    if not _MARKS.isdisjoint(value):
        ttl = max(_ttl_of(value.get(name)) for name in _MARKS)
        value = {key: each for key, each in value.items() if key not in _MARKS}
    if len(value) == 2 and value.get("type") in _TEXTS and isinstance(value.get("text"), str):
        value = value["text"]
    return value, ttl


def _ttl_of(control: Any) -> int:
    if not isinstance(control, dict):
        return 0
    ttl = control.get("ttl")
    return _TTL.get(ttl, 1) if isinstance(ttl, str) else 1


def _tool_name(tool: Any) -> str:
    if not isinstance(tool, dict):
        return ""
    for key in ("function", "toolSpec"):
        if isinstance(tool.get(key), dict):
            tool = tool[key]
    return _name(tool.get("name")) or _name(tool.get("type")) or _name(next(iter(tool), ""))


def _name(value: Any) -> str:
    """A name as every API wants it; anything else may be text, of which nothing is kept."""
    if not isinstance(value, str) or not _IDENTIFIER.fullmatch(value[:NAME_MAX]):
        return ""
    return value[:NAME_MAX]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _parts(value: Any) -> list[Any]:
    """A text alone is one part."""
    return [value] if isinstance(value, str) else _list(value)
