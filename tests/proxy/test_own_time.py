"""What counts as a wait or a turn, and that a proxy's own doing is seen whatever it is."""

import contextlib
from collections.abc import Iterator

import pytest

from tests.proxy import arena as arenas
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
PLAYS_MAX = 10


@pytest.mark.proxy
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
    """For 300 ms; the bounds are 100 ms of a wait and 50 ms of a turn.

    Other processes make what is seen smaller, never larger: it may take several plays.
    """

    def seen(target: str) -> Seen:
        return arena.attack(
            lambda proxy: exchange(proxy.address(), target, PLAIN)[1], is_ours=False
        )

    found = set[str]()
    for _ in range(PLAYS_MAX):
        found |= {*loads_of(bare=seen("/x"), ours=seen(f"/block/{way}"))}
        if found >= expected:
            break
    assert found == expected


class Scripted:
    """An arena in which ours makes the neighbour wait for these times, and bare for 1 ms."""

    def __init__(self, waits: list[float]) -> None:
        self.left = list(waits)

    def attack(self, run: object, *, is_ours: bool) -> Seen:
        wait_ms = self.left.pop(0) if is_ours else 1.0
        return Seen(wait_ms=wait_ms, turn_ms=0, growth_mb=0, slowness=1, answer=b"")

    def proxy(self, *, is_ours: bool) -> None:
        """Starts none."""

    def drop(self, *, is_ours: bool) -> None:
        """Stops none."""


@pytest.mark.parametrize(
    ("waits", "passes"),
    [
        pytest.param([90.0], True, id="within the bound at once"),
        pytest.param([500.0, 90.0, 500.0, 90.0, 90.0], True, id="a median within it"),
        pytest.param([500.0, 90.0, 500.0, 90.0, 500.0], False, id="a median beyond it"),
        pytest.param([500.0] * 5, False, id="always beyond it"),
    ],
)
def test_an_attack_beyond_a_bound_is_judged_by_medians(
    monkeypatch: pytest.MonkeyPatch, waits: list[float], passes: bool
) -> None:
    monkeypatch.setattr(arenas, "is_recorded_exactly", lambda _: True)
    scripted, said = Scripted(waits), list[str]()
    with contextlib.nullcontext() if passes else pytest.raises(AssertionError):
        arenas.check(scripted, "x", lambda _: b"", say=said.append, is_compared=True)  # type: ignore[arg-type]
    assert not scripted.left
    assert said[0].endswith("ok" if passes else "the neighbour waited")
