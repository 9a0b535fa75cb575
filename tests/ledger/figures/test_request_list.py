"""Lists of single requests: the figures of a report, one by one, and pages that leave nothing out. Days of
other zones: each request is in the day that its clock on the wall shows."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import count, islice
from zoneinfo import ZoneInfo

import pytest

from ledger.figures import request_list
from ledger.figures.queries import groups_of, report, totals
from ledger.figures.request_filter import KINDS, Filter, filter_of
from ledger.figures.request_list import LISTED_COLUMNS, ListedRequest, error_kinds, latest
from ledger.model.errors import WrongCallError
from ledger.parts.budgets.budgets_file import read as read_budgets
from ledger.parts.budgets.status import statuses
from ledger.reports import report_tables
from ledger.settings.names import NO_NAMES
from ledger.store.schema.dimensions import COLUMN_OF
from ledger.store.scope import Scope, snapshot
from ledger.text import period
from tests.ledger.parts.pages.conftest import SMALL
from tests.ledger.parts.pages.filled import fill
from tests.ledger.priced import BOTH, empty, exchange, filled, reading, settled

pytestmark = pytest.mark.large


@pytest.fixture(scope="module", params=BOTH)
def engine(request, tmp_path_factory):
    for engine in empty(request, tmp_path_factory):
        fill(engine, **SMALL | {"rows": 150, "history_days": 14})
        yield engine


def everything(engine, scope=None, limit=200, **chosen):
    """All pages of a list."""
    found: list[ListedRequest] = []
    before = None
    while True:
        with snapshot(engine) as connection:
            narrowed = Filter(**chosen, before=before)
            page = latest(connection, scope or Scope(), narrowed, limit=limit)
        found += page.requests
        before = page.older
        if before is None:
            return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_lists_what_its_figure_counts(engine, kind):
    listed = everything(engine, kinds=(kind,))
    total = totals(engine, Scope())
    with engine.connect() as connection:
        degraded = connection.exec_driver_sql("SELECT SUM(degraded) FROM completeness").scalar()
    counts = {
        "errors": total.errors,
        "complete_without_usage": total.complete_without_usage,
        "degraded": degraded,
        "without_usage": total.without_usage,
        "unpriced": total.unpriced + total.partial,
        "estimated": total.estimated,
        "covered": total.covered,
        "refused": total.refused,
    }
    assert len(listed) == counts[kind]
    assert len({one.id for one in listed}) == len(listed)


def test_pages_have_every_request_once_the_latest_first(engine):
    listed = everything(engine, limit=7)
    assert len(listed) == totals(engine, Scope()).requests
    places = [(one.opened_at, one.id) for one in listed]
    assert places == sorted(set(places), reverse=True)
    assert listed == everything(engine)
    known = [one.cost_picousd for one in listed if one.cost_picousd is not None]
    assert sum(known) == totals(engine, Scope()).cost_picousd


def test_what_is_rare_is_looked_for_page_by_page(engine, monkeypatch):
    """A page ends when its time is over, says how far it looked, and the next one goes on there."""
    rare = everything(engine, kinds=("degraded",))
    monkeypatch.setattr(request_list, "LOOK_SECONDS_MAX", 0.02)
    ticks = count()
    monkeypatch.setattr("time.monotonic", lambda: next(ticks) / 100)
    found: list[ListedRequest] = []
    looked, before = [], None
    while True:
        with snapshot(engine) as connection:
            narrowed = Filter(kinds=("degraded",), before=before)
            page = latest(connection, Scope(), narrowed, limit=200)
        found += page.requests
        if page.looked_to is None:
            break
        looked.append(page.looked_to)
        before = page.older
    assert found == rare
    assert len(looked) > 3
    assert looked == sorted(looked, reverse=True)


@pytest.mark.parametrize("word", sorted({*COLUMN_OF} - {"tag"}))
def test_the_groups_of_a_report_are_the_lists_of_their_values(engine, word):
    """Also by what no sums of days have."""
    for key, figures in islice(groups_of(engine, (word,), Scope()).items(), 3):
        value = "(none)" if key[0] is None else key[0]
        if any(letter in value for letter in "*?"):
            continue
        scope = Scope(only=((word, value),))
        assert totals(engine, scope).requests == figures.requests
        assert len(everything(engine, scope)) == figures.requests


def test_error_kinds_add_up_to_the_errors(engine):
    with snapshot(engine) as connection:
        kinds = error_kinds(connection, Scope())
    assert sum(each.requests for each in kinds) == totals(engine, Scope()).errors > 0
    assert [each.requests for each in kinds] == sorted((e.requests for e in kinds), reverse=True)


def test_thresholds_are_met(engine):
    listed = everything(engine)
    costs = sorted(one.cost_picousd for one in listed if one.cost_picousd is not None)
    middle = costs[len(costs) // 2]
    dear = everything(engine, cost_min_picousd=middle)
    shown = [
        one.cost_picousd or one.list_value_picousd or one.estimated_cost_picousd for one in dear
    ]
    assert min(shown) >= middle
    assert len(dear) >= len(costs) // 2
    slow = everything(engine, duration_min_ms=5_000)
    assert {one.id for one in slow} == {
        one.id for one in listed if one.duration_ms is not None and one.duration_ms >= 5_000
    }


@pytest.mark.parametrize("before", ["z", "2026-11-02", "2026-11-02T00:00:00,a", "9" * 400])
def test_a_place_that_is_none_is_refused(engine, before):
    with snapshot(engine) as connection, pytest.raises(WrongCallError, match="not a place"):
        latest(connection, Scope(), Filter(before=before), limit=1)


@pytest.mark.parametrize("text", ["", "x", "-1", "nan", "inf", "1e9", "9" * 400])
def test_a_number_that_is_none_is_refused(text):
    for name in ("min_cost", "min_seconds"):
        with pytest.raises(WrongCallError, match="not a number of"):
            filter_of((), **{name: text})


def test_numbers_and_kinds_are_read():
    found = filter_of(["errors", "errors"], min_cost="$0.05", min_seconds="1.5")
    assert found == Filter(kinds=("errors",), cost_min_picousd=50_000_000_000, duration_min_ms=1500)
    with pytest.raises(WrongCallError, match="not a kind of requests"):
        filter_of(["x" * 100])


def test_the_columns_are_the_views():
    from ledger.store.scope import REQUEST_COLUMNS

    assert {*LISTED_COLUMNS} <= {*REQUEST_COLUMNS}


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
def zoned(request, tmp_path_factory):
    entries = [
        (settled(exchange(at=at, id=f"e{n}")), reading(at=at, input_tokens=n + 1, output_tokens=1))
        for n, at in enumerate(moments())
    ]
    yield from filled(request, tmp_path_factory, entries)


def week(at):
    return str(at.date() - timedelta(days=at.weekday()))


@pytest.mark.parametrize("name", ZONES)
@pytest.mark.parametrize("word", ["hour", "day", "week", "month"])
def test_each_request_is_in_its_own_day(zoned, name, word):
    zone = ZoneInfo(name)
    local = [at.astimezone(zone) for at in moments()]
    expected = Counter(week(at) if word == "week" else at.strftime(SHOWN[word]) for at in local)
    found = groups_of(zoned, (word,), Scope(zone=zone))
    whole = totals(zoned, Scope()).cost_picousd
    assert {key[0]: each.requests for key, each in found.items()} == expected
    assert sum(each.cost_picousd or 0 for each in found.values()) == whole


@pytest.mark.parametrize("name", ZONES)
def test_the_days_of_a_zone_are_the_requests_of_their_spans(zoned, name):
    """A day by its words, as a condition, and as a group: one number."""
    zone = ZoneInfo(name)
    for day in ("2026-03-29", "2026-10-04", "2026-10-25", "2026-11-01", "2026-11-02"):
        start = period.span(day, datetime(2026, 11, 9, tzinfo=zone))
        since, until = start.start.astimezone(UTC), start.end.astimezone(UTC)
        of_span = totals(zoned, Scope(since=since, until=until)).requests
        only = Scope(only=(("day", day),), zone=zone)
        assert totals(zoned, only).requests == of_span
        with snapshot(zoned) as connection:
            assert len(latest(connection, only, limit=200).requests) == of_span
        grouped = groups_of(zoned, ("day",), Scope(zone=zone)).get((day,))
        assert (grouped.requests if grouped else 0) == of_span


def test_a_report_names_its_zone(zoned):
    zone = ZoneInfo("Europe/Berlin")
    since = datetime(2026, 10, 24, 22, tzinfo=UTC)  # midnight there
    found = report(zoned, ["day"], Scope(since=since, until=since + timedelta(hours=25), zone=zone))
    assert report_tables.title(found) == "Requests by day, 2026-10-25 Europe/Berlin"
    assert report_tables.document(found)["timezone"] == "Europe/Berlin"
    assert [row.key for row in found.rows] == [("2026-10-25",)]


def test_a_budget_counts_the_days_of_its_zone(zoned):
    text = '[[budget]]\nname = "{0}"\nusd = 1\nperiod = "day"\ntimezone = "{0}"\n'
    budgets, problems = read_budgets("".join(text.format(name) for name in ("UTC", *ZONES)))
    assert problems == []
    now = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    for each in statuses(zoned, budgets.budgets, NO_NAMES, now):
        zone = ZoneInfo(each.cap.timezone)
        today = [
            at for at in moments() if at.astimezone(zone).date() == now.astimezone(zone).date()
        ]
        assert each.span is not None
        since, until = each.span.start.astimezone(UTC), each.span.end.astimezone(UTC)
        assert [at for at in moments() if since <= at < until] == today
        spent = totals(zoned, Scope(since=since, until=until)).cost_picousd or 0
        assert each.spent_picousd == spent
