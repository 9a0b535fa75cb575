"""The book of caps: what fits, what waits, what is refused; and a simulation of many schedules."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.caps.book import Account, Book, Held, Refusal, Waiting
from ledger.caps.caps import NOTHING, Amounts, Cap
from ledger.caps.leases import NO_CAP_PART, CapPart, grant, plus
from ledger.model.exchange import Exchange
from tests.ledger.written import NOON, opened
from tests.named import for_each

USD = 10**12


def cap(name: str = "run", **more: Any) -> Cap:
    return Cap(**{"name": name, "usd": 10, "period": "run", **more})


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
    book = Book([cap(wait=0)])
    first, second = held(book, 6), held(book, 4)
    assert "$10 of" not in refused(book, usd(1)).message
    book.settle(first, usd(1))
    book.settle(second, usd(1))
    held(book, 8)
    (account,) = book.accounts(NOON)
    assert plus(account.spent, account.held).usd == 10 * USD


def test_a_refusal_names_cap_amounts_and_reset():
    book = Book([cap("daily", period="day", timezone="Europe/Berlin")])
    book.settle(held(book, 9), usd(9))
    message = refused(book, usd(2)).message
    assert message == (
        "tokentee: refused by the cap daily: $9.00 of $10.00 (usd) spent, $0 held by requests "
        "under way, this request may cost up to $2.00; resets at 2026-11-02 23:00 UTC"
    )
    assert "for one run" in refused(Book([cap(usd=1)]), usd(2)).message


def test_a_request_waits_for_those_under_way_and_is_not_overtaken():
    book = Book([cap()])
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
    """A settlement asks for each of them once, a further request for itself alone."""
    book = Book([cap(), cap("other", session="x")])
    first = held(book, 9)
    for number in range(200):
        assert isinstance(book.ask(opened(f"w{number}"), usd(5)), Waiting)
    found: list[str] = []
    own = Book._accounts_of

    def counted(book: Book, one: Exchange) -> list[Account]:
        found.append(one.id)
        return own(book, one)

    monkeypatch.setattr(Book, "_accounts_of", counted)
    assert list(book.freed()) == []
    assert len(found) == 200
    assert isinstance(book.ask(opened("late"), usd(0.1)), Waiting)
    assert found[200:] == ["late"]
    book.settle(first, usd(1))
    assert [one.exchange.id for one, _ in book.freed()] == ["w0"]


def test_a_further_session_is_not_compared_with_all_others(monkeypatch):
    book = Book([cap(period="session")])
    monkeypatch.setattr(Book, "_forget", None)  # it would be called
    for number in range(3):
        held(book, 1, session_id=f"s{number}")
    assert len(book.accounts(NOON)) == 3


def test_a_request_that_cannot_fit_any_more_stops_to_wait():
    book = Book([cap()])
    first = held(book, 9)
    book.ask(opened("l"), usd(5))
    book.settle(first, usd(9))
    ((_, found),) = book.freed()
    assert isinstance(found, Refusal)


def test_one_that_waits_does_not_stop_what_is_under_other_caps():
    book = Book([cap("a", model="a"), cap("b", model="b")])
    held(book, 9, request_model="a")
    assert isinstance(book.ask(opened("w", request_model="a"), usd(5)), Waiting)
    held(book, 5, request_model="b")
    held(book, 100, request_model="c")


def test_the_tightest_decides():
    book = Book([cap("wide", usd=100), cap("narrow", usd=1)])
    assert refused(book, usd(2)).cap == "narrow"
    assert book.accounts(NOON)[0].held == NOTHING


def test_a_cost_that_never_came_counts_its_hold():
    book = Book([cap()])
    book.settle(held(book, 7), Amounts(None, None, None, 1))
    assert "$7.00 of" in refused(book, usd(4)).message


@for_each("word", ["tokens", "requests", "list_value_usd"])
def test_each_kind_of_limit_holds(word):
    limit: dict[str, Any] = {"usd": None, "wait": 0, word: 3}
    book = Book([cap(**limit)])
    hold = NOTHING._replace(**{word: 3 * USD if word == "list_value_usd" else 3})
    book.settle(held_amounts(book, hold), hold)
    refused(book, hold)


def held_amounts(book: Book, hold: Amounts) -> Held:
    found = book.ask(opened("e"), hold)
    assert isinstance(found, Held)
    return found


def test_without_a_bound_the_operator_decides():
    unknown = Amounts(None, None, None, 1)
    assert "no price" in refused(Book([cap()]), unknown).message
    book = Book([cap(unpriced="pass")])
    found = book.ask(opened("e"), unknown, "no price")
    assert isinstance(found, Held)
    assert found.remarks == ("cap run: not bounded: no price",)
    book.settle(found, usd(11))
    refused(book, usd(1))
    # A cap that does not limit what has no bound does not ask for one.
    assert isinstance(Book([cap(usd=None, requests=1)]).ask(opened("e"), unknown, "x"), Held)


def test_periods_begin_in_the_zone_of_the_cap():
    book = Book([cap(period="day", timezone="Europe/Berlin")])
    night = datetime(2026, 10, 25, 21, 59, tzinfo=UTC)  # 22:59 after the clock went back
    book.settle(held(book, 10, at=night), usd(10))
    refused(book, usd(1), at=night + timedelta(minutes=60))
    held(book, 10, at=night + timedelta(minutes=61))


def test_what_settles_after_its_day_counts_for_its_day():
    book = Book([cap(period="day")])
    late = held(book, 10, at=NOON)
    tomorrow = held(book, 10, at=NOON + timedelta(days=1))
    book.settle(late, usd(10))
    book.settle(tomorrow, usd(0))
    held(book, 10, at=NOON + timedelta(days=1))


def test_a_rolling_period_forgets_step_by_step():
    book = Book([cap(period="5h", wait=0)])
    book.settle(held(book, 6, at=NOON), usd(6))
    book.settle(held(book, 4, at=NOON + timedelta(hours=1)), usd(4))
    message = refused(book, usd(6), at=NOON + timedelta(hours=5)).message
    assert "resets at 2026-11-02 17:01 UTC" in message
    again = held(book, 6, at=NOON + timedelta(hours=5, minutes=1))
    refused(book, usd(5), at=NOON + timedelta(hours=5, minutes=2))
    book.settle(again, usd(6))
    book.settle(held(book, 4, at=NOON + timedelta(hours=6, minutes=1)), usd(4))
    assert book.accounts(NOON)[0].spent_at(NOON + timedelta(hours=20)) == NOTHING


def test_spending_of_a_request_that_took_long_to_arrive_lies_in_its_own_step():
    account = Account(cap(period="5h"), cap(period="5h").limits, "5h", None, None)
    for minutes in (3, 1, 2, 1):
        account.spend(NOON + timedelta(minutes=minutes), usd(1))
    assert [begin.minute for begin, _ in account.steps] == [1, 2, 3]
    assert account.spent_at(NOON + timedelta(hours=5, minutes=2, seconds=1)) == usd(2)._replace(
        requests=2
    )


def test_a_rolling_period_adds_up_what_came_in_any_order():
    account = Account(cap(period="5h"), cap(period="5h").limits, "5h", None, None)
    drawn, spent, now = random.Random(5), list[tuple[datetime, int]](), NOON
    for number in range(600):
        now += timedelta(seconds=drawn.choice((1, 30, 300, 2_000)))
        at = now - timedelta(seconds=drawn.choice((0, 0, 0, 90, 3_000)))
        account.spend(at, NOTHING._replace(tokens=number))
        spent.append((at.replace(second=0), number))
        begin = now - timedelta(hours=5, minutes=1)
        assert account.spent_at(now).tokens == sum(each for at, each in spent if at > begin)
    assert len(account.steps) < 7 * 60


def test_sessions_have_accounts_of_their_own_and_a_key_has_one_without():
    book = Book([cap(period="session")])
    held(book, 10, session_id="a")
    held(book, 10, session_id="b")
    held(book, 10, key_fingerprint="k")
    assert isinstance(book.ask(opened("w", key_fingerprint="k"), usd(1)), Waiting)


def test_the_names_of_sessions_are_bounded(monkeypatch):
    monkeypatch.setattr("ledger.caps.book.ACCOUNTS_MAX", 2)
    book = Book([cap(period="session")])
    held(book, 1, session_id="a")
    held(book, 1, session_id="b")
    assert "too many sessions" in refused(book, usd(1), session_id="c").message
    held(book, 1, session_id="a")


def test_requests_that_wait_are_bounded(monkeypatch):
    monkeypatch.setattr("ledger.caps.book.WAITING_MAX", 1)
    book = Book([cap()])
    held(book, 10)
    assert isinstance(book.ask(opened("a"), usd(1)), Waiting)
    assert "too many requests wait" in refused(book, usd(1)).message


def test_a_request_that_waited_long_enough_is_refused():
    book = Book([cap()])
    held(book, 10)
    one = book.ask(opened("a"), usd(1))
    assert isinstance(one, Waiting)
    found = book.give_up(one)
    assert found.cap == "run"
    assert "it waited 10 s" in found.message
    assert not book.waiting


def test_one_that_waits_behind_another_is_refused_by_the_same_cap():
    book = Book([cap()])
    held(book, 8)
    first, second = book.ask(opened("a"), usd(5)), book.ask(opened("b"), usd(1))
    assert isinstance(first, Waiting)
    assert isinstance(second, Waiting)
    assert book.give_up(second).cap == "run"


def test_caps_change_while_requests_run():
    book = Book([cap("a")])
    first = held(book, 5)
    assert book.set_caps([cap("a", usd=5), cap("b", usd=5)], book.names) == []
    assert isinstance(book.ask(opened("w"), usd(1)), Waiting)
    book.settle(first, usd(5))  # counts for the cap that was set meanwhile, too
    assert [type(found) for _, found in book.freed()] == [Refusal]
    assert {each.cap.name: each.spent.usd for each in book.accounts(NOON)} == {
        "a": 5 * USD,
        "b": 5 * USD,
    }
    book.set_caps([], book.names)
    held(book, 100)
    one = Waiting(opened("w"), usd(1), "", 1)
    assert book.give_up(one).cap == ""


def told(
    book: Book,
    others: CapPart = NO_CAP_PART,
    *,
    short: tuple[str, ...] = (),
    now: datetime = NOON,
) -> list[bool]:
    """The ledger answers, in which others have this; which asks are short."""
    found = []
    book.contend({(name, NOON.replace(hour=0).isoformat()) for name in short})
    for ask in book.asks(now):
        is_contended = ask.account.cap.name in short
        answer = grant(
            ask.account.limits, ask.own, others, ask.wants, processes=2, is_contended=is_contended
        )
        book.granted(ask, answer, others)
        found.append(answer.is_short)
    return found


def test_a_cap_of_a_period_waits_until_the_ledger_has_what_was_spent():
    book = Book(is_shared=True)
    daily = cap("daily", period="day", wait=0)
    assert book.set_caps([daily], book.names) == [daily]
    first = book.ask(opened("w"), usd(5))
    assert isinstance(first, Waiting)
    assert (first.is_for_share, first.wait_seconds) == (True, 3)
    book.count(opened("x"), usd(1))
    assert told(book) == []
    book.complete([daily], NOON)
    others = CapPart(usd(4), usd(4), usd(4))
    assert told(book, others) == [False]
    assert [type(found) for _, found in book.freed()] == [Held]
    assert "$5.00 of" in refused(book, usd(6)).message


def shared(**more: Any) -> Book:
    book = Book([cap("daily", period="day", **more)], is_shared=True)
    book.complete(book.caps.values(), NOON)
    told(book)
    return book


def test_a_request_uses_the_slice_or_waits_for_a_larger_share():
    book = shared(wait=0)  # a quarter of $10 is its slice
    held(book, 2)
    assert book.is_low
    one = book.ask(opened("w"), usd(4))
    assert isinstance(one, Waiting)
    assert one.is_for_share
    told(book)
    assert [type(found) for _, found in book.freed()] == [Held]
    # Beside what others hold, it does not fit: that is no matter of shares.
    told(book, CapPart(usd(1), usd(4), usd(4)))
    assert "$1.00 of $10.00 (usd) spent, $9.00 held" in refused(book, usd(2)).message
    assert "ledger's answer" in book.give_up(one).message


def test_a_request_that_waits_while_spending_ends_to_count_gets_what_it_needs():
    book = Book([cap(period="5h")], is_shared=True)
    book.complete(book.caps.values(), NOON)
    told(book)
    book.settle(held(book, 2), usd(2))
    told(book)
    late = NOON + timedelta(hours=5, seconds=59)
    assert isinstance(book.ask(opened("w", at=late), usd(7)), Waiting)
    told(book, now=late + timedelta(seconds=2))
    assert [type(found) for _, found in book.freed()] == [Held]


def test_slices_that_have_ended_are_asked_for_anew():
    book = shared()
    held(book, 1)
    book.lapse()
    assert isinstance(book.ask(opened("w"), usd(1)), Waiting)
    told(book, CapPart(usd(8), usd(8), usd(8)))
    (account,) = book.accounts(NOON)
    assert account.share == Amounts(2 * USD, None, None, None)
    assert [type(found) for _, found in book.freed()] == [Held]


def test_what_is_not_used_goes_back_if_another_process_needs_it():
    book = shared()
    (account,) = book.accounts(NOON)
    assert account.share == Amounts(int(2.5 * USD), None, None, None)
    held(book, 1)
    told(book, CapPart(usd(0), usd(0), usd(0)), short=("daily",))
    assert account.share == Amounts(USD, None, None, None)
    told(book)  # and comes again when it is over
    assert account.share is not None
    assert account.share.usd == USD + 9 * USD // 4


def test_until_the_ledger_answers_what_is_given_back_is_not_used():
    book = shared()
    book.contend({("daily", NOON.replace(hour=0).isoformat())})
    asks = book.asks(NOON)
    assert isinstance(book.ask(opened("w"), usd(1)), Waiting)
    book.failed(asks)
    assert [ask.account for ask in book.asks(NOON)] == [asks[0].account]


def test_an_account_that_was_dropped_asks_for_nothing():
    book = shared()
    held(book, 1)
    book.set_caps([cap("daily", period="day", team="x")], book.names)
    book.complete(book.caps.values(), NOON)
    assert [ask.own for ask in book.asks(NOON)] == [CapPart(NOTHING, NOTHING, NOTHING)]


def test_another_limit_returns_the_slice():
    book = shared()
    held(book, 2)
    book.set_caps([cap("daily", period="day", usd=3)], book.names)
    assert isinstance(book.ask(opened("w"), usd(1)), Waiting)
    told(book)
    assert [type(found) for _, found in book.freed()] == [Held]


@for_each("unreachable", ["refuse", "pass"])
def test_without_the_ledger_it_uses_its_slice_and_then_the_operator_decides(unreachable):
    book = shared(unreachable=unreachable, wait=0)
    book.unreachable = "it is down"
    assert held(book, 1).remarks == ()
    found = book.ask(opened("w"), usd(2))
    book.has_slices = False
    later = book.ask(opened("l"), usd(0.1))
    if unreachable == "refuse":
        assert isinstance(found, Refusal)
        assert "the ledger cannot be reached: it is down" in found.message
        assert isinstance(later, Refusal)
    else:
        assert isinstance(found, Held)
        assert found.remarks == ("cap daily: passed: the ledger could not be reached",)
        assert isinstance(later, Held)
        assert "spent" in refused(book, usd(11)).message


def test_one_question_has_a_bounded_number_of_accounts(monkeypatch):
    monkeypatch.setattr("ledger.caps.book.ASKS_MAX", 2)
    book = Book([cap(period="session")], is_shared=True)
    book.complete(book.caps.values(), NOON)
    for name in ("a", "b", "c"):
        assert isinstance(book.ask(opened(name, session_id=name), usd(1)), Waiting)
    assert told(book) == [False, False]
    assert len(list(book.freed())) == 2
    assert told(book) == [False, False]
    assert len(list(book.freed())) == 1


def test_it_warns_once_of_each_share_and_of_the_first_refusal():
    book = Book([cap(warn=[50, 80])])
    book.settle(held(book, 5), usd(5))
    book.settle(held(book, 1), usd(1))
    book.settle(held(book, 3), usd(3))
    refused(book, usd(2))
    refused(book, usd(2))
    assert [line.partition(":")[0] for line in book.news] == ["the cap run"] * 2 + [
        "the cap run refuses requests"
    ]
    assert "50% reached: $5.00 of $10.00 (usd) spent" in book.news[0]


def test_days_that_are_over_are_forgotten():
    book = Book([cap(period="day")])
    for day in range(9):
        book.settle(held(book, 1, at=NOON + timedelta(days=day)), usd(1))
    assert len(book._accounts) == 1


# Simulation


PERIODS = ("run", "session", "day", "5h")


def simulate(seed: int) -> None:
    """One schedule of arrivals, sizes, ends, cuts, departures and changed limits, over days."""
    drawn = random.Random(seed)
    names = [f"c{number}" for number in range(drawn.randint(1, 3))]

    def drawn_cap(name: str, period: str) -> Cap:
        return cap(
            name, usd=drawn.choice((1, 5, 20)), period=period, wait=drawn.choice((0, 5, 60)),
            timezone=drawn.choice(("UTC", "Europe/Berlin")),
        )  # fmt: skip

    book = Book([drawn_cap(name, drawn.choice(PERIODS)) for name in names])
    now = datetime(2026, 10, 24, 18, tzinfo=UTC)  # the clock goes back in the night after
    running: list[tuple[Held, Amounts]] = []
    deadline: dict[Waiting, datetime] = {}

    def hold_is_kept() -> None:
        for account in book.accounts(now):
            total = plus(account.spent_at(now), account.held)
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
                    plus(each.spent_at(now), asked).usd > each.limits.usd  # type: ignore[operator]
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


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=30))
def test_spent_and_held_never_pass_a_cap(requests):
    book = Book([cap(usd=10, wait=0)])
    for number, (asked, part) in enumerate(requests):
        found = book.ask(opened(str(number)), usd(asked))
        if isinstance(found, Held) and number % 2:
            book.settle(found, usd(min(asked, part)))
        for account in book.accounts(NOON):
            assert (plus(account.spent, account.held).usd or 0) <= 10 * USD
