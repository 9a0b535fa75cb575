"""Pure. What the ordinary events of one answer repeat, so that a null is taken out unsearched.

Nearly all events of a stream differ in the generated text alone. From two in a row that lost a
`"usage":null`, `learn` takes what stands before the text and what stands behind it:

    data: {"id":"x","choices":[{"delta":{"content":"Hel"},…}],"usage":null}\\n\\n
    |-------------------- head --------------------|   |------- tail -------|

An event that begins and ends so, and has no quote beside theirs, holds nothing but a string between
them. So its null is where it was in the tail.
"""

from dataclasses import dataclass

LEARNED_BYTES_MAX = 4 * 1024
"""Of one event; ordinary ones have 200 to 500."""
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
    """In an event."""
    line_ends: int
    kept_tail: bytes
    """The tail without what is taken out of it."""
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
    """What two events share; None if that would not be safe or of use.

    What is taken out of the other one is `other[start:end]`. Both are whole events of one kind of
    line end, which is LF.
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
    """How many bytes two texts begin with, or end with, that are the same."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if from_end:
            is_same = one.endswith(other[len(other) - middle :])
        else:
            is_same = one.startswith(other[:middle])
        low, high = (middle, high) if is_same else (low, middle - 1)
    return low
