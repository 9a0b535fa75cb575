"""Edge (its own table). What a request says that bounds its cost, and the limits of its model.

Bytes bound tokens: a token has at least one, and the JSON around a text has more bytes than the
template around it has tokens. What does not stand in the request as text is bounded apart.
"""

import re
import tomllib
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from addon.dialects.counts import lookup, object_at, objects_at
from addon.dialects.dialect import CostLimits, Dialect
from addon.framing import json_values
from ledger.model.usage import count_of

MODEL_LIMITS = Path(__file__).with_name("model_limits.toml")
OPERATIONS = ("chat", "text_completion", "generate_content", "embeddings")
"""What is billed by tokens alone; any other has no bound."""
WALKED_MAX = 20_000
"""Values of a request that are looked through for pictures, in 5 ms; with more, it may have any."""
SEARCHES = ("web_search", "file_search")
"""Beginnings of the provider's own tools whose price is one of a call."""
_MEDIA = re.compile(
    rb'"(?:image|image_url|input_image|inlineData|inline_data|fileData|file_data|document|file'
    rb'|input_file|input_audio|audio|file_id|video|video_url|media|search_result|url)"'
)
"""Members and types of what is no text. An escaped key is looked for apart."""
_PICTURES = frozenset({"image", "image_url", "input_image"})
_FILES = frozenset(
    {"inlineData", "inline_data", "fileData", "file_data", "document", "file", "input_file"}
    | {"input_audio", "audio", "file_id", "video", "video_url", "media", "container_upload"}
)
_NAMED = frozenset({"name", "function", "input_schema"})
"""Members of a tool that the client describes itself."""
_CALLS = frozenset({"tool_use", "function_call", "functionCall", "toolUse", "custom_tool_call"})
"""What the client's tools were called with: text, whatever its members are called."""
_VENDOR = re.compile(r"^(?:[a-z-]{2,8}\.)?(?:anthropic|openai)\.")
"""Before a model's name at Amazon."""


class ModelLimits(NamedTuple):
    """In tokens; None: not known."""

    context: int | None = None
    output: int | None = None


class Limits(Struct, frozen=True, kw_only=True):
    """What a request says."""

    input_bytes: int = 0
    output_tokens: int | None = None
    """Of one answer; None: it does not say."""
    answers: int = 1
    pictures: int = 0
    is_whole: bool = True
    """False: input of an unknown size is not in the request, or is no text."""
    searches: int = 0
    """Uses of the provider's own tools."""
    is_kept_long: bool = False
    """It asks for a cache that is kept for an hour, which costs more to write."""
    unbounded: str = ""
    """Why nothing bounds its cost; empty: something does."""


@cache
def _model_rows() -> tuple[tuple[tuple[str, ...], ModelLimits], ...]:
    rows = tomllib.loads(MODEL_LIMITS.read_text(encoding="utf-8"))["model"]
    return tuple((tuple(row["models"]), ModelLimits(row["context"], row["output"])) for row in rows)


@cache
def limits_of_model(model: str) -> ModelLimits:
    """The published limits of a model, by its name on the wire."""
    name = _VENDOR.sub("", model.lower().rpartition("/")[2].partition(":")[0])
    if name.startswith("claude"):
        name = name.replace(".", "-")
    for globs, limits in _model_rows():
        if any(fnmatchcase(name, glob) for glob in globs):
            return limits
    return ModelLimits()


def read_limits(dialect: Dialect, values: dict[str, Any], body: bytes) -> Limits:
    """What a decoded request says; `values`: its members."""
    where = dialect.cost_limits
    if where is None or dialect.operation not in OPERATIONS or body.startswith(b"--"):
        return Limits(unbounded=f"nothing in a request of {dialect.name} bounds its cost")
    if not values:
        return Limits(unbounded="the request is not read")
    inner = object_at(values, "request")  # of Code Assist
    if inner is not None and "contents" in inner:
        values = inner
    for name in where.unbounded:
        if values.get(name):
            return Limits(unbounded=f"{name} lets the provider do more than the request says")
    searches, unbounded = _tools(where, values)
    if unbounded:
        return Limits(unbounded=unbounded)
    counts = [count_of(lookup(values, path)) for path in where.output]
    answers = [count_of(lookup(values, path)) or 1 for path in where.answers]
    many = values.get(where.inputs) if where.inputs else None
    pictures, is_text = _media_in(values, body)
    return Limits(
        input_bytes=len(body),
        output_tokens=max((each for each in counts if each), default=None),
        answers=max(answers, default=1) * (len(many) if isinstance(many, list) and many else 1),
        pictures=pictures,
        is_whole=is_text and not any(values.get(name) for name in where.kept),
        searches=searches,
        is_kept_long=b'"1h"' in body,
    )


def response_asked(message: bytes) -> dict[str, Any] | None:
    """The parameters of a response that a client's message of a WebSocket asks for."""
    if b"response.create" not in message and not json_values.has_escaped_key(message):
        return None
    body = json_values.loads(message)
    if body is None or body.get("type") != "response.create":
        return None
    return object_at(body, "response") or body  # Realtime wraps the parameters


def _tools(where: CostLimits, values: dict[str, Any]) -> tuple[int, str]:
    """The uses that the provider's own tools are allowed, or why they have no bound."""
    uses = 0
    stated = [count_of(lookup(values, path)) for path in where.tool_uses]
    for tool in (*objects_at(values, "tools"), *objects_at(values.get("toolConfig"), "tools")):
        kind = tool.get("type")
        if isinstance(kind, str):
            if kind.startswith(where.clients_tools):
                continue
        elif _NAMED & tool.keys() or all(key.startswith(where.clients_tools) for key in tool):
            continue
        else:
            kind = next(iter(tool), "")
        most = next((each for each in (count_of(tool.get("max_uses")), *stated) if each), None)
        if most is None:
            return 0, f"the provider's own tool {kind[:40]} has no limit of uses"
        if not kind.startswith(SEARCHES):
            return 0, f"what the provider's own tool {kind[:40]} costs has no bound"
        uses += most
    return uses, ""


def _media_in(values: dict[str, Any], body: bytes) -> tuple[int, bool]:
    """How many pictures the request has, and whether all the rest is text."""
    if not _MEDIA.search(body) and not json_values.has_escaped_key(body):
        return 0, True
    pictures, walked = 0, 0
    left: list[Any] = [
        values.get(name)
        for name in ("messages", "input", "contents", "system", "systemInstruction", "prompt")
    ] + [value for name, value in values.items() if name in ("requests", "content", "images")]
    while left:
        value = left.pop()
        walked += 1
        if walked > WALKED_MAX:
            return pictures, False
        if isinstance(value, list):
            left += value
        elif isinstance(value, dict):
            kind = value.get("type")
            if kind in _CALLS:
                continue
            if kind in _PICTURES or not _PICTURES.isdisjoint(value):
                pictures += 1
            elif kind in _FILES or not _FILES.isdisjoint(value):
                return pictures, False
            else:
                left += [each for key, each in value.items() if key not in _CALLS]
    return pictures, True
