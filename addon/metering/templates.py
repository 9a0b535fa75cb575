"""Pure. Templates of the ordinary frames of one stream, so that runs of them need no parsing.

In a long answer nearly all frames differ in the generated text alone. From two consecutive frames
without facts, `learn` takes the bytes that both share: the constants around the gaps. A run has no
facts either if it consists of those constants and gaps, and all of its quotes are in the constants:
no constant holds a mark, and without a quote no gap can hold a JSON key. Counting a long needle is
cheap, and this takes two or three counts while searching for marks takes ten
(`tests/bench/bench_tap.py`).

    data: {"id":"x","delta":{"content":"Hel"},"finish_reason":null}\\n\\n
    |------------- head --------------|   |---------- tail ----------|    tail + head = seam
"""

import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from addon.dialects.dialect import Mark

FRAME_BYTES_MAX = 8 * 1024
"""Longest frame to learn from. Frames of text are shorter. A longer frame gains nothing, because
it is read once for each token."""
GAPS_MAX = 8
"""Gaps in one frame: text, filler, one or two indexes, a time. Each one costs a search per run."""
_QUOTE = b'"'
PADDING = b'"obfuscation"'
"""Filler that hides the length of a token; a stream with it sends one token per frame (OpenAI)."""
_VARYING_KEYS = frozenset({PADDING.strip(_QUOTE), b"p", b"created_at"})
"""Keys beside the text whose strings may differ: filler (OpenAI, Mistral), a time (Ollama)."""
_STRUCTURE = re.compile(rb"[\s\d.,:{}\[\]-]*")
"""Tokens outside of strings that may differ between two frames: numbers, blanks, brackets."""


class OrdinaryFrames(NamedTuple):
    """How many frames of a run match a template, and how much text they carry."""

    frames: int
    text_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordinary:
    """The constants of a stream's ordinary frames."""

    head: bytes
    tail: bytes
    seam: bytes
    middles: tuple[bytes, ...]
    """The constants between the gaps of one frame."""
    quotes: int
    """Number of quotes in the constants of a frame."""
    constant_bytes: int
    openings: tuple[bytes, ...]
    """`"content":"`: where text begins, if there are other gaps than the text."""
    has_loose_gap: bool
    """A gap outside of strings could hold a whole frame without a quote: `data: [DONE]`."""

    def read(self, run: bytes) -> OrdinaryFrames | None:
        """Read a run of ordinary frames; None if any part of it is not one."""
        if not (run.startswith(self.head) and run.endswith(self.tail)):
            return None
        # Without a tail the seam is the head, so the count includes the first one.
        frames = run.count(self.seam) + (1 if self.tail else 0)
        if run.count(_QUOTE) != frames * self.quotes:
            if b"\\" not in run:
                return None
            run = _without_escaped_quotes(run)
            if run.count(_QUOTE) != frames * self.quotes:
                return None
        if self.middles or self.has_loose_gap:
            lacks_middle = any(run.count(middle) != frames for middle in self.middles)
            data_lines = run.count(b"\ndata:") + run.startswith(b"data:")
            if lacks_middle or (self.has_loose_gap and data_lines != frames):
                return None
        if self.openings:
            # From each opening to the next quote: the run has no escaped quotes.
            texts = (text for opening in self.openings for text in run.split(opening)[1:])
            return OrdinaryFrames(frames, sum([text.find(_QUOTE) for text in texts]))
        return OrdinaryFrames(frames, len(run) - frames * self.constant_bytes)


