"""Pure. Server-sent events as WHATWG defines them, with exact spans.

https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation

A block ends with a blank line: a line end that follows a line end, each of them LF, CRLF or CR.
Block boundaries do not depend on chunk boundaries, except that blank blocks are one where they
arrive together. That needs one choice: two CR end a block, so that a CR-only stream never waits for
an LF that could follow (a later LF is then an empty line of the next block, without meaning).

Almost every recorded stream has LF alone or CRLF alone. For these, one `rfind` finds the end of the
last complete block; the regular expression handles all others.

A stream may end without a blank line (14 recordings do). A browser drops that last event; this
framing returns it at the end, because it usually has the usage.
"""

import re

from addon.framing.frame import Frame, Framing

BLOCK_BYTES_MAX = 16 * 1024 * 1024
"""Text events are far smaller; an image inside one is 2-6 MB of base64. A longer block is returned
in pieces that parse to nothing, and reading continues after it."""

_BLANK_LINE = rb"(?:\n\n|\n\r\n|\n\r(?=[^\n])|\r\r)"
_BLANK_BLOCKS = rb"(?:(?:\r(?=\n))?" + _BLANK_LINE + rb")"
_SECOND_END = rb"(?:\n|\r(?:\n|(?=[^\n])))"
_BLOCK_ENDS = re.compile(rb"(?:\n" + _SECOND_END + rb"|\r(?:\r|\n" + _SECOND_END + rb"))++")
"""A block's end and the blank blocks after it: `_BLANK_LINE _BLANK_BLOCKS*`, written to read each
byte about once. All are one match, because a body of blank lines alone has half as many ends as
bytes."""
_END_AND_BLANKS = re.compile(b"(" + _BLANK_LINE + b")(" + _BLANK_BLOCKS + b"++)?")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class SSE(Framing):
    """Bytes of an event stream -> blocks."""

    __slots__ = ("_first",)
    UNIT = "an event"

    def __init__(self) -> None:
        super().__init__()
        self._first: bytes | None = None
        """The first block that was parsed: the stripper parses it, and then the meter."""

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes of the body; return the complete blocks among them, in one run."""
        held = self._held
        if not held:
            # Whole events, as servers write them.
            if data.endswith(b"\n\n") and b"\r" not in data and b"\n\n\n" not in data:
                return data
            cut = _last_end(data)
            if cut == len(data):
                return data
            held += data[cut:] if cut else data
            return data[:cut] if cut else self._take_beyond(BLOCK_BYTES_MAX)
        # A block's end may span two chunks.
        end = bytes(held[-2:])
        cut = _last_end(end + data) - len(end)
        if cut <= -len(end):
            held += data
            return self._take_beyond(BLOCK_BYTES_MAX)
        run = self.end() + data[:cut]
        self._held += data[cut:]
        return run

    def count(self, run: bytes) -> int:
        """Number of data lines: one per event on every recorded wire."""
        lines = run.count(b"\ndata:") + run.startswith((b"data:", _BYTE_ORDER_MARK + b"data:"))
        return lines + run.count(b"\rdata:") if b"\r" in run else lines

    def split(self, run: bytes) -> list[bytes]:
        """Cut a run after each blank line."""
        end = b""
        if b"\r" not in run and b"\n\n\n" not in run:
            end = b"\n\n"
        elif run.count(b"\r\n") == run.count(b"\n") == run.count(b"\r"):
            end = b"\r\n\r\n" if b"\n\r\n\r\n" not in run else b""
        if end:
            blocks = [block + end for block in run.split(end)]
            last = blocks.pop()[: -len(end)]
            return [*blocks, last] if last else blocks
        # Return consecutive blank blocks as one: they dispatch nothing.
        found = _END_AND_BLANKS.finditer(run)
        ends = list(dict.fromkeys(end for each in found for end in (each.end(1), each.end())))
        starts = [0, *ends]
        return [run[a:b] for a, b in zip(starts, [*ends, len(run)], strict=True) if a < b]

    def parse(self, block: bytes) -> Frame | None:
        """The event of a block; None if it has no data line or is too long."""
        if self._first is None:
            self._first = block if block.startswith(_BYTE_ORDER_MARK) else b""
        if self._first and block == self._first:
            block = block.removeprefix(_BYTE_ORDER_MARK)
        if len(block) > BLOCK_BYTES_MAX:
            return None
        # Fast path for most frames, which have one data line.
        if block.startswith(b"data: "):
            first_end = block.find(b"\n")
            if block.endswith(b"\n\n") and first_end == len(block) - 2:
                data = block[6:-2]
            elif block.endswith(b"\r\n\r\n") and first_end == len(block) - 3:
                data = block[6:-4]
            else:
                return _interpret(block)
            return Frame("", data) if b"\r" not in data else _interpret(block)
        # And for those with a name before it (Anthropic, Responses).
        if block.startswith(b"event: ") and block.endswith(b"\n\n") and b"\r" not in block:
            name_end, data_end = block.find(b"\n"), len(block) - 2
            if block.startswith(b"data: ", name_end + 1):
                data_at = name_end + 7
                if block.find(b"\n", data_at) == data_end:
                    name = block[7:name_end].decode("utf-8", "replace")
                    return Frame(name, block[data_at:data_end])
        return _interpret(block)


def _last_end(data: bytes) -> int:
    """End of the last complete block of `data`; 0 if there is none."""
    if b"\r" not in data:
        found = data.rfind(b"\n\n")
        cut = found + 2 if found >= 0 else 0
    else:
        carriage_returns = data.count(b"\r") - data.endswith(b"\r")
        if carriage_returns != data.count(b"\r\n") or data.endswith((b"\n\r", b"\r\r")):
            return _last_end_slowly(data)
        found = data.rfind(b"\n\r\n")
        cut = found + 3 if found >= 0 else 0
        # A bare blank line may still come after it, in a stream of mixed line ends.
        found = data.rfind(b"\n\n", max(0, cut - 1))
        cut = found + 2 if found >= 0 else cut
    # Where blank lines follow each other, ends have to be counted from the left.
    is_odd = data.count(b"\n", max(0, cut - 6), cut) > 2
    return _last_end_slowly(data) if is_odd else cut


def _last_end_slowly(data: bytes) -> int:
    end = 0
    for match in _BLOCK_ENDS.finditer(data):
        end = match.end()
    return end


def _interpret(block: bytes) -> Frame | None:
    """The event that a block dispatches; None if it has no data line."""
    event = ""
    data: list[bytes] = []
    if not block.strip(b"\r\n"):
        return None
    for line in block.splitlines():
        name, colon, value = line.partition(b":")
        value = value.removeprefix(b" ") if colon else b""
        if name == b"data":
            data.append(value)
        elif name == b"event":
            event = value.decode("utf-8", "replace")
    return Frame(event, b"\n".join(data)) if data else None
