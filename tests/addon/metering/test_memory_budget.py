"""What exchanges keep beside their bytes. The memory of all together has a bound, and beyond it bytes are only
passed on; lengths and digests of what passed; one bounded list of what went wrong, and the guard that
fills it."""

import logging

import pytest
import zstandard

from addon.dialects.routes import DIALECTS
from addon.metering.decoding import decoder_of
from addon.metering.memory_budget import CAPTURES_LEAVE_BYTES, FREE_BYTES, MemoryBudget, Share
from addon.metering.meter import Meter
from addon.metering.tap import Tap
from addon.metering.troubles import REASON_LENGTH_MAX, REASONS_MAX, Troubles
from ledger.model.errors import named
from tests.named import for_each


def tap_with(
    budget: MemoryBudget, troubles: Troubles, *, edits: bool = True, encoding: str = ""
) -> Tap:
    """It edits a stream, or listens to a document."""
    return Tap(
        Meter(DIALECTS["openai.chat"]),
        content_type="text/event-stream" if edits else "application/json",
        edits=edits,
        clock=lambda: 0.0,
        troubles=troubles,
        decoder=decoder_of(encoding),
        budget=budget,
    )


def test_an_ordinary_exchange_takes_nothing():
    troubles = Troubles()
    tap = tap_with(MemoryBudget(0), troubles)
    event = b"data: " + b"x" * 1_000 + b"\n\n"
    for _ in range(200):
        assert tap.callable(event) == event
    tap.end()
    assert troubles.text is None


def test_an_unfinished_event_beyond_the_budget_is_passed_on():
    """Every byte goes to the client, nothing is kept any more, and the row says so."""
    budget = MemoryBudget(3 * FREE_BYTES)
    troubles = Troubles()
    tap = tap_with(budget, troubles)
    chunk = b"data: " + b"x" * 9_994
    out = b""
    for _ in range(100):
        got = tap.callable(chunk)
        out += got if isinstance(got, bytes) else b"".join(got)
    assert out == chunk * 100
    assert tap.has_stopped
    assert budget.left_bytes == 3 * FREE_BYTES
    assert "in memory" in (troubles.text or "")
    tap.end()
    assert not tap.transfer().is_whole


def test_a_long_event_takes_and_the_end_gives_back():
    budget = MemoryBudget()
    before = budget.left_bytes
    tap = tap_with(budget, Troubles())
    tap.callable(b"data: " + b"x" * 2 * FREE_BYTES)
    tap.callable(b"y")
    assert budget.left_bytes < before
    tap.end()
    assert budget.left_bytes == before


def test_exchanges_share_what_there_is():
    budget = MemoryBudget(8 * FREE_BYTES)
    first, second = Troubles(), Troubles()
    taps = [tap_with(budget, first), tap_with(budget, second)]
    for tap in taps:
        for _ in range(3):
            tap.callable(b"data: " + b"x" * 2 * FREE_BYTES)
    assert taps[1].has_stopped
    assert second.text is not None


def test_captures_leave_half_of_it_to_the_reading():
    budget = MemoryBudget(CAPTURES_LEAVE_BYTES + 100)
    assert not budget.take(101, leaving=CAPTURES_LEAVE_BYTES)
    assert budget.take(100, leaving=CAPTURES_LEAVE_BYTES)
    assert budget.take(CAPTURES_LEAVE_BYTES)
    assert budget.left_bytes == 0
    budget.release(100)  # the thread that writes them
    assert budget.left_bytes == 100


def objects(count: int) -> bytes:
    return b'{"x":[' + b",".join(b'{"key%d":%d}' % (n, n) for n in range(count)) + b"]}"


def test_a_large_document_that_is_being_read_takes_and_gives_back():
    budget = MemoryBudget()
    tap = tap_with(budget, Troubles(), edits=False)
    for at in range(4):
        tap.callable(objects(5_000)[at * 20_000 : (at + 1) * 20_000])
    assert budget.taken_bytes > 0
    tap.end()
    assert budget.taken_bytes == 0


@for_each("encoding", ["", "zstd"])
def test_a_document_beyond_the_budget_is_passed_on_and_not_kept(encoding: str):
    budget = MemoryBudget(0)
    troubles = Troubles()
    tap = tap_with(budget, troubles, edits=False, encoding=encoding)
    body = zstandard.compress(objects(40_000)) if encoding else objects(40_000)
    chunks = [body[at : at + 4_000] for at in range(0, len(body), 4_000)]
    for chunk in chunks:
        assert tap.callable(chunk) == chunk
        tap.read_some()
    assert tap.has_stopped
    assert tap.meter.framing is not None
    assert tap.meter.framing.held_bytes == 0
    assert "in memory" in (troubles.text or "")
    tap.end()
    assert tap.meter.usage().input_tokens is None


def test_a_share_takes_what_it_lacks_and_gives_it_back():
    budget = MemoryBudget(3 * FREE_BYTES)
    share = Share(budget)
    assert share.covers(FREE_BYTES)
    assert budget.taken_bytes == 0
    assert share.covers(FREE_BYTES + 1_000)
    # As much again is taken with it, so that what grows seldom takes.
    assert budget.taken_bytes == FREE_BYTES + 2_000
    assert share.covers(2 * FREE_BYTES)
    assert budget.taken_bytes == FREE_BYTES + 2_000
    share.give_back()
    assert budget.taken_bytes == 0


def test_a_share_takes_no_more_than_there_is():
    budget = MemoryBudget(1_000)
    share = Share(budget)
    assert share.covers(FREE_BYTES + 1_000)
    assert budget.left_bytes == 0
    assert not share.covers(FREE_BYTES + 1_001)


def test_what_is_taken_is_given_back():
    budget = MemoryBudget(100)
    assert budget.take(60)
    assert not budget.take(41)
    assert budget.left_bytes == 40
    budget.give_back(60)
    assert budget.left_bytes == 100


def test_nothing_wrong_is_none():
    troubles = Troubles()
    assert troubles.text is None


def test_all_reasons_are_kept_in_their_order_once_each():
    troubles = Troubles()
    for reason in ("a", "b", "a", "c"):
        troubles.add(reason)
    assert troubles
    assert troubles.text == "a; b; c"


def test_reasons_are_bounded():
    troubles = Troubles()
    for number in range(REASONS_MAX + 5):
        troubles.add(f"{number} " + "x" * 10_000)
    assert troubles.text is not None
    assert len(troubles.text) < (REASONS_MAX + 1) * (REASON_LENGTH_MAX + 10)
    assert troubles.text.endswith("; 5 more")


def fail(secret: str) -> None:
    raise ZeroDivisionError(secret)


def test_a_failure_is_noted_and_logged_without_its_text(caplog: pytest.LogCaptureFixture):
    troubles = Troubles()
    with caplog.at_level(logging.WARNING):
        try:
            fail("a secret prompt")
        except ZeroDivisionError as failure:
            troubles.add_failure(failure, "the traffic goes on")
    assert troubles.text is not None
    assert troubles.text.startswith("ZeroDivisionError in tests.addon.metering.test_memory_budget:")
    (record,) = caplog.records
    assert "secret" not in record.getMessage() + troubles.text


def test_a_failure_without_a_trace_has_no_place():
    assert named(ValueError()) == "ValueError in unknown place"
