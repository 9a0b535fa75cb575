"""Pure. The blocks of an answer -> facts: the one meter, live and in replay.

Plan. Until generated content has passed, every block is parsed as it comes: the first ones carry id
and model, and the time of the first token is taken there. From then on byte searches find the
dialect's marks in a run of blocks; blocks with a mark are parsed, the others never. The result does
not depend on how the blocks are cut into runs.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from itertools import accumulate
from types import MappingProxyType
from typing import Any

from addon.dialects import grpc
from addon.dialects.counts import counts_in, unknown_values
from addon.dialects.dialect import Dialect, Mark
from addon.dialects.errors import record_error_body, record_error_in, record_error_text
from addon.dialects.facts import (
    ANSWER_HEADERS,
    CACHE_HEADERS,
    DIGEST_PREFIX,
    NO_CONTEXT,
    TIER_KEYS,
    AnswerContext,
    Facts,
)
from addon.dialects.routes import answer_keys
from addon.framing import json_values, long_json
from addon.framing.document import BLANKS, GAP, Document
from addon.framing.eventstream import EventStream
from addon.framing.frame import Frame, Framing
from addon.framing.grpc import TRAILERS, Grpc, read_message
from addon.framing.sse import SSE
from addon.metering import estimate
from addon.metering.estimate import GeneratedText
from addon.metering.templates import Ordinary, learn
from ledger.model.exchange import ERROR_STATUS_MIN
from ledger.model.usage import BESIDE, SERVICE_TIER, Usage

_DONE = b"[DONE]"
"""OpenAI's end mark of a stream; others send it too, after their own."""
_DONE_MARK = Mark(_DONE)

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
CANDIDATES_MAX = 4
"""Places with the right key to try, the last one first: parsers take the last of duplicate keys.
Each costs a parse of the object at that place."""
_DEPTH_MAX = 4
_ITEMS_MAX = 4
"""Usage is in `response.usage` or `choices[0].usage`, and never deeper."""


