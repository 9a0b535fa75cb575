"""Pure. Decoding + framing + dialect -> facts: the one meter, live and in replay.

Plan. Until generated content has passed, every frame is parsed as it comes: the first frames carry
id and model, and the time of the first token is taken there. From then on byte searches find the
dialect's marks in a run of frames; frames with a mark are parsed, the others never. The result does
not depend on chunk boundaries.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from types import MappingProxyType
from typing import Any

from addon.dialects.counts import unknown_values
from addon.dialects.dialect import Dialect, Mark
from addon.dialects.errors import record_error_body, record_error_text
from addon.dialects.facts import BILLING_HEADERS, NO_CONTEXT, AnswerContext, Facts
from addon.dialects.routes import answer_keys
from addon.framing import json_values
from addon.framing.choice import framing_of
from addon.framing.document import Document, Opaque
from addon.framing.eventstream import EventStream
from addon.framing.frame import Frame, Framing
from addon.framing.sse import SSE
from addon.metering.answers import verbatim
from addon.metering.answers.decoding import decoder_of
from addon.metering.answers.passed_text import PassedText
from addon.metering.answers.templates import Ordinary, learn
from ledger.model.exchange import ERROR_STATUS_MIN
from ledger.model.usage import BESIDE, SERVICE_TIER, Usage

_DONE = b"[DONE]"
"""OpenAI's end mark of a stream; others send it too, after their own."""
_DONE_MARK = Mark(_DONE)

STEP_BYTES_MAX = 8 * 1024
"""Decoded bytes that are read in one step: 3 ms for the costliest that need no parse."""
STEP_BYTES_MIN = 1024
STEP_FRAMES = 64
"""After a step with this many parsed frames, the next step is a quarter as long, because a parsed
frame of a few bytes takes up to 60 µs. Steps with fewer grow again."""
PIECE_WORK_BYTES = 128
"""Work counted for each piece from the decoder beside its bytes, even for an empty one."""
READ_BLOCKS_MAX = 1_024
"""Blocks that are read in full before the first text: comments, empty frames. After them only
frames with a mark are read."""
LEARN_FROM_FRAMES = 64
"""Learning costs as much as the searches for about 30 frames; short answers never learn."""
LESSONS_MAX = 32
"""How often the meter learns a template in one stream (reasoning, then text, then a tool call …).
A stream that never repeats itself then costs no more learning, 6 µs each."""
ID_READS_MAX = 64
"""Frames to parse because they lack the id; then a wire that sends it once costs no more parses."""


