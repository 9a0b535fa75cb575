"""Lists of single requests: the figures of a report, one by one, and pages that leave nothing out."""

from itertools import count, islice

import pytest

from ledger.figures import request_list
from ledger.figures.queries import groups_of, totals
from ledger.figures.request_filter import KINDS, Filter, filter_of
from ledger.figures.request_list import COLUMNS, ListedRequest, error_kinds, latest
from ledger.model.errors import WrongCallError
from ledger.store.scope import COLUMNS as DIMENSIONS
from ledger.store.scope import Scope, snapshot
from tests.ledger.pages.conftest import SMALL
from tests.ledger.pages.filled import fill
from tests.ledger.priced import BOTH, empty

pytestmark = pytest.mark.large


@pytest.fixture(scope="module", params=BOTH)
def engine(request, tmp_path_factory):
    for engine in empty(request, tmp_path_factory):
        fill(engine, **SMALL)
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


@pytest.mark.parametrize("word", sorted({*DIMENSIONS} - {"tag"}))
def test_the_groups_of_a_report_are_the_lists_of_their_values(engine, word):
    """Also by what no sums of days have."""
    for key, figures in islice(groups_of(engine, (word,), Scope()).items(), 6):
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
    with snapshot(engine) as connection, pytest.raises(WrongCallError, match="not the place"):
        latest(connection, Scope(), Filter(before=before), limit=1)


@pytest.mark.parametrize("text", ["", "x", "-1", "nan", "inf", "1e9", "9" * 400])
def test_a_number_that_is_none_is_refused(text):
    for name in ("min_cost", "min_seconds"):
        with pytest.raises(WrongCallError, match="not a number of"):
            filter_of((), **{name: text})


def test_numbers_and_kinds_are_read():
    found = filter_of(["errors", "errors"], min_cost="$0.05", min_seconds="1.5")
    assert found == Filter(kinds=("errors",), cost_min_picousd=50_000_000_000, duration_min_ms=1500)
    with pytest.raises(WrongCallError, match="no such kind"):
        filter_of(["x" * 100])


def test_the_columns_are_the_views():
    from ledger.store.scope import REQUEST_COLUMNS

    assert {*COLUMNS} <= {*REQUEST_COLUMNS}