class Meter:
    """Reads one answer. Never raises on any bytes."""

    __slots__ = (
        "_blocks_left",
        "_dialect",
        "_id_reads_left",
        "_is_error",
        "_lessons_left",
        "_marks",
        "_ordinary",
        "_text",
        "_unread",
        "_usage_frame",
        "confirms",
        "facts",
        "frames",
        "framing",
        "parsed",
    )

    def __init__(
        self,
        dialect: Dialect,
        *,
        context: AnswerContext = NO_CONTEXT,
        status: int = 200,
        requested: Mapping[str, str] = MappingProxyType({}),
        confirms: Callable[[dict[str, Any]], bool] | None = None,
    ) -> None:
        """`requested` are the request's billing fields, which count if the answer names none.
        `confirms` returns whether a frame proves that this is an LLM call; None if that is
        known."""
        self._dialect = dialect
        self._marks = (*dialect.marks, _DONE_MARK)
        self._is_error = status >= ERROR_STATUS_MIN
        self.confirms = confirms
        """Asked of each frame, until one is a proof."""
        self.framing: Framing | None = None
        """Chosen by whoever has the first bytes."""
        self.frames = 0
        """Frames so far; 1 for a plain document."""
        self.parsed = 0
        """Frames that were parsed since the caller set this to 0."""
        self._usage_frame: tuple[bytes, dict[str, Any]] | None = None
        """The last frame with a usage: its bytes and its parsed value."""
        self._ordinary: Ordinary | None = None
        self._blocks_left = READ_BLOCKS_MAX
        self._lessons_left = LESSONS_MAX
        self._id_reads_left = ID_READS_MAX
        self._text = GeneratedText(dialect)
        self._unread: str | None = None
        headers = context.headers
        named = {
            field: headers[name].replace(" ", "_")
            for name, field in ANSWER_HEADERS.items()
            if name in headers
        }
        if any(headers.get(name) for name in CACHE_HEADERS):
            named["gateway_cache_mode"] = "HIT"
        beside = {**requested, **named}
        self.facts = Facts(of=context, ending=dialect.ending)
        """The facts read so far."""
        if SERVICE_TIER in beside:
            self.facts.record_tier(beside.pop(SERVICE_TIER))
        for name, value in beside.items():
            self.facts.record_beside(name, value)

    def read(self, run: bytes) -> None:
        """Read whole blocks, the next ones of the answer."""
        framing, facts = self.framing, self.facts
        assert framing is not None
        if isinstance(framing, Grpc):
            for block in framing.split(run):
                self.frames += 1
                self._read_block(block)
            return
        blocks = None
        if not facts.token_seen and self._blocks_left > 0:
            # Every block, until generated content has passed.
            blocks = framing.split(run)
            facts.is_document = isinstance(framing, Document) and framing.is_one(blocks)
            at = 0
            for block in blocks:
                at += 1
                self._blocks_left -= 1
                before = self.frames
                self.frames += framing.count(block)
                if not facts.is_document:
                    self._text.keep(block)
                self._read_block(block)
                if facts.token_seen:
                    if not facts.is_document:
                        runs = facts.usage is not None and any(mark.latest for mark in self._marks)
                        self._text.begin(block, frames_before=before, has_running_figure=runs)
                    break
                if self._blocks_left <= 0:
                    break
            blocks = blocks[at:]
            run = b"".join(blocks)
        if not run or self.skips(run):
            return
        # The blocks with a mark, and those that lack the id.
        frames = framing.count(run)
        self.frames += frames
        self._read_marked(run, frames, blocks)
        self._text.keep(run, is_last=facts.usage_final)

    def skips(self, run: bytes) -> bool:
        """Whether these bytes, the next ones, are whole ordinary frames, which are counted then;
        otherwise they have to be read."""
        seen = self._ordinary.read(run) if self._ordinary is not None else None
        if seen is None:
            return False
        self.frames += seen.frames
        self._text.add(seen.text_bytes)
        return True

    def read_message(self, message: bytes) -> None:
        """Read one WebSocket message, which is one frame."""
        self.frames += 1
        self._read_frame(Frame("", message))
        self.keep_message(message)

    def keep_message(self, message: bytes) -> None:
        """Take a WebSocket message that has no facts but may have text."""
        self._text.keep_message(message)

    def end(self, rest: bytes) -> None:
        """The body is over; `rest` is what its framing held."""
        framing, facts = self.framing, self.facts
        assert framing is not None  # one is chosen for every body that is over
        if rest:
            self.read(rest)
        if facts.usage is None:
            counts = counts_in(facts.of.headers, self._dialect.count_headers)
            facts.record_usage(counts or None, final=True)
        # It may end inside its last block, which then has no end of its own. An answer with its own
        # end mark is whole, and what could not be read may look cut to us alone.
        blocks = framing.split(rest) if rest.strip() and not facts.ended else []
        if not blocks or (facts.is_document and self.trouble is not None):
            return
        frame = framing.parse(blocks[-1])
        if frame is None:
            # A comment may be alone at the end; an unfinished field or message may not.
            is_comment = isinstance(framing, SSE) and blocks[-1].lstrip().startswith(b":")
            facts.is_cut_inside = isinstance(framing, SSE | EventStream | Grpc) and not is_comment
            return
        data = frame.data.strip(BLANKS)
        is_done = data == _DONE or not _DONE.startswith(data)
        facts.is_cut_inside = not data or not is_done or _is_cut(data)

    @property
    def trouble(self) -> str | None:
        """Why a part of the answer could not be read; None if all of it could."""
        lost = self.framing.lost if self.framing is not None else None
        return lost or self._unread

    def usage(self) -> Usage:
        """The figures in the ledger's convention."""
        return self._dialect.figures(self.facts)

    @property
    def unknown_keys(self) -> set[str]:
        """The keys of the usage object without a rule."""
        usage = self.facts.usage or {}
        reader = self._dialect.reader(usage) or self._dialect
        return {key for key, _ in unknown_values(usage, reader.known_keys)}

    @property
    def usage_json(self) -> str | None:
        """The provider's usage object as upstream wrote it: spacing, escapes, spelling of numbers
        and duplicate keys included, which do not survive a JSON round trip. With the billing
        fields that it lacks.

        It is compact JSON where it is not one object of the answer: collected figures (Ollama's
        line, llama.cpp's, response headers), an Anthropic stream's usage, which merges
        `message_start` and `message_delta` key by key, usage in base64 (InvokeModel streams), and
        values that databases refuse as JSON (NaN).
        """
        usage = self.facts.usage
        if self.facts.rare.is_counted:
            usage = {} if self.facts.rare.beside else None
        if usage is None:
            return None
        text = None
        if self._usage_frame is not None and not self.facts.rare.is_counted:
            data, body = self._usage_frame
            key = key_of(body, usage)
            text = usage_text(data, key, usage) if key is not None else None
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

    def estimated_output_tokens(self) -> int | None:
        """Output tokens that have passed, estimated from their text; None without an estimate.

        There is none if all that has passed is hidden, or if the provider sends a running figure of
        its own (Gemini).
        """
        facts = self.facts
        if facts.is_document:
            return None
        tokens = self._text.tokens(self.frames)
        whole = facts.rare.text_bytes // estimate.BYTES_PER_TOKEN
        whole += facts.rare.calls * estimate.TOKENS_PER_CALL
        if tokens is None and not whole:
            return None
        # What has passed is not nothing, where no text shows how much it is.
        return (max(tokens or 0, whole) or None) if facts.token_seen else 0

    @property
    def has_route(self) -> bool:
        """Whether the path names the format of the answer."""
        return self._dialect.family is None

    @property
    def has_output(self) -> bool:
        """Whether generated content of a known format has passed, in a stream."""
        facts = self.facts
        return facts.token_seen and not facts.is_document and self.has_route

    @property
    def has_hidden_output(self) -> bool:
        """Whether generated content has passed whose tokens no text shows."""
        return self._text.has_hidden

    def _read_marked(self, run: bytes, frames: int, blocks: list[bytes] | None) -> None:
        framing = self.framing
        assert framing is not None
        matching = [
            (mark, count)
            for mark in self._marks
            if mark.needle in run and (count := mark.count(run)) > 0
        ]
        needle = self._needle()
        lacks_id = bool(needle) and self._id_reads_left > 0 and run.count(needle) < frames
        is_escaped = json_values.has_escaped_key(run)
        if not matching and not lacks_id and not is_escaped:
            if self.frames >= LEARN_FROM_FRAMES and self._lessons_left > 0:
                # A template from the last two of some blocks without facts.
                blocks = blocks or framing.split(run)
                if len(blocks) > 1:
                    self._lessons_left -= 1
                    self._ordinary = learn(
                        blocks[-2],
                        blocks[-1],
                        marks=(
                            *self._marks,
                            *self._dialect.call_marks,
                            *self._dialect.hidden_marks,
                        ),
                        text_marks=self._dialect.text_marks,
                        must=needle,
                        measures_text=self._text.is_measured,
                    )
            return
        blocks = blocks or framing.split(run)
        if not lacks_id and not is_escaped and all(mark.latest for mark, _ in matching):
            # A running figure: the last block that has one, which is usually the last, is enough.
            before = self.facts.usage
            for block in reversed(blocks):
                if any(mark.matches(block) for mark, _ in matching):
                    self._read_block(block)
                    if self.facts.usage is not before:
                        return
            return
        ends = list(accumulate(map(len, blocks)))
        places = {at for mark, count in matching for at in mark.places(run, count)}
        marked = {bisect_right(ends, place) for place in places}
        # Without an id to look for, only the marked blocks are looked at.
        for at in range(len(blocks)) if lacks_id or is_escaped else sorted(marked):
            block = blocks[at]
            if at in marked or (is_escaped and json_values.has_escaped_key(block)):
                self._read_block(block)
            elif lacks_id and needle not in block:
                self._id_reads_left -= 1
                frame = framing.parse(block)
                body = json_values.loads(frame.data) if frame is not None else None
                if frame is not None and body is not None:
                    alone = Facts(of=self.facts.of)
                    self._dialect.read(alone, frame.event, body)
                    self.facts.record_id(alone.response_id)

    def _needle(self) -> bytes:
        """The id that every frame should repeat; empty if none has to, or some did not."""
        facts = self.facts
        if not self._dialect.id_in_frames or facts.response_id is None or facts.rare.id_unstable:
            return b""
        if facts.response_id.startswith(DIGEST_PREFIX):
            return b""  # the frames have it as it was
        return json_values.dumps(facts.response_id).encode()

    def _read_block(self, block: bytes) -> None:
        assert self.framing is not None
        frame = self.framing.parse(block)
        if frame is not None:
            self._read_frame(frame)

    def _read_frame(self, frame: Frame) -> None:
        self.parsed += 1
        if isinstance(self.framing, Grpc):
            self._read_message(frame)
            return
        facts, data = self.facts, frame.data.lstrip(BLANKS)
        if data.startswith(_DONE):
            facts.ended = True
            return
        unread = None
        if len(data) > long_json.LONG_BYTES:
            facts.rare.has_gap = GAP in data
            body, unread = long_json.read(data, answer_keys())
        else:
            value = json_values.value_of(data)
            body = value if type(value) is dict else None
        if body is None:
            if self._is_error and facts.is_document:
                record_error_text(facts, data)
                return
            if not data.lstrip().startswith(b"{") or _is_cut(data):
                return
            self._unread = "JSON that is damaged was not read"
            if len(data) > long_json.LONG_BYTES or (body := json_values.repaired(data)) is None:
                return
            self._unread = "JSON that is damaged was read as far as it is certain"
        if self._is_error:
            record_error_body(facts, body)
        before = facts.usage
        if not TIER_KEYS.isdisjoint(body):
            facts.record_tiers(body)
        self._dialect.read(facts, frame.event, body)
        if unread and facts.usage is None and not _is_cut(data):
            self._unread = unread
        if facts.usage is not before:
            self._usage_frame = (data, body)
        if facts.is_document:
            facts.ended = facts.usage_final = True
            # Gateways write so in front of any format. A line of a batch has an error of its own.
            if facts.error is None and self._dialect.operation != "batch":
                record_error_in(facts, frame.event, body)
        if self.confirms is not None and not self._is_error and self.confirms(body):
            self.confirms = None

    def _read_message(self, frame: Frame) -> None:
        """Read a message of gRPC, or gRPC-Web's trailers."""
        facts, message = self.facts, self._dialect.message
        if frame.event == TRAILERS:
            self.record_status(grpc.status_in(frame.data))
            return
        facts.token_seen = True
        if message is None:
            return
        body = read_message(frame.data, message)
        if body is None:
            self._unread = "a protobuf message that is damaged was not read"
            return
        facts.record_tiers(body)
        self._dialect.read(facts, "", body)
        facts.usage_final = False  # until the status says so

    def record_status(self, status: str | None) -> None:
        """How a call over gRPC ended, by its own word. None: it has not said so, and is cut."""
        facts = self.facts
        if status is None:
            facts.is_cut_inside = not facts.ended
        elif (error := grpc.error_of(status)) is not None:
            facts.error = error
        else:
            facts.ended = facts.usage_final = True


