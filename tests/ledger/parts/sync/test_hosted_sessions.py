"""Sessions of hosted agents that several ledgers recorded: merged in any order, and however often,
they add up to what was stated last, once."""

import itertools
import random
from datetime import timedelta
from functools import partial

import pytest

from ledger.maintenance import checking
from ledger.model.charge import DIFFERS
from ledger.model.exchange import SESSION_REQUEST, SESSION_TOTAL
from ledger.model.usage import Usage
from ledger.parts.sync import merging, sessions
from ledger.settings import small_files
from ledger.store.writing.running_totals import FELL
from tests.ledger.written import NOON, on, priced, reading, rows, settled, writing

CENT = 10**10


@pytest.fixture(autouse=True)
def prices(monkeypatch):
    monkeypatch.setattr(sessions, "_own_prices", lambda: priced)


def statement(name, operation, at, read_at, usage, **more):
    exchange = settled(
        f"agent.{name}",
        at=at,
        operation=operation,
        dialect="x.sessions",
        session_id="s",
        response_id=name,
        **more,
    )
    usage_json = f'{{"input": {usage.input_tokens}, "output": {usage.output_tokens}}}'
    return exchange, reading(exchange, read_at=read_at, usage=usage, usage_json=usage_json)


def total(minute, inputs, outputs, cents=None, read=None):
    """Fetched in that minute; the same figures are the same statement."""
    units = {"session_milliseconds": inputs * 10}
    cost = None if cents is None else cents * CENT
    usage = Usage(
        input_tokens=inputs, output_tokens=outputs, tool_units=units, reported_cost_picousd=cost
    )
    at, read_at = (NOON + timedelta(minutes=each) for each in (minute, read or minute))
    return statement(f"total.{inputs}.{outputs}", SESSION_TOTAL, at, read_at, usage)


def request(number, minute, inputs, outputs, read=None):
    """That ended in that minute of the provider's clock, and was read in another of ours."""
    at, read_at = (NOON + timedelta(minutes=each) for each in (minute, read or minute))
    usage = Usage(input_tokens=inputs, output_tokens=outputs)
    return statement(f"request.{number}", SESSION_REQUEST, at, read_at, usage, seconds=0)


def record(url, *statements):
    with writing(url) as written:
        for exchange, read in statements:
            assert written.settle(exchange, read).committed
        assert written.lines() == []


def sums(url):
    (found,) = rows(
        url,
        "SELECT SUM(input_tokens), SUM(output_tokens), SUM(cost_picousd), "
        "SUM(CAST(tool_units ->> 'session_milliseconds' AS BIGINT)) FROM requests",
    )
    return tuple(None if each is None else int(each) for each in found)


def right(inputs, outputs, *, milliseconds=None):
    return inputs, outputs, inputs * 10 + outputs * 50, milliseconds or inputs * 10


def contents(url):
    return rows(
        url,
        "SELECT id, input_tokens, output_tokens, cost_picousd, reported_cost_picousd, "
        "CAST(tool_units AS TEXT), CAST(remarks AS TEXT) FROM requests ORDER BY opened_at, id",
    )


def check(url):
    with on(url) as engine:
        broken = [each for each in checking.verify(engine) if each.count]
    assert broken == []


TWO = {
    "the same total": ([total(1, 100, 10)], [total(2, 100, 10)]),
    "an early and a late one": ([total(1, 60, 6)], [total(2, 100, 10)]),
    "in turns": (
        [total(1, 20, 2), total(3, 80, 8)],
        [total(2, 60, 6), total(4, 100, 10)],
    ),
    "all requests, and a total": (
        [request(1, 1, 60, 6), request(2, 2, 40, 4)],
        [total(3, 100, 10)],
    ),
    "some requests on each side": (
        [request(1, 1, 60, 6), total(4, 100, 10)],
        [request(2, 2, 30, 3), total(3, 95, 9)],
    ),
    "the same request": (
        [request(1, 1, 60, 6), total(3, 100, 10)],
        [request(1, 1, 60, 6, read=5), total(4, 100, 10)],
    ),
    "a request whose moment nobody stated": (
        [request(1, 1, 60, 6), total(4, 100, 10)],
        [request(1, 2, 60, 6), total(3, 80, 8)],
    ),
    "a total of before the requests": (
        [total(1, 0, 0), request(1, 2, 60, 6)],
        [request(2, 3, 40, 4), total(4, 100, 10)],
    ),
}
WAYS = [
    pytest.param("sqlite", "sqlite", id="sqlite"),
    pytest.param("sqlite", "postgres", id="postgres", marks=pytest.mark.postgres),
]