def learn(
    first: bytes,
    second: bytes,
    *,
    marks: Sequence[Mark],
    text_marks: Iterable[bytes],
    must: bytes,
    measures_text: bool,
) -> Ordinary | None:
    """The template of two consecutive frames; None if it would be unsafe or useless.

    Neither frame may hold a mark, or an escaped key, which a byte search would miss. Every frame
    has to repeat `must` (the id), which may be b"". Without `measures_text`,
    `OrdinaryFrames.text_bytes` has no meaning.
    """
    if max(len(first), len(second)) > FRAME_BYTES_MAX:
        return None
    tokens = _without_escaped_quotes(first).split(_QUOTE)
    others = _without_escaped_quotes(second).split(_QUOTE)
    if len(tokens) != len(others):
        return None
    text_keys = {mark.strip(_QUOTE) for mark in text_marks}
    texts = [at for at in range(3, len(tokens), 2) if _is_value_of(text_keys, tokens, at)]
    differing = {at for at, token in enumerate(tokens) if token != others[at]}
    gaps = sorted({*texts, *differing})
    if (
        not texts
        or len(gaps) > GAPS_MAX
        or not all(_may_differ(at, tokens, others) for at in differing - {*texts})
    ):
        return None
    head, *middles, tail = _constants(tokens, gaps)
    seam = tail + head
    constants = [head, tail, seam, *middles]
    if not head or not any(must in constant for constant in constants):
        return None
    if any(_could_hide(mark, constant) for mark in marks for constant in constants):
        return None
    has_loose_gap = any(gap % 2 == 0 for gap in gaps)
    if has_loose_gap and b"data:" not in head:
        return None
    openings = {_QUOTE.join([b"", *tokens[at - 2 : at], b""]) for at in texts}
    return Ordinary(
        head=head,
        tail=tail,
        seam=_without_last_quote(seam),
        # A single quote character between text and a varying end is counted with the others.
        middles=tuple(_without_last_quote(middle) for middle in middles if middle != _QUOTE),
        quotes=sum(constant.count(_QUOTE) for constant in (seam, *middles)),
        constant_bytes=len(seam),
        openings=tuple(openings) if measures_text and len(gaps) > 1 else (),
        has_loose_gap=has_loose_gap,
    )


def _without_escaped_quotes(run: bytes) -> bytes:
    """The run at its old length, in which every remaining quote begins or ends a string."""
    return run.replace(b"\\\\", b"..").replace(b'\\"', b"..")


def _is_value_of(keys: AbstractSet[bytes], tokens: list[bytes], at: int) -> bool:
    """Whether the token is the string value of one of these keys."""
    return at > 2 and tokens[at - 1].strip() == b":" and tokens[at - 2] in keys


def _may_differ(at: int, tokens: list[bytes], others: list[bytes]) -> bool:
    """Whether a token may vary: filler, numbers and blanks may; types and (event) names may not."""
    if at % 2:
        return _is_value_of(_VARYING_KEYS, tokens, at)
    return at > 0 and all(_STRUCTURE.fullmatch(token) for token in (tokens[at], others[at]))


def _constants(tokens: list[bytes], gaps: list[int]) -> list[bytes]:
    """The bytes before the first gap, between the gaps, and after the last, quotes included."""
    constants = []
    start = 0
    for gap in gaps:
        before = [b""] if start else []
        constants.append(_QUOTE.join([*before, *tokens[start:gap], b""]))
        start = gap + 1
    constants.append(_QUOTE.join([b"", *tokens[start:]]) if start < len(tokens) else b"")
    return constants


def _could_hide(mark: Mark, constant: bytes) -> bool:
    """Whether skipping the constant could hide a mark, or a part of one."""
    needle = mark.needle
    if constant.count(needle) != sum(constant.count(form) for form in mark.harmless):
        return True
    beginnings, endings = _parts(needle)
    return constant.endswith(beginnings) or constant.startswith(endings)


@cache
def _parts(needle: bytes) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """The prefixes and suffixes of a needle, from two bytes on: one quote alone is never hidden."""
    cuts = range(2, len(needle))
    return tuple(needle[:cut] for cut in cuts), tuple(needle[-cut:] for cut in cuts)


def _without_last_quote(constant: bytes) -> bytes:
    """Drop the last quote: a needle that ends in a rarer byte is found twice as fast, and the quote
    is counted anyway."""
    return constant[:-1] if len(constant) > 1 and constant.endswith(_QUOTE) else constant
