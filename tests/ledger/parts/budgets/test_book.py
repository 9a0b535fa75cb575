"""The book of one process's own caps: what fits, what waits, what is refused; and a simulation of many
schedules. Those that processes share are in `test_shared.py`."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.parts.budgets.book import Account, Book, Held, Refusal, Waiting
from ledger.parts.budgets.caps import NOTHING, Amounts, Cap, plus
from ledger.settings.names import NO_NAMES
from tests.ledger.written import NOON, opened
from tests.named import for_each

USD = 10**12


def cap(name: str = "run", **more: Any) -> Cap:
    return Cap(**{"name": name, "usd": 10, "period": "run", **more})


def book_of(*caps: Cap) -> Book:
    book = Book()
    book.set_caps(caps, NO_NAMES)
    return book


def usd(amount: float) -> Amounts:
    picousd = int(amount * USD)
    return Amounts(picousd, picousd, 0, 1)


def held(book: Book, amount: float, name: str = "e", **more: Any) -> Held:
    found = book.ask(opened(name, **more), usd(amount))
    assert isinstance(found, Held), found
    return found


def refused(book: Book, hold: Amounts, **more: Any) -> Refusal:
    found = book.ask(opened("r", **more), hold, "no price")
    assert isinstance(found, Refusal), found
    return found


def test_what_is_spent_and_held_never_exceeds_the_cap():
    book = book_of(cap(wait=0))
    first, second = held(book, 6), held(book, 4)
    assert "$10 of" not in refused(book, usd(1)).message
    book.settle(first, usd(1))
    book.settle(second, usd(1))
    held(book, 8)
    (account,) = book.accounts(NOON)
    assert plus(account.spent, account.held).usd == 10 * USD


@for_each("host", ["API.Example.com", "api.example.com.", "*.EXAMPLE.com"])
def test_a_cap_holds_for_its_host_in_every_spelling(host: str):
    book = book_of(cap(host=host, wait=0))
    refused(book, usd(11), origin="https://api.example.com:443")
    refused(book, usd(11), origin="https://API.example.com.:443")
    held(book, 11, origin="https://other.example:443")


def test_a_refusal_names_cap_and_amounts():
    book = book_of(cap())
    book.settle(held(book, 9), usd(9))
    message = refused(book, usd(2)).message
    assert message == (
        "tokentee: refused by the cap run: $9.00 of $10.00 (usd) spent, $0 held by requests "
        "under way, this request may cost up to $2.00; for one run"
    )


def test_a_request_waits_for_those_under_way_and_is_not_overtaken():
    book = book_of(cap())
    first = held(book, 9)
    large, small = book.ask(opened("l"), usd(5)), book.ask(opened("s"), usd(0.5))
    assert isinstance(large, Waiting)
    assert isinstance(small, Waiting)
    assert list(book.freed()) == []
    book.settle(first, usd(1))
    assert [(one.exchange.id, type(found)) for one, found in book.freed()] == [
        ("l", Held),
        ("s", Held),
    ]


def test_the_work_for_those_that_wait_is_linear(monkeypatch):
    """A settlement looks at each of them once, a further request at itself alone."""
    book = book_of(cap(), cap("other", session="x"))
    first = held(book, 9)
    for number in range(200):
        assert isinstance(book.ask(opened(f"w{number}"), usd(5)), Waiting)
    found: list[str] = []
    own = Book._own_answer

    def counted(book: Book, one: Waiting, ahead: set[Account]) -> object:
        found.append(one.exchange.id)
        return own(book, one, ahead)

    monkeypatch.setattr(Book, "_own_answer", counted)
    assert list(book.freed()) == []
    assert len(found) == 200
    assert isinstance(book.ask(opened("late"), usd(0.1)), Waiting)
    assert found[200:] == ["late"]
    book.settle(first, usd(1))
    assert [one.exchange.id for one, _ in book.freed()] == ["w0"]


def test_a_request_that_cannot_fit_any_more_stops_to_wait():
    book = book_of(cap())
    first = held(book, 9)
    book.ask(opened("l"), usd(5))
    book.settle(first, usd(9))
    ((_, found),) = book.freed()
    assert isinstance(found, Refusal)


def test_one_that_waits_does_not_stop_what_is_under_other_caps():
    book = book_of(cap("a", model="a"), cap("b", model="b"))
    held(book, 9, request_model="a")
    assert isinstance(book.ask(opened("w", request_model="a"), usd(5)), Waiting)
    held(book, 5, request_model="b")
    held(book, 100, request_model="c")


def test_the_tightest_decides():
    book = book_of(cap("wide", usd=100), cap("narrow", usd=1))
    assert refused(book, usd(2)).cap == "narrow"
    assert book.accounts(NOON)[0].held == NOTHING


def test_a_cost_that_never_came_counts_its_hold():
    book = book_of(cap())
    book.settle(held(book, 7), Amounts(None, None, None, 1))
    assert "$7.00 of" in refused(book, usd(4)).message


@for_each("word", ["tokens", "requests", "list_value_usd"])
def test_each_kind_of_limit_holds(word):
    limit: dict[str, Any] = {"usd": None, "wait": 0, word: 3}
    book = book_of(cap(**limit))
    hold = NOTHING._replace(**{word: 3 * USD if word == "list_value_usd" else 3})
    book.settle(held_amounts(book, hold), hold)
    refused(book, hold)


def held_amounts(book: Book, hold: Amounts) -> Held:
    found = book.ask(opened("e"), hold)
    assert isinstance(found, Held)
    return found


def test_without_a_bound_the_operator_decides():
    unknown = Amounts(None, None, None, 1)
    assert "no price" in refused(book_of(cap()), unknown).message
    book = book_of(cap(unpriced="pass"))
    found = book.ask(opened("e"), unknown, "no price")
    assert isinstance(found, Held)
    assert found.remarks == ("cap run: not bounded: no price",)
    book.settle(found, usd(11))
    refused(book, usd(1))
    # A cap that does not limit what has no bound does not ask for one.
    assert isinstance(book_of(cap(usd=None, requests=1)).ask(opened("e"), unknown, "x"), Held)


def test_requests_that_wait_are_bounded(monkeypatch):
    monkeypatch.setattr("ledger.parts.budgets.book.WAITING_MAX", 1)
    book = book_of(cap())
    held(book, 10)
    assert isinstance(book.ask(opened("a"), usd(1)), Waiting)
    assert "too many requests wait" in refused(book, usd(1)).message


def test_a_request_that_waited_long_enough_is_refused():
    book = book_of(cap())
    held(book, 10)
    one = book.ask(opened("a"), usd(1))
    assert isinstance(one, Waiting)
    found = book.give_up(one)
    assert found is not None
    assert found.cap == "run"
    assert "it waited 10 s" in found.message
    assert not book.waiting


def test_one_that_waits_behind_another_is_refused_by_the_same_cap():
    book = book_of(cap())
    held(book, 8)
    first, second = book.ask(opened("a"), usd(5)), book.ask(opened("b"), usd(1))
    assert isinstance(first, Waiting)
    assert isinstance(second, Waiting)
    found = book.give_up(second)
    assert found is not None
    assert found.cap == "run"


def test_caps_change_while_requests_run():
    book = book_of(cap("a"))
    first = held(book, 5)
    book.set_caps([cap("a", usd=5), cap("b", usd=5)], book.names)
    assert isinstance(book.ask(opened("w"), usd(1)), Waiting)
    book.settle(first, usd(5))  # counts for the cap that was set meanwhile, too
    assert [type(found) for _, found in book.freed()] == [Refusal]
    assert {each.cap.name: each.spent.usd for each in book.accounts(NOON)} == {
        "a": 5 * USD,
        "b": 5 * USD,
    }
    book.set_caps([], book.names)
    held(book, 100)
    found = book.give_up(Waiting(opened("w"), usd(1), (), (), 1, is_late=False))
    assert found is not None
    assert found.cap == ""


def test_it_warns_once_of_each_share_and_of_the_first_refusal():
    book = book_of(cap(warn=[50, 80]))
    book.settle(held(book, 5), usd(5))
    book.settle(held(book, 1), usd(1))
    book.settle(held(book, 3), usd(3))
    refused(book, usd(2))
    refused(book, usd(2))
    assert [line.partition(":")[0] for line in book.news] == ["the cap run"] * 2 + [
        "the cap run refuses requests"
    ]
    assert book.news[0] == "the cap run: $5.00 of $10.00 (usd) spent, 50% (it warns at 50%)"


def test_of_several_shares_passed_at_once_the_highest_is_named_with_what_is_used():
    book = book_of(cap(warn=[50, 80]))
    book.settle(held(book, 5), usd(10))
    assert book.news == ["the cap run: $10.00 of $10.00 (usd) spent, 100% (it warns at 80%)"]


# Simulation


def simulate(seed: int) -> None:
    """One schedule of arrivals, sizes, ends, cuts, departures and changed limits, over days."""
    drawn = random.Random(seed)
    names = [f"c{number}" for number in range(drawn.randint(1, 3))]

    def drawn_cap(name: str) -> Cap:
        return cap(
            name,
            usd=drawn.choice((1, 5, 20)),
            wait=drawn.choice((0, 5, 60)),
            session=drawn.choice((None, "a")),
        )

    book = book_of(*map(drawn_cap, names))
    now = datetime(2026, 10, 24, 18, tzinfo=UTC)  # the clock goes back in the night after
    running: list[tuple[Held, Amounts]] = []
    deadline: dict[Waiting, datetime] = {}

    def hold_is_kept() -> None:
        for account in book.accounts(now):
            total = plus(account.spent, account.held)
            assert (total.usd or 0) <= (account.limits.usd or 0), (seed, account)
            assert all((each or 0) >= 0 for each in account.held)

    def goes(found: object, one: Amounts) -> None:
        if isinstance(found, Held):
            running.append((found, one))

    for number in range(drawn.randint(10, 60)):
        now += timedelta(seconds=drawn.choice((0, 1, 30, 1_800, 20_000)))
        for waited, until in list(deadline.items()):
            if until <= now:
                del deadline[waited]
                book.give_up(waited)
        move = drawn.random()
        if move < 0.55:
            asked = usd(drawn.choice((0.1, 0.5, 1, 3, 25)))
            exchange = opened(f"{number}", at=now, session_id=drawn.choice("ab"))
            found = book.ask(exchange, asked)
            if isinstance(found, Waiting):
                deadline[found] = now + timedelta(seconds=found.wait_seconds)
            alone = not running and not book.waiting
            if isinstance(found, Refusal) and alone:
                # What fits alone is not refused.
                accounts = book._accounts_of(exchange)
                assert any(
                    plus(each.spent, asked).usd > each.limits.usd  # type: ignore[operator]
                    for each in accounts
                ), (seed, found)
            goes(found, asked)
        elif running:
            one, asked = running.pop(drawn.randrange(len(running)))
            share = drawn.random()
            known = Amounts(int((asked.usd or 0) * share), 0, 0, 1)
            book.settle(one, Amounts() if drawn.random() < 0.2 else known)  # cut, crashed
        for waited, found in book.freed():
            deadline.pop(waited, None)
            goes(found, waited.hold)
        hold_is_kept()
    while running:  # whoever waits goes or is refused when all is settled
        book.settle(running.pop()[0], Amounts(0, 0, 0, 1))
        for waited, found in book.freed():
            goes(found, waited.hold)
    assert not book.waiting
    hold_is_kept()


@pytest.mark.large
@pytest.mark.parametrize(
    "block", [0, *(pytest.param(later, marks=pytest.mark.nightly) for later in range(1, 8))]
)
def test_a_cap_holds_over_ten_thousand_schedules(block):
    for seed in range(block * 1_250, (block + 1) * 1_250):
        simulate(seed)


def test_a_cost_beyond_64_bits_counts_as_all_that_is_left():
    book = book_of(cap(usd=1_000_000))
    book.settle(held(book, 1), Amounts(2**70, 2**70, 1, 1))
    assert refused(book, NOTHING).cap == "run"


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=30))
def test_spent_and_held_never_pass_a_cap(requests):
    book = book_of(cap(usd=10, wait=0))
    for number, (asked, part) in enumerate(requests):
        found = book.ask(opened(str(number)), usd(asked))
        if isinstance(found, Held) and number % 2:
            book.settle(found, usd(min(asked, part)))
        for account in book.accounts(NOON):
            assert (plus(account.spent, account.held).usd or 0) <= 10 * USD
