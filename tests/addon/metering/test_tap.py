"""The callable on the stream: same bytes, at once, whatever happens inside."""

import hashlib
import itertools
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon.dialects.routes import DIALECTS
from addon.metering.meter import Meter
from addon.metering.tap import BATCH_BYTES, Tap
from addon.usage_opt_in.rewrite import Stripper

WORD = b'data: {"id":"c1","model":"m","choices":[{"delta":{"content":"hi"}}],"usage":null}\n\n'
LAST = b'data: {"id":"c1","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n'
DONE = b"data: [DONE]\n\n"
BODY = WORD * 60 + LAST + DONE
UNASKED = WORD.replace(b',"usage":null', b"") * 60 + DONE


def meter() -> Meter:
    return Meter(DIALECTS["openai.chat"], content_type="text/event-stream")


def ticking():
    counter = itertools.count(1_763_600_000)
    return lambda: float(next(counter))


def tap_of(*, strips: bool, failures: list | None = None, metered=None) -> Tap:
    return Tap(
        metered or meter(),
        stripper=Stripper() if strips else None,
        clock=ticking(),
        on_failure=(failures if failures is not None else []).append,
    )


def drink(tap: Tap, chunks: list[bytes]) -> bytes:
    out = []
    for chunk in [*chunks, b""]:
        got = tap.callable(chunk)
        pieces = [got] if isinstance(got, bytes) else got
        # `b""` ends a chunked body early on HTTP/1.1 (mitmproxy PR #8242).
        assert b"" not in pieces
        out += pieces
    return b"".join(out)


def cut(data: bytes, edges: list[int]) -> list[bytes]:
    inside = [0, *sorted({edge % len(data) for edge in edges} - {0}), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(inside)]


def test_listening_hands_on_the_very_same_objects():
    tap = tap_of(strips=False)
    chunks = cut(BODY, list(range(0, len(BODY), 37)))
    for chunk in chunks:
        assert tap.callable(chunk) is chunk


@given(st.lists(st.integers(0, len(BODY)), max_size=30))
def test_listening_reads_the_same_whatever_the_cuts(edges: list[int]):
    tap = tap_of(strips=False)
    assert drink(tap, cut(BODY, edges)) == BODY
    tap.end()
    assert tap.meter.facts.response_id == "c1"
    assert tap.meter.usage().input_tokens == 3
    passed = tap.passed()
    assert passed.response_bytes == passed.client_bytes == len(BODY)
    assert passed.upstream_digest == passed.client_digest == hashlib.sha256(BODY).hexdigest()
    assert passed.removed_bytes == 0
    assert passed.removed_digest is None


@given(st.lists(st.integers(0, len(BODY)), max_size=30))
def test_editing_gives_the_unasked_stream_whatever_the_cuts(edges: list[int]):
    tap = tap_of(strips=True)
    assert drink(tap, cut(BODY, edges)) == UNASKED
    tap.end()
    assert tap.meter.usage().output_tokens == 2
    passed = tap.passed()
    assert passed.upstream_digest == hashlib.sha256(BODY).hexdigest()
    assert passed.client_digest == hashlib.sha256(UNASKED).hexdigest()
    removed = b',"usage":null' * 60 + LAST
    assert passed.removed_digest == hashlib.sha256(removed).hexdigest()
    assert passed.removed_bytes == len(removed)
    assert passed.client_bytes == len(UNASKED)
    assert passed.stripped


def test_an_edited_chunk_does_not_wait_for_the_next():
    tap = tap_of(strips=True)
    assert tap.callable(WORD + WORD[:20]) == WORD.replace(b',"usage":null', b"")


def test_the_first_byte_and_the_first_token_are_timed_when_they_came():
    tap = tap_of(strips=False)
    role = b'data: {"id":"c1","choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'
    for chunk in (role, role, WORD, WORD):
        tap.callable(chunk)
    tap.end()
    passed = tap.passed()
    assert passed.first_byte_at is not None
    assert passed.first_token_at is not None
    assert passed.first_token_at - passed.first_byte_at == timedelta(seconds=2)


class Failing(Meter):
    """A meter with a bug that shows at one call."""

    def __init__(self, at: int) -> None:
        super().__init__(DIALECTS["openai.chat"], content_type="text/event-stream")
        self.calls_left = at

    def feed(self, data: bytes) -> None:
        self.calls_left -= 1
        if self.calls_left == 0:
            raise ZeroDivisionError("our bug, with b'their secret' in it")
        super().feed(data)


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 50, BATCH_BYTES + 1, len(BODY)])
def test_a_bug_in_the_meter_costs_the_reading_and_no_byte(at: int, size: int):
    failures: list[Exception] = []
    tap = tap_of(strips=False, failures=failures, metered=Failing(at))
    chunks = [BODY[i : i + size] for i in range(0, len(BODY), size)]
    assert drink(tap, chunks) == BODY
    tap.end()
    if len(failures) == 0:
        assert at > 1  # fewer batches than that
        return
    assert len(failures) == 1
    degraded = tap.passed().degraded
    assert degraded is not None
    assert degraded.startswith("ZeroDivisionError in ")
    assert "secret" not in degraded
    assert tap.passed().upstream_digest is None


@pytest.mark.parametrize("at", [1, 5])
def test_a_bug_while_editing_hands_on_what_was_held_back(at: int):
    class FailingStripper(Stripper):
        left = at

        def feed(self, data: bytes) -> bytes:
            out = super().feed(data)
            self.left -= 1
            if self.left == 0:
                raise ZeroDivisionError
            return out

    tap = Tap(meter(), stripper=FailingStripper(), clock=ticking(), on_failure=lambda _: None)
    chunks = [BODY[i : i + 31] for i in range(0, len(BODY), 31)]
    # What was edited before the bug stays edited; from the held tail on, all passes as it came.
    edited = tap_of(strips=True)
    before = b"".join(
        piece if isinstance(piece, bytes) else b"".join(piece)
        for piece in map(edited.callable, chunks[: at - 1])
    )
    held = b"".join(chunks[: at - 1])[len(before) :] if at == 1 else None
    got = drink(tap, chunks)
    assert tap.degraded is not None
    if held is not None:
        assert got == BODY
    else:
        assert got.startswith(before)
        assert BODY.endswith(got[len(before) :])
        assert len(got[len(before) :]) > len(BODY) - 31 * at - len(WORD)


@pytest.mark.parametrize("at", [1, 2])
def test_a_bug_in_the_meter_leaves_the_editing_at_work(at: int):
    """What we asked for is not for the client, whether we could read it or not."""
    tap = Tap(Failing(at), stripper=Stripper(), clock=ticking(), on_failure=lambda _: None)
    assert drink(tap, [BODY[i : i + 1000] for i in range(0, len(BODY), 1000)]) == UNASKED
    tap.end()
    assert tap.degraded is not None
    assert tap.passed().stripped is True
