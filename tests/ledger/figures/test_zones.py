"""Days of other zones: each request is in the day that its clock on the wall shows."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest

from ledger.budgets.budgets import read as read_budgets
from ledger.budgets.status import statuses
from ledger.figures.queries import groups_of, report, totals
from ledger.figures.request_list import latest
from ledger.model.errors import LedgerError
from ledger.reports import report_tables
from ledger.settings.names import NO_NAMES
from ledger.settings.rates import SCALE
from ledger.settings.rates import read as read_rates
from ledger.store.scope import Scope, snapshot
from ledger.text import period
from tests.ledger.priced import BOTH, exchange, filled, reading, settled

pytestmark = pytest.mark.large
ZONES = [
    *("Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe"),
    *("Pacific/Kiritimati", "America/St_Johns", "Africa/Casablanca"),
]
CHANGES = [  # of Berlin, New York and Lord Howe
    datetime(2026, 3, 29, 1, tzinfo=UTC),
    datetime(2026, 10, 25, 1, tzinfo=UTC),
    datetime(2026, 11, 1, 6, tzinfo=UTC),
    datetime(2026, 10, 3, 15, 30, tzinfo=UTC),
]
SHOWN = {"hour": "%Y-%m-%d %H", "day": "%Y-%m-%d", "month": "%Y-%m"}


def moments():
    """Around every change, and at ends of days, weeks and months."""
    found = {datetime(2026, 11, 1, tzinfo=UTC) + timedelta(minutes=37 * n) for n in range(120)}
    for change in CHANGES:
        found |= {
            change + timedelta(minutes=minutes) for minutes in (-1500, -61, -1, 0, 1, 59, 1500)
        }
        found.add(change - timedelta(microseconds=400))  # SQLite would round it to the change
    found.add(datetime(2026, 11, 1, 22, 59, 59, 999_600, UTC))  # the end of a week of Berlin
    found.add(datetime(2026, 11, 1, 23, 59, 59, 999_600, UTC))  # and of UTC
    return sorted(found)


@pytest.fixture(scope="module", params=BOTH)
def engine(request, tmp_path_factory):
    entries = [
        (settled(exchange(at=at, id=f"e{n}")), reading(at=at, input_tokens=n + 1, output_tokens=1))
        for n, at in enumerate(moments())
    ]
    yield from filled(request, tmp_path_factory, entries)


def week(at):
    return str(at.date() - timedelta(days=at.weekday()))


@pytest.mark.parametrize("name", ZONES)
@pytest.mark.parametrize("word", ["hour", "day", "week", "month"])
def test_each_request_is_in_its_own_day(engine, name, word):
    zone = ZoneInfo(name)
    local = [at.astimezone(zone) for at in moments()]
    expected = Counter(week(at) if word == "week" else at.strftime(SHOWN[word]) for at in local)
    found = groups_of(engine, (word,), Scope(zone=zone))
    whole = totals(engine, Scope()).cost_picousd
    assert {key[0]: each.requests for key, each in found.items()} == expected
    assert sum(each.cost_picousd or 0 for each in found.values()) == whole


@pytest.mark.parametrize("name", ZONES)
def test_the_days_of_a_zone_are_the_requests_of_their_spans(engine, name):
    """A day by its words, as a condition, and as a group: one number."""
    zone = ZoneInfo(name)
    for day in ("2026-03-29", "2026-10-04", "2026-10-25", "2026-11-01", "2026-11-02"):
        start = period.span(day, datetime(2026, 11, 9, tzinfo=zone))
        since, until = start.start.astimezone(UTC), start.end.astimezone(UTC)
        of_span = totals(engine, Scope(since=since, until=until)).requests
        only = Scope(only=(("day", day),), zone=zone)
        assert totals(engine, only).requests == of_span
        with snapshot(engine) as connection:
            assert len(latest(connection, only, limit=200).requests) == of_span
        grouped = groups_of(engine, ("day",), Scope(zone=zone)).get((day,))
        assert (grouped.requests if grouped else 0) == of_span


RATES = """
[[rate]]
currency = "EUR"
from = 2026-01-01
per_usd = 0.9

[[rate]]
currency = "EUR"
from = 2026-10-26
per_usd = 0.87654321

[[rate]]
currency = "EUR"
from = 2026-11-02
usd = 1.17
"""


@pytest.mark.parametrize("name", ["UTC", "Europe/Berlin", "Asia/Kathmandu"])
@pytest.mark.parametrize(
    ("words", "top"),
    [(["model"], None), (["day"], 3), (["hour", "model"], 2), (["month", "key"], None), ([], None)],
)
def test_each_request_has_the_rate_of_its_own_day(engine, name, words, top):
    """In a currency the rows add up to the total, which is that of the single requests."""
    euro = read_rates(RATES)[0]["EUR"]
    zone = None if name == "UTC" else ZoneInfo(name)
    found = report(engine, words, Scope(zone=zone), top=top, currency=euro)
    with snapshot(engine) as connection:
        each = latest(connection, Scope(zone=zone), limit=200).requests
    exact = sum(
        Fraction(
            (one.cost_picousd or 0) * euro.rate_on(one.opened_at.astimezone(zone or UTC).date())
        )
        for one in each
    )
    assert len(each) == found.total.figures.requests < 200
    assert found.total.money is not None
    total = found.total.money["cost_picousd"]
    assert sum((row.money or {})["cost_picousd"] for row in found.rows) == total
    assert abs(total - exact / SCALE) <= len(each)  # each group is rounded once
    assert total < (found.total.figures.cost_picousd or 0)
    assert [row.figures for row in found.rows] == [
        row.figures for row in report(engine, words, Scope(zone=zone), top=top).rows
    ]


def test_a_day_without_a_rate_is_an_error(engine):
    euro = read_rates(RATES.replace("2026-01-01", "2026-10-25"))[0]["EUR"]
    with pytest.raises(LedgerError, match="no rate of EUR for 2026-"):
        report(engine, ["model"], Scope(), currency=euro)


def test_a_report_names_its_zone(engine):
    zone = ZoneInfo("Europe/Berlin")
    since = datetime(2026, 10, 24, 22, tzinfo=UTC)  # midnight there
    found = report(
        engine, ["day"], Scope(since=since, until=since + timedelta(hours=25), zone=zone)
    )
    assert report_tables.title(found) == "Requests by day, 2026-10-25 Europe/Berlin"
    assert report_tables.document(found)["timezone"] == "Europe/Berlin"
    assert [row.key for row in found.rows] == [("2026-10-25",)]


def test_a_budget_counts_the_days_of_its_zone(engine):
    text = '[[budget]]\nname = "{0}"\nusd = 1\nperiod = "day"\ntimezone = "{0}"\n'
    budgets, problems = read_budgets("".join(text.format(name) for name in ("UTC", *ZONES)))
    assert problems == []
    now = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    for each in statuses(engine, budgets.budgets, NO_NAMES, now):
        zone = ZoneInfo(each.budget.timezone)
        today = [
            at for at in moments() if at.astimezone(zone).date() == now.astimezone(zone).date()
        ]
        since, until = each.span.start.astimezone(UTC), each.span.end.astimezone(UTC)
        assert [at for at in moments() if since <= at < until] == today
        spent = totals(engine, Scope(since=since, until=until)).cost_picousd or 0
        assert each.spent_picousd == spent
