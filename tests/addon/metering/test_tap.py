"""The callable on the stream: same bytes, at once, whatever happens inside."""

import gzip
import hashlib
import itertools
import random
import tracemalloc
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import brotli
import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon.dialects.routes import DIALECTS
from addon.framing.sse import SSE
from addon.metering import backlog
from addon.metering.answer_reader import STEP_BYTES_MAX, STEP_BYTES_MIN, AnswerReader
from addon.metering.decoding import Decoder
from addon.metering.memory_budget import FREE_BYTES, MemoryBudget
from addon.metering.meter import Meter
from addon.metering.tap import BATCH_BYTES, BURST_BATCH_BYTES, Tap
from addon.metering.troubles import Troubles
from addon.usage_opt_in import stripping
from tests.addon.feeding import pieces
from tests.addon.linear import assert_linear
from tests.named import for_each

BOM = b"\xef\xbb\xbf"
WORD = b'data: {"id":"c1","model":"m","choices":[{"delta":{"content":"hi"}}],"usage":null}\n\n'
LAST = b'data: {"id":"c1","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n'
DONE = b"data: [DONE]\n\n"
BODY = WORD * 60 + LAST + DONE
UNASKED = WORD.replace(b',"usage":null', b"") * 60 + DONE


def meter() -> Meter:
    return Meter(DIALECTS["openai.chat"])


def ticking():
    counter = itertools.count(1_763_600_000)
    return lambda: float(next(counter))


def tap_of(
    *,
    strips: bool,
    troubles: Troubles | None = None,
    metered: Meter | None = None,
    **more: Any,
) -> Tap:
    return Tap(
        metered or meter(),
        edits=strips,
        troubles=troubles if troubles is not None else Troubles(),
        **{"clock": ticking(), "content_type": "text/event-stream", **more},
    )


def drink(tap: Tap, chunks: list[bytes]) -> bytes:
    out = []
    for chunk in [*chunks, b""]:
        got = tap.callable(chunk)
        given = [got] if isinstance(got, bytes) else got
        # `b""` ends a chunked body early on HTTP/1.1 (mitmproxy PR #8242).
        assert b"" not in given
        out += given
    return b"".join(out)


def test_listening_hands_on_the_very_same_objects():
    tap = tap_of(strips=False)
    chunks = pieces(BODY, list(range(0, len(BODY), 37)))
    for chunk in chunks:
        assert tap.callable(chunk) is chunk


@given(st.lists(st.integers(0, len(BODY)), max_size=30))
def test_listening_reads_the_same_whatever_the_cuts(edges: list[int]):
    tap = tap_of(strips=False)
    assert drink(tap, pieces(BODY, edges)) == BODY
    tap.end()
    assert tap.meter.facts.response_id == "c1"
    assert tap.meter.usage().input_tokens == 3
    transfer = tap.transfer()
    assert transfer.response_bytes == transfer.client_bytes == len(BODY)
    assert transfer.upstream_digest == transfer.client_digest == hashlib.sha256(BODY).hexdigest()
    assert transfer.removed_bytes == 0
    assert transfer.removed_digest is None


@given(st.lists(st.integers(0, len(BODY)), max_size=30))
def test_editing_gives_the_unasked_stream_whatever_the_cuts(edges: list[int]):
    tap = tap_of(strips=True)
    assert drink(tap, pieces(BODY, edges)) == UNASKED
    tap.end()
    assert tap.meter.usage().output_tokens == 2
    transfer = tap.transfer()
    assert transfer.upstream_digest == hashlib.sha256(BODY).hexdigest()
    assert transfer.client_digest == hashlib.sha256(UNASKED).hexdigest()
    removed = b',"usage":null' * 60 + LAST
    assert transfer.removed_digest == hashlib.sha256(removed).hexdigest()
    assert transfer.removed_bytes == len(removed)
    assert transfer.client_bytes == len(UNASKED)
    assert transfer.stripped


def test_the_first_byte_and_the_first_token_are_timed_when_they_came():
    tap = tap_of(strips=False)
    role = b'data: {"id":"c1","choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'
    for chunk in (role, role, WORD, WORD):
        tap.callable(chunk)
    tap.end()
    transfer = tap.transfer()
    assert transfer.first_byte_at is not None
    assert transfer.first_token_at is not None
    assert transfer.first_token_at - transfer.first_byte_at == timedelta(seconds=2)


