"""Caps that processes share: several at once, one that dies, one that stands still, a ledger that is
away; and schedules over processes, days and sessions."""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ledger.model.errors import LedgerError
from ledger.parts.budgets import shared as module
from ledger.parts.budgets.book import Account, Book, Held, Refusal, Waiting
from ledger.parts.budgets.caps import NOTHING, Amounts, Cap, plus
from ledger.parts.budgets.share_rows import FileRows
from ledger.parts.budgets.shared import SharedCaps
from ledger.settings.names import NO_NAMES
from ledger.store.engines import urls
from ledger.store.processes import nodes
from tests.ledger import written
from tests.ledger.written import COST, on_postgres, on_sqlite, opened, settled, whole

USD = 10**12
NOW = datetime.now(UTC)


def cap(**more: Any) -> Cap:
    return Cap(**{"name": "daily", "usd": 10, "period": "day", "wait": 30, **more})


def usd(amount: float) -> Amounts:
    picousd = int(amount * USD)
    return Amounts(picousd, picousd, 0, 1)


class Peer:
    """One process: its book, its part of the table, and its lock."""

    def __init__(self, url: str, node: str, file: Path, caps: list[Cap]) -> None:
        self.book = Book()
        self.book.set_caps(caps, NO_NAMES)
        self.shared = SharedCaps(url, node=node, file=file)
        self.claim = nodes.Claim(file, node).take()
        self.node = node
        self.count = 0
        self.look()

    def look(self, now: datetime | None = None) -> None:
        """See who is dead, and what all have."""
        now = now or datetime.now(UTC)
        accounts = self.book.current(now)
        for account, standing in zip(
            accounts, self.shared.look(accounts, NO_NAMES, now), strict=True
        ):
            self.book.noted(account, standing)

    def turn(self, now: datetime | None = None) -> dict[Waiting, Held | Refusal]:
        """Settle, and ask for all that waits."""
        asking = self.book.to_reserve()
        changes, self.book.changes = self.book.changes, []
        try:
            wanted = [(one.shared, one.hold) for one in asking]
            answers = self.shared.turn(changes, wanted, NO_NAMES, now or datetime.now(UTC))
        except LedgerError as error:
            answers = [str(error)] * len(asking)
        found = {}
        for one, said in zip(asking, answers, strict=True):
            if (answer := self.book.answered(one, said)) is not None:
                found[one] = answer
        return found | dict(self.book.freed())

    def ask(self, amount: float, **more: Any) -> Held | Refusal | None:
        """A request, and the answer of the table; None: it waits."""
        self.count += 1
        more = {"at": datetime.now(UTC), **more}
        exchange = opened(f"{self.node}/{self.count}", node=self.node, **more)
        found = self.book.ask(exchange, usd(amount))
        if isinstance(found, Waiting):
            return self.turn(more["at"]).get(found)
        return found

    def goes(self, amount: float, **more: Any) -> Held:
        """The same, where it goes."""
        found = self.ask(amount, **more)
        assert isinstance(found, Held), found
        return found

    def end(self, held: Held, amount: float) -> None:
        """A request is over."""
        self.book.settle(held, usd(amount))
        self.turn()

    def account(self, now: datetime | None = None) -> Account:
        self.look(now)
        (account,) = self.book.current(now or datetime.now(UTC))
        return account

    def used(self) -> tuple[float, float]:
        """What all have spent and hold, in USD."""
        account = self.account()
        return (account.spent.usd or 0) / USD, (account.held.usd or 0) / USD


type MakePeer = Callable[..., Peer]


@pytest.fixture
def peer(engine, ledger_url, new_sqlite) -> Iterator[MakePeer]:
    """Makes processes that record into one ledger."""
    file = urls.sqlite_path(ledger_url) or urls.sqlite_path(new_sqlite())
    assert file is not None
    with ExitStack() as ending:

        def make(node: str, *caps: Cap) -> Peer:
            found = Peer(ledger_url, node, file, list(caps) or [cap()])
            ending.callback(found.shared.leave)
            ending.callback(found.claim.release)
            return found

        yield make


def test_processes_share_a_cap(peer):
    a, b = peer("a"), peer("b")
    held = [(one, found) for one in (a, b, a, b, a) if isinstance(found := one.ask(2), Held)]
    assert len(held) == 5
    assert (a.used(), b.used()) == ((0, 10), (0, 10))
    assert b.ask(0.1) is None
    for one, each in held:
        one.end(each, 0.5)
    assert not b.book.waiting
    assert b.used() == (2.5, 0.1)
    found = a.ask(8)
    assert isinstance(found, Refusal)
    assert "$2.50 of $10.00 (usd) spent, $0.1000 held" in found.message