class Meter:
    """Reads one answer. Never raises on any bytes."""

    def __init__(
        self,
        dialect: Dialect,
        *,
        content_type: str,
        content_encoding: str = "",
        context: AnswerContext = NO_CONTEXT,
        status: int = 200,
        request_units: Mapping[str, int] | None = None,
        requested: Mapping[str, str] = MappingProxyType({}),
        confirms: Callable[[Facts, dict[str, Any]], bool] | None = None,
        on_confirmed: Callable[[], object] | None = None,
    ) -> None:
        """`requested` are the request's billing fields, which count if the answer names none.
        `confirms` returns whether a frame proves that this is an LLM call; None if that is known.
        The meter calls `on_confirmed` once, when a frame does."""
        self._dialect = dialect
        self._marks = (*dialect.marks, _DONE_MARK)
        self._is_error = status >= ERROR_STATUS_MIN
        self._content_type = content_type
        self._decoder = decoder_of(content_encoding)
        self._framing: Framing | None = None
        self._is_sse = False
        self.request_units = request_units or {}
        """The request's billable units, used if the answer reports no usage."""
        self._usage_frame: tuple[bytes, dict[str, Any]] | None = None
        """The last frame with a usage: its bytes and its parsed value."""
        self._confirms = confirms
        self._on_confirmed = on_confirmed
        self._begun = b""
        self.step_bytes = STEP_BYTES_MAX
        """Bytes that may be read in one step now."""
        self._parsed = 0
        """Frames parsed in this step."""
        self._frames = 0
        self._ordinary: Ordinary | None = None
        self._blocks_left = READ_BLOCKS_MAX
        self._lessons_left = LESSONS_MAX
        self._id_reads_left = ID_READS_MAX
        self._id_written: bytes | None = None
        self._text = PassedText(dialect)
        headers = context.headers
        named = {field: headers[name] for name, field in BILLING_HEADERS.items() if name in headers}
        beside = {**requested, **named}
        self.facts = Facts(of=context, ending=dialect.ending)
        self.facts.record_tier(beside.pop(SERVICE_TIER, None))
        for name, value in beside.items():
            self.facts.record_beside(name, value)
        """The facts read so far."""

    def feed(self, data: bytes) -> None:
        """Read bytes as upstream sent them, in any chunks."""
        if self._decoder is None and len(data) <= self.step_bytes:
            self._frame(data)
            if self._parsed or self.step_bytes != STEP_BYTES_MAX:
                self._size_steps()
            return
        for _ in self.steps(data):
            pass

    def steps(self, data: bytes) -> Iterator[None]:
        """As `feed`, with a pause after about `step_bytes` of work.

        A caller may do other things in a pause. It takes all steps before it feeds more.
        """
        pieces = (data,) if self._decoder is None else self._decoder.decode(data)
        worked = 0
        for piece in pieces:
            worked += PIECE_WORK_BYTES
            at = 0
            while at < len(piece):
                part = piece[at : at + self.step_bytes]
                at += len(part)
                self._frame(part)
                self._size_steps()
                worked += len(part)
                if worked >= self.step_bytes:
                    yield
                    worked = 0
            if worked >= self.step_bytes:
                yield
                worked = 0

    def _size_steps(self) -> None:
        """Make the next step shorter if this one was much work."""
        if self._parsed >= STEP_FRAMES:
            self.step_bytes = max(STEP_BYTES_MIN, self.step_bytes // 4)
        elif self.step_bytes < STEP_BYTES_MAX:
            self.step_bytes *= 2
        self._parsed = 0

    def skips(self, run: bytes) -> bool:
        """Whether these bytes, the next ones, are whole ordinary frames, which are counted then;
        otherwise they have to be fed."""
        framing = self._framing
        if framing is None or self._decoder is not None or framing.is_holding:
            return False
        return self._is_ordinary(run)

    def feed_events(self, run: bytes) -> None:
        """Read whole server-sent events, which the editor of an unencoded stream has framed."""
        if self._is_sse and not self._is_ordinary(run):
            self._read_run(run)
            self._size_steps()
        elif not self._is_sse:
            # No framing is chosen yet, or the body is not an event stream despite its type.
            self._frame(run)

    def feed_message(self, message: bytes) -> None:
        """Read one WebSocket message, which is one frame."""
        self._frames += 1
        self._read(Frame("", message))

    def end(self) -> None:
        """The body is over."""
        if self._framing is None:
            self._choose(is_over=True)
        assert self._framing is not None  # one is chosen for every body that is over
        rest = self._framing.end()
        self._read_run(rest)
        # An answer with its own end mark is whole, and a document need not be parsed again. A
        # document that was not read whole may look cut to us alone.
        is_unread = self.facts.is_document and self.trouble is not None
        self.facts.is_cut_inside = not (self.facts.ended or is_unread) and self._is_cut_inside(rest)

    @property
    def is_confirmed(self) -> bool:
        """Whether this is confirmed as an LLM call."""
        return self._confirms is None

    @property
    def is_encoded(self) -> bool:
        """Whether the answer is encoded, so that a few bytes may be much work."""
        return self._decoder is not None

    @property
    def kept_bytes(self) -> int:
        """Bytes in memory for an answer in progress."""
        framing = self._framing.kept_bytes if self._framing is not None else len(self._begun)
        return framing + (self._decoder.kept_bytes if self._decoder is not None else 0)

    def give_up(self) -> None:
        """Stop reading, and keep only the facts."""
        self._framing = Opaque()
        self._begun = b""
        self._decoder = None
        self._is_sse = False

    @property
    def token_seen(self) -> bool:
        """Whether some generated content has passed."""
        return self.facts.token_seen

    @property
    def frames(self) -> int:
        """Frames so far; 1 for a plain document."""
        return self._frames

    @property
    def trouble(self) -> str | None:
        """Why a part of the answer could not be read; None if all of it could."""
        encoding = self._decoder.trouble if self._decoder is not None else None
        framing = self._framing.lost if self._framing is not None else None
        return f"{encoding}; {framing}" if encoding and framing else encoding or framing

    def usage(self) -> Usage:
        """The figures in the ledger's convention."""
        return self._dialect.figures(self.facts)

    @property
    def unknown_keys(self) -> set[str]:
        """The keys of the usage object without a rule."""
        usage = self.facts.usage or {}
        return {key for key, _ in unknown_values(usage, self._dialect.known_keys)}

    @property
    def usage_json(self) -> str | None:
        """The provider's usage object: its own text if it is one object of the answer, compact
        JSON if the dialect assembles it (`verbatim`). With the billing fields that it lacks."""
        usage = self.facts.usage
        if usage is None:
            return None
        text = None
        if self._usage_frame is not None:
            data, body = self._usage_frame
            key = verbatim.key_of(body, usage)
            text = verbatim.usage_text(data, key, usage) if key is not None else None
            text = text if text is not None and self.facts.is_plain(text) else None
        text = text or json_values.dumps(usage)
        lacking = {
            BESIDE + name: value
            for name, value in self.facts.rare.beside.items()
            if name not in usage
        }
        if not lacking:
            return text
        return f"{text.rstrip()[:-1]}{',' if usage else ''}{json_values.dumps(lacking)[1:]}"

    @property
    def usage_compact(self) -> str | None:
        """The same as compact JSON: one text for one usage, however upstream spaces it."""
        usage = self.facts.usage
        return json_values.dumps(usage) if usage is not None else None

    def estimated_output_tokens(self) -> int | None:
        """Output tokens that have passed, estimated from their text; None without an estimate.

        There is none if the text is hidden (InvokeModel's base64), or if the provider sends a
        running figure of its own (Gemini).
        """
        if not self._dialect.text_marks or self.facts.is_document:
            return None
        return self._text.tokens(self._frames) if self.facts.token_seen else 0

    def _is_cut_inside(self, rest: bytes) -> bool:
        """Whether the last block, which had no end of its own, is an incomplete frame."""
        framing = self._framing
        if framing is None or not rest.strip():
            return False
        blocks = framing.split(rest)
        frame = framing.parse(blocks[-1]) if blocks else None
        if frame is None:
            # A comment may be alone at the end; an unfinished field or message may not.
            is_comment = isinstance(framing, SSE) and blocks[-1].lstrip().startswith(b":")
            return isinstance(framing, SSE | EventStream) and not is_comment
        data = frame.data.strip()
        if not data or (data != _DONE and _DONE.startswith(data)):
            return True
        return data.startswith(b"{") and json_values.loads(data) is None

    def _frame(self, data: bytes) -> None:
        framing = self._framing
        if framing is None:
            self._begun += data
            self._choose(is_over=False)
        elif framing.is_holding or not self._is_ordinary(data):
            self._read_run(framing.feed(data))

    def _choose(self, *, is_over: bool) -> None:
        framing = framing_of(self._content_type, self._begun, is_over=is_over, keys=answer_keys)
        if framing is None:
            return
        self._framing = framing
        self._is_sse = isinstance(framing, SSE)
        begun, self._begun = self._begun, b""
        self._read_run(framing.feed(begun))

    def _read_run(self, run: bytes) -> None:
        blocks = None
        if run and not self.facts.token_seen and self._blocks_left > 0:
            blocks = self._read_until_text(run)
            run = b"".join(blocks)
        if run and not self._is_ordinary(run):
            self._read_unlearned(run, blocks)

    def _read_until_text(self, run: bytes) -> list[bytes]:
        """Read frame by frame until generated content has passed; return the other blocks."""
        framing = self._framing
        assert framing is not None
        blocks = framing.split(run)
        self.facts.is_document = isinstance(framing, Document) and len(blocks) == 1
        for at, block in enumerate(blocks, start=1):
            self._blocks_left -= 1
            before = self._frames
            self._frames += framing.count(block)
            if not self.facts.is_document:
                self._text.keep(block)
            self._read_block(block)
            if self.facts.token_seen:
                runs = self.facts.usage is not None and any(mark.latest for mark in self._marks)
                self._text.begin(block, frames_before=before, has_running_figure=runs)
                return blocks[at:]
            if self._blocks_left <= 0:
                return blocks[at:]
        return []

    def _is_ordinary(self, run: bytes) -> bool:
        """Whether these are whole, ordinary frames; if so, count them and skip them."""
        seen = self._ordinary.read(run) if self._ordinary is not None else None
        if seen is None:
            return False
        self._frames += seen.frames
        self._text.add(seen.text_bytes)
        return True

    def _read_unlearned(self, run: bytes, blocks: list[bytes] | None) -> None:
        """Read the frames with a mark, and those that lack the id, without learning. `blocks`: the
        run's, if it is cut already."""
        framing = self._framing
        assert framing is not None
        frames = framing.count(run)
        self._frames += frames
        self._read_marked(run, frames, blocks)
        self._text.keep(run, is_last=self.facts.usage_final)

    def _read_marked(self, run: bytes, frames: int, blocks: list[bytes] | None) -> None:
        framing = self._framing
        assert framing is not None
        matching = [(mark, count) for mark in self._marks if (count := mark.count(run)) > 0]
        needle = self._id_needle()
        lacks_id = bool(needle) and self._id_reads_left > 0 and run.count(needle) < frames
        is_escaped = json_values.has_escaped_key(run)
        if not matching and not lacks_id and not is_escaped:
            if self._frames >= LEARN_FROM_FRAMES and self._lessons_left > 0:
                self._learn(blocks or framing.split(run))
            return
        blocks = blocks or framing.split(run)
        if not lacks_id and not is_escaped and all(mark.latest for mark, _ in matching):
            self._read_latest(blocks, [mark for mark, _ in matching])
            return
        ends = list(accumulate(map(len, blocks)))
        places = {at for mark, count in matching for at in mark.places(run, count)}
        marked = {bisect_right(ends, place) for place in places}
        # Without an id to look for, only the marked frames are looked at.
        for at in range(len(blocks)) if lacks_id or is_escaped else sorted(marked):
            block = blocks[at]
            if at in marked or (is_escaped and json_values.has_escaped_key(block)):
                self._read_block(block)
            elif lacks_id and needle not in block:
                self._id_reads_left -= 1
                self._read_id(block)

    def _read_id(self, block: bytes) -> None:
        """Read only the id from a frame that has no mark."""
        assert self._framing is not None
        frame = self._framing.parse(block)
        body = json_values.loads(frame.data) if frame is not None else None
        if frame is not None and body is not None:
            alone = Facts(of=self.facts.of)
            self._dialect.read(alone, frame.event, body)
            self.facts.record_id(alone.response_id)

    def _read_latest(self, blocks: list[bytes], matching: list[Mark]) -> None:
        """Read the last frame that has a figure, which is usually the last one."""
        before = self.facts.usage
        for block in reversed(blocks):
            if any(mark.matches(block) for mark in matching):
                self._read_block(block)
                if self.facts.usage is not before:
                    return

    def _id_needle(self) -> bytes:
        """The id that every frame should repeat; empty if none has to, or some did not."""
        facts = self.facts
        if not self._dialect.id_in_frames or facts.response_id is None or facts.rare.id_unstable:
            return b""
        if self._id_written is None:
            self._id_written = json_values.dumps(facts.response_id).encode()
        return self._id_written

    def _learn(self, blocks: list[bytes]) -> None:
        """Learn a template from the last two of some frames without facts."""
        if len(blocks) < 2 or self._lessons_left <= 0:
            return
        self._lessons_left -= 1
        self._ordinary = learn(
            blocks[-2],
            blocks[-1],
            marks=(*self._marks, *self._dialect.call_marks),
            text_marks=self._dialect.text_marks,
            must=self._id_needle(),
            measures_text=self._text.is_measured,
        )

    def _read_block(self, block: bytes) -> None:
        assert self._framing is not None
        frame = self._framing.parse(block)
        if frame is not None:
            self._read(frame)

    def _read(self, frame: Frame) -> None:
        self._parsed += 1
        facts = self.facts
        if frame.data.startswith(_DONE):
            facts.ended = True
            return
        body = json_values.loads(frame.data)
        if body is None:
            if self._is_error and facts.is_document:
                record_error_text(facts, frame.data)
            return
        if self._is_error:
            record_error_body(facts, body)
        before = facts.usage
        facts.record_tiers(body)
        self._dialect.read(facts, frame.event, body)
        if facts.usage is not before:
            self._usage_frame = (frame.data, body)
        if facts.is_document:
            facts.ended = facts.usage_final = True
        if self._confirms is not None and not self._is_error and self._confirms(facts, body):
            self._confirms = None
            if self._on_confirmed is not None:
                self._on_confirmed()
