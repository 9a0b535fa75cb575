"""Pure. Token estimates for answers without reported usage, always marked as estimates, and the
text that has passed, which few streams need for one.

About four bytes of English text are a token in every tokenizer in use (OpenAI, "What are tokens
and how to count them"), and most servers send a frame for each token. A tool call costs more
tokens than the wire shows. Hidden reasoning is not on the wire and cannot be estimated.
`tests/bench/bench_estimate.py` measures the error on recorded streams.
"""

import re
from functools import cache

from addon.dialects.dialect import Dialect
from addon.framing.long_json import LONG_BYTES
from addon.metering.templates import PADDING

BYTES_PER_TOKEN = 4
TOKENS_PER_CALL = 30
"""Tokens of a tool call beside its arguments. Measured on the recorded streams with calls: 10-45
with OpenAI's wire, 30-95 with Anthropic's; 30 halves the median error of both."""
QUOTES_FEW = 1_000
"""A longer run with fewer quotes has long texts."""
STARTS_WITHIN = 64
"""Blanks before JSON; clients send none."""
UNMEASURED_BYTES_MAX = 4096
"""Text of short answers is kept until an estimate is needed; longer answers are measured as they
pass."""
LAST_BYTES_MAX = 16 * 1024
"""Text kept after the usage of a stream has arrived; its measure is rarely needed."""
RUN_BYTES = 48
"""What Python needs for a run beside its bytes."""
_BASE64 = b";base64,"
"""Images and documents inside a request, which are not billed by their length."""


def input_tokens_of(body: bytes) -> int | None:
    """Input tokens of a request, by its length; None for a body that is no JSON: an empty one, or a
    form with a file of sound or a picture."""
    if not body[:STARTS_WITHIN].lstrip().startswith((b"{", b"[")):
        return None
    text_bytes = len(body)
    at = body.find(_BASE64)
    while at >= 0:
        end = body.find(b'"', at)
        if end < 0:
            break
        text_bytes -= end - at
        at = body.find(_BASE64, end)
    return max(1, text_bytes // BYTES_PER_TOKEN)


def text_bytes_of(run: bytes, text_marks: tuple[bytes, ...]) -> int:
    """Bytes of generated text in a run of frames, escapes included."""
    if len(run) > LONG_BYTES and run.count(b'"') < QUOTES_FEW:
        return _long_text_bytes(run, text_marks)
    return sum(map(len, _texts(text_marks).findall(run)))


def _long_text_bytes(run: bytes, text_marks: tuple[bytes, ...]) -> int:
    """The same of few long texts: the expression reads them a byte at a time, 13 ms for each MB."""
    found, at = 0, 1
    pieces = run.split(b'"')
    while at + 2 < len(pieces):
        if b'"%b"' % pieces[at] not in text_marks or pieces[at + 1].strip() != b":":
            at += 1
            continue
        at += 2
        found += len(pieces[at])
        while _ends_in_escape(pieces[at]) and at + 1 < len(pieces):
            at += 1
            found += 1 + len(pieces[at])
        found -= _ends_in_escape(pieces[at])  # half of one
        at += 1
    return found


def _ends_in_escape(text: bytes) -> bool:
    return (len(text) - len(text.rstrip(b"\\"))) % 2 == 1


@cache
def _texts(text_marks: tuple[bytes, ...]) -> re.Pattern[bytes]:
    keys = b"|".join(re.escape(mark) for mark in text_marks)
    return re.compile(rb"(?:" + keys + rb')\s*:\s*"([^"\\]*+(?:\\.[^"\\]*+)*+)')


class GeneratedText:
    """The generated text of one stream.

    The result must not depend on chunk boundaries, and a stream without an estimate must cost
    nearly nothing. So runs are kept unmeasured up to a bound, and one regular expression measures
    them.
    """

    __slots__ = (
        "_bytes",
        "_call_marks",
        "_calls",
        "_frames_before",
        "_hidden_marks",
        "_is_padded",
        "_text_marks",
        "_unmeasured",
        "_waiting",
        "has_hidden",
    )

    def __init__(self, dialect: Dialect) -> None:
        self._text_marks = dialect.text_marks
        self._call_marks = dialect.call_marks
        self._hidden_marks = dialect.hidden_marks
        self.has_hidden = False
        """Whether content has passed whose tokens no text shows; certain after `tokens`."""
        self._is_padded = False
        self._frames_before = 0
        self._bytes = 0
        self._calls = 0
        self._unmeasured: list[bytes] = []
        self._waiting = 0

    def begin(self, block: bytes, *, frames_before: int, has_running_figure: bool) -> None:
        """Read the first frame with text. All later frames are assumed to be like it."""
        self._frames_before = frames_before
        self._is_padded = PADDING in block
        if has_running_figure:
            self._text_marks = ()
            self._unmeasured.clear()

    @property
    def is_measured(self) -> bool:
        """Whether the estimate uses the bytes of the text."""
        return bool(self._text_marks) and not self._is_padded

    def keep(self, run: bytes, *, is_last: bool = False) -> None:
        """Keep a run, to measure its text only if needed. `is_last`: the usage has arrived, so
        little follows and an estimate is rarely needed."""
        if not self._text_marks:
            return
        self._unmeasured.append(run)
        self._waiting += len(run) + RUN_BYTES
        if self._waiting > (LAST_BYTES_MAX if is_last else UNMEASURED_BYTES_MAX):
            self._measure()

    def keep_message(self, message: bytes) -> None:
        """Keep a message, which is text or hidden content as a whole: sound, a picture."""
        if any(mark.matches(message) for mark in self._hidden_marks):
            self.has_hidden = True
        else:
            self.keep(message)

    def add(self, text_bytes: int) -> None:
        """Add text that is measured already and has no tool calls."""
        self._bytes += text_bytes

    def tokens(self, frames: int) -> int | None:
        """Output tokens in this many frames of the stream; None without an"""
        if not self._text_marks:
            return None
        self._measure()
        frames -= self._frames_before
        # Padding hides the length of the text, so count one token per frame.
        text_bytes = frames if self._is_padded else self._bytes
        # A frame with text has at least one token.
        text = max(frames, text_bytes // BYTES_PER_TOKEN) if text_bytes else 0
        return text + self._calls * TOKENS_PER_CALL

    def _measure(self) -> None:
        for run in self._unmeasured:
            self._calls += sum(mark.count(run) for mark in self._call_marks)
            if not self.has_hidden:
                self.has_hidden = any(mark.matches(run) for mark in self._hidden_marks)
            if not self._is_padded:
                self._bytes += text_bytes_of(run, self._text_marks)
        self._unmeasured.clear()
        self._waiting = 0
