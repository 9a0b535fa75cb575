"""Edge (its own table). What a request says that bounds its cost, and the limits of its model.

Bytes bound tokens: a token has at least one, and the JSON around a text has more bytes than the
template around it has tokens. What does not stand in the request as text is bounded apart.
"""

import re
import tomllib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from msgspec import Struct

from addon.dialects.counts import object_at
from addon.dialects.dialect import CostLimits, Dialect
from addon.dialects.facts import id_of
from addon.framing import json_values
from addon.parts.caps import beyond_tokens
from addon.parts.caps.beyond_tokens import WALKED_MAX
from addon.parts.caps.members import Members, UnboundedError, folded
from ledger.model.segments import Kind, Row

MODEL_LIMITS = Path(__file__).with_name("model_limits.toml")
OPERATIONS = ("chat", "text_completion", "generate_content", "embeddings")
"""What is billed by tokens alone; any other has no bound."""
MODELS_MAX = 1_024
"""Names of models whose limits are kept; clients choose them."""
GRPC_PART_TOKENS_MAX = 16
"""What a template puts around a message or a tool."""
SEARCHES = ("web_search", "file_search")
"""Beginnings of the provider's own tools whose price is one of a call."""
_MEDIA = re.compile(
    rb'"(?=[acdfimsuv])(?:(?:input_?)?(?:image|audio|file|video)|(?:image|video|audio|file|document)_?ur[li]'
    rb"|(?:inline|file)_?data|document|file_?ids?|media|search_?result|url|container_?upload"
    rb'|item_?reference)"'
)
"""Members and types of what is no text, in lower case. With the look ahead, the search of 44 KB
takes 0.1 ms, and 0.4 ms where it has to find capital letters, too. An escaped key is looked
for apart."""
_PICTURES = frozenset({"image", "imageurl", "inputimage"})
_FILES = frozenset(
    {"inlinedata", "filedata", "document", "file", "inputfile", "inputaudio", "audio", "fileid"}
    | {"fileids", "video", "inputvideo", "media", "containerupload", "itemreference"}
    | {
        f"{kind}{ending}"
        for kind in ("video", "audio", "file", "document")
        for ending in ("url", "uri")
    }
    | {"imageuri"}
)
"""Folded names of members and types (`members.folded`)."""
_NAMED = frozenset({"name", "function", "input_schema"})
"""Members of a tool that the client describes itself."""
_CALLS = frozenset({"tooluse", "functioncall", "customtoolcall"})
"""What the client's tools were called with: text, whatever its members are called."""
_CONVERSATIONS = ("messages", "contents", "input")
"""Members with the messages, the first of which counts."""
_IN_PARTS = frozenset(
    {"tools", "system", "instructions", "systemInstruction", "system_instruction"}
)
"""Further members that are read in parts."""
_NO_INPUT = frozenset(
    {"tools", "toolconfig", "toolchoice", "metadata", "responseformat", "text", "audio"}
    | {"generationconfig", "modalities"}
)
"""Folded names of members that are no conversation: schemas, and settings of the answer."""
_REFERENCE = frozenset({"id", "type"})
"""All members of an input item that the provider keeps."""
_VENDOR = re.compile(r"^(?:[a-z-]{2,8}\.)?(?:anthropic|openai)\.")
"""Before a model's name at Amazon."""


class ModelLimits(NamedTuple):
    """In tokens; None: not known."""

    context: int | None = None
    output: int | None = None
    works_by_itself: bool = False
    """It searches, or chooses other models: no window bounds what it takes."""


class Turn(NamedTuple):
    """A request in parts, as the next one of its conversation is compared with it."""

    rest: int
    """Hash of what is not in parts."""
    head: Sequence[tuple[bytes, int]]
    """Digest and size of each tool and part of the system prompt."""
    digests: bytes
    """Of the parts of its messages, one behind the other."""
    sizes: Sequence[int]
    """Of those parts."""
    pictures: int
    picture_bytes: int
    """In `sizes`, and no text."""
    reasonings: int
    """Of earlier answers, whose text the provider keeps."""


class Limits(Struct, frozen=True, kw_only=True):
    """What a request says."""

    input_bytes: int = 0
    """Without those of pictures."""
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
    response_before: str | None = None
    """The id of the response that it goes on from."""
    turn: Turn | None = None
    """None: it is not in parts, or what the provider makes of them may change."""


