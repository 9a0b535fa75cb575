"""What counts as a wait or a turn, and that a proxy's own doing is seen whatever it is."""

from collections.abc import Iterator

import pytest

from tests.proxy.arena import Arena, Seen, exchange, loads_of, running_arena
from tests.proxy.attack import PLAIN
from tests.proxy.mitmdump import SCRIPTS
from tests.proxy.own_time import Moment, own_ms

MS = 1_000_000


def moment(clock: int, computed: int, queued: int, **others: int) -> Moment:
    """In milliseconds."""
    return Moment(clock * MS, computed * MS, queued * MS, {k: v * MS for k, v in others.items()})


@pytest.mark.parametrize(
    ("after", "expected_ms"),
    [
        pytest.param(moment(180, 110, 10), 80, id="computed"),
        pytest.param(moment(180, 30, 10), 80, id="slept"),
        pytest.param(moment(180, 60, 10), 80, id="computed-and-slept"),
        pytest.param(moment(180, 60, 60), 30, id="computed-and-waited-for-a-processor"),
        pytest.param(moment(180, 60, 10, a=50), 30, id="slept-while-another-thread-waited-for-one"),
        pytest.param(moment(180, 60, 10, a=30), 50, id="slept-longer-than-another-thread-waited"),
        pytest.param(moment(180, 60, 10, a=15, b=15), 50, id="two-others-waited"),
        pytest.param(moment(180, 60, 60, a=90), 30, id="computed-while-another-thread-waited"),
        pytest.param(moment(180, 140, 10, a=90), 110, id="computed-more-than-the-clock-says"),
        pytest.param(moment(180, 30, 90), 0, id="only-waited-for-a-processor"),
    ],
)
def test_what_a_process_does_itself(after: Moment, expected_ms: float) -> None:
    """From (100, 30, 10) on, when the thread `a` had waited 0 ms and `ended` 70 ms."""
    before = moment(100, 30, 10, a=0, ended=70)
    assert own_ms(before, after) == expected_ms


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    folder = tmp_path_factory.mktemp("own-time")
    with running_arena(folder, scripts=[SCRIPTS / "blocking.py"]) as running:
        yield running


BOTH = {"the neighbour waited", "a long turn"}


@pytest.mark.proxy
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("way", "expected"),
    [
        ("compute", BOTH),
        ("compute_and_sleep", BOTH),
        ("start_a_thread_that_holds_the_interpreter", BOTH),
        ("wait_for_a_lock", BOTH),
        ("sleep", BOTH),
        ("hold_the_next_request", {"the neighbour waited"}),
    ],
)
def test_whatever_blocks_the_loop_or_the_neighbour_is_seen(
    arena: Arena, way: str, expected: set[str]
) -> None:
    """For a second; the bounds are 300 ms of a wait and 150 ms of a turn. Other processes make what
    is seen smaller, never larger: one of the two measures may miss it beside them, never both."""

    def seen(target: str) -> Seen:
        return arena.attack(
            lambda proxy: exchange(proxy.address(), target, PLAIN)[1], is_ours=False
        )

    found = {*loads_of(bare=seen("/x"), ours=seen(f"/block/{way}"))}
    assert found
    assert found <= expected
