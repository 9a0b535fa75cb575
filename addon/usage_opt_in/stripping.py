"""Pure. Strips usage that we asked for from the answer.

The answer to a request with the option differs from one without it in three ways (OpenAI,
"Streaming responses", `stream_options.include_usage`): an extra event whose `choices` is empty and
which carries the usage; or the usage as a key of an event that carries more; and a `"usage":null`
on every other event. The first is dropped whole, the other two lose that key and nothing else.

The work is linear: an event is parsed at most once, and edited in one pass. Only the end of a large
event is parsed.
"""

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from addon.framing import json_values
from addon.framing.sse import SSE
from addon.usage_opt_in.json_members import members, spans_of

PARSED_BYTES_MAX = 64 * 1024
"""Of one event. In a larger one (a picture in base64) usage is searched only in this many last
bytes."""
LESSONS_MAX = 16
"""How often an answer may change the template of its ordinary events."""
LEARN_FROM_EVENTS = 32
"""A lesson costs as much as the searches in 20 events; short answers never pay for it
(measured)."""
_ENVELOPE = frozenset(
    {"id", "object", "created", "model", "choices", "usage", "service_tier", "system_fingerprint"}
    | {"obfuscation", "provider", "p"}
)
"""Keys that every chunk of a stream has, padding keys included: a usage-only event has no
others."""
_USAGE = b'"usage"'
_NULL_USAGE = b',"usage":null'
_LAST_NULL_USAGE = b',"usage":null}\n\n'
"""The end of an ordinary event of OpenAI."""
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
LEARNED_BYTES_MAX = 4 * 1024
"""Size of one event; ordinary ones have 200 to 500 bytes."""
_QUOTE = b'"'
_BACKSLASH = ord("\\")
_VALUE_BEGINS = (b':"', b': "')


@dataclass(frozen=True, slots=True, kw_only=True)
class OrdinaryEvent:
    """The constant bytes of an answer's ordinary events: a null is stripped without a search.

    Nearly all events of a stream differ only in the generated text. `learn` compares two
    consecutive events that lost a `"usage":null`, and stores the bytes before and after the text:

        data: {"id":"x","choices":[{"delta":{"content":"Hel"},…}],"usage":null}\\n\\n
        |-------------------- head --------------------|   |------- tail -------|

    An event with this head and tail, and with no other quote, holds only a string between them. So
    its null is at the same place in the tail.
    """

    head: bytes
    tail: bytes
    tail_bytes: int
    least_bytes: int
    quotes: int
    """Number of quotes in an event."""
    line_ends: int
    kept_tail: bytes
    """The tail without the stripped null."""
    removed: bytes

    def fits(self, data: bytes) -> bool:
        """Whether this is one whole event, which differs in one string at most."""
        return (
            data.startswith(self.head)
            and data.endswith(self.tail)
            and len(data) >= self.least_bytes
            and data.count(_QUOTE) == self.quotes
            and data.count(b"\n") == self.line_ends
            # The quote that begins the tail is not escaped, and CR ends lines as LF does.
            and data[-self.tail_bytes - 1] != _BACKSLASH
            and b"\r" not in data
        )


