"""The memory of all exchanges together has a bound, and beyond it bytes are only passed on."""

from addon.dialects.routes import DIALECTS
from addon.metering.budget import FREE_BYTES, Budget
from addon.metering.meter import Meter
from addon.metering.tap import Tap
from addon.metering.troubles import Troubles
from addon.usage_opt_in.stripping import Stripper


def tap_with(budget: Budget, troubles: Troubles) -> Tap:
    meter = Meter(DIALECTS["openai.chat"], content_type="text/event-stream")
    return Tap(meter, stripper=Stripper(), clock=lambda: 0.0, troubles=troubles, budget=budget)


def test_what_is_taken_is_given_back():
    budget = Budget(100)
    assert budget.take(60)
    assert not budget.take(41)
    assert budget.left_bytes == 40
    budget.give_back(60)
    assert budget.left_bytes == 100


def test_an_ordinary_exchange_takes_nothing():
    troubles = Troubles()
    tap = tap_with(Budget(0), troubles)
    event = b"data: " + b"x" * 1_000 + b"\n\n"
    for _ in range(200):
        assert tap.callable(event) == event
    tap.end()
    assert troubles.text is None


def test_an_unfinished_event_beyond_the_budget_is_passed_on():
    """Every byte goes to the client, nothing is kept any more, and the row says so."""
    budget = Budget(3 * FREE_BYTES)
    troubles = Troubles()
    tap = tap_with(budget, troubles)
    chunk = b"data: " + b"x" * 9_994
    out = b""
    for _ in range(100):
        got = tap.callable(chunk)
        out += got if isinstance(got, bytes) else b"".join(got)
    assert out == chunk * 100
    assert tap.gave_way
    assert budget.left_bytes == 3 * FREE_BYTES
    assert "in memory" in (troubles.text or "")
    tap.end()
    assert not tap.passed().is_whole


def test_a_long_event_takes_and_the_end_gives_back():
    budget = Budget()
    before = budget.left_bytes
    tap = tap_with(budget, Troubles())
    tap.callable(b"data: " + b"x" * 2 * FREE_BYTES)
    tap.callable(b"y")
    assert budget.left_bytes < before
    tap.end()
    assert budget.left_bytes == before


def test_exchanges_share_what_there_is():
    budget = Budget(8 * FREE_BYTES)
    first, second = Troubles(), Troubles()
    taps = [tap_with(budget, first), tap_with(budget, second)]
    for tap in taps:
        for _ in range(3):
            tap.callable(b"data: " + b"x" * 2 * FREE_BYTES)
    assert taps[1].gave_way
    assert second.text is not None