@cache
def _model_rows() -> tuple[tuple[tuple[str, ...], ModelLimits], ...]:
    rows = tomllib.loads(MODEL_LIMITS.read_text(encoding="utf-8"))["model"]
    return tuple((tuple(row["models"]), ModelLimits(row["context"], row["output"])) for row in rows)


@lru_cache(maxsize=MODELS_MAX)
def limits_of_model(model: str) -> ModelLimits:
    """The published limits of a model, by its name on the wire."""
    if beyond_tokens.works_by_itself(model):
        return ModelLimits(works_by_itself=True)
    name = _VENDOR.sub("", model.lower().rpartition("/")[2].partition(":")[0])
    if name.startswith("claude"):
        name = name.replace(".", "-")
    for globs, limits in _model_rows():
        if any(fnmatchcase(name, glob) for glob in globs):
            return limits
    return ModelLimits()


def is_free_call(path: str, operation: str | None) -> bool:
    """Whether a request is known to cost nothing, by its path: nothing is held, and it is never
    refused. What is no call at all (`addon.dialects.unrouted`) asks no cap."""
    return operation == "moderation" and path.partition("?")[0].endswith("/moderations")


def read_limits(
    dialect: Dialect, values: dict[str, Any], body: bytes, parts: Sequence[Row] = ()
) -> Limits:
    """What a decoded request says; `values`: its members; `parts`: of its conversation."""
    if dialect.request_message is not None and values:
        # A message has few bytes beside its text, fewer than the template around it has tokens.
        count = len(values.get("messages", ())) + len(values.get("tools", ()))
        output, answers = values.get("max_tokens", 0), values.get("n", 1)
        if max(output, answers) >= 1 << 31:
            return Limits(unbounded="it asks for fewer than no tokens or answers")
        return Limits(
            input_bytes=len(body) + count * GRPC_PART_TOKENS_MAX,
            output_tokens=output or None,
            answers=max(answers, 1),
        )
    where = dialect.cost_limits
    if where is None or dialect.operation not in OPERATIONS or body.startswith(b"--"):
        return Limits(unbounded=f"a request of {dialect.name} states no limit of its cost")
    if not values:
        return Limits(unbounded="the request could not be read")
    try:
        return _read(where, values, body, parts)
    except UnboundedError as error:
        return Limits(unbounded=str(error))


def _read(where: CostLimits, values: dict[str, Any], body: bytes, parts: Sequence[Row]) -> Limits:
    if (name := json_values.repeated_key(body, values)) is not None:
        raise UnboundedError(f"{name[:40]!r} stands in it twice")
    members = Members(values)
    for inner in members.at("request"):  # of Code Assist
        if isinstance(inner, dict) and Members(inner).has("contents"):
            values, members = inner, Members(inner)
    members.text("model")
    beyond_tokens.check(values, members)
    searches = _searches(where, members)
    counts = members.counts(where.output)
    answers = max(members.counts(where.answers), default=1)
    for many in members.at(where.inputs) if where.inputs else ():
        if not isinstance(many, list | str):
            raise UnboundedError(f"{where.inputs} is no text and no list")
        answers = max(answers, 1) * (max(len(many), 1) if isinstance(many, list) else 1)
    media = _media_in(values, body)
    is_text, reasonings = media.is_text, 0
    for stated in members.at("input"):
        for item in stated if isinstance(stated, list) else [stated]:
            if not isinstance(item, dict):
                continue
            if item.get("type") == "reasoning":
                reasonings += not item.get("encrypted_content")
            elif len(item) <= len(_REFERENCE) and {*map(folded, item)} <= _REFERENCE:
                is_text = False
    kept = [name for name in where.kept if members.has(name)]
    response_before, turn = None, None
    # Of what is left out, or fetched anew, an earlier request says nothing.
    if is_text and media.is_fixed and values.get("truncation", "disabled") == "disabled":
        if kept == ["previous_response_id"]:
            response_before = id_of(members.text("previous_response_id"))
        elif not (kept or searches):
            turn = _turn_of(values, parts, media, reasonings)
    return Limits(
        input_bytes=len(body) - media.picture_bytes,
        output_tokens=max(counts) if counts and all(counts) else None,
        answers=max(answers, 1),
        pictures=media.pictures,
        is_whole=is_text and not kept and not reasonings,
        searches=searches,
        is_kept_long=beyond_tokens.is_kept_long(values, body),
        response_before=response_before,
        turn=turn,
    )