class Stripper:
    """Strips asked-for usage from an SSE answer. One per answer; accepts any chunk boundaries.

    A complete event is passed on at once; an unchanged event as the bytes that came.
    """

    __slots__ = (
        "_events_with_null",
        "_framing",
        "_lessons_left",
        "_ordinary",
        "_previous",
        "framed",
        "is_between_events",
        "removed",
        "trouble",
    )

    def __init__(self) -> None:
        self._ordinary: OrdinaryEvent | None = None
        self._previous = b""
        """The last event that lost a null and matched no template."""
        self._lessons_left = LESSONS_MAX
        self._events_with_null = 0
        self._framing = SSE()
        self.is_between_events = True
        """Whether no incomplete event waits for its end."""
        self.removed: list[bytes] = []
        """Pieces stripped since the caller last emptied the list."""
        self.framed = b""
        """The events that the last `feed` completed, as upstream sent them."""
        self.trouble: str | None = None
        """Why usage may be left in the stream; None: none is."""

    @property
    def held(self) -> bytes:
        """The incomplete event that waits for its end."""
        return self._framing.held

    def feed(self, data: bytes) -> bytes:
        """Add a chunk; returns the bytes for the client."""
        ordinary = self._ordinary
        if ordinary is not None and self.is_between_events and ordinary.fits(data):
            self.framed = data
            self.removed.append(ordinary.removed)
            return data[: -ordinary.tail_bytes] + ordinary.kept_tail
        is_one_event = 0 <= data.find(b"\n\n") == len(data) - 2 and b"\r" not in data
        if is_one_event and self.is_between_events:
            self.framed = data
            return self._strip_block(data)
        run = self.framed = self._framing.feed(data)
        self.is_between_events = not self._framing.is_holding
        return self._strip(run) if _may_hold_usage(run) else run

    def feed_events(self, run: bytes, chunks: Sequence[bytes]) -> list[bytes] | None:
        """What goes on of each of these chunks, of which `run` is made, where each is one event.

        None: they are not, and nothing was done; the same for what has an odd line end.
        """
        if (
            not self.is_between_events
            or run.count(b"\n\n") != len(chunks)
            or b"\r" in run
            or b"\n\n\n" in run
            or not all(chunk.endswith(b"\n\n") for chunk in chunks)
        ):
            return None
        self.framed = run
        if not _may_hold_usage(run):
            return list(chunks)
        is_escaped = json_values.has_escaped_key(run)
        removed = self.removed
        kept = []
        for chunk in chunks:
            first = chunk.find(_USAGE)
            if first < 0 and not is_escaped:
                kept.append(chunk)
            elif (
                first == len(chunk) - len(_LAST_NULL_USAGE) + 1
                and chunk.endswith(_LAST_NULL_USAGE)
                and chunk.startswith(b"data:")
            ):
                removed.append(_NULL_USAGE)
                kept.append(chunk[: -len(_LAST_NULL_USAGE)] + b"}\n\n")
            else:
                kept.append(self._strip_block(chunk))
        return kept

    def end(self) -> bytes:
        """Flush the rest at the end of the body."""
        run = self._framing.end()
        return self._strip(run) if _may_hold_usage(run) else run

    def _strip(self, run: bytes) -> bytes:
        return b"".join(self._strip_block(block) for block in self._framing.split(run))

    def _strip_block(self, block: bytes) -> bytes:
        first = block.find(_USAGE)
        if first < 0 and not json_values.has_escaped_key(block):
            return block
        null = _span_of_null_usage(block, first)
        if null is not None:
            start, end = null
            self.removed.append(block[start:end])
            self._learn(block, start, end)
            return block[:start] + block[end:]
        if len(block) > PARSED_BYTES_MAX:
            return self._strip_large_block(block)
        frame = self._framing.parse(block)
        payload = json_values.loads(frame.data) if frame else None
        if payload is None or "usage" not in payload:
            return block
        is_usage_only = (
            not payload.get("choices")
            and isinstance(payload.get("usage"), dict)
            and all(key in _ENVELOPE or value is None for key, value in payload.items())
        )
        if is_usage_only:
            # Comment and retry lines before its first field, where servers put keep-alives, belong
            # to the connection, not to the event. They dispatch none and need no blank line.
            lines = block.splitlines(keepends=True)
            beside = itertools.takewhile(lambda line: line.startswith((b":", b"retry")), lines)
            kept = b"".join(beside)
            self.removed.append(block if not kept else block[len(kept) :])
            return kept
        all_members = members(block, block.find(b"{"))
        return self._without(block, spans_of(b"usage", all_members))

    def _learn(self, block: bytes, start: int, end: int) -> None:
        self._events_with_null += 1
        if self._lessons_left > 0 and self._events_with_null > LEARN_FROM_EVENTS:
            if self._previous:
                self._lessons_left -= 1
                self._ordinary = learn(self._previous, block, start, end) or self._ordinary
            self._previous = block if len(block) <= LEARNED_BYTES_MAX else b""

    def _strip_large_block(self, block: bytes) -> bytes:
        """Strip the last `"usage"`, if it is a member of the outermost object.

        It is one if the bytes after it close exactly one object more than they open: the bytes with
        a leading brace then form an object.
        """
        at = block.rfind(_USAGE)
        tail = block[at:].rstrip()
        if at < 0 or len(tail) > PARSED_BYTES_MAX:
            self.trouble = "usage in an event beyond 64 KB was left in the stream"
            return block
        rest = b"{" + tail
        found = members(rest)
        if json_values.loads(rest) is None or not found:
            return block
        before = block[:at].rstrip()
        if before.endswith(b","):
            start, end = len(before[:-1].rstrip()), at - 1 + found[0].end
        else:
            start = at
            end = at - 1 + (found[1].start if len(found) > 1 else found[0].end)
        return self._without(block, [(start, end)])

    def _without(self, block: bytes, spans: Iterable[tuple[int, int]]) -> bytes:
        kept = []
        at = 0
        for start, end in spans:
            kept.append(block[at:start])
            self.removed.append(block[start:end])
            at = end
        return b"".join([*kept, block[at:]])


