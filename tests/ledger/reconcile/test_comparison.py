"""A statement beside the ledger."""

from datetime import date
from decimal import Decimal

import pytest

from ledger.reconcile.comparison import (
    OTHER_ITEMS,
    Agreement,
    Dimension,
    compare,
    spelling,
    unnamed_items,
)
from ledger.reconcile.output import document, summary, table
from ledger.reconcile.statement import Line
from ledger.reports.layout import Amount

DAY, NEXT = date(2026, 11, 2), date(2026, 11, 3)
CENT = 10**10


def usd(amount):
    return Amount(picousd=int(Decimal(amount) * 10**12))


def line(model="gpt-5", day=DAY, **figures):
    return Line(day=day, model=model, figures=figures)


def verdicts(ledger, statement, tolerance="0"):
    return [
        (entry.day, entry.name, entry.figure, entry.difference, entry.verdict)
        for entry in compare(ledger, statement, tolerance=Decimal(tolerance))
    ]


def test_what_is_equal():
    both = [line(input_tokens=10, output_tokens=5)]
    assert verdicts(both, both) == [
        (DAY, "gpt-5", "input_tokens", 0, Agreement.EQUAL),
        (DAY, "gpt-5", "output_tokens", 0, Agreement.EQUAL),
    ]


def test_only_what_the_statement_speaks_of_is_compared():
    assert verdicts([line(input_tokens=10, cost_picousd=5)], [line(input_tokens=10)]) == [
        (DAY, "gpt-5", "input_tokens", 0, Agreement.EQUAL)
    ]


def test_what_differs_and_what_is_missing():
    ledger = [line(input_tokens=10), line("a", input_tokens=1), line(day=NEXT, input_tokens=7)]
    statement = [line(input_tokens=12), line("b", input_tokens=3)]
    assert verdicts(ledger, statement) == [
        (DAY, "a", "input_tokens", 1, Agreement.ONLY_LEDGER),
        (DAY, "b", "input_tokens", -3, Agreement.ONLY_STATEMENT),
        (DAY, "gpt-5", "input_tokens", -2, Agreement.DIFFERS),
        (NEXT, "gpt-5", "input_tokens", 7, Agreement.ONLY_LEDGER),
    ]