def response_asked(message: bytes) -> dict[str, Any] | None:
    """The parameters of a response that a client's message of a WebSocket asks for. None: it asks
    for none. None of them: it cannot be told, and some server may read one: it is no JSON object, a
    key stands twice, or the parameters are no object."""
    body = json_values.loads(message)
    if body is None or json_values.repeated_key(message, body) is not None:
        return {}
    members = Members(body)
    if "response.create" not in members.at("type"):
        return None
    wrapped = members.at("response")  # Realtime wraps the parameters
    if not wrapped:
        return body
    return wrapped[0] if len(wrapped) == 1 and isinstance(wrapped[0], dict) else {}


def _searches(where: CostLimits, members: Members) -> int:
    """The uses that the provider's own tools are allowed. UnboundedError if they have no bound."""
    tools = members.objects("tools") + members.objects("toolConfig.tools")
    has_named = "custom" in where.clients_tools
    uses = 0
    for tool in tools:
        of_tool = Members(tool)
        kind = of_tool.text("type")
        if kind is not None:
            if kind.startswith(where.clients_tools):
                continue
        elif (has_named and _NAMED & tool.keys()) or (
            tool and all(key.startswith(where.clients_tools) for key in tool)
        ):
            continue
        else:
            kind = next(iter(tool), "")
        most = max(of_tool.counts(("max_uses",)), default=0)
        most = most or max(members.counts(where.tool_uses), default=0)
        if not most:
            raise UnboundedError(f"the provider's own tool {kind[:40]} has no limit of uses")
        if not kind.startswith(SEARCHES):
            raise UnboundedError(f"the cost of the provider's own tool {kind[:40]} has no bound")
        uses += most
    return uses


class _Media(NamedTuple):
    """What of a request is no text."""

    pictures: int = 0
    picture_bytes: int = 0
    """Of those that stand in it."""
    is_text: bool = True
    """Whether all the rest is text."""
    is_fixed: bool = True
    """Whether all pictures stand in it."""


def _turn_of(
    values: dict[str, Any], parts: Sequence[Row], media: _Media, reasonings: int
) -> Turn | None:
    kinds, _, _, sizes, _, digests = zip(*parts, strict=True) if parts else ((),) * 6
    if Kind.MESSAGES not in kinds:
        return None
    begun = kinds.index(Kind.MESSAGES)
    conversation = next(name for name in _CONVERSATIONS if name in values)
    rest = {
        name: value
        for name, value in values.items()
        if name != conversation and name not in _IN_PARTS
    }
    try:
        settings = orjson.dumps(rest, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # it is nested deeper than orjson writes
        return None
    head = tuple(zip(digests[:begun], sizes[:begun], strict=True))
    return Turn(
        hash(settings),
        head,
        b"".join(digests[begun:]),
        sizes[begun:],
        media.pictures,
        media.picture_bytes,
        reasonings,
    )


def _media_in(values: dict[str, Any], body: bytes) -> _Media:
    if not _MEDIA.search(body.lower()) and not json_values.has_escaped_key(body):
        return _Media()
    pictures, picture_bytes, walked, is_fixed = 0, 0, 0, True
    left: list[Any] = [
        {name: value for name, value in values.items() if folded(name) not in _NO_INPUT}
    ]
    while left:
        value = left.pop()
        walked += 1
        if walked > WALKED_MAX:
            return _Media(is_text=False)
        if isinstance(value, list):
            left += value
        elif isinstance(value, dict):
            kind = value.get("type", value.get("Type"))
            names = {folded(name): name for name in value}
            kinds = {folded(kind)} if isinstance(kind, str) else set()
            if kinds & _CALLS:
                continue
            kinds.update(names)
            if kinds & _PICTURES:
                pictures += 1
                size = _picture_bytes(value)
                picture_bytes += size
                is_fixed = is_fixed and size > 0
            elif kinds & _FILES:
                return _Media(is_text=False)
            else:
                left += [value[name] for fold, name in names.items() if fold not in _CALLS]
    return _Media(pictures, picture_bytes, True, is_fixed)


def _picture_bytes(value: dict[str, Any]) -> int:
    """Of a picture that stands in the request; 0: it is elsewhere."""
    source = object_at(object_at(value, "image") or value, "source") or {}
    data = source.get("data") or source.get("bytes")
    if data is None:
        data = value.get("image_url")
        data = data.get("url") if isinstance(data, dict) else data
        if not (isinstance(data, str) and data.startswith("data:image/")):
            return 0
    return len(data) if isinstance(data, str) else 0
