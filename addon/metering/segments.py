"""Pure. The parts of a chat request in wire order, without their text (`ledger/model/segments.py`),
and the shape that tells its purpose (`dialects/agents.py`), in one reading.

A part's hash leaves out cache breakpoints, which clients move with each turn. Shapes that are read:
OpenAI chat and Responses, Anthropic messages, Bedrock Converse, Gemini.
"""

import hashlib
import re
from collections.abc import Generator, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from addon.dialects.agents import Shape, shape_of
from addon.dialects.request import PARSED_BYTES_MAX
from addon.framing import json_values
from ledger.model.segments import (
    DAY_ASKED,
    HASH_BYTES,
    NAME_MAX,
    Kind,
    Row,
    Segment,
    SegmentType,
    pack,
)

BODY_BYTES_MAX = 4 * 1024 * 1024
VALUES_MAX = 250_000
"""Commas and brackets in a body that is longer than one that is parsed in one step anyway: it has
no more values than that, which take 25 ms. Those in its text count, too."""
PIECES_MAX = 2_000
"""Parts of a request; each costs 2 µs."""
STEP_BYTES = 256 * 1024
STEP_PIECES = 250
_MARKS = frozenset(("cache_control", "prompt_cache_breakpoint"))
"""The breakpoints of Anthropic and its followers, and of OpenAI."""
_HELD = ("previous_response_id", "conversation", "cachedContent", "cached_content")
"""What names a conversation, or the beginning of one, that the provider has."""
_IDENTIFIER = re.compile(r"[A-Za-z0-9_.:/@-]+")
_TTL = {"5m": 1, "1h": 2}
_TEXTS = ("text", "input_text", "output_text")
_TYPES = {
    **dict.fromkeys(
        ("tool_use", "function_call", "custom_tool_call", "server_tool_use", "mcp_call"),
        SegmentType.TOOL_CALL,
    ),
    "tool_result": SegmentType.TOOL_RESULT,
    "function_call_output": SegmentType.TOOL_RESULT,
    "custom_tool_call_output": SegmentType.TOOL_RESULT,
    "web_search_tool_result": SegmentType.TOOL_RESULT,
    **dict.fromkeys(
        ("image", "image_url", "input_image", "document", "input_file", "file", "input_audio"),
        SegmentType.IMAGE,
    ),
}
"""What a part with a `type` is; any other is text."""
_CALLS = (SegmentType.TOOL_CALL, SegmentType.TOOL_RESULT)
"""May stand among the messages, without one."""
_KEYS = {  # Bedrock's Converse and Gemini name a part by its only key
    "toolUse": SegmentType.TOOL_CALL,
    "functionCall": SegmentType.TOOL_CALL,
    "toolResult": SegmentType.TOOL_RESULT,
    "functionResponse": SegmentType.TOOL_RESULT,
    "image": SegmentType.IMAGE,
    "inlineData": SegmentType.IMAGE,
    "inline_data": SegmentType.IMAGE,
    "fileData": SegmentType.IMAGE,
    "document": SegmentType.IMAGE,
}
_CACHE_POINT = "cachePoint"
"""The key of Bedrock's breakpoints, which are parts of their own."""
_TEXT_ALONE = frozenset(("role", "content"))
"""The keys of most messages; then the content is a text."""
_READ = frozenset(
    ("role", "content", "parts", "tool_calls", "tool_call_id", "type", "id", "status")
)
"""The keys of a message that are read, or say no more than a few tokens."""
_RESULT_ROLES = ("tool", "function")
_POINT = object()
"""The content of a part that is such a breakpoint."""
_UNREAD = object()
"""The content of a part that stands for what is not read of a message."""
_TEXT, _JSON = b"\0t", b"\0j"
"""Behind the role, before the content, in what is hashed."""

type _Piece = tuple[Kind, SegmentType, str, str, Any, int]
"""Kind, part, name, role (empty where there is none), content without breakpoints, and the lifetime
that a breakpoint asks for."""


class ChatRequest(NamedTuple):
    """What is read of a chat request."""

    segments: str | None = None
    """Packed. None: it is no chat request, it is longer or has more values than is read, or the
    provider has a part of the conversation and the request has not."""
    shape: Shape | None = None
    """For its purpose; None: the body is not read."""
    values: dict[str, Any] | None = None
    """The parsed body."""
    parts: Sequence[Row] = ()
    """What is packed, if nothing else of the messages takes tokens."""


NOT_READ = ChatRequest()


