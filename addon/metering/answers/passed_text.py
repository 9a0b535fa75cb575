"""Pure. How much generated text has passed in a stream, for an estimate that few streams need.

The result must not depend on chunk boundaries, and a stream without an estimate must cost nearly
nothing. So runs are kept unmeasured up to a bound, and one regular expression measures them.
"""

from addon.dialects.dialect import Dialect
from addon.metering.answers import estimate
from addon.metering.answers.templates import PADDING

UNMEASURED_BYTES_MAX = 4096
"""Text of short answers is kept until an estimate is needed; longer answers are measured as they
pass."""
LAST_BYTES_MAX = 16 * 1024
"""Text kept after the usage of a stream has arrived; its measure is rarely needed."""
RUN_BYTES = 48
"""What Python needs for a run beside its bytes."""


class PassedText:
    """The generated text of one stream."""

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
        """Output tokens in this many frames of the stream; None without an estimate."""
        if not self._text_marks:
            return None
        self._measure()
        frames -= self._frames_before
        # Padding hides the length of the text, so count one token per frame.
        text_bytes = frames if self._is_padded else self._bytes
        # A frame with text has at least one token.
        text = max(frames, text_bytes // estimate.BYTES_PER_TOKEN) if text_bytes else 0
        return text + self._calls * estimate.TOKENS_PER_CALL

    def _measure(self) -> None:
        for run in self._unmeasured:
            self._calls += sum(mark.count(run) for mark in self._call_marks)
            if not self.has_hidden:
                self.has_hidden = any(mark.matches(run) for mark in self._hidden_marks)
            if not self._is_padded:
                self._bytes += estimate.text_bytes_of(run, self._text_marks)
        self._unmeasured.clear()
        self._waiting = 0
