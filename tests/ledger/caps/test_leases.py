"""How processes share a cap: what each may take, and a simulation of processes that come, die, stop
and go on, with a ledger that is away for a while."""

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest

from ledger.caps.book import STEP, Account, Ask, Book, Held, Waiting
from ledger.caps.caps import NOTHING, ROLLING, Amounts, Cap
from ledger.caps.leases import (
    NO_CAP_PART,
    SLICE_SECONDS,
    CapPart,
    Grant,
    Silence,
    fits,
    grant,
    minus,
    plus,
)
from tests.ledger.written import NOON, opened
from tests.named import for_each


def tokens(amount: int) -> Amounts:
    return Amounts(0, 0, amount, 1)


def taken(limit: int, own: CapPart, others: CapPart, *wants: int, **more: Any) -> tuple[Any, bool]:
    found = grant(
        Amounts(None, None, limit, None), own, others, [tokens(each) for each in wants],
        **{"processes": 2, "is_contended": False, **more},
    )  # fmt: skip
    return found.taken.tokens, found.is_short


def part(spent: int, used: int, all_taken: int) -> CapPart:
    return CapPart(tokens(spent), tokens(used), tokens(all_taken))


@for_each(
    "own, others, wants, expected",
    [
        pytest.param(
            NO_CAP_PART, NO_CAP_PART, (), (25, False), id="a share of half of what is left"
        ),
        pytest.param(NO_CAP_PART, part(0, 0, 45), (), (5, False), id="all slices are half of it"),
        pytest.param(NO_CAP_PART, part(40, 40, 40), (), (15, False), id="half of what is left"),
        pytest.param(
            NO_CAP_PART, NO_CAP_PART, (60, 30), (92, False), id="as much as requests need"
        ),
        pytest.param(NO_CAP_PART, part(0, 0, 45), (60,), (0, True), id="short of what others took"),
        pytest.param(NO_CAP_PART, part(0, 0, 45), (60, 1), (0, True), id="in order"),
        pytest.param(NO_CAP_PART, part(50, 50, 50), (60,), (12, False), id="never"),
        pytest.param(part(5, 9, 20), part(50, 50, 70), (), (20, False), id="what it kept"),
        pytest.param(part(120, 120, 120), NO_CAP_PART, (), (120, False), id="beyond the limit"),
    ],
)
def test_what_a_process_may_take_of_a_hundred(own, others, wants, expected):
    assert taken(100, own, others, *wants) == expected


def test_nothing_is_taken_ahead_while_another_process_is_short():
    assert taken(100, NO_CAP_PART, NO_CAP_PART, 10, is_contended=True) == (10, False)


def test_who_is_silent_for_long_is_dead_if_it_could_be_heard():
    silence = Silence()
    for second in range(12):
        assert silence.gone({"a": 1, "b": second}, second) == set()
    assert silence.gone({"a": 1, "b": 12}, 12) == {"a"}
    assert silence.gone({"a": 2, "b": 13}, 13) == set()
    assert silence.gone({"a": 2, "b": 13}, 40) == set()  # it did not look for long


# Simulation

MIDNIGHT = NOON.replace(hour=0)


@dataclass(eq=False)
class Process:
    name: str
    clock: timedelta
    """Its clock is wrong by this."""
    book: Book
    silence: Silence = field(default_factory=Silence)
    renewed_at: float = float("-inf")
    is_dead: bool = False
    died_at: float = float("inf")
    is_stopped: bool = False
    """It asks the ledger nothing, and goes on otherwise."""
    running: list[Held] = field(default_factory=list)
    asked: list[Ask] | None = None
    """A question that is under way."""
    began_at: float = 0.0