def read_in_steps(body: bytes, secret: bytes) -> Generator[None, None, ChatRequest]:
    """What is kept of a decoded chat request. With pauses where it is long: between two, the body
    is passed once, by native code, or `STEP_PIECES` parts are read."""
    if not secret or not 0 < len(body) <= BODY_BYTES_MAX or body.startswith(b"--"):
        return NOT_READ
    if len(body) > PARSED_BYTES_MAX:
        count = len(body) - len(body.translate(None, b",[{"))
        yield
        if count > VALUES_MAX:
            return NOT_READ
    values = json_values.strict_loads(body)
    if len(body) > STEP_BYTES:
        yield
    if not isinstance(values, dict):
        return NOT_READ
    shape = shape_of(values)
    if not _messages_of(values) or any(map(values.get, _HELD)):
        return ChatRequest(None, shape, values)
    return (yield from _segments_in_steps(values, secret))._replace(shape=shape, values=values)


def _segments_in_steps(values: dict[str, Any], secret: bytes) -> Generator[None, None, ChatRequest]:
    keyed = hashlib.sha256(hashlib.sha256(secret).digest().ljust(64))  # a block of SHA-256
    begun: dict[tuple[str, bool], hashlib._Hash] = {}
    found: list[Row] = []
    read = 0
    is_whole = True
    for kind, part, name, role, content, mark in _pieces(values):
        if content is _POINT:
            if found:
                found[-1] = Segment(*found[-1])._replace(breakpoint=mark)
            continue
        if content is _UNREAD:
            is_whole = False
            continue
        is_text = isinstance(content, str)
        try:
            data = content.encode() if is_text else orjson.dumps(content)
        except TypeError:  # it is nested deeper than orjson writes
            return NOT_READ
        size = len(data)
        if size > STEP_BYTES:
            yield
        if (digest := begun.get((role, is_text))) is None:
            digest = begun[role, is_text] = keyed.copy()
            digest.update(role.encode() + (_TEXT if is_text else _JSON))
        found.append((kind, part, name, size, mark, _digest_of(digest, data)))
        if len(found) > PIECES_MAX:
            return NOT_READ
        read += size
        if read > STEP_BYTES or len(found) % STEP_PIECES == 0:
            read = 0
            yield
    if not found:
        return NOT_READ
    is_for_a_day = values.get("prompt_cache_retention") == "24h"
    packed = pack(
        found, automatic=DAY_ASKED if is_for_a_day else _ttl_of(values.get("cache_control"))
    )
    return ChatRequest(packed, parts=found if is_whole else ())


def _digest_of(begun: "hashlib._Hash", data: bytes) -> bytes:
    """The keyed hash. The key is a block of its own in front, and three quarters of the digest stay
    unknown, so that nobody can extend it. An HMAC, or BLAKE2, takes up to twice as long."""
    digest = begun.copy()
    digest.update(data)
    return digest.digest()[:HASH_BYTES]


def _pieces(values: dict[str, Any]) -> Iterator[_Piece]:
    tools = values.get("tools")
    if not isinstance(tools, list):
        config = values.get("toolConfig")
        tools = _list(config.get("tools")) if isinstance(config, dict) else []
    yield from _of_tools(tools)
    for name in ("system", "instructions", "systemInstruction", "system_instruction"):
        if (given := values.get(name)) is None:
            continue
        if isinstance(given, dict):
            given = given.get("parts")
        for each in _parts(given):
            yield _piece(Kind.SYSTEM, SegmentType.TEXT, "system", each)
    is_head = True
    for message in _parts(_messages_of(values)):
        if not isinstance(message, dict):
            is_head = False
            yield Kind.MESSAGES, SegmentType.TEXT, "user", "user", message, 0
            continue
        role = _name(message.get("role"))
        is_head = is_head and role in ("system", "developer")
        if is_head and message.get("type") == "additional_tools":  # Codex
            yield from _of_tools(_list(message.get("tools")))
            continue
        kind = Kind.SYSTEM if is_head else Kind.MESSAGES
        if isinstance(content := message.get("content"), str) and message.keys() <= _TEXT_ALONE:
            part = SegmentType.TOOL_RESULT if role in _RESULT_ROLES else SegmentType.TEXT
            yield kind, part, role, role, content, 0
        else:
            yield from _of_message(message, role, kind)


