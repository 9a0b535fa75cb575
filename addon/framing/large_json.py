"""Pure. Shortens a large JSON value while it arrives, so that a parser can read it in one step.

Answers carry pictures in base64 (2-6 MB), embeddings (40 MB of numbers) and whole conversations.
None of these is a figure. A `Shortener` takes the bytes in any chunks and keeps:

    - every key and every short scalar of every object, up to `MEMBERS_MAX` members; of an object
      with more, those members whose key the reader has named (`keys`);
    - the first `STRING_BYTES_MAX` bytes of each string;
    - the first `ARRAY_SCALARS_MAX` numbers and strings of each array, and all its containers, until
      `SOFT_BYTES_MAX` have been kept; from then on the first element of each array.

The output is valid JSON if the input is. The work is linear: at most one loop step for each
bracket, quote or comma, and no byte is read twice. The memory is `KEPT_BYTES_MAX`.

The facts of a request and of a WebSocket message are near its outside. If it has too many values,
the rest of its inner ones is skipped (`outer_tokens`), 7 ns a byte. If that is not enough, the
outer members of a request before the bound are left (`outer_members`).
"""

import re
from array import array
from collections.abc import Generator
from itertools import accumulate

STRING_BYTES_MAX = 4_096
"""Of one string. Ids, models and error messages are shorter; text and pictures are longer."""
SCALAR_BYTES_MAX = 4_300
"""Of one number. Python reads no integer with more digits; a longer one becomes null."""
ARRAY_SCALARS_MAX = 16
"""Numbers and strings kept of one array: no array of scalars is a figure."""
SOFT_BYTES_MAX = 128 * 1024
"""Once this many bytes are kept, arrays end after their next comma."""
KEPT_BYTES_MAX = 256 * 1024
"""Once this many bytes are kept, the value is dropped. A parser needs about 5 ms for this size."""
TOKENS_MAX = 400_000
"""Brackets, keys and separators to scan in one value, a microsecond each at worst. The embeddings
and pictures of the largest answers have a tenth of this number."""
STEP_BYTES = 16 * 1024
"""Bytes to scan between two pauses, if there are any."""
MEMBERS_MAX = 256
"""Members kept of one object whatever their key. No object with figures has a tenth of that."""
DEPTH_MAX = 64
"""Depth of nested containers to keep; usage is within six."""
OUTER_DEPTH_MAX = 4
"""Depth of containers to keep once only outer ones are kept: the facts and the shapes of requests
are within it (`request.contents[0].parts`)."""
SKIPPED_BRACKETS_PER_TOKEN = 64
"""Brackets in one skipped run that take as long as one scanned token, at worst 2.5 µs."""