def _is_cut(data: bytes) -> bool:
    """Whether the JSON of a frame ends before its own end. Of a long one the middle may be gone."""
    if not data.startswith((b"{", b"[")) or len(data) > long_json.LONG_BYTES:
        return data.startswith(b"{") and not data.rstrip().endswith(b"}")
    return json_values.loads(data) is None and json_values.is_cut(data)


def key_of(body: dict[str, Any], usage: dict[str, Any], depth: int = _DEPTH_MAX) -> str | None:
    """The key of this object (by identity) in a frame; None if the frame does not have it."""
    for key, value in body.items():
        if value is usage:
            return key
        if depth:
            inner = value[:_ITEMS_MAX] if type(value) is list else (value,)
            for one in inner:
                if type(one) is dict and (found := key_of(one, usage, depth - 1)) is not None:
                    return found
    return None


def usage_text(data: bytes, key: str, usage: dict[str, Any]) -> str | None:
    """The text of the object under a key in a frame; None if no text parses to the same value."""
    needle = b'"' + key.encode("utf-8", "replace") + b'"'
    end = len(data)
    for _ in range(CANDIDATES_MAX):
        at = data.rfind(needle, 0, end)
        if at < 0:
            return None
        end = at
        try:
            rest = data[at + len(needle) :].decode("utf-8", "surrogatepass").lstrip(" \t\r\n:")
            value, length = json_values.LENIENT.raw_decode(rest)
        except (ValueError, RecursionError):
            continue
        if value == usage:
            text = rest[:length]
            is_json = json_values.strict_loads(text.encode("utf-8", "surrogatepass")) is not None
            return text if is_json else None
    return None