def _of_tools(tools: list[Any]) -> Iterator[_Piece]:
    for tool in tools:
        held = tool if isinstance(tool, dict) else {}
        declared = held.get("functionDeclarations")
        if held.get("type") == "namespace" and isinstance(held.get("tools"), list):
            declared = held["tools"]
            named = {key: each for key, each in held.items() if key != "tools"}
            yield _piece(Kind.SYSTEM, SegmentType.TEXT, "system", named)
        for each in declared if isinstance(declared, list) else (tool,):
            yield _piece(Kind.TOOLS, SegmentType.TEXT, _tool_name(each), each)


def _messages_of(values: dict[str, Any]) -> Any:
    return values.get("messages", values.get("contents", values.get("input")))


def _of_message(message: dict[str, Any], role: str, kind: Kind) -> Iterator[_Piece]:
    content, calls = message.get("content", message.get("parts")), message.get("tool_calls")
    if (not role and content is None) or _typed(message.get("type")) in _CALLS:
        yield _piece(kind, *_part_of(message, role or "assistant"), message)
        return
    if (
        any(message[key] for key in message.keys() - _READ)
        or ("parts" in message and "content" in message)
        or (content and not isinstance(content, list | str))
        or (calls and not isinstance(calls, list))
    ):
        yield kind, SegmentType.TEXT, "", role, _UNREAD, 0
    is_result = role in _RESULT_ROLES
    text_part = SegmentType.TOOL_RESULT if is_result else SegmentType.TEXT
    for each in _parts(content):
        bare = _text_of(each)
        if isinstance(bare, str):
            yield kind, text_part, role, role, bare, 0
            continue
        part, name = _part_of(each, role)
        yield _piece(kind, SegmentType.TOOL_RESULT if is_result else part, name, each, role)
    for call in _list(calls):
        yield _piece(kind, SegmentType.TOOL_CALL, _tool_name(call), call, role)


def _text_of(value: Any) -> Any:
    """The text of a text part that has nothing else: clients write the one for the other where a
    breakpoint moves on. Any other value as it is."""
    if isinstance(value, dict) and len(value) == 2 and value.get("type") in _TEXTS:
        text = value.get("text")
        return text if isinstance(text, str) else value
    return value


def _piece(kind: Kind, part: SegmentType, name: str, value: Any, role: str = "") -> _Piece:
    """A part as it is hashed. `role`: of the message that has it, which breaks a cache, too."""
    if not isinstance(value, dict):
        return kind, part, name, role, value, 0
    if _CACHE_POINT in value:
        return kind, part, name, role, _POINT, _ttl_of(value[_CACHE_POINT]) or 1
    # Without breakpoints in it and in the parts of its content (a tool's result).
    bare, mark = _bare(value)
    content = bare.get("content") if isinstance(bare, dict) else None
    if isinstance(content, list):
        inner = [_bare(each) for each in content[:PIECES_MAX]]
        mark = max(mark, *(ttl for _, ttl in inner), 0)
        parts = [*(each for each, _ in inner), *content[PIECES_MAX:]]
        is_text = len(parts) == 1 and isinstance(parts[0], str)
        bare = {**bare, "content": parts[0] if is_text else parts}
    return kind, part, name, role, bare, mark


def _part_of(value: Any, role: str) -> tuple[SegmentType, str]:
    """What a part is, and its role or, of a call, the name of the tool."""
    if not isinstance(value, dict):
        return SegmentType.TEXT, role
    shape = value.get("type")
    if shape is None:
        key = next((key for key in value if key in _KEYS), "")
        part, called = _KEYS.get(key, SegmentType.TEXT), value.get(key)
    else:
        part, called = _typed(shape), value
    if part is SegmentType.TOOL_CALL and isinstance(called, dict):
        return part, _name(called.get("name")) or role
    return part, role


def _typed(shape: Any) -> SegmentType:
    return _TYPES.get(shape, SegmentType.TEXT) if isinstance(shape, str) else SegmentType.TEXT


def _bare(value: Any) -> tuple[Any, int]:
    """A part of a content without its breakpoint, and its lifetime."""
    if not isinstance(value, dict):
        return value, 0
    ttl = 0
    if not _MARKS.isdisjoint(value):
        ttl = max(_ttl_of(value.get(name)) for name in _MARKS)
        value = {key: each for key, each in value.items() if key not in _MARKS}
    return _text_of(value), ttl


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
    return _identifier(value[:NAME_MAX]) if isinstance(value, str) else ""


@lru_cache(maxsize=256)
def _identifier(text: str) -> str:
    return text if _IDENTIFIER.fullmatch(text) else ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _parts(value: Any) -> list[Any]:
    """A text alone is one part."""
    if isinstance(value, list):
        return value
    return [value] if isinstance(value, str) else []