@pytest.mark.parametrize("statements", TWO.values(), ids=TWO)
@pytest.mark.parametrize(("first", "second"), WAYS)
@pytest.mark.parametrize("is_back_first", [False, True])
@pytest.mark.usefixtures("own_data_directory")
def test_two_ledgers_of_one_session(statements, first, second, is_back_first, new_sqlite, request):
    makers = {"sqlite": new_sqlite, "postgres": lambda _: request.getfixturevalue("new_postgres")()}
    one, other = makers[first]("one"), makers[second]("other")
    for url, stated in zip((one, other), statements, strict=True):
        record(url, *stated)
    ways = [(other, one), (one, other)] if is_back_first else [(one, other), (other, one)]
    for source, target in [*ways, *ways]:
        assert merging.sync(source, target).refused == ()
        assert sums(target) == right(100, 10)
    assert contents(one) == contents(other)
    for url in (one, other):
        check(url)
    # It is read once more, on one side, and what is known on the other.
    record(one, total(10, 150, 15))
    record(other, total(9, 100, 10))
    assert sums(one) == right(150, 15)
    for source, target in ways[::-1] * 2:
        merging.sync(source, target)
    assert sums(one) == sums(other) == right(150, 15)
    assert contents(one) == contents(other)


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
def test_three_ledgers_in_any_order(order, new_sqlite):
    stated = (
        [total(2, 50, 5), request(2, 5, 40, 4)],
        [request(1, 1, 30, 3), total(6, 100, 10)],
        [total(4, 55, 6), total(8, 120, 12)],
    )
    urls = [new_sqlite(f"ledger{number}") for number in range(3)]
    for url, each in zip(urls, stated, strict=True):
        record(url, *each)
    all_of_them = new_sqlite("all")
    for number in order:
        merging.sync(urls[number], all_of_them)
    assert sums(all_of_them) == right(120, 12)
    for url in urls:
        merging.sync(all_of_them, url)
        assert contents(url) == contents(all_of_them)
        check(url)


def test_ledgers_that_were_merged_apart(new_sqlite):
    """Two that each booked other rows anew, and are merged then."""
    parts = [new_sqlite(f"part{number}") for number in range(3)]
    record(parts[0], total(1, 20, 2), total(4, 100, 10))
    record(parts[1], request(1, 2, 50, 5))
    record(parts[2], request(2, 3, 30, 3), total(5, 110, 11))
    left, both = new_sqlite("left"), new_sqlite("both")
    for source, target in [(parts[0], left), (parts[1], left), (parts[0], both), (parts[2], both)]:
        merging.sync(source, target)
    for source, target in [(left, both), (both, left)] * 2:
        merging.sync(source, target)
    assert contents(left) == contents(both)
    assert sums(left) == sums(both) == right(110, 11)
    check(both)


def test_the_list_cost_is_once_and_compared_with_all_rows(new_sqlite):
    one, other = new_sqlite("one"), new_sqlite("other")
    record(one, total(1, 100, 10, cents=2))
    record(other, total(2, 200, 20, cents=3))
    for source, target in [(one, other), (other, one)]:
        merging.sync(source, target)
        found = contents(target)
        assert [row[4] for row in found] == [2 * CENT, CENT]
        assert f"{DIFFERS}: $0.03 for the session" in found[1][6]
    check(one)


def test_a_total_that_fell_elsewhere_is_said(new_sqlite):
    one, other = new_sqlite("one"), new_sqlite("other")
    record(one, total(1, 100, 10))
    record(other, total(2, 50, 20))
    merging.sync(one, other)
    first, fallen = contents(other)
    assert first[1:3] == (100, 10)
    assert fallen[1:3] == (None, 10)
    assert FELL.format("input_tokens") in fallen[6]


def test_our_clock_may_be_wrong(new_sqlite):
    """A request that was read before the total was fetched is in it, whatever its provider's clock
    says; one that is read later and ended later is not."""
    url = new_sqlite()
    record(url, request(1, 5, 60, 6, read=1), total(2, 100, 10))
    assert sums(url)[:2] == (100, 10)
    record(url, request(2, 7, 30, 3, read=8))
    assert sums(url)[:2] == (130, 13)
    record(url, total(9, 130, 13))
    assert sums(url)[:2] == (130, 13)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_read_in_whatever_order(seed, new_sqlite):
    """Never more than was used, and all of it once the last total was read. The writer looks at the
    rows from the earliest new one on, a merge at all of them: they find the same."""
    draw = random.Random(seed)
    used = [draw.randint(1, 9) for _ in range(8)]
    minutes = range(1, len(used) + 1)
    known = [("request", minute) for minute in minutes] + [("total", minute) for minute in minutes]
    chosen = draw.sample(known, 9)
    statements = []
    for read, (kind, minute) in enumerate(chosen, 100):
        inputs = used[minute - 1] if kind == "request" else sum(used[:minute])
        make = partial(request, minute) if kind == "request" else total
        statements.append(make(minute, inputs * 10, inputs, read=read))
    one, other = new_sqlite("one"), new_sqlite("other")
    for statement in statements:
        record(one, statement)
        assert sums(one)[0] <= sum(used) * 10
    merging.sync(one, other)
    assert contents(one) == contents(other)
    record(other, total(len(used) + 1, sum(used) * 10, sum(used), read=200))
    assert sums(other)[:2] == (sum(used) * 10, sum(used))


@pytest.mark.postgres
def test_machines_that_ship_into_one_ledger(new_postgres, monkeypatch, tmp_path):
    """Each has a spool of its own, and its own prices."""
    target = new_postgres()
    monkeypatch.setattr(sessions, "_own_prices", None)
    for name, stated in {
        "one": [total(2, 100, 10), request(1, 1, 60, 6)],
        "two": [total(3, 100, 10), total(4, 120, 12)],
        "three": [request(2, 3, 40, 4), total(5, 150, 15)],
    }.items():
        monkeypatch.setattr(small_files, "data_directory", lambda name=name: tmp_path / name)
        record(target, *stated)
    assert sums(target) == right(150, 15)
    check(target)