class World:
    """Processes, and a ledger in memory that does what `shared.py` does in SQL."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.drawn = random.Random(seed)
        period = self.drawn.choice(("day", "session", "5h"))
        self.limit = self.drawn.choice((10, 100, 1_000))
        wait = self.drawn.choice((0, 20))
        self.cap = Cap(name="c", tokens=self.limit, period=period, wait=wait)  # type: ignore[arg-type]
        self.is_file = self.drawn.random() < 0.5
        self.second = 36_000.0 + self.drawn.choice((0, 50_000))  # some pass midnight
        self.is_up = True
        self.processes: list[Process] = []
        self.rows: dict[tuple[str, str], tuple[CapPart, bool]] = {}
        self.states: dict[str, str] = {}
        self.beats: dict[str, float] = {}
        self.base: defaultdict[str, list[tuple[datetime, Amounts]]] = defaultdict(list)

    def now(self, process: Process) -> datetime:
        return MIDNIGHT + timedelta(seconds=self.second) + process.clock

    def start(self) -> None:
        book = Book([self.cap], is_shared=True)
        clock = timedelta(seconds=self.drawn.choice((-60, 0, 0, 60)))
        process = Process(f"p{len(self.processes)}", clock, book)
        self.processes.append(process)
        book.complete([self.cap], self.now(process))

    @property
    def live(self) -> list[Process]:
        return [each for each in self.processes if not each.is_dead]

    # The ledger

    def gone(self, process: Process) -> set[str]:
        others = {name for name in self.states if name != process.name}
        if self.is_file:
            return {each.name for each in self.processes if each.is_dead} & others
        return process.silence.gone({name: self.beats[name] for name in others}, self.second)

    def end(self, name: str) -> None:
        """A process is gone: add up what the ledger has of it."""
        process = next(each for each in self.processes if each.name == name)
        for account in process.book._accounts.values():
            rows = [(NOON, account.spent)]
            if self.cap.period == "5h":
                befores = [NOTHING, *(total for _, total in account.steps)]
                pairs = zip(account.steps, befores, strict=False)
                rows = [(at, minus(total, before)) for (at, total), before in pairs]
            rows.append((self.now(process), account.held))
            said, _ = self.rows.pop((name, account.name), (NO_CAP_PART, False))
            if self.is_file:
                self.base[account.name] += rows
                continue
            # What it did while the ledger was away, is still in its spool.
            is_shipped = process.is_dead or process.is_stopped
            used = account.used_at(self.now(process)) if is_shipped else said.used
            more = minus(used, said.used)
            beyond = Amounts(*(max(0, each or 0) for each in more))
            self.base[account.name].append((self.now(process), beyond))
            self.rows[name, account.name] = (said._replace(taken=said.used), False)
        self.states[name] = "silent"
        if self.is_file:
            del self.states[name]

    def take(self, process: Process, ask: Ask, short: set[tuple[str, str]]) -> None:
        name, now = ask.account.name, self.now(process)
        others = NO_CAP_PART
        for (node, account), (row, _) in self.rows.items():
            if node != process.name and account == name:
                others = CapPart(*map(plus, others, row))
        for at, amounts in self.base[name]:
            if self.cap.period != "5h" or at + STEP + timedelta(minutes=3) > now - ROLLING:
                others = CapPart(*(plus(each, amounts) for each in others))
        found = grant(
            ask.account.limits, ask.own, others, ask.wants,
            processes=sum(state == "live" for state in self.states.values()),
            is_contended=("c", name) in short,
        )  # fmt: skip
        self.rows[process.name, name] = ask.own._replace(taken=found.taken), found.is_short
        if self.drawn.random() > 0.05:  # an answer can be lost
            process.book.granted(ask, found, others)
        else:
            process.book.failed([ask])
        self.check_slices(name, found)

    def check_slices(self, name: str, found: Grant) -> None:
        """What is taken ahead is at most half of what is left, with all other slices."""
        rows = [row for (_, account), (row, _) in self.rows.items() if account == name]
        if found.ahead.tokens:
            slices = sum((row.taken.tokens or 0) - (row.used.tokens or 0) for row in rows)
            wanted = (found.taken.tokens or 0) - found.ahead.tokens
            assert slices <= self.limit // 2 + wanted, (self.seed, rows)

    def turn(self, process: Process) -> None:
        """Begin a question to the ledger, or end the one that is under way."""
        if process.is_stopped:
            return
        if process.asked is None:
            process.began_at = self.second
            if self.second >= process.renewed_at + SLICE_SECONDS:
                process.book.lapse()
            process.asked = process.book.asks(self.now(process))
            return
        asks, process.asked = process.asked, None
        if not self.is_up:
            process.book.failed(asks)
            process.book.unreachable = "it is away"
        else:
            self.beats[process.name] = self.second
            for name in self.gone(process):
                if self.states.get(name) == "live":
                    self.end(name)
            if self.states.get(process.name) == "silent":  # it was only stopped
                for base in self.base.values():
                    base.clear()
                self.states[process.name] = "live"
                for name in [name for name, state in self.states.items() if state == "silent"]:
                    self.end(name)
            self.states[process.name] = "live"
            short = {
                ("c", account)
                for (node, account), (_, is_short) in self.rows.items()
                if is_short and node != process.name
            }
            for ask in asks:
                self.take(process, ask, short)
            process.book.contend(short)
            process.renewed_at = process.began_at
            process.book.unreachable = ""
        self.free(process)

    # The processes

    def free(self, process: Process) -> None:
        process.book.has_slices = self.second < process.renewed_at + SLICE_SECONDS
        process.running += [one for _, one in process.book.freed() if isinstance(one, Held)]

    def ask(self, process: Process, amount: int, session: str = "s") -> object:
        process.book.has_slices = self.second < process.renewed_at + SLICE_SECONDS
        name = f"{process.name}/{self.second}/{self.drawn.random()}"
        exchange = opened(name, at=self.now(process), session_id=session)
        found = process.book.ask(exchange, tokens(amount))
        if isinstance(found, Held):
            process.running.append(found)
        return found

    def accounts(self) -> Iterator[tuple[Process, Account]]:
        for process in self.processes:
            for account in process.book._accounts.values():
                yield process, account

    def check(self) -> None:
        total: defaultdict[str, Amounts] = defaultdict(lambda: NOTHING)
        for process, account in self.accounts():
            used = account.used_at(self.now(process))
            # What was lost counts as long as its period.
            if self.cap.period == "5h" and self.second > process.died_at + ROLLING.seconds:
                used = account.spent_at(self.now(process))
            total[account.name] = plus(total[account.name], used)
        for name, used in total.items():
            assert (used.tokens or 0) <= self.limit, (self.seed, name, used)

    def move(self) -> None:
        process = self.drawn.choice(self.live)
        chance = self.drawn.random()
        if chance < 0.35:
            amount = max(1, int(self.limit * self.drawn.choice((0.02, 0.1, 0.3, 0.7, 1))))
            self.ask(process, amount, self.drawn.choice("st"))
        elif chance < 0.5 and process.running:
            one = process.running.pop(self.drawn.randrange(len(process.running)))
            cost = int((one.amounts.tokens or 0) * self.drawn.random())
            process.book.settle(one, self.drawn.choice((tokens(cost), Amounts())))
            self.free(process)
        elif chance < 0.55 and len(self.live) > 1:
            process.is_dead, process.died_at = True, self.second
        elif chance < 0.6 and len(self.processes) < 6:
            self.start()
        elif chance < 0.63:
            self.is_up = not self.is_up
        elif chance < 0.66:
            for waited in list(process.book.waiting):
                process.book.give_up(waited)
        elif chance < 0.68:
            self.second += self.drawn.choice((5, 12, 60, 4_000, 17_900))  # all are stopped
        elif chance < 0.72:
            process.is_stopped = not process.is_stopped
        else:
            for _ in range(self.drawn.choice((1, 1, 2, 26))):
                self.second += self.drawn.choice((0.1, 0.6))
                for each in self.live:
                    self.turn(each)

    def heal(self, seconds: int) -> None:
        self.is_up = True
        for each in self.processes:
            each.is_stopped = False
        for _ in range(seconds):
            self.second += 0.5
            for each in self.live:
                self.turn(each)


def simulate(seed: int) -> None:
    world = World(seed)
    for _ in range(world.drawn.randint(1, 4)):
        world.start()
    for _ in range(world.drawn.randint(20, 120)):
        world.move()
        world.check()
    # What fits beside what is spent, is not refused for ever.
    for process in world.live:
        for waited in list(process.book.waiting):
            process.book.give_up(waited)
        while process.running:
            process.book.settle(process.running.pop(), tokens(0))
    world.heal(60)
    process = world.live[0]
    world.ask(process, 1)
    world.heal(12)
    account = process.book._accounts_of(opened("x", at=world.now(process), session_id="s"))[0]
    left = world.limit - sum(
        part.tokens or 0
        for part in (account.used_at(world.now(process)), account.others.used)
    )  # fmt: skip
    if left > 0:
        one = world.ask(process, left)
        world.heal(12)
        assert isinstance(one, Held) or (
            isinstance(one, Waiting) and one not in process.book.waiting
        ), (seed, one)
        assert fits(account.used_at(world.now(process)), account.limits)
        assert account.held.tokens == left + 1, (seed, left, account)
    world.check()


def test_a_slice_ends_before_others_take_it():
    """One process cannot ask the ledger, and goes on; another one needs all."""
    world = World(1)
    world.is_file, world.limit = False, 100
    world.cap = Cap(name="c", tokens=100, period="day", wait=0)
    for _ in range(2):
        world.start()
        world.heal(2)
    world.processes[0].is_stopped = True
    for _ in range(60):
        world.second += 0.5
        world.ask(world.processes[0], 1)
        world.ask(world.processes[1], 3)
        world.turn(world.processes[1])
        world.check()
    ran = [len(process.running) for process in world.processes]
    assert ran[0] in range(5, 20)
    assert ran[1] >= 25


@pytest.mark.parametrize(
    "block", [0, *(pytest.param(later, marks=pytest.mark.nightly) for later in range(1, 34))]
)
def test_a_cap_holds_over_processes(block):
    for seed in range(block * 300, (block + 1) * 300):
        simulate(seed)


def test_one_that_was_stopped_goes_on_when_others_have_its_slice():
    simulate(9462)
