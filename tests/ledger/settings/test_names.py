"""Who is behind a request, and where the file lies that says so. The file of exchange rates."""

from datetime import UTC, date, datetime
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.model.errors import LedgerError
from ledger.settings import names_file, rates_file
from ledger.settings.names import ENTRIES_MAX, NO_NAMES, GroupFacts, pattern, read
from ledger.settings.rates import SCALE, Currency
from ledger.settings.rates import read as read_rates
from tests.ledger.written import opened

FILE = """
[[name]]
key = "3f2a9c81"
name = "CI"
team = "search"
cost_centre = "4711"
until = 2026-11-01

[[name]]
key = ["3f2a9c81", "aaaaaaaa*"]
name = "CI"
team = "platform"
from = 2026-11-01

[[name]]
key_hint = "…1111"
person = "Ada"

[[name]]
tag = "team=growth*"
team = "growth"

[[name]]
host = "llm-*.example.com"
session = "s?"
project = "shop"
team = "shop"
"""
KEY = "3f2a9c81" + "0" * 24
OCTOBER, NOVEMBER = date(2026, 10, 31), date(2026, 11, 1)


def names(text=FILE):
    found, problems = read(text)
    assert problems == []
    return found


@pytest.mark.parametrize(
    ("word", "facts", "expected"),
    [
        ("team", GroupFacts(key=KEY, day=OCTOBER), "search"),
        ("team", GroupFacts(key=KEY, day=NOVEMBER), "platform"),
        ("team", GroupFacts(key=KEY), None),
        ("cost_centre", GroupFacts(key=KEY, day=OCTOBER), "4711"),
        ("cost_centre", GroupFacts(key=KEY, day=NOVEMBER), None),
        ("name", GroupFacts(key="aaaaaaaab", day=NOVEMBER), "CI"),
        ("team", GroupFacts(key="b" * 32, day=NOVEMBER), None),
        ("person", GroupFacts(key="b" * 32, key_hint="1111"), "Ada"),
        ("person", GroupFacts(key="b" * 32, key_hint="2222"), None),
        ("team", GroupFacts(tags={"team": "growth-eu"}), "growth"),
        ("team", GroupFacts(tags={"team": None}), None),
        ("team", GroupFacts(host="llm-1.example.com", session="s1", project="shop"), "shop"),
        ("team", GroupFacts(host="llm-1.example.com", session="s12", project="shop"), None),
        ("team", GroupFacts(host="llm-1.example.com", session="s1"), None),
        ("team", GroupFacts(host="other", session="s1", project="shop"), None),
        ("team", GroupFacts(), None),
    ],
)
def test_the_name_of_a_request(word, facts, expected):
    assert names().word_of(word, facts) == expected


def test_the_first_entry_that_fits_decides_each_word_by_itself():
    found = names(
        '[[name]]\nhost = "a"\nteam = "one"\n[[name]]\nhost = "*"\nteam = "two"\nperson = "x"\n'
    )
    facts = GroupFacts(host="a")
    assert (found.word_of("team", facts), found.word_of("person", facts)) == ("one", "x")
    assert found.word_of("team", GroupFacts(host="b")) == "two"


def test_what_must_be_asked_for():
    found = names()
    assert found.facts_of(("person",)) == {"key_hint"}
    assert found.facts_of(("team",)) == {"key", "tag", "host", "session", "project"}
    assert found.tags_of(("team", "person")) == ("team",)
    assert found.boundaries(("team",)) == (datetime(2026, 11, 1, tzinfo=UTC),)
    assert found.boundaries(("person",)) == ()
    assert NO_NAMES.facts_of(("team",)) == frozenset()