def test_a_request_that_waits_is_not_overtaken(peer):
    a = peer("a")
    first = a.goes(9)
    assert a.ask(5) is None
    assert a.ask(0.5) is None
    a.book.settle(first, usd(1))
    assert [one.hold.usd for one in a.turn()] == [5 * USD, USD // 2]


def test_all_caps_of_a_request_hold(peer):
    own = cap(name="run", period="run", usd=100)
    a = peer("a", cap(name="wide", usd=100), cap(name="narrow", usd=3, wait=0), own)
    a.goes(2)
    found = a.ask(2)
    assert isinstance(found, Refusal)
    assert found.cap == "narrow"
    a.look()
    accounts = a.book.accounts(datetime.now(UTC))
    assert {each.cap.name: each.held.usd for each in accounts} == dict.fromkeys(
        ("wide", "narrow", "run"), 2 * USD
    )


def test_who_leaves_has_spent(peer):
    a, b = peer("a"), peer("b")
    a.end(a.goes(3), 2)
    a.shared.leave()
    assert b.used() == (2, 0)


@on_sqlite
def test_on_a_file_what_a_dead_process_held_counts(peer):
    a, b = peer("a"), peer("b")
    a.goes(3)
    a.end(a.goes(3), 1)
    assert b.used() == (1, 3)
    a.claim.release()
    assert b.used() == (4, 0)


@on_postgres
def test_on_a_server_what_a_silent_process_held_counts(peer, engine):
    a, b = peer("a"), peer("b")
    first = a.goes(3)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE cap_shares SET at = at - 14 WHERE cap = ''")
    assert b.used() == (0, 3)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE cap_shares SET at = at - 16 WHERE node = 'a'")
    assert b.used() == (3, 0)
    # It only stood still: what it tells then is right again, and nothing counts twice.
    a.look()
    second = a.goes(2)
    assert b.used() == (0, 5)
    a.end(first, 1)
    a.end(second, 1)
    assert b.used() == (2, 0)


@on_sqlite
def test_after_all_have_ended_the_ledger_says_what_was_spent(peer, engine):
    """Also what was killed: the file is not believed, since the machine may have lost power."""
    a = peer("a")
    first, second = a.goes(3), a.goes(3)
    holds: Any = {"node": "a", "hold_picousd": 3 * USD}
    over = settled(first.exchange.id, at=first.exchange.opened_at, **holds)
    written.put(engine, whole(over), whole(opened("o", at=second.exchange.opened_at, **holds)))
    a.claim.release()
    spent, held = peer("b").used()
    assert (spent, held) == (3 + COST / USD, 0)


@on_sqlite
def test_a_file_that_is_damaged_or_gone_is_made_again(peer, engine):
    a = peer("a")
    a.end(a.goes(3), 0)
    done = settled("x", at=datetime.now(UTC), node="a")
    written.put(engine, whole(done))
    file = a.shared._file.with_name(f"{a.shared._file.name}-caps")
    held = a.goes(4)
    file.unlink()
    assert a.used() == (COST / USD, 4)
    assert a.goes(1)
    assert a.used() == (COST / USD, 5)
    a.end(held, 1)
    a.shared._close()
    for ending in ("-wal", "-shm"):
        file.with_name(file.name + ending).unlink(missing_ok=True)
    file.write_bytes(os.urandom(20_000))
    with pytest.raises(LedgerError):
        a.look()
    a.shared._quiet_until = 0
    assert a.goes(5)


@pytest.mark.parametrize("period", ["session", "5h", "day", "week", "month"])
@pytest.mark.parametrize("days", [1, 40, -40])
def test_a_clock_that_jumps_and_comes_back_empties_no_account(peer, period, days):
    a, b = (peer(name, cap(period=period, wait=0)) for name in "ab")
    now = datetime.now(UTC)
    held = a.goes(8, at=now, session_id="s")
    a.end(a.goes(1, at=now, session_id="s"), 1)
    then = now + timedelta(days=days)
    for each in (a, b):
        each.look(then)
    a.ask(1, at=then, session_id="s")
    a.end(held, 8)
    for each in (a, b):
        each.look(now)
        assert isinstance(each.ask(1.5, at=now, session_id="s"), Refusal)


def test_accounts_that_were_dropped_are_added_up_again_and_count_once(peer, engine, monkeypatch):
    """As after a clock that went ahead for longer than accounts are kept."""
    a = peer("a")
    at = datetime.now(UTC)
    a.end(a.goes(3), COST / USD)
    written.put(engine, whole(settled("x", at=at, node="a")))
    held = a.goes(2)
    with monkeypatch.context() as ahead:
        ahead.setattr("ledger.parts.budgets.share_rows.KEPT_SECONDS", -60)
        a.shared._rows.prune()
    with pytest.raises(LedgerError, match="added up again"):
        a.look()
    assert a.used() == (COST / USD, 2)
    a.end(held, 1)
    assert a.used() == (1 + COST / USD, 0)


@pytest.mark.parametrize("unreachable", ["refuse", "pass"])
def test_without_the_ledger_the_operator_decides(peer, monkeypatch, unreachable):
    a, b = (peer(name, cap(unreachable=unreachable)) for name in "ab")
    first = a.goes(1)
    with monkeypatch.context() as away:
        away.setattr(type(a.shared._rows), "put", lambda *_, **__: _raise())
        found = a.ask(2)
        if unreachable == "refuse":
            assert isinstance(found, Refusal)
            assert "the ledger cannot be reached: it is down" in found.message
        else:
            assert isinstance(found, Held)
            assert found.remarks == ("cap daily: passed: the ledger could not be reached",)
        a.end(first, 0.5)
    assert b.used() == (0, 1)
    monkeypatch.setattr(a.shared, "_quiet_until", 0)
    a.turn()
    assert b.used() == (0.5, 2 if unreachable == "pass" else 0)


def _raise() -> None:
    raise OSError("it is down")


def test_a_ledger_that_is_away_is_not_asked_at_once_again(peer, monkeypatch):
    a, asked = peer("a"), []
    a.shared._close()

    def away(*_: object) -> None:
        asked.append(1)
        raise OSError("it is down")

    monkeypatch.setattr(SharedCaps, "_opened", away)
    assert all(isinstance(a.ask(1), Refusal) for _ in range(3))
    assert len(asked) == 1


@pytest.mark.parametrize("period", ["5h", "session", "month"])
def test_each_kind_of_period_begins_with_what_the_ledger_has(peer, engine, period):
    ago = datetime.now(UTC) - timedelta(seconds=1)
    written.put(engine, *(whole(settled(name, at=ago, session_id=name)) for name in ("s", "t")))
    one = cap(period=period, usd=None, tokens=1_000)
    a = peer("a", one)
    held = a.goes(0, session_id="s")
    (account,) = held.accounts
    assert account.spent.tokens == (120 if period == "session" else 240)
    a.book.settle(held, Amounts(0, 0, 7, 1))
    a.turn()
    (its,) = peer("b", one).goes(0, session_id="s").accounts
    assert its.spent.tokens == (account.spent.tokens or 0) + 7
    (new,) = a.goes(0, session_id="u").accounts
    assert new.spent.tokens == (0 if period == "session" else 247)


def test_what_is_not_written_yet_is_waited_for(peer, monkeypatch):
    a = peer("a", cap(name="other"))
    answers = iter([False, False, True])
    a.shared._is_written = lambda: next(answers)
    a.book.set_caps([cap()], NO_NAMES)
    a.goes(1)
    monkeypatch.setattr(module, "ANSWER_SECONDS_MAX", 0.05)
    a.shared._is_written = lambda: False
    a.book.set_caps([cap(name="third")], NO_NAMES)
    found = a.ask(1)
    assert isinstance(found, Refusal)
    assert "does not have yet what was settled" in found.message


@on_postgres
def test_what_waits_in_the_spool_is_waited_for(peer, monkeypatch):
    monkeypatch.setattr(module, "ANSWER_SECONDS_MAX", 0.05)
    a = peer("a", cap(name="first"))
    spool = f"sqlite:///{a.shared._file}"
    written.put(spool, whole(settled("waits", at=NOW - timedelta(days=1), node="a")))
    written.alter(
        spool, "INSERT INTO outbox (exchange_id, opened_at) SELECT id, opened_at FROM exchanges"
    )
    a.book.set_caps([cap(name="second")], NO_NAMES)
    assert isinstance(a.ask(1), Refusal)
    a.book.set_caps([cap(name="first")], NO_NAMES)
    a.goes(1)


def test_a_period_is_that_of_its_zone(peer):
    a = peer("a", cap(timezone="Europe/Berlin", wait=0))
    night = datetime(2026, 10, 25, 21, 59, tzinfo=UTC)  # 22:59 after the clock went back
    held = a.goes(10, at=night)
    a.book.settle(held, usd(10))
    found = a.ask(1, at=night + timedelta(minutes=60))
    assert isinstance(found, Refusal)
    assert found.message.endswith("resets at 2026-10-25 23:00 UTC")
    a.goes(10, at=night + timedelta(minutes=61))


def test_a_rolling_period_forgets_step_by_step(peer):
    a, noon = peer("a", cap(period="5h", wait=0)), NOW.replace(second=0, microsecond=0)
    a.book.settle(a.goes(6, at=noon), usd(6))
    a.book.settle(a.goes(4, at=noon + timedelta(hours=1)), usd(4))
    assert isinstance(a.ask(6, at=noon + timedelta(hours=5)), Refusal)
    again = a.goes(6, at=noon + timedelta(hours=5, minutes=2))
    assert isinstance(a.ask(5, at=noon + timedelta(hours=5, minutes=2)), Refusal)
    a.book.settle(again, usd(6))
    a.book.settle(a.goes(4, at=noon + timedelta(hours=6, minutes=2)), usd(4))
    assert a.account(noon + timedelta(hours=20)).spent == NOTHING


@pytest.mark.parametrize("period", ["day", "5h"])
def test_a_clock_that_jumps_empties_no_account(peer, period):
    a, now = peer("a", cap(period=period, wait=0)), datetime.now(UTC)
    a.book.settle(a.goes(9, at=now), usd(9))
    for days in (1, 400):
        a.goes(1, at=now + timedelta(days=days))
    a.shared._rows.prune()
    assert isinstance(a.ask(2, at=now + timedelta(seconds=1)), Refusal)


def test_what_is_remembered_of_sessions_is_bounded_and_nothing_is_forgotten(peer, monkeypatch):
    monkeypatch.setattr(module, "OWN_MAX", 4)
    monkeypatch.setattr("ledger.parts.budgets.book.ACCOUNTS_MAX", 4)
    a = peer("a", cap(period="session", wait=0))
    kept = a.goes(5, session_id="kept")
    for number in range(20):
        a.end(a.goes(9, session_id=f"s{number}"), 9)
    assert (len(a.book._accounts), len(a.shared._own)) <= (4, 4)
    assert isinstance(a.ask(6, session_id="kept"), Refusal)
    a.end(kept, 1)
    a.goes(9, session_id="kept")
    assert all(isinstance(a.ask(2, session_id=f"s{number}"), Refusal) for number in range(20))


def test_steps_of_a_rolling_period_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("ledger.parts.budgets.share_rows.STEPS_MAX", 3)
    rows = FileRows(tmp_path / "caps", is_alive=lambda _: False, seconds_max=1)
    with closing(rows._connection):
        steps = {f"5h 2026-11-0{day}": usd(1) for day in range(1, 8)}
        rows.insert("c", {"5h": usd(7), **steps})
        rows.prune()
        (left,) = rows.execute(
            "SELECT spent_usd, (SELECT count(*) FROM cap_shares) FROM cap_shares WHERE account = '5h'"
        )
        assert left == (3 * USD, 4)


def simulate(make: MakePeer, seed: int) -> None:
    """One schedule of arrivals, sizes, ends, cuts, deaths and pauses over three processes, days and
    sessions, under caps of all periods."""
    drawn = random.Random(seed)
    periods = ("day", "session", "5h", "run", "month")
    caps = [
        cap(
            name=f"c{number}", usd=drawn.choice((2, 5, 20)), period=drawn.choice(periods), wait=0,
            timezone=drawn.choice(("UTC", "Europe/Berlin")),
        )
        for number in range(drawn.randint(1, 3))
    ]  # fmt: skip
    peers = [make(f"{seed}/{number}", *caps) for number in range(3)]
    now = NOW
    running: list[tuple[Peer, Held]] = []
    went: list[tuple[Held, Amounts]] = []
    for _ in range(drawn.randint(10, 40)):
        now += timedelta(seconds=drawn.choice((0, 1, 30, 1_800, 20_000)))
        move, one = drawn.random(), drawn.choice(peers)
        if move < 0.55:
            amount = drawn.choice((0.1, 0.5, 1, 3, 25))
            found = one.ask(amount, at=now, session_id=drawn.choice("ab"))
            if isinstance(found, Held):
                running.append((one, found))
        elif move < 0.9 and running:
            whose, held = running.pop(drawn.randrange(len(running)))
            cost = Amounts(int((held.amounts.usd or 0) * drawn.random()), 0, 0, 1)
            cost = Amounts() if drawn.random() < 0.2 else cost
            whose.book.settle(held, cost)
            went.append((held, held.amounts if cost.usd is None else cost))
            if drawn.random() < 0.7:
                whose.turn(now)
        elif len(peers) > 1:
            one.claim.release()  # killed: what it held counts
            peers.remove(one)
            left = [each for each in running if each[0] is one]
            running = [each for each in running if each[0] is not one]
            went += [(held, held.amounts) for _, held in left]
            peers[0].look(now)
        for each in caps:
            of_cap = [*went, *((held, held.amounts) for _, held in running)]
            totals: dict[object, Amounts] = {}
            for held, amounts in of_cap:
                for account in held.accounts:
                    if account.cap.name == each.name and each.period not in ("5h", "run"):
                        totals[account.place] = plus(totals.get(account.place, NOTHING), amounts)
            assert all((total.usd or 0) <= (each.limits.usd or 0) for total in totals.values()), (
                seed
            )


@on_sqlite
@pytest.mark.large
@pytest.mark.parametrize("block", range(4))
def test_a_cap_holds_over_schedules_of_processes(peer, block):
    for seed in range(block * 40, (block + 1) * 40):
        simulate(peer, seed)
