"""History does not move: a price update changes nothing booked, repricing adds and says why."""

import itertools
from datetime import timedelta

import pytest
from msgspec.structs import replace

from ledger.figures.queries import report
from ledger.maintenance import reprice
from ledger.maintenance.checking import verify
from ledger.maintenance.reprice import RepriceChange
from ledger.model.usage import FurtherUsage, Usage
from ledger.pricing.prices import PriceBook
from ledger.reports.lookup import find
from ledger.store.scope import Scope
from tests.ledger import written
from tests.ledger.priced import BOTH, NOVEMBER, exchange, fill, filled, reading, settled
from tests.ledger.written import put, whole

LATER = NOVEMBER + timedelta(days=10)
EVERYTHING = Scope()


def entries():
    """One request priced, one of a model that no list knows, one with an iteration."""
    further = FurtherUsage(kind="compaction", model=None, usage=Usage(output_tokens=7))
    yield (
        settled(replace(exchange("gpt-4.1"), id="known")),
        reading(input_tokens=100, output_tokens=50, reasoning_tokens=20),
    )
    yield (
        settled(replace(exchange("new-model"), id="new", opened_at=NOVEMBER + timedelta(days=1))),
        reading(input_tokens=10, output_tokens=5, reported_cost_picousd=77),
    )
    yield (
        settled(replace(exchange("gpt-4.1"), id="iterated")),
        reading(output_tokens=1, further=(further,)),
    )


@pytest.fixture(params=BOTH)
def ledger(request, tmp_path_factory):
    yield from filled(request, tmp_path_factory, entries())


DEARER = '[[price]]\nmodel = "gpt-4.1"\nusd_per_mtok = { output = 9 }\n'


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="the same prices"),
        pytest.param(DEARER.replace("9", "8"), id="the same price from elsewhere"),
        pytest.param(
            DEARER.replace("usd", "from = 2026-11-05\nusd"), id="a price of after the exchange"
        ),
    ],
)
def test_what_changes_nothing(ledger, book_of, text):
    assert reprice.changes(ledger, book_of(text), EVERYTHING, now=LATER) == {}
    assert reprice.apply(ledger, book_of(text), EVERYTHING, now=LATER, reason="x") == 0


def test_what_would_change_is_shown_and_nothing_is_written(ledger, book_of):
    found = reprice.changes(ledger, book_of(DEARER), EVERYTHING, now=LATER)
    # known: 100 x 2 + 50 x 8 -> 100 x 2 + 50 x 9; iterated: 8 x 8 -> 8 x 9 micro-USD
    assert found == {
        "gpt-4.1": RepriceChange(
            requests=2, lines=3, before_picousd=664_000_000, after_picousd=722_000_000
        )
    }
    assert [row["revision"] for row in find(ledger, "known").charges] == [1, 1]


def test_superseding_charges_are_added_with_the_reason(ledger, book_of):
    assert reprice.apply(ledger, book_of(DEARER), EVERYTHING, now=LATER, reason="contract 7") == 3
    found = find(ledger, "known")
    old = {row["line"]: row for row in found.past_charges}
    new = {row["line"]: row for row in found.charges}
    assert new["output"]["amount_picousd"] == 50 * 9_000_000
    assert new["output"]["supersedes"] == old["output"]["id"]
    assert (new["output"]["revision"], new["output"]["reason"]) == (2, "contract 7")
    assert new["output"]["priced_at"] == LATER
    assert new["output"]["price_source"].startswith("override sha256:")
    assert old["output"]["amount_picousd"] == 50 * 8_000_000
    assert list(old) == ["output"]
    assert report(ledger, ["model"], EVERYTHING).total.figures.cost_picousd == 722_000_000 + 77


def test_repricing_twice_adds_nothing(ledger, book_of):
    reprice.apply(ledger, book_of(DEARER), EVERYTHING, now=LATER, reason="x")
    again = LATER + timedelta(days=1)
    assert reprice.changes(ledger, book_of(DEARER), EVERYTHING, now=again) == {}
    assert reprice.apply(ledger, book_of(DEARER), EVERYTHING, now=again, reason="y") == 0


def test_back_to_the_old_price_is_one_more_revision(ledger, book_of):
    reprice.apply(ledger, book_of(DEARER), EVERYTHING, now=LATER, reason="up")
    reprice.apply(ledger, PriceBook(), EVERYTHING, now=LATER, reason="down")
    found = find(ledger, "known")
    (output,) = (row for row in found.charges if row["line"] == "output")
    assert (output["revision"], output["unit_picousd"]) == (3, 8_000_000)
    assert [row["revision"] for row in found.past_charges] == [2, 1]


def test_what_was_unpriced_gets_its_price(ledger, book_of):
    """Booked was the provider's figure alone, as one line; now there are two lines of ours."""
    book = book_of(
        '[[price]]\nmodel = "new-model"\nusd_per_mtok = { uncached_input = 1, output = 2 }\n'
    )
    assert [row["line"] for row in find(ledger, "new").charges] == ["reported_cost"]
    assert reprice.apply(ledger, book, EVERYTHING, now=LATER, reason="now known") == 2
    found = find(ledger, "new")
    assert [(row["line"], row["amount_picousd"], row["revision"]) for row in found.charges] == [
        ("uncached_input", 10_000_000, 2),
        ("output", 10_000_000, 1),
    ]
    assert state_of(ledger, "new") == ("priced", 20_000_000)


