"""Each bound of what an operator writes: what is exactly as large is taken, one more is refused."""

from decimal import Decimal

import pytest

from ledger.model.errors import LedgerError
from ledger.parts.budgets import budgets_file as budgets
from ledger.parts.reconcile import causes, statement
from ledger.settings import names, toml_tables
from tests.ledger.parts.reconcile.test_causes import LEDGER, cells
from tests.named import for_each

NAME = '[[name]]\nkey = "abcdef{0}"\nname = "n{0}"\n'
PLAN = '[[plan]]\nname = "p{0}"\nhost = "h{0}"\n'
BUDGET = '[[budget]]\nname = "b{0}"\nusd = 1\nperiod = "day"\n'


@for_each(
    "read, entry, module, bound",
    [
        (names.read, NAME, names, "NAME_ENTRIES_MAX"),
        (names.read, PLAN, names, "NAME_ENTRIES_MAX"),
        (budgets.read, BUDGET, budgets, "BUDGETS_MAX"),
        (budgets.read, '[[quota]]\nwindow = "{0}h"\n', budgets, "QUOTA_RULES_MAX"),
        (budgets.read, '[[alert]]\nwebhook = "http://x.example"\n', budgets, "ALERTS_MAX"),
    ],
)
def test_as_many_tables_as_the_bound(monkeypatch, read, entry, module, bound):
    monkeypatch.setattr(module, bound, 3)
    for count, refused in ((3, 0), (4, 1)):
        _, problems = read("".join(map(entry.format, range(count))))
        assert [str(problem)[:11] for problem in problems] == ["more than 3"] * refused


@for_each(
    "read, text, good, bad",
    [
        (budgets.read, BUDGET.replace("usd = 1", "usd = {}"), "1000000000", "1000000000.01"),
        (budgets.read, BUDGET.replace("usd = 1", "usd = {}"), "0.000001", "0"),
        (budgets.read, BUDGET + "thresholds = [{}]\n", "1000", "1001"),
        (budgets.read, BUDGET + "thresholds = [{}]\n", "1", "0"),
        (budgets.read, '[[quota]]\nwindow = "5h"\nabove = [{}]\n', "1000", "1001"),
        (names.read, PLAN + "usd_per_month = {}\n", "1000000000", "1000000000.01"),
        (names.read, PLAN + "usd_per_month = {}\n", "0", "-0.01"),
        (names.read, '[[name]]\nname = "n"\nkey = "{}"\n', "abcdef", "abcde"),
    ],
)
def test_a_figure_at_its_bound(read, text, good, bad):
    # The place of the figure; the others are of entry 0.
    head, _, tail = text.rpartition("{}")
    for figure, refused in ((good, False), (bad, True)):
        _, problems = read(head.replace("{0}", "0") + figure + tail.replace("{0}", "0"))
        assert bool(problems) is refused, problems


def test_a_problem_keeps_both_ends_of_what_is_too_long():
    most = toml_tables.PROBLEM_LENGTH_MAX
    assert str(toml_tables.TomlProblem(line=None, text="x" * most)) == "x" * most
    cut = str(toml_tables.TomlProblem(line=7, text=f"a{'x' * most}z"))
    assert cut.startswith("line 7: a")
    assert cut.endswith("x" * 10 + "z")
    assert len(cut) == len("line 7: ") + most + len(" ... ")


def test_a_statement_s_amount_at_its_bound():
    digits = statement.USD_DIGITS_MAX + 1
    assert statement.picousd("9" * digits) == int("9" * digits) * 10**12
    with pytest.raises(statement.UnreadableValue, match="is not an amount"):
        statement.picousd("9" * (digits + 1))


def test_as_many_groups_as_the_bound(monkeypatch):
    monkeypatch.setattr(causes, "GROUPS_MAX", len(LEDGER))
    assert causes.explain(LEDGER, cells(LEDGER), tolerance=Decimal(0)).causes == ()
    monkeypatch.setattr(causes, "GROUPS_MAX", len(LEDGER) - 1)
    with pytest.raises(LedgerError, match="too many to explain"):
        causes.explain(LEDGER, cells(LEDGER), tolerance=Decimal(0))