def test_what_a_key_is_called():
    text = (
        '[[name]]\nkey = "aaaaaa"\nhost = "x"\nname = "no"\n[[name]]\nkey = "aaaaaa"\nname = "yes"'
    )
    assert names(text).key_name("aaaaaabb", None) == "yes"
    assert names(text).key_name("bb", None) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            'nmae = 1\n[[name]]\nhost = "x"\nteam = "y"',
            "line 1: nmae: unknown; did you mean 'name'",
        ),
        ('[[name]]\nteam = "y"', "line 1: name 1: name: one of key, key_hint"),
        ('[[name]]\nhost = "x"', "line 1: name 1: name: give a name, team"),
        ('[[name]]\nhost = "x"\nname = "y"', "line 3: name 1: name: it is the name of a key"),
        ('[[name]]\nhost = ""\nteam = "x"', "line 2: name 1: host: empty"),
        ('[[name]]\nhost = []\nteam = "x"', "line 2: name 1: host: empty"),
        ('[[name]]\nkey = "3f2"\nteam = "x"', "line 2: name 1: key: '3f2' is too short"),
        ('[[name]]\ntag = "team"\nteam = "x"', "line 2: name 1: tag: 'team' is not NAME=VALUE"),
        (
            '[[name]]\nhost = "x"\nteam = "x"\nfrom = 2026-01-02\nuntil = 2026-01-02',
            "line 5: name 1: until: it is not after from",
        ),
        (
            '[[name]]\nhost = "x"\nteam = "x"\n[[name]]\nhost = "x"\nteam = "y"',
            "line 6: name 2: team: entry 1 decides it already",
        ),
        ('[[name]]\nhost = "x"\nteam = "x"\nfrom = "soon"', "line 4: name 1: from: "),
        ('[[plan]]\nname = "a"\n', "line 1: plan 1: plan: one of key, key_hint, host, agent must"),
        ('[[plan]]\nname = ""\nhost = "a"\n', "line 2: plan 1: name: empty"),
        ('[[plan]]\nname = "a"\nhost = ""\nagent = "x"\n', "line 3: plan 1: host: empty"),
        (
            '[[plan]]\nname = "a"\nhost = "a"\nusd_per_month = -1\n',
            "line 4: plan 1: usd_per_month: -1 is not an amount",
        ),
        (
            '[[plan]]\nname = "a"\nhost = "a"\nusd_per_month = inf\n',
            "line 4: plan 1: usd_per_month: Infinity is not an amount",
        ),
        (
            '[[plan]]\nname = "a"\nhost = "a"\nfrom = 2026-11-02\nuntil = 2026-11-02\n',
            "line 5: plan 1: until: it is not after from",
        ),
        ('[[plan]]\nname = "a"\nhost = "a"\nbilling = "paid"\n', "line 4: plan 1: billing:"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text, problem):
    _, problems = read(text)
    assert str(problems[0]).startswith(problem)
    assert "\n" not in str(problems[0])


def test_the_valid_entries_of_a_wrong_file_stay():
    found, problems = read('[[name]]\nhost = "x"\nteam = "x"\n[[name]]\nteam = 1\n')
    assert len(found.entries) == len(problems) == 1


def test_there_is_a_bound():
    entry = '[[name]]\nhost = "h{0}"\nteam = "x"\n'
    found, problems = read("".join(entry.format(n) for n in range(ENTRIES_MAX + 1)))
    assert len(found.entries) == ENTRIES_MAX
    assert str(problems[0]) == "more than 10000 names and plans"


def test_brackets_are_no_pattern():
    assert pattern("[a]*").match("[a]b")
    assert not pattern("[a]*").match("ab")


PLANS = """
[[plan]]
name = "Max"
usd_per_month = 200
key_hint = "1a2b"
from = 2026-11-01
until = 2026-12-01

[[plan]]
name = "Lab"
host = "*.lab.example"
agent = ["codex", "aider"]
billing = "free"
"""


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"key_hint": "1a2b"}, "plan"),
        ({"key_hint": "1a2b", "opened_at": datetime(2026, 12, 1, tzinfo=UTC)}, None),
        ({"origin": "https://x.lab.example:443", "agent": "codex"}, "free"),
        ({"origin": "https://x.lab.example:443", "agent": "cline"}, None),
        ({"origin": "http://[bad"}, None),
        ({}, None),
    ],
)
def test_how_the_operator_says_that_an_exchange_is_billed(facts, expected):
    names, problems = read(PLANS)
    assert problems == []
    assert names.billing_of(opened("a", **facts)) == expected
    assert names.plans[0].usd_per_month == 200


TEXT = '[[name]]\nhost = "x"\nteam = "search"\n'


@pytest.fixture(autouse=True)
def own_config_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("TOKENTEE_NAMES", raising=False)
    return tmp_path / "config" / "tokentee"


def test_without_a_file_nothing_has_a_name():
    assert names_file.load(None) is NO_NAMES


def test_the_file_among_the_settings_the_variable_and_the_option(
    own_config_directory, tmp_path, monkeypatch
):
    own_config_directory.mkdir(parents=True)
    (own_config_directory / "names.toml").write_text(TEXT)
    assert names_file.load(None).entries[0].team == "search"
    (tmp_path / "other.toml").write_text(TEXT.replace("search", "other"))
    monkeypatch.setenv("TOKENTEE_NAMES", str(tmp_path / "other.toml"))
    assert names_file.load(None).entries[0].team == "other"
    assert names_file.load(str(own_config_directory / "names.toml")).entries[0].team == "search"


def test_a_wrong_file_is_one_line(text_file):
    path = text_file("names.toml", "[[name]]\nx = 1\n[[name]]\ny = 1\n")
    with pytest.raises(LedgerError, match=r"line 2: name 1: x: unknown.*\(and 1 more: tokentee"):
        names_file.load(str(path))


RATES = """
[[rate]]
currency = "EUR"
from = 2026-10-01
per_usd = 0.9

[[rate]]
currency = "EUR"
from = 2026-11-01
usd = 1.25

[[rate]]
currency = "JPY"
from = 2026-11-01
per_usd = 150
"""