def state_of(engine, name):
    query = "SELECT cost_state, cost_picousd FROM requests WHERE id = :id"
    return tuple(written.row(engine, query, id=name))


def test_lines_that_are_gone_cost_nothing(ledger, book_of):
    """Reasoning was priced apart by mistake: its line stays, of nothing."""
    apart = book_of('[[price]]\nmodel = "gpt-4.1"\nusd_per_mtok = { reasoning = 1 }\n')
    reprice.apply(ledger, apart, EVERYTHING, now=LATER, reason="apart")
    assert state_of(ledger, "known") == (
        "priced",
        100 * 2_000_000 + 20 * 1_000_000 + 30 * 8_000_000,
    )
    reprice.apply(ledger, PriceBook(), EVERYTHING, now=LATER, reason="together")
    found = find(ledger, "known")
    assert [(row["line"], row["quantity"], row["amount_picousd"]) for row in found.charges] == [
        ("uncached_input", 100, 200_000_000),
        ("output", 50, 400_000_000),
        ("output", 0, 0),
    ]
    assert found.charges[2]["reason"] == "together; no longer a line"
    assert state_of(ledger, "known") == ("priced", 600_000_000)
    assert reprice.changes(ledger, PriceBook(), EVERYTHING, now=LATER) == {}


def test_a_price_that_is_lost_leaves_no_cost_behind(ledger, book_of):
    """Priced by a file that turns out to be wrong: unpriced again, not $0."""
    book = book_of(
        '[[price]]\nmodel = "new-model"\nusd_per_mtok = { uncached_input = 1, output = 2 }\n'
    )
    reprice.apply(ledger, book, EVERYTHING, now=LATER, reason="known")
    reprice.apply(ledger, PriceBook(), EVERYTHING, now=LATER, reason="not so")
    assert state_of(ledger, "new") == ("reported", 77)
    assert reprice.changes(ledger, PriceBook(), EVERYTHING, now=LATER) == {}


PRICES = [
    "",
    *(
        f'[[price]]\nmodel = "{model}"\n{lines}\n'
        for model in ("gpt-4.1", "new-model")
        for lines in (
            "usd_per_mtok = { uncached_input = 1, output = 2 }",
            "usd_per_mtok = { reasoning = 1 }",
            "usd_each = { requests = 1 }",
        )
    ),
]


def test_whatever_is_priced_again_keeps_every_promise(ledger, book_of):
    """Also where the provider's figure takes the place of lines, or lines that of the figure."""
    books = [book_of(text) for text in PRICES]
    each_after_each = []  # once: a sequence of de Bruijn
    for at, book in enumerate(books):
        each_after_each += [book, *(one for other in books[at + 1 :] for one in (book, other))]
    each_after_each.append(books[0])
    followed = set(itertools.pairwise(map(id, each_after_each)))
    assert len(followed) == len(books) ** 2 == len(each_after_each) - 1
    for book in each_after_each:
        reprice.apply(ledger, book, EVERYTHING, now=LATER, reason="again")
        broken = [each for each in verify(ledger) if each.count and not each.promise.is_remark]
        assert broken == []


@pytest.mark.parametrize(
    ("scope", "requests"),
    [
        (Scope(since=NOVEMBER + timedelta(seconds=1)), 0),
        (Scope(until=NOVEMBER + timedelta(seconds=1)), 2),
        (Scope(only=(("model", "new-model"),)), 0),
    ],
)
def test_only_what_is_asked_for(ledger, book_of, scope, requests):
    found = reprice.changes(ledger, book_of(DEARER), scope, now=LATER)
    assert sum(change.requests for change in found.values()) == requests


def test_more_than_a_batch(sqlite_engine, monkeypatch, book_of):
    monkeypatch.setattr(reprice, "BATCH", 3)
    # Some at the same moment: the order of the keys has to tell them apart.
    moments = [NOVEMBER + timedelta(seconds=number // 4) for number in range(20)]
    fill(
        sqlite_engine,
        [
            (settled(exchange(id=f"e{number}", at=at)), reading(output_tokens=number + 1))
            for number, at in enumerate(moments)
        ],
    )
    assert reprice.apply(sqlite_engine, book_of(DEARER), EVERYTHING, now=LATER, reason="x") == 20
    total = report(sqlite_engine, ["model"], EVERYTHING).total.figures
    assert total.cost_picousd == 210 * 9_000_000


def test_only_what_has_no_price(sqlite_engine, book_of):
    engine = sqlite_engine
    known, unknown = written.settled("known"), written.settled("unknown")
    line = written.charge("output", 20, None)
    put(engine, whole(known), (unknown, written.reading(unknown), [line]))
    book = book_of(
        '[[price]]\nmodel = "model-1"\n'
        "usd_per_mtok = { uncached_input = 9, cache_read = 9, output = 9 }\n"
    )
    found = reprice.changes(engine, book, EVERYTHING, now=LATER, only_unpriced=True)
    assert found["model-1"].requests == 1
    assert reprice.changes(engine, book, EVERYTHING, now=LATER)["model-1"].requests == 2
    reprice.apply(engine, book, EVERYTHING, now=LATER, reason="x", only_unpriced=True)
    assert reprice.changes(engine, book, EVERYTHING, now=LATER, only_unpriced=True) == {}
    assert reprice.changes(engine, book, EVERYTHING, now=LATER)["model-1"].requests == 1
