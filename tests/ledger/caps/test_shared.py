"""Shares of caps in a ledger: several processes, one that dies, one that is silent."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from ledger.caps.book import Account, Book, Held, Waiting
from ledger.caps.caps import NOTHING, Amounts, Cap
from ledger.caps.leases import plus
from ledger.caps.shared import SharedCaps
from ledger.model.errors import LedgerError
from ledger.settings.names import NO_NAMES
from ledger.store.engines import urls
from ledger.store.processes import nodes
from ledger.store.tables import cap_leases
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
    """One process: its book, its shares, and its lock."""

    def __init__(self, url: str, node: str, file: Path, caps: list[Cap]) -> None:
        self.caps = caps
        self.book = Book(is_shared=True)
        self.book.set_caps(caps, NO_NAMES)
        self.shared = SharedCaps(url, node=node, file=file)
        self.claim = nodes.Claim(file, node)
        self.node = node
        self.since = datetime.now(UTC)
        self.count = 0
        self.turn()

    def turn(self) -> bool:
        """Tell and ask once; whether it needed an answer and got none."""
        now = datetime.now(UTC)
        new = [one for one in self.caps if one.name in self.book.incomplete]
        joined = [one for one in new if self.shared.join(one, NO_NAMES, self.since)]
        self.book.complete(joined, now)
        asks = self.book.asks(now)
        answers, short = self.shared.exchange(self.caps, NO_NAMES, asks, now)
        for answer in answers:
            self.book.granted(*answer)
        self.book.contend(short)
        return len(answers) < len(asks)

    def ask(self, amount: float, **more: Any) -> Held | None:
        """A request, if it goes, at the latest after a turn of this process."""
        return self.ask_for(usd(amount), **more)

    def ask_for(self, hold: Amounts, **more: Any) -> Held | None:
        """The same with any hold."""
        self.count += 1
        exchange = opened(f"{self.node}/{self.count}", at=datetime.now(UTC), node=self.node, **more)
        found = self.book.ask(exchange, hold)
        if isinstance(found, Waiting):
            self.turn()
            results = dict(self.book.freed())
            answer = results.get(found)
            if answer is None:
                self.book.give_up(found)
            return answer if isinstance(answer, Held) else None
        return found if isinstance(found, Held) else None

    @property
    def account(self) -> Account:
        (account,) = self.book.accounts(datetime.now(UTC))
        return account

    def room(self) -> float:
        """What it may use without asking, in USD."""
        share = self.account.share
        assert share is not None
        return ((share.usd or 0) - (self.account.used_at(datetime.now(UTC)).usd or 0)) / USD


type MakePeer = Callable[..., Peer]


@pytest.fixture
def peer(engine, ledger_url, new_sqlite) -> Iterator[MakePeer]:
    """Makes processes that record into one ledger."""
    file = urls.sqlite_path(ledger_url) or urls.sqlite_path(new_sqlite())
    assert file is not None
    with ExitStack() as ending:

        def make(node: str, *caps: Cap) -> Peer:
            found = Peer(ledger_url, node, file, list(caps) or [cap()])
            ending.callback(found.shared._engine.dispose)
            ending.callback(found.claim.release)
            return found

        yield make


def rows(engine: sa.Engine) -> dict[tuple[str, str], Any]:
    """Node and account -> row."""
    with engine.connect() as connection:
        found = connection.execute(sa.select(cap_leases)).all()
    return {(row.node, row.account): row for row in found}


def test_processes_share_a_cap(peer):
    a, b = peer("a"), peer("b")
    assert (a.room(), b.room()) == (5, 0)  # a was alone when it asked
    a.turn()
    held = [found for one in (a, b, a, b, a, b) if (found := one.ask(2))]
    assert len(held) == 5
    total = NOTHING
    for one in (a, b):
        total = plus(total, one.account.used_at(datetime.now(UTC)))
    assert total.usd == 10 * USD
    for one in (a, b):
        for each in held:
            if each.exchange.node == one.node:
                one.book.settle(each, usd(0.5))
        one.turn()
    a.turn()
    assert a.account.all_spent_at(datetime.now(UTC)).usd == 2.5 * USD
    assert a.room() + b.room() <= 7.5 / 2


def test_slices_that_nobody_uses_are_at_most_half_of_what_is_left(peer):
    peers = [peer(name) for name in "abc"]
    for _ in range(2):
        for one in peers:
            one.book._changed.add(one.account)
            one.turn()
    rooms = [one.room() for one in peers]
    assert sum(rooms) <= 5
    assert min(rooms) > 1.6


def test_who_is_short_gets_what_others_do_not_use(peer):
    a, b = peer("a"), peer("b")
    found = b.book.ask(opened("large", at=datetime.now(UTC)), usd(9.5))
    assert isinstance(found, Waiting)
    b.turn()
    assert not list(b.book.freed())
    a.turn()  # sees that b is short
    a.turn()  # and gives its slice back
    assert a.room() == 0
    b.turn()
    assert [type(each) for _, each in b.book.freed()] == [Held]
    b.turn()  # tells what it holds
    a.turn()
    a.turn()
    assert a.room() == 0.125


@on_sqlite
def test_on_a_file_a_dead_process_counts_what_the_ledger_has(peer, engine):
    a, b = peer("a"), peer("b")
    first, second = a.ask(3), a.ask(3)
    assert first is not None
    assert second is not None
    a.turn()
    holds: Any = {"node": "a", "hold_picousd": 3 * USD}
    over = settled(first.exchange.id, at=first.exchange.opened_at, **holds)
    written.put(engine, whole(over), whole(opened("open", at=NOW, **holds)))
    assert b.ask(5) is None
    a.claim.release()
    b.turn()
    assert {node for node, _ in rows(engine)} == {"", "b"}
    # What is open keeps its hold; the other one has its cost.
    b.book._changed.add(b.account)
    b.turn()
    assert b.account.others.spent.usd == 3 * USD + COST
    assert b.ask(6.9) is not None


@on_postgres
def test_on_a_server_a_silent_process_counts_what_it_said(peer, engine, monkeypatch):
    moment = [0.0]
    monkeypatch.setattr("ledger.caps.shared.time.monotonic", lambda: moment[0])
    a, b = peer("a"), peer("b")
    assert a.ask(3) is not None
    a.turn()

    def pass_seconds(count: int, *peers: Peer) -> None:
        for _ in range(count):
            moment[0] += 1
            for one in peers:
                one.turn()

    pass_seconds(20, a, b)
    assert b.ask(7) is None  # a has a slice
    pass_seconds(11, b)
    assert rows(engine)["a", ""].state == "live"
    moment[0] += 40  # the server was away: a could not tell either
    pass_seconds(11, b)
    assert rows(engine)["a", ""].state == "live"
    pass_seconds(2, b)
    assert rows(engine)["a", ""].state == "silent"
    assert b.ask(7) is not None
    assert b.ask(0.1) is None
    # It was only cut off: it keeps the cap again, and nothing counts twice.
    a.turn()
    assert rows(engine)["a", ""].state == "live"
    a.book._changed.add(a.account)
    a.turn()
    assert (a.room(), a.account.others.used.usd) == (0, 7 * USD)


@on_postgres
def test_a_silent_process_counts_what_came_later_if_that_is_more(peer, engine):
    a, b = peer("a"), peer("b")
    assert a.ask(3) is not None
    a.turn()
    late = opened("late", at=datetime.now(UTC), node="a", hold_picousd=4 * USD)
    written.put(engine, whole(late))
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE cap_leases SET state = 'silent' WHERE node = 'a'"))
    b.shared._add_up(cap(), NO_NAMES, set())
    b.book._changed.add(b.account)
    b.turn()
    assert b.account.others.used.usd == 4 * USD


def test_who_leaves_gives_its_slice_back(peer, engine):
    a, b = peer("a"), peer("b")
    assert a.room() == 5
    a.shared.leave(a.caps)
    b.turn()
    assert ("a", "") not in rows(engine)
    b.book._changed.add(b.account)
    b.turn()
    assert b.room() == 5
    # It comes again under the same name.
    a.book.set_caps([], NO_NAMES)
    a.book.set_caps(a.caps, NO_NAMES)
    a.since = datetime.now(UTC)
    a.turn()
    assert rows(engine)["a", ""].state == "live"


@on_postgres
def test_who_leaves_with_rows_in_the_spool_counts_what_it_said(peer, engine):
    a, b = peer("a"), peer("b")
    assert a.ask(3) is not None
    a.turn()
    waits = settled("waits", at=NOW - timedelta(days=1), node="a")
    written.put(f"sqlite:///{a.shared._file}", whole(waits))
    written.alter(
        f"sqlite:///{a.shared._file}",
        "INSERT INTO outbox (exchange_id, opened_at) SELECT id, opened_at FROM exchanges",
    )
    assert not a.shared.join(cap(name="second"), NO_NAMES, a.since)
    assert a.shared.join(cap(name="third"), NO_NAMES, NOW - timedelta(days=2))
    a.shared.leave(a.caps)
    b.turn()
    assert rows(engine)["a", ""].state == "silent"
    assert b.ask(7) is not None
    assert b.ask(0.1) is None


@pytest.mark.parametrize("period", ["5h", "session", "month"])
def test_each_kind_of_period_begins_with_what_the_ledger_has(peer, engine, period):
    now = datetime.now(UTC)
    ago = now - timedelta(seconds=1)
    written.put(engine, *(whole(settled(name, at=ago, session_id=name)) for name in ("s", "t")))
    one = cap(period=period, usd=None, tokens=1_000)
    a = peer("a", one)
    assert a.ask_for(Amounts(0, 0, 10, 1), session_id="s")
    (account,) = (each for each in a.book.accounts(now) if each.held != NOTHING)
    assert account.others.spent.tokens == (120 if period == "session" else 240)
    a.turn()
    b = peer("b", one)
    assert b.ask_for(Amounts(0, 0, 10, 1), session_id="s")
    (its,) = (each for each in b.book.accounts(now) if each.held != NOTHING)
    assert its.others.used.tokens == (account.others.spent.tokens or 0) + 10


def test_an_older_ledger_cannot_be_asked(peer, engine):
    a = peer("a")
    with engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE cap_leases"))
    with pytest.raises(LedgerError, match="cap_leases"):
        a.turn()
