"""Pure. What of an event is usage that we asked for: the bytes to cut, frame by frame.

The answer to a request with the option differs from one without it in three ways (OpenAI,
"Streaming responses", `stream_options.include_usage`): an extra event without a choice that holds
anything, which carries the usage; or the usage as a key of an event that carries more; and a
`"usage":null` on every other event. The first is dropped whole, the other two lose that key and
nothing else.

The work is linear: an event is parsed at most once, and edited in one pass. Only the end of a large
event is parsed.
"""

import itertools
import re
from collections.abc import Callable
from typing import Any

from addon.framing import json_values
from addon.framing.frame import Frame
from addon.usage_opt_in.json_members import members, spans_of

PARSED_BYTES_MAX = 64 * 1024
"""Of one event. In a larger one (a picture in base64) usage is searched only in this many last
bytes."""
USAGE = b'"usage"'
"""Stands in every event that may have something to cut, unless its keys are escaped."""
_NULL_USAGE = b',"usage":null'
_LAST_NULL_USAGE = b',"usage":null}\n\n'
"""The end of an ordinary event of OpenAI."""
_NULL_BYTES, _LAST_NULL_BYTES = len(_NULL_USAGE), len(_LAST_NULL_USAGE)
_SPACED_NULL_USAGE = re.compile(rb' ?, ?"usage" ?: ?null')
"""As Python's JSON writer spaces it, and a few others."""
_SPACED_BYTES_MAX = 16
"""From the quote of `"usage" : null` on."""
_FLAT_TAIL = re.compile(
    rb'(?:,"[a-z_]{1,32}":(?:"[^"\\]{0,4096}"|null|true|false|\d{1,18})){0,4}\}\s*'
)
"""Flat members and the brace that closes the payload. A `,"usage":null` with no more than that
behind it is surely a member of the outermost object, and no parse is needed; OpenAI writes it so,
with `obfuscation` behind it or nothing."""

_NO_CHOICE = re.compile(rb'"choices"\s*:\s*(?:\[\s*\]|null)')
"""Of an extra event, which is parsed whole: it goes, however long it is."""
_HEAD_BYTES = 4_096
"""Where it stands in a large event."""
_ANSWERS = frozenset(("messages", "message", "delta", "content", "text", "response", "output"))
"""What events have instead of choices in other formats under the same path (GigaChat's v2)."""

type Spans = tuple[tuple[int, int], ...]
"""The bytes to cut, in order: from, and up to."""
NOTHING: Spans = ()
LEFT_IN: Spans = ((0, 0),)
"""Usage that we asked for is in the event, and it is not certain which bytes it is."""


def cuts_of(block: bytes, parse: Callable[[bytes], Frame | None]) -> Spans:
    """The bytes to cut out of one whole event; `LEFT_IN` if that is not certain. `parse`: the
    framing's."""
    first = block.find(USAGE)
    if first > 0 and block.startswith(b"data:"):
        # The null of an ordinary event, told without a parse.
        start = len(block) - _LAST_NULL_BYTES
        if first == start + 1 and block.endswith(_LAST_NULL_USAGE):
            return ((start, start + _NULL_BYTES),)
        if block.rfind(USAGE) == first:
            null = _SPACED_NULL_USAGE.search(block, max(0, first - 3), first + _SPACED_BYTES_MAX)
            if null and _FLAT_TAIL.fullmatch(block, null.end()):
                return (null.span(),)
    if first < 0 and not json_values.has_escaped_key(block):
        return NOTHING
    if len(block) > PARSED_BYTES_MAX and not _NO_CHOICE.search(block, 0, _HEAD_BYTES):
        return _cuts_at_the_end(block)
    frame = parse(block)
    if frame is None:
        return NOTHING
    payload = json_values.loads(frame.data)
    is_damaged = payload is None
    if is_damaged:
        payload = json_values.repaired(frame.data)
    if payload is None or "usage" not in payload:
        is_unread = payload is None and frame.data.lstrip().startswith(b"{")
        return LEFT_IN if is_unread and first >= 0 else NOTHING
    if isinstance(payload["usage"], dict) and _is_extra(payload):
        # Comment and retry lines before its first field, where servers put keep-alives, belong to
        # the connection, not to the event. They dispatch none and need no blank line.
        lines = block.splitlines(keepends=True)
        beside = itertools.takewhile(lambda line: line.startswith((b":", b"retry")), lines)
        return ((sum(map(len, beside)), len(block)),)
    if is_damaged:
        return LEFT_IN
    return tuple(spans_of(b"usage", members(block, block.find(b"{"))))


def _is_extra(payload: dict[str, Any]) -> bool:
    """Whether an event with usage is there only because we asked: it has no choice, or choices in
    which nothing stands (LiteLLM's), tells no error, and is no event of a format without choices.

    Whatever else stands in it came with it: llama.cpp moves `timings` there, others add `time_info`
    or `cost`. A client that did not ask would fail over a chunk without choices. Azure's chunk with
    the filter's results has no choice either, and comes unasked.
    """
    choices = payload.get("choices")
    if payload.get("error") or "prompt_filter_results" in payload:
        return False
    if choices is None:
        return _ANSWERS.isdisjoint(payload)
    return isinstance(choices, list) and all(map(_holds_nothing, choices))


def _holds_nothing(choice: Any) -> bool:
    """Whether a choice has no delta and no text, or a delta of nulls and empty lists. LiteLLM
    leaves out what is null, so that an index alone can stand. Empty text is of the answer."""
    if not isinstance(choice, dict):
        return choice is None
    if any(value for name, value in choice.items() if name not in ("index", "delta")):
        return False
    delta = choice.get("delta") or {}
    texts = [choice.get("text"), *(delta.values() if isinstance(delta, dict) else [delta])]
    return all(value is None or value in ([], {}) for value in texts)


def _cuts_at_the_end(block: bytes) -> Spans:
    """The last `"usage"` of a large event, if it is a member of the outermost object.

    It is one if the bytes after it close exactly one object more than they open: the bytes with a
    leading brace then form an object.
    """
    at = block.rfind(USAGE)
    tail = block[at:].rstrip()
    if at < 0 or len(tail) > PARSED_BYTES_MAX:
        return LEFT_IN
    rest = b"{" + tail
    found = members(rest)
    if json_values.loads(rest) is None or not found:
        return NOTHING
    before = block[:at].rstrip()
    if before.endswith(b","):
        return ((len(before[:-1].rstrip()), at - 1 + found[0].end),)
    return ((at, at - 1 + (found[1].start if len(found) > 1 else found[0].end)),)
