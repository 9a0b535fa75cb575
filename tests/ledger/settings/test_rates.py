"""The file of exchange rates."""

from datetime import UTC, date, datetime
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.model.errors import LedgerError
from ledger.settings import rates_file
from ledger.settings.rates import SCALE, Currency, read

FILE = """
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
    found, problems = read(FILE)
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
    euro = read(FILE)[0]["EUR"]
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
    problems = [str(each) for each in read(text)[1]]
    assert problems
    assert problems[0].startswith(problem)


def test_a_day_has_one_rate():
    again = FILE + '[[rate]]\ncurrency = "EUR"\nfrom = 2026-11-01\nusd = 2\n'
    assert [str(each) for each in read(again)[1]] == [
        "line 18: rate 4: from: EUR has a rate from 2026-11-01 already"
    ]


def test_a_currency_is_found_by_its_code(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("TOKENTEE_RATES", raising=False)
    assert rates_file.load(None, None) is None
    assert rates_file.load("usd", "no such file") is None
    with pytest.raises(LedgerError, match="--currency EUR needs a file of rates: --rates FILE"):
        rates_file.load("EUR", None)
    (tmp_path / "config" / "tokentee").mkdir(parents=True)
    (tmp_path / "config" / "tokentee" / "rates.toml").write_text(FILE)
    found = rates_file.load(" eur", None)
    assert found is not None
    assert found.code == "EUR"
    with pytest.raises(LedgerError, match="has no rates of 'EURO'; it has EUR, JPY"):
        rates_file.load("EURO", None)
    named = tmp_path / "rates.toml"
    named.write_text("[[rate]]\n")
    with pytest.raises(LedgerError, match=r"rates\.toml: line 1: rate 1: currency: missing"):
        rates_file.load("EUR", str(named))