_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+'
_SHORT_STRING = rb'"[^"\\]{0,4097}+(?:\\.[^"\\]*+)*+'
"""A string, or the beginning of one that is longer than the bound and begins without escapes."""
_TOKEN = re.compile(
    _SHORT_STRING + rb'("[ \t]*+:?)?|\[\]|\{\}|[,:{}\[\]]|[ \t\r\n]++|[^,:"{}\[\] \t\r\n]++',
    re.DOTALL,
)
_INSIDE = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_SCALARS = rb'[^"{}\[\]]++|' + _STRING + rb'"'
_FLAT = _SCALARS + rb"|[{\[](?:" + _SCALARS + rb")*+[}\]]"
"""Values that are skipped in one step: scalars, and containers of scalars alone."""
_BRACKET_OR_STRING = re.compile(rb"(?:" + _FLAT + rb')++|"|[{}\[\]]', re.DOTALL)
_NO_CONTAINER = re.compile(rb"(?:" + _SCALARS + rb")*+", re.DOTALL)
_OPENING_BRACKET = re.compile(rb"[{\[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"{}[]"))
_DEPTH_CHANGES = bytes.maketrans(b"{[}]", b"\1\1\xff\xff")
"""As signed bytes: an opening bracket is 1, a closing one -1."""
_QUOTE, _COMMA, _COLON, _OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_ARRAY, _CLOSE_ARRAY = b'",:{}[]'
_BACKSLASH = 0x5C
_BLANKS = frozenset(b" \t\r\n")
_ESCAPE_BYTES = 12
"""The longest escape: a surrogate pair. This bound keeps no half of a pair."""


class Shortener:
    """Bytes of a JSON value, with any text around it -> a short value."""

    __slots__ = (
        "_array_scalars",
        "_containers",
        "_dropped_depth",
        "_drops_rest",
        "_is_escaped",
        "_is_in_string",
        "_kept",
        "_keys",
        "_may_skip_run",
        "_member_at",
        "_members",
        "_outer_bytes",
        "_outer_tokens",
        "_scalar_bytes",
        "_skips_member",
        "_skips_scalars",
        "_string_room",
        "_tokens_left",
        "_wants_comma",
        "overflowed",
    )

    def __init__(
        self,
        *,
        tokens_max: int = TOKENS_MAX,
        outer_tokens: int = 0,
        keys: frozenset[bytes] | None = None,
    ) -> None:
        """`outer_tokens`: only outer values are kept once fewer tokens are left. What is kept then
        may depend on the cuts. `keys`: the keys that are kept at any place of a large object; None:
        all keys are."""
        self._keys = keys
        self._members = [0]
        """How many members each open container has so far."""
        self._member_at = 0
        """Kept bytes before the latest value or key."""
        self._skips_member = False
        """The value of this member is dropped, as its key was."""
        self._tokens_left = tokens_max
        self._outer_tokens = outer_tokens
        self._may_skip_run = False
        """Whether the rest of these bytes may be skipped in one step: it is tried once a feed."""
        self._outer_bytes = 0
        """Kept bytes up to the end of the latest complete member of the outermost object."""
        self._kept = bytearray()
        self._containers = bytearray()
        """The opening brackets of the open containers."""
        self._array_scalars = 0
        """Scalars of the innermost array since its start or the last start or end of a container in
        it."""
        self._dropped_depth = 0
        """Depth inside a container that is dropped; 0 outside of one."""
        self._drops_rest = False
        """Whether the dropped container is an array with a kept beginning."""
        self._skips_scalars = False
        """Enough scalars of this array have been kept."""
        self._is_in_string = False
        self._is_escaped = False
        """The last byte was a backslash in a string; its other half comes with the next bytes."""
        self._string_room = 0
        """Bytes of the string under way that may still be kept; `_CUT` when it was too long,
        `_DROPPED` when nothing of it is kept."""
        self._scalar_bytes = 0
        self._wants_comma = False
        self.overflowed = False
        """The value exceeded the bound on kept bytes or on scanned tokens: the rest is lost."""

    def feed(self, data: bytes) -> None:
        """Read the next bytes."""
        at = 0
        end = len(data)
        self._may_skip_run = self._tokens_left < self._outer_tokens
        while at < end and not self.overflowed:
            if self._is_in_string:
                at = self._read_string(data, at)
            elif self._dropped_depth:
                at = self._skip_container(data, at)
            elif not self._containers:
                at = self._read_around(data, at)
            elif self._skips_scalars:
                at = self._skip_scalars(data, at)
            else:
                at = self._read_tokens(data, at)
            self._tokens_left -= 1
            self.overflowed = len(self._kept) > KEPT_BYTES_MAX or self._tokens_left <= 0

    @property
    def kept_bytes(self) -> int:
        """What it has in memory."""
        return len(self._kept)

    def peek(self) -> bytes:
        """The bytes kept so far."""
        return bytes(self._kept)

    def outer_members(self) -> bytes:
        """The complete members of an outermost object that has not ended; empty if there is
        none."""
        return bytes(self._kept[: self._outer_bytes]) + b"}" if self._outer_bytes else b""

    def _read_around(self, data: bytes, at: int) -> int:
        """Keep the bytes before, between and after values unchanged."""
        found = _OPENING_BRACKET.search(data, at)
        if found is None:
            self._kept += data[at : at + KEPT_BYTES_MAX + 1]
            return len(data)
        self._kept += data[at : found.start()][: KEPT_BYTES_MAX + 1]
        self._open(data[found.start()])
        return found.end()

    def _read_tokens(self, data: bytes, at: int) -> int:  # noqa: PLR0912, PLR0915  # the loop per token
        """Read until the state changes; return the offset."""
        kept = self._kept
        for found in _TOKEN.finditer(data, at):
            self._tokens_left -= 1
            at = found.end()
            kind = data[found.start()]
            if kind == _QUOTE:
                self._scalar_bytes = 0
                if not found[1] or at - found.start() > STRING_BYTES_MAX:
                    self._begin_string()
                    return found.start() + 1
                if self._skips_member:
                    continue
                self._begin_value()
                self._array_scalars += 1
                kept += found[0]
                if kept[-1] == _COLON:
                    self._end_key()
            elif kind == _COMMA:
                self._wants_comma = kept[-1] not in b"{["
                self._scalar_bytes = 0
                self._skips_member = False
                if self._containers[-1] == _OPEN_ARRAY:
                    if len(kept) > SOFT_BYTES_MAX or self._tokens_left < self._outer_tokens:
                        self._drop_rest()
                    elif self._array_scalars >= ARRAY_SCALARS_MAX:
                        self._skips_scalars = True
                elif self._outer_tokens > 0:
                    if len(self._containers) == 1:
                        self._outer_bytes = len(kept)
                    if self._is_too_deep():
                        self._drop_rest()
                if self._dropped_depth or self._skips_scalars:
                    return at
            elif kind == _COLON:
                kept.append(_COLON)
                self._scalar_bytes = 0
                self._end_key()
            elif kind in (_OPEN_OBJECT, _OPEN_ARRAY):
                is_kept = self._open(kind)
                if at - found.start() == 2:  # an empty one
                    self._dropped_depth = 0
                    self._drops_rest = False
                    if is_kept:
                        self._close(data[at - 1])
                elif self._dropped_depth:
                    return at
            elif kind in (_CLOSE_OBJECT, _CLOSE_ARRAY):
                self._close(kind)
                if not self._containers:
                    return at
            elif kind in _BLANKS:
                # A blank matters only if it cuts a scalar, which is then not JSON.
                if self._scalar_bytes and kept[-1] not in _BLANKS:
                    kept.append(kind)
            elif not self._skips_member:
                self._keep_scalar(found[0])
            if len(kept) > KEPT_BYTES_MAX or self._tokens_left <= 0:
                return at
        return at

    def _end_key(self) -> None:
        """Drop the key that has just ended, if its object is large and nobody has named it."""
        self._members[-1] += 1
        if self._keys is None or self._members[-1] <= MEMBERS_MAX:
            return
        name = self._kept[self._member_at :].strip(b', \t\r\n:"')
        if bytes(name) not in self._keys and b"\\" not in name:
            del self._kept[self._member_at :]
            self._skips_member = True

    def _is_too_deep(self) -> bool:
        """Whether the innermost container is no outer one, and only those are kept."""
        return self._tokens_left < self._outer_tokens and len(self._containers) > OUTER_DEPTH_MAX

    def _keep_scalar(self, text: bytes) -> None:
        """Keep a number or a literal, or a piece of one."""
        before = self._scalar_bytes
        if not before:
            self._begin_value()
            self._array_scalars += 1
        self._scalar_bytes += len(text)
        if self._scalar_bytes <= SCALAR_BYTES_MAX:
            self._kept += text
        elif before <= SCALAR_BYTES_MAX:
            del self._kept[len(self._kept) - before :]
            self._kept += b"null"

    def _drop_rest(self) -> None:
        """Drop the rest of the innermost container."""
        self._dropped_depth = 1
        self._drops_rest = True

    def _begin_value(self) -> None:
        self._member_at = len(self._kept)
        if self._wants_comma:
            self._kept.append(_COMMA)
            self._wants_comma = False

    def _begin_string(self) -> None:
        if self._skips_member:
            self._is_in_string = True
            self._string_room = _DROPPED
            return
        self._begin_value()
        self._array_scalars += 1
        self._kept.append(_QUOTE)
        self._is_in_string = True
        self._string_room = STRING_BYTES_MAX

    def _read_string(self, data: bytes, at: int) -> int:
        if self._is_escaped:
            self._is_escaped = False
            self._keep_text(data[at : at + 1])
            return at + 1
        # To its quote, a backslash whose other half is missing, or the end of the data. Most text
        # has no escapes, and is then searched ten times as fast.
        quote = data.find(b'"', at)
        stop = quote if quote >= 0 else len(data)
        if data.find(b"\\", at, stop) >= 0:
            found = _INSIDE.match(data, at)
            assert found is not None
            stop = found.end()
        self._keep_text(data[at : min(stop, at + STRING_BYTES_MAX + 1)])
        if stop == len(data):
            return stop
        if data[stop] == _BACKSLASH:  # the last of these bytes: the chunk cuts an escape
            self._is_escaped = True
            self._keep_text(b"\\")
            return stop + 1
        self._is_in_string = False
        if self._string_room != _DROPPED:
            self._kept.append(_QUOTE)
        return stop + 1

    def _keep_text(self, text: bytes) -> None:
        room = self._string_room
        if len(text) <= room:
            self._kept += text
            self._string_room = room - len(text)
        elif room >= 0 and text:
            self._kept += text[:room]
            self._string_room = _CUT
            _trim(self._kept, len(self._kept) - STRING_BYTES_MAX)

    def _open(self, kind: int) -> bool:
        """Enter a container; return whether it is kept."""
        containers = self._containers
        if self._skips_member:
            self._dropped_depth = 1
            return False
        if len(containers) >= DEPTH_MAX:
            self._begin_value()
            self._kept += b"null"
            self._dropped_depth = 1
            return False
        self._begin_value()
        self._kept.append(kind)
        containers.append(kind)
        self._members.append(0)
        self._skips_scalars = False
        self._array_scalars = 0
        self._scalar_bytes = 0
        if self._is_too_deep():
            self._drop_rest()
        return True

    def _close(self, kind: int) -> None:
        self._kept.append(kind)
        self._containers.pop()
        self._members.pop()
        self._wants_comma = self._skips_member = False
        self._skips_scalars = False
        self._array_scalars = 0
        self._scalar_bytes = 0

    def _skip_scalars(self, data: bytes, at: int) -> int:
        """Skip the scalars of a full array."""
        found = _NO_CONTAINER.match(data, at)
        assert found is not None
        at = found.end()
        if at < len(data):
            if data[at] == _QUOTE:
                self._is_in_string = True
                self._string_room = _DROPPED
            elif data[at] in b"{[":
                self._open(data[at])
            else:
                self._close(data[at])
            at += 1
        return at

    def _skip_container(self, data: bytes, at: int) -> int:
        """Skip a dropped container, or the part of it that has arrived."""
        if self._may_skip_run:
            self._may_skip_run = False
            if self._skip_run(data[at:]):
                return len(data)
        depth = self._dropped_depth
        for found in _BRACKET_OR_STRING.finditer(data, at):
            self._tokens_left -= 1
            if self._tokens_left <= 0:
                break
            kind = data[found.start()]
            if found.end() - found.start() > 1 or kind not in b'"{}[]':
                continue  # whole values
            if kind == _QUOTE:  # a string that continues in the next bytes
                self._dropped_depth = depth
                self._is_in_string = True
                self._string_room = _DROPPED
                return found.end()
            depth += 1 if kind in b"{[" else -1
            if not depth:
                self._dropped_depth = 0
                if self._drops_rest:
                    self._drops_rest = False
                    self._close(kind)
                return found.end()
        self._dropped_depth = depth
        return len(data)

    def _skip_run(self, run: bytes) -> bool:
        """Skip bytes that a dropped container reaches to the end; False if it may end in them.

        All of this is done by whole passes over the bytes, without a step for each token.
        """
        if b"\\" in run:
            run = run.replace(b"\\\\", b"").replace(b'\\"', b"")
        texts = run.split(b'"')
        changes = b"".join(texts[::2]).translate(_DEPTH_CHANGES, _NO_BRACKETS)
        self._tokens_left -= len(changes) // SKIPPED_BRACKETS_PER_TOKEN
        depths = array("b", changes)
        if self._dropped_depth + min(accumulate(depths), default=0) <= 0:
            return False
        self._dropped_depth += sum(depths)
        if len(texts) % 2 == 0:  # the last string continues in the next bytes
            self._is_in_string = True
            self._string_room = _DROPPED
            self._is_escaped = texts[-1].endswith(b"\\")
        return True


def without_pauses[T](steps: Generator[None, None, T]) -> T:
    """The result of work that pauses, done in one go."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def shortened_in_steps(
    data: bytes, *, tokens_max: int, keys: frozenset[bytes] | None = None
) -> Generator[None, None, bytes]:
    """The shortened form of a whole value; empty if it exceeds the bounds.

    With half of the tokens used, the rest of its inner values is skipped. It pauses after every
    `STEP_BYTES`, 8 ms at worst.
    """
    shortener = Shortener(tokens_max=tokens_max, outer_tokens=tokens_max // 2, keys=keys)
    for at in range(0, len(data), STEP_BYTES):
        shortener.feed(data[at : at + STEP_BYTES])
        if shortener.overflowed:
            return b""
        yield
    return shortener.peek()


_DROPPED = -1
_CUT = -2


def _trim(kept: bytearray, start: int) -> None:
    """Remove an escape or UTF-8 character from the end if the cut has halved it."""
    found = kept.find(b"\\", max(start, len(kept) - _ESCAPE_BYTES))
    if found >= 0:
        before = found
        while before > start and kept[before - 1] == _BACKSLASH:
            before -= 1
        # An odd number of backslashes before it: this one is the second half of an escape.
        del kept[found - (found - before) % 2 :]
    lead = len(kept) - 1
    while lead >= start and len(kept) - lead < 4 and kept[lead] & 0xC0 == 0x80:
        lead -= 1
    if lead >= start and kept[lead] >= 0xC0:
        del kept[lead:]