def _span_of_null_usage(block: bytes, first: int) -> tuple[int, int] | None:
    """Where the one `,"usage":null` of an ordinary event stands, told without a parse. `first`:
    where the first `"usage"` stands; below 0: nowhere."""
    # Searched from the right: usually it is the last member.
    if first <= 0 or block.rfind(_USAGE) != first or not block.startswith(b"data:"):
        return None
    if block.startswith(_NULL_USAGE, first - 1):
        start, end = first - 1, first - 1 + len(_NULL_USAGE)
    elif found := _SPACED_NULL_USAGE.search(block, max(0, first - 3), first + _SPACED_BYTES_MAX):
        start, end = found.span()
    else:
        return None
    is_outermost = block.endswith(b"}\n\n") and end == len(block) - 3
    return (start, end) if is_outermost or _FLAT_TAIL.fullmatch(block, end) else None


def _may_hold_usage(run: bytes) -> bool:
    return _USAGE in run or json_values.has_escaped_key(run)


def learn(one: bytes, other: bytes, start: int, end: int) -> OrdinaryEvent | None:
    """The constant parts of two events; None if a template would be unsafe or useless.

    `other[start:end]` is stripped from the other event. Both are whole events with LF line ends.
    """
    head = other[: _common(one, other, from_end=False)]
    head = head[: head.rfind(_QUOTE) + 1]
    tail = other[len(other) - _common(one, other, from_end=True) :]
    first_quote = tail.find(_QUOTE)
    tail_at = len(other) - len(tail) + first_quote
    if first_quote < 0 or not head.endswith(_VALUE_BEGINS) or not len(head) <= tail_at <= start:
        return None
    tail = other[tail_at:]
    quotes = head.count(_QUOTE) + tail.count(_QUOTE)
    line_ends = head.count(b"\n") + tail.count(b"\n")
    if (
        not quotes == one.count(_QUOTE) == other.count(_QUOTE)
        or line_ends != other.count(b"\n")
        or b"\r" in other
        or not tail.endswith(b"\n\n")
    ):
        return None
    return OrdinaryEvent(
        head=head,
        tail=tail,
        tail_bytes=len(tail),
        least_bytes=len(head) + len(tail),
        quotes=quotes,
        line_ends=line_ends,
        kept_tail=other[tail_at:start] + other[end:],
        removed=other[start:end],
    )


def _common(one: bytes, other: bytes, *, from_end: bool) -> int:
    """The length of the common prefix or suffix of two texts."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if from_end:
            is_same = one.endswith(other[len(other) - middle :])
        else:
            is_same = one.startswith(other[:middle])
        low, high = (middle, high) if is_same else (low, middle - 1)
    return low