class Failing(Meter):
    """A meter with a bug that shows at one call."""

    def __init__(self, at: int) -> None:
        super().__init__(DIALECTS["openai.chat"])
        self.calls_left = at

    def read(self, run: bytes) -> None:
        self.calls_left -= 1
        if self.calls_left == 0:
            raise ZeroDivisionError("our bug, with b'their secret' in it")
        super().read(run)


@for_each("size", [1, 50, BATCH_BYTES + 1, len(BODY)])
def test_a_bug_in_the_meter_costs_the_reading_and_no_byte(size: int):
    """Wherever it strikes: at every call of the meter that there is."""
    counting = Failing(at=0)
    chunks = [BODY[i : i + size] for i in range(0, len(BODY), size)]
    drink(tap := tap_of(strips=False, metered=counting), chunks)
    tap.end()
    calls = -counting.calls_left
    assert calls >= 1
    for at in sorted({1, 2, calls // 2, calls} & set(range(1, calls + 1))):
        troubles = Troubles()
        tap = tap_of(strips=False, troubles=troubles, metered=Failing(at))
        assert drink(tap, chunks) == BODY
        tap.end()
        assert tap.has_stopped
        assert troubles.text is not None
        assert troubles.text.startswith("ZeroDivisionError in ")
        assert "secret" not in troubles.text
        transfer = tap.transfer()
        assert not transfer.is_whole
        assert transfer.upstream_digest is None


@for_each("broken", ["cuts_of", "feed"])
@for_each("at", [1, 2, 3, 5, 20])
@for_each("size", [7, 31, 200])
def test_a_bug_while_editing_hands_on_what_was_held_back(
    broken: str, at: int, size: int, monkeypatch: pytest.MonkeyPatch
):
    """What was edited before stays edited. From the first event that was incomplete at the bug,
    every byte passes as it came."""
    calls = 0
    place: Any = SSE if broken == "feed" else stripping
    real = getattr(place, broken)

    def fails(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at:
            raise ZeroDivisionError
        return real(*args)

    monkeypatch.setattr(place, broken, fails)
    troubles = Troubles()
    tap = tap_of(strips=True, troubles=troubles)
    out = drink(tap, [BODY[i : i + size] for i in range(0, len(BODY), size)])
    tap.end()
    # How many events had ended before each chunk. Those that end in one are framed in one call and
    # cut one by one.
    ended = [BODY[:end].count(b"\n\n") for end in range(0, len(BODY), size)]
    edited = ended[at - 1] if broken == "feed" else max(count for count in ended if count < at)
    asked = WORD * (60 - edited) + LAST + DONE
    assert out == WORD.replace(b',"usage":null', b"") * edited + asked
    assert tap.has_stopped
    assert "ZeroDivisionError" in (troubles.text or "")


@for_each("at", [1, 2])
def test_a_bug_in_the_meter_leaves_the_editing_at_work(at: int):
    """What we asked for is not for the client, whether we could read it or not."""
    tap = tap_of(strips=True, metered=Failing(at))
    assert drink(tap, [BODY[i : i + 1000] for i in range(0, len(BODY), 1000)]) == UNASKED
    tap.end()
    assert tap.has_stopped
    assert tap.transfer().stripped is True


@for_each(
    "damage",
    [b"\xff", b"\x01", b'","y":1,,"z":"', b"x"],
    ids=["utf-8", "control", "comma", "none"],
)
def test_usage_in_a_damaged_event_is_taken_out_where_it_is_certain(damage: bytes):
    """The client would not have had the event without us, and did not ask for it."""
    last = LAST.replace(b'"choices"', b'"system_fingerprint":"%b","choices"' % damage)
    last = last.replace(b'"y":1', b'"model":"m"').replace(b'"z"', b'"object"')
    troubles = Troubles()
    tap = tap_of(strips=True, troubles=troubles)
    assert drink(tap, [WORD * 60, last, DONE]) == UNASKED
    tap.end()
    assert tap.meter.usage().output_tokens == 2
    assert tap.transfer().stripped


def test_usage_that_cannot_be_taken_out_is_said():
    beside = LAST.replace(b'"choices":[]', b'"choices":[{"delta":{"content":"\xff"}}]')
    troubles = Troubles()
    tap = tap_of(strips=True, troubles=troubles)
    assert drink(tap, [WORD, beside, DONE]).endswith(beside + DONE)
    assert "left in the stream" in str(troubles.text)


def test_a_client_that_leaves_within_an_event_is_accounted_for():
    """The end of the body never comes: what the editor holds went to nobody, and is read."""
    tap = tap_of(strips=True)
    at = len(BODY) - len(DONE) - 5
    passed_on = tap.callable(BODY[:at])
    tap.end()
    transfer = tap.transfer()
    assert transfer.response_bytes == at
    assert transfer.upstream_digest == hashlib.sha256(BODY[:at]).hexdigest()
    assert transfer.client_bytes == len(passed_on)
    assert isinstance(passed_on, bytes)
    assert transfer.client_digest == hashlib.sha256(passed_on).hexdigest()


def test_a_document_under_the_type_of_a_stream_is_read_while_edited():
    document = b'{"id":"c1","model":"m","choices":[{"delta":{}}],"usage":{"prompt_tokens":7}}'
    tap = tap_of(strips=True)
    assert drink(tap, [document[:9], document[9:]])
    tap.end()
    assert tap.meter.usage().input_tokens == 7
    assert tap.transfer().response_bytes == len(document)


@pytest.mark.nightly
@pytest.mark.large
@pytest.mark.parametrize("strips", [False, True], ids=["passed-on", "edited"])
def test_the_end_of_an_unfinished_event_of_many_chunks_costs_linear_work(strips: bool):
    """Each chunk is looked at a bounded number of times, however much is held."""

    def work(size: int) -> None:
        body = b"data: " + b"x" * size
        tap = tap_of(strips=strips)
        assert drink(tap, [body[i : i + 1] for i in range(len(body))]) == body
        tap.end()
        assert tap.transfer().response_bytes == len(body)

    assert_linear(work, 4_000)


def test_an_encoded_answer_is_edited_and_goes_on_as_identity():
    for encoding, encode in (("gzip", gzip.compress), ("br", brotli.compress)):
        troubles = Troubles()
        tap = tap_of(strips=True, troubles=troubles, decoder=Decoder(encoding))
        encoded = encode(BODY)
        assert tap.decodes
        assert drink(tap, pieces(encoded, [5, 40, 41])) == UNASKED
        tap.end()
        transfer = tap.transfer()
        assert transfer.response_bytes == len(encoded)
        assert transfer.upstream_digest == hashlib.sha256(encoded).hexdigest()
        assert transfer.client_digest == hashlib.sha256(UNASKED).hexdigest()
        assert transfer.client_bytes is None
        assert transfer.stripped
        assert tap.meter.facts.usage == {"prompt_tokens": 3, "completion_tokens": 2}
        assert troubles.text is None


def test_an_encoding_that_breaks_ends_the_edited_answer_and_is_noted():
    troubles = Troubles()
    tap = tap_of(strips=True, troubles=troubles, decoder=Decoder("gzip"))
    encoded = gzip.compress(BODY)
    assert not tap.is_cut_short
    out = drink(tap, [encoded[:-8] + bytes(8), b"more"])
    assert UNASKED.startswith(out)
    assert tap.is_cut_short
    tap.end()
    assert "edited up to here" in str(troubles.text)


@for_each("size", [1, 7, 10_000])
def test_an_encoded_error_that_is_not_edited_is_counted_as_it_was_on_the_wire(size: int):
    body = b'{"error":{"message":"no","type":"server_error"}}' * 3
    encoded = gzip.compress(body)
    tap = tap_of(strips=True, decoder=Decoder("gzip"))
    assert drink(tap, pieces(encoded, list(range(0, len(encoded), size)))) == body
    tap.end()
    transfer = tap.transfer()
    assert transfer.response_bytes == len(encoded)
    assert transfer.upstream_digest == hashlib.sha256(encoded).hexdigest()
    assert transfer.client_digest == hashlib.sha256(body).hexdigest()
    assert (transfer.client_bytes, transfer.removed_bytes) == (None, None)
    assert (transfer.removed_digest, transfer.stripped) == (None, False)


def test_a_bug_in_the_decoder_of_an_edited_answer_ends_it_and_is_noted(
    monkeypatch: pytest.MonkeyPatch,
):
    troubles = Troubles()
    tap = tap_of(strips=True, troubles=troubles, decoder=Decoder("gzip"))
    encoded = gzip.compress(BODY)
    monkeypatch.setattr(Decoder, "decode", lambda *_: 1 / 0)
    assert drink(tap, [encoded[:50], encoded[50:]]) == b""
    tap.end()
    assert tap.is_cut_short
    assert tap.transfer().response_bytes is None
    assert "ZeroDivisionError" in str(troubles.text)


@for_each("strips", [False, True], ids=["listening", "editing"])
@for_each("size", [1, 50, 10_000])
def test_a_byte_order_mark_hides_no_usage(strips: bool, size: int):
    usage = b'"usage":{"prompt_tokens":3,"completion_tokens":2}'
    body = BOM + b'data: {"id":"c1","choices":[{"delta":{"content":"hi"}}],%s}\n\n' % usage + DONE
    tap = tap_of(strips=strips)
    out = drink(tap, pieces(body, list(range(0, len(body), size))))
    assert (usage in out) is not strips
    assert out.startswith(BOM + b'data: {"id":"c1"')
    tap.end()
    assert tap.meter.usage().input_tokens == 3


def test_of_an_answer_that_is_no_longer_read_nothing_is_kept(monkeypatch: pytest.MonkeyPatch):
    tap = tap_of(strips=True)
    tap.callable(WORD[:40])
    monkeypatch.setattr(stripping, "cuts_of", lambda *_: 1 / 0)
    tap.callable(WORD[40:] + WORD[:40])
    assert tap.has_stopped
    tap.callable(b"x" * 1_000)
    assert tap.meter.framing is not None
    assert tap.meter.framing.held_bytes == 0


def long_answer() -> bytes:
    return b'{"id":"x","x":[' + b"1," * 400_000 + b'1],"usage":{"prompt_tokens":7}}'


@for_each("encode", [bytes, gzip.compress], ids=["identity", "gzip"])
def test_a_long_answer_is_read_in_turns(encode: Callable[[bytes], bytes]):
    body = encode(long_answer())
    metered = meter()
    decoder = Decoder("gzip") if encode is gzip.compress else None
    kind = "application/json"
    tap = tap_of(strips=False, metered=metered, decoder=decoder, content_type=kind)
    assert tap.callable(body) is body
    turns = 0
    while tap.read_some():
        turns += 1
    assert turns > 10
    tap.end()
    assert metered.facts.usage == {"prompt_tokens": 7}
    assert tap.transfer().upstream_digest == hashlib.sha256(body).hexdigest()


def test_what_is_not_read_in_turns_is_read_at_the_end():
    metered = Meter(DIALECTS["openai.chat"])
    tap = tap_of(strips=False, metered=metered, content_type="application/json")
    for piece in pieces(long_answer(), [200_000]):
        tap.callable(piece)
    tap.end()
    assert metered.facts.usage == {"prompt_tokens": 7}
    assert not tap.read_some()


def test_an_answer_that_comes_faster_than_it_is_read_passes_unread(monkeypatch):
    monkeypatch.setattr(backlog, "BACKLOG_BYTES_MAX", 300_000)
    troubles = Troubles()
    tap = tap_of(strips=False, troubles=troubles)
    body = bytes(200_000)
    for _ in range(4):
        assert tap.callable(body) is body
    assert tap.has_stopped
    assert "faster" in str(troubles.text)
    assert not tap.read_some()


def test_a_failure_while_reading_on_is_noted(monkeypatch):
    metered = Meter(DIALECTS["openai.chat"])
    troubles = Troubles()
    tap = tap_of(strips=False, metered=metered, troubles=troubles)
    tap.callable(long_answer())
    monkeypatch.setattr(AnswerReader, "frame", lambda _reader, _data: 1 / 0)
    assert not tap.read_some()
    assert tap.has_stopped
    assert "ZeroDivisionError" in str(troubles.text)


def test_what_a_tap_says_of_itself():
    tap = tap_of(strips=True)
    assert tap.edits
    assert not tap_of(strips=False).edits
    tap.callable(WORD + WORD[:20])
    assert tap.has_begun
    assert not tap.is_cut_short


def test_a_callable_that_was_set_before_the_editing_ended_passes_all_on(monkeypatch):
    """mitmproxy keeps the callable that it was given."""
    tap = tap_of(strips=True)
    given = tap.callable
    monkeypatch.setattr(SSE, "feed", lambda _framing, _data: 1 / 0)
    assert given(WORD) == WORD
    assert tap.has_stopped
    assert given(WORD) == WORD
    assert given(b"") == []


def test_what_an_event_began_with_is_kept_until_a_later_chunk_ends_another():
    """The rest of an event may reach back behind the chunk that came last."""
    tap = tap_of(strips=True)
    chunks = [WORD[:30], WORD[30:] + WORD[:5], WORD[5:9], WORD[9:] + LAST[:3], LAST[3:] + DONE]
    assert drink(tap, chunks) == WORD.replace(b',"usage":null', b"") * 2 + DONE


def test_usage_left_in_a_large_event_is_on_the_row():
    troubles = Troubles()
    tap = tap_of(strips=True, troubles=troubles)
    spliced = b'data: {"choices":[1],"usage":{"x":"' + b"y" * 70_000 + b'"}}\n\n'
    assert drink(tap, [spliced]) == spliced
    tap.end()
    assert "left in the stream" in str(troubles.text)


def test_an_answer_that_no_budget_is_left_for_passes_unread():
    troubles = Troubles()
    tap = tap_of(strips=False, troubles=troubles, budget=MemoryBudget(1_000))
    body = bytes(200_000)
    for _ in range(3):
        assert tap.callable(body) is body
    assert tap.has_stopped
    assert "as much in memory as they may" in str(troubles.text)


def test_after_a_turn_of_reading_the_loop_is_left_alone_for_a_while():
    """Chunks that come meanwhile wait in the backlog, and are read at the end at the latest."""
    now = [0.0]
    step = [backlog.TURN_SECONDS]

    def clock() -> float:
        now[0] += step[0]
        return now[0]

    metered = Meter(DIALECTS["openai.chat"])
    tap = tap_of(strips=False, metered=metered, clock=clock)
    body = long_answer()
    tap.callable(body[:150_000])
    step[0] = 0.0
    assert tap._reader._backlog is not None
    before = tap._reader._backlog.size_bytes
    tap.callable(body[150_000:200_000])
    assert tap._reader._backlog.size_bytes == before + 50_000 + backlog.RUN_BYTES
    now[0] += 2 * backlog.REST_SECONDS
    tap.callable(body[200_000:-50_000])
    assert tap._reader._backlog.is_empty
    # All of it was read in one turn, and the rest after that turn holds all the same.
    tap.callable(body[-50_000:])
    assert tap._reader._backlog.size_bytes == 50_000 + backlog.RUN_BYTES
    tap.end()
    assert metered.facts.usage == {"prompt_tokens": 7}


def test_ordinary_events_are_counted_and_not_framed(monkeypatch: pytest.MonkeyPatch):
    framed: list[bytes] = []
    feed = SSE.feed

    def noted(framing: SSE, data: bytes) -> bytes:
        framed.append(data)
        return feed(framing, data)

    monkeypatch.setattr(SSE, "feed", noted)
    tap = tap_of(strips=False)
    words = [
        b'data: {"id":"c1","choices":[{"delta":{"content":"%d"}}]}\n\n' % n for n in range(2_000)
    ]
    assert drink(tap, [*words, LAST, DONE]) == b"".join([*words, LAST, DONE])
    tap.end()
    assert tap.meter.frames == 2_002
    assert tap.meter.usage().output_tokens == 2
    assert 0 < len(b"".join(framed)) < len(b"".join(words)) / 10


def test_what_is_framed_of_a_long_stream_is_held_within_the_budget():
    troubles = Troubles()
    tap = tap_of(strips=False, troubles=troubles, budget=MemoryBudget(1_000))
    begun = b'data: {"id":"c1","choices":[{"delta":{"content":"'
    assert tap.callable(begun) is begun
    for _ in range(200):
        assert tap.callable(b"x" * 1_000) == b"x" * 1_000
    assert tap.has_stopped
    assert "as much in memory as they may" in str(troubles.text)


def test_steps_are_shorter_while_frames_must_be_parsed():
    """An odd frame costs far more than an ordinary one."""
    tap = tap_of(strips=False)
    odd = b"".join(b'data: {"error":{"code":%d}}\n\n' % n for n in range(2_000))
    sizes = [tap._reader._step_bytes for _ in tap._reader._steps(odd)]
    assert min(sizes) == STEP_BYTES_MIN
    assert tap._reader._step_bytes < STEP_BYTES_MAX
    for words in itertools.batched([WORD] * 400, 20):
        list(tap._reader._steps(b"".join(words)))
    assert tap._reader._step_bytes == STEP_BYTES_MAX
    list(tap._reader._steps(LAST))
    tap.end()
    assert tap.meter.frames == 2_401
    assert tap.meter.usage().output_tokens == 2


def test_pieces_of_a_decoder_that_hold_nothing_are_work_too():
    """Each member of a gzip body gives one piece, and an empty member an empty one."""
    decoder = Decoder("gzip")
    tap = tap_of(strips=False, decoder=decoder, content_type="application/json")
    assert sum(1 for _ in tap._reader._steps(gzip.compress(b"") * 2_000)) > 10
    assert sum(1 for _ in tap._reader._steps(gzip.compress(b'{"usage":{"prompt_tokens":3}}'))) <= 1
    tap.end()
    assert tap.meter.usage().input_tokens == 3


OBJECTS_BYTES = 96 * 1024
"""What a tap, its meter and its stripper take beside the bytes that they keep."""
SHORTEST = 2
OVERSIZE = 1.25
"""A buffer that grows has room for an eighth more."""
STREAMS = {
    "an event that does not end": b'data: {"choices":[{"delta":{"content":"' + b"a" * 150_000,
    "events": WORD * 2_000,
    "events without text": b'data: {"choices":[]}\n\n' * 6_000,
    "blank lines": b"\n" * 150_000,
    "a document": b'{"choices":[{"message":{"content":"' + b"a" * 150_000,
    "a document of numbers": b'{"choices":[' + b"1," * 75_000,
    "an array": b"[" + b'{"a":1},' * 15_000,
    "gzip": gzip.compress(random.Random(3).randbytes(150_000)),
}


@pytest.mark.large
@pytest.mark.parametrize("strips", [True, False], ids=["editing", "listening"])
@pytest.mark.parametrize("size", [SHORTEST, 1_999])
@pytest.mark.parametrize("stream", STREAMS)
def test_what_a_tap_takes_is_counted(stream: str, size: int, strips: bool):
    """Its objects, not only their bytes: upstream chooses how long a chunk is."""
    budget = MemoryBudget()
    body = STREAMS[stream]
    if size == SHORTEST:
        body = body[:25_000]  # its objects take many times its bytes
    kind = "text/event-stream" if body.startswith((b"data", b"\n")) else "application/json"
    decoder = Decoder("gzip") if stream == "gzip" else None
    tap = tap_of(strips=strips, content_type=kind, decoder=decoder, budget=budget)
    tap.callable(body[:1])
    tracemalloc.start()
    beyond = 0.0
    try:
        for at in range(1, len(body), size):
            tap.callable(body[at : at + size])
            if at % 50 == 1:
                counted = FREE_BYTES + budget.taken_bytes
                beyond = max(beyond, tracemalloc.get_traced_memory()[0] - OVERSIZE * counted)
    finally:
        tracemalloc.stop()
    tap.end()
    assert beyond <= OBJECTS_BYTES
    assert budget.taken_bytes == 0


@for_each("strips", [True, False], ids=["editing", "listening"])
def test_the_objects_of_tiny_chunks_fill_a_batch(strips: bool):
    """A burst of blank lines, each a chunk, takes no more memory than its batch may."""
    tap = tap_of(strips=strips, clock=lambda: 5.0)
    tap.callable(WORD)
    most = 0
    tracemalloc.start()
    try:
        for _ in range(BURST_BATCH_BYTES // SHORTEST):
            tap.callable(bytes(bytearray(b"\n\n")))  # a new object each time
            most = max(most, tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    tap.end()
    assert most <= OVERSIZE * BURST_BATCH_BYTES