@pytest.mark.parametrize(
    ("figure", "tolerance", "ours", "theirs", "verdict"),
    [
        ("input_tokens", "0.001", 1000, 1001, Agreement.WITHIN),
        ("input_tokens", "0.001", 1001, 1000, Agreement.WITHIN),
        ("input_tokens", "0.001", 1000, 1002, Agreement.DIFFERS),
        ("input_tokens", "0.001", 1002, 1000, Agreement.DIFFERS),
        ("cost_picousd", "0", CENT + CENT // 2, CENT, Agreement.WITHIN),
        ("cost_picousd", "0", CENT + CENT // 2 + 1, CENT, Agreement.DIFFERS),
        ("cost_picousd", "0", 1, 0, Agreement.WITHIN),
        ("cost_picousd", "0", 2 * CENT, 0, Agreement.DIFFERS),
    ],
)
def test_a_tolerance_and_half_a_cent_of_rounding(figure, tolerance, ours, theirs, verdict):
    ((*_, found),) = verdicts([line(**{figure: ours})], [line(**{figure: theirs})], tolerance)
    assert found is verdict


def test_nothing_on_either_side_is_no_line():
    assert verdicts([line(cache_read_tokens=0)], [line(cache_read_tokens=0)]) == []


@pytest.mark.parametrize(
    ("one", "other", "are_same"),
    [
        ("Claude Opus 4.6", "claude-opus-4-6", True),
        ("claude-haiku-4-5-20251001", "claude-haiku-4-5", True),
        ("gpt-4o-2024-08-06", "GPT-4o", True),
        ("claude-sonnet-4-5@20250929", "claude-sonnet-4-5", True),
        ("claude-3-5-haiku-latest", "claude-3-5-haiku", True),
        ("gpt-4.1", "gpt-4.1-mini", False),
        ("o3", "o3-pro", False),
        ("openai/gpt-5", "gpt-5", False),
    ],
)
def test_names_of_one_model_or_of_two(one, other, are_same):
    assert (spelling(one) == spelling(other)) is are_same


def test_names_meet_and_the_ledgers_is_shown():
    ledger = [line("gpt-4o-2024-08-06", input_tokens=4), line("gpt-4o-2024-11-20", input_tokens=6)]
    assert verdicts(ledger, [line("GPT-4o", input_tokens=10)]) == [
        (DAY, "gpt-4o-2024-08-06", "input_tokens", 0, Agreement.EQUAL)
    ]


def test_costs_that_name_no_model_at_all_are_compared_by_day():
    ledger = [line("a", cost_picousd=10 * CENT), line("b", cost_picousd=5 * CENT)]
    statement = [line(None, cost_picousd=8 * CENT), line(None, cost_picousd=7 * CENT)]
    assert verdicts(ledger, statement) == [(DAY, None, "cost_picousd", 0, Agreement.EQUAL)]


def test_one_item_without_a_model_leaves_the_models_apart():
    """Searches stand without a model in a cost report, and tokens beside them with one."""
    ledger = [
        line("a", cost_picousd=8 * CENT),
        line("b", cost_picousd=5 * CENT),
        Line(day=DAY, model="a", item="web_searches", figures={"cost_picousd": 2 * CENT}),
    ]
    statement = [
        line("a", cost_picousd=8 * CENT),
        line("b", cost_picousd=6 * CENT),
        Line(day=DAY, model=None, item="web search", figures={"cost_picousd": 2 * CENT}),
    ]
    entries = compare(ledger, statement, tolerance=Decimal(0))
    assert [(entry.name, entry.item, entry.verdict) for entry in entries] == [
        ("a", None, Agreement.EQUAL),
        ("b", None, Agreement.DIFFERS),
        (None, OTHER_ITEMS, Agreement.EQUAL),
    ]
    assert unnamed_items(statement) == {"web search": 2 * CENT}


def test_where_the_statement_has_no_items_the_ledger_counts_its_own_to_their_models():
    ledger = [
        line("a", cost_picousd=8 * CENT),
        Line(day=DAY, model="a", item="web_searches", figures={"cost_picousd": 2 * CENT}),
    ]
    statement = [line("a", cost_picousd=10 * CENT)]
    assert verdicts(ledger, statement) == [(DAY, "a", "cost_picousd", 0, Agreement.EQUAL)]


@pytest.mark.parametrize("by", [Dimension.KEY, Dimension.PROJECT])
def test_by_key_and_by_project(by):
    def one(name, cost, model=None):
        names = {"key": name} if by is Dimension.KEY else {"project": name}
        return Line(day=DAY, model=model, figures={"cost_picousd": cost * CENT}, **names)

    entries = compare(
        [one("k1", 10), one(None, 3)],
        [one("k1", 4, "a"), one("k1", 6, "b"), one("k2", 1, "a")],
        by=by,
        tolerance=Decimal(0),
    )
    assert [(entry.name, entry.difference // CENT, entry.verdict) for entry in entries] == [
        (None, 3, Agreement.ONLY_LEDGER),
        ("k1", 0, Agreement.EQUAL),
        ("k2", -1, Agreement.ONLY_STATEMENT),
    ]


def test_as_tables():
    entries = compare(
        [line(input_tokens=10, cost_picousd=150 * CENT)],
        [line(input_tokens=10), line(None, cost_picousd=200 * CENT)],
        tolerance=Decimal(0),
    )
    assert table(entries).rows == (
        ("2026-11-02", "(all)", "cost usd", usd("1.5"), usd(2), usd("-0.5"), "differs"),
        ("2026-11-02", "gpt-5", "input tokens", 10, 10, None, "equal"),
    )
    found = document(entries)
    assert found["agrees"] is False
    assert found["verdicts"] == {"differs": 1, "equal": 1}
    assert found["entries"][0]["difference"] == Decimal("-0.5")
    assert found["entries"][1]["ledger"] == 10
    assert summary(entries) == "1 differs, 1 equal"
