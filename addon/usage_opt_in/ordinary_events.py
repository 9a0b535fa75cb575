"""Pure. The constant parts of an answer's ordinary events, so that a null is stripped without a
search.

Nearly all events of a stream differ only in the generated text. `learn` compares two consecutive
events that lost a `"usage":null`, and stores the bytes before and after the text:

    data: {"id":"x","choices":[{"delta":{"content":"Hel"},…}],"usage":null}\\n\\n
    |-------------------- head --------------------|   |------- tail -------|

An event with this head and tail, and with no other quote, holds only a string between them. So its
null is at the same place in the tail.
"""

from dataclasses import dataclass

LEARNED_BYTES_MAX = 4 * 1024
"""Size of one event; ordinary ones have 200 to 500 bytes."""
_QUOTE = b'"'
_BACKSLASH = ord("\\")
_VALUE_BEGINS = (b':"', b': "')


@dataclass(frozen=True, slots=True, kw_only=True)
class OrdinaryEvent:
    """The constant bytes of an answer's ordinary events."""

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