def test_a_rate_holds_until_the_next():
    found, problems = read_rates(RATES)
    assert problems == []
    euro = found["EUR"]
    expected = {
        date(2026, 10, 1): "0.9",
        date(2026, 10, 31): "0.9",
        date(2026, 11, 1): "0.8",
        date(2031, 1, 1): "0.8",
    }
    for day, rate in expected.items():
        assert Fraction(euro.rate_on(day), SCALE) == Fraction(rate)
    with pytest.raises(LedgerError, match=r"no rate of EUR for 2026-09-30: .* 2026-10-01"):
        euro.rate_on(date(2026, 9, 30))
    assert (euro.sign, found["JPY"].sign) == ("€", "JPY ")


def test_an_amount_has_the_rate_of_its_day_in_the_zone():
    euro = read_rates(RATES)[0]["EUR"]
    at = datetime(2026, 10, 31, 23, 30, tzinfo=UTC)
    assert euro.converted_at(1_000, at) == 900
    assert euro.converted_at(1_000, at, ZoneInfo("Europe/Berlin")) == 800
    assert euro.converted_at(None, at) is None


@given(
    st.lists(
        st.tuples(
            st.dates(date(2026, 1, 1), date(2026, 12, 31)), st.integers(-(10**18), 9 * 10**18)
        )
    ),
    st.lists(st.integers(SCALE // 10**6, SCALE * 10**6), min_size=1, max_size=12),
)
def test_sums_are_exact_and_rounded_once(amounts, rates):
    currency = Currency(
        "XYZ", tuple((date(2026, month, 1), rate) for month, rate in enumerate(rates, 1)), "file"
    )
    exact = sum(
        (Fraction(value * rates[min(day.month, len(rates)) - 1], SCALE) for day, value in amounts),
        Fraction(0),
    )
    assert abs(currency.converted(amounts) - exact) <= Fraction(1, 2)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[[rate]]\ncurrency = "EUR"\nfrom = 2026-01-01', "line 1: rate 1: per_usd: give either"),
        (
            '[[rate]]\ncurrency = "EUR"\nfrom = 2026-01-01\nper_usd = 1\nusd = 1',
            "line 4: rate 1: per_usd: give either per_usd or usd",
        ),
        ('[[rate]]\ncurrency = "euro"\nfrom = 2026-01-01\nusd = 1', "line 2: rate 1: currency"),
        ('[[rate]]\ncurrency = "USD"\nfrom = 2026-01-01\nusd = 1', "line 2: rate 1: currency"),
        ('[[rate]]\ncurrency = "EUR"\nusd = 1', "line 1: rate 1: from: missing"),
        ('[[rate]]\ncurrency = "EUR"\nfrom = 2026-01-01\nusd = 0', "line 4: rate 1: usd: 0 is not"),
        ('[[rate]]\ncurrency = "EUR"\nfrom = 2026-01-01\nusd = -1', "line 4: rate 1: usd: -1"),
        ('[[rate]]\ncurrency = "EUR"\nfrom = 2026-01-01\nusd = nan', "line 4: rate 1: usd: NaN"),
        ('[[rate]]\ncurrency = "EUR"\nfrom = 2026-01-01\nusd = 1e99', "line 4: rate 1: usd: 1E+99"),
        ('[[rate]]\ncurrency = "EUR"\nfrom = 2026-01-01\nusd = true', "line 4: rate 1: usd: not"),
        ("[[rates]]\n", "line 1: rates: unknown; did you mean 'rate'?; the file has rate"),
    ],
)  # fmt: skip
def test_what_is_wrong_has_its_line(text, problem):
    problems = [str(each) for each in read_rates(text)[1]]
    assert problems
    assert problems[0].startswith(problem)


def test_a_day_has_one_rate():
    again = RATES + '[[rate]]\ncurrency = "EUR"\nfrom = 2026-11-01\nusd = 2\n'
    assert [str(each) for each in read_rates(again)[1]] == [
        "line 18: rate 4: from: EUR has a rate from 2026-11-01 already"
    ]


def test_a_currency_is_found_by_its_code(tmp_path, text_file, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("TOKENTEE_RATES", raising=False)
    assert rates_file.load(None, None) is None
    assert rates_file.load("usd", "no such file") is None
    with pytest.raises(LedgerError, match="--currency EUR needs a file of rates: --rates FILE"):
        rates_file.load("EUR", None)
    (tmp_path / "config" / "tokentee").mkdir(parents=True)
    (tmp_path / "config" / "tokentee" / "rates.toml").write_text(RATES)
    found = rates_file.load(" eur", None)
    assert found is not None
    assert found.code == "EUR"
    with pytest.raises(LedgerError, match="has no rates of 'EURO'; it has EUR, JPY"):
        rates_file.load("EURO", None)
    named = text_file("rates.toml", "[[rate]]\n")
    with pytest.raises(LedgerError, match=r"rates\.toml: line 1: rate 1: currency: missing"):
        rates_file.load("EUR", str(named))
