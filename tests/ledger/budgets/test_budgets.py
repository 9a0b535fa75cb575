"""The budgets file."""

import pytest

from ledger.budgets.budgets import read

FILE = """
[[budget]]
name = "search"
team = ["search", "ads*"]
tag = "env=prod"
usd = 0.5
period = "month"
thresholds = [50, 100]

[[budget]]
name = "all"
usd = 1_000
period = "day"

[[alert]]
webhook = "https://hooks.example.com/T0/secret"

[[alert]]
log = true
"""


def test_a_file():
    found, problems = read(FILE)
    assert problems == []
    search, everything = found.budgets
    assert search.only() == (("team", "search"), ("team", "ads*"), ("tag:env", "prod"))
    assert search.limit_picousd == 5 * 10**11
    assert (everything.only(), everything.thresholds) == ((), [80, 100])
    assert [each.log for each in found.destinations] == [None, True]


def test_a_webhook_is_never_shown():
    found, _ = read(FILE)
    assert "secret" not in repr(found)
    assert repr(found.destinations[0]) == "Destination(webhook)"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[[budget]]\nname = "x"\nperiod = "day"', "line 1: budget 1: usd: missing"),
        ('[[budget]]\nname = " "\nusd = 1\nperiod = "day"', "line 2: budget 1: name: empty"),
        ('[[budget]]\nname = "x"\nusd = 0\nperiod = "day"', "line 3: budget 1: usd: 0 is not an"),
        ('[[budget]]\nname = "x"\nusd = 1e400\nperiod = "day"', "line 3: budget 1: usd: 1E+400"),
        ('[[budget]]\nname = "x"\nusd = nan\nperiod = "day"', "line 3: budget 1: usd: NaN is not"),
        ('[[budget]]\nname = "x"\nusd = 1\nperiod = "year"', "line 4: budget 1: period: invalid"),
        (
            '[[budget]]\nname = "x"\nusd = 1\nperiod = "day"\nthresholds = [0]',
            "line 5: budget 1: thr",
        ),
        (
            '[[budget]]\nname = "x"\nusd = 1\nperiod = "day"\nthresholds = []',
            "line 5: budget 1: thr",
        ),
        (
            '[[budget]]\nname = "x"\nusd = 1\nperiod = "day"\nmodel = []',
            "line 5: budget 1: model: e",
        ),
        (
            '[[budget]]\nname = "x"\nusd = 1\nperiod = "day"\ntag = "x"',
            "line 5: budget 1: tag: 'x' is",
        ),
        (
            '[[budget]]\nname = "x"\nusd = 1\nperiod = "day"\ntaem = "x"',
            "line 5: budget 1: taem: unkno",
        ),
        (
            '[[budget]]\nname = "x"\nusd = 1\nperiod = "day"\n' * 2,
            "line 2: budget 1: name: 'x' is the name of several budgets",
        ),
        ("[[alert]]", "line 1: alert 1: log: give one of webhook, webhook_env"),
        ('[[alert]]\nlog = true\ncommand = ["x"]', "line 2: alert 1: log: give one of"),
        ('[[alert]]\nwebhook = "ftp://secret"', "line 2: alert 1: webhook: not a URL"),
        ('[[alert]]\nwebhook = "https://[secret"', "line 2: alert 1: webhook: not a URL"),
        ("budgets = 1", "line 1: budgets: unknown; did you mean 'budget'?"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text, problem):
    _, problems = read(text)
    assert str(problems[0]).startswith(problem)
    assert "secret" not in str(problems[0])


def test_there_are_bounds():
    budget = '[[budget]]\nname = "{0}"\nusd = 1\nperiod = "day"\n'
    found, problems = read("".join(budget.format(n) for n in range(1001)))
    assert (len(found.budgets), str(problems[0])) == (1000, "more than 1000 budgets")


def test_a_zone_that_is_none_is_named():
    _, problems = read(
        '[[budget]]\nname = "a"\nusd = 1\nperiod = "day"\ntimezone = "Europe/Berlni"\n'
    )
    (problem,) = problems
    assert "not a time zone: 'Europe/Berlni'; did you mean 'Europe/Berlin'" in problem.text
