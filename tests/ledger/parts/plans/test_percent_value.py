"""The value of a percent: accounts whose true values are drawn, through the command on both databases
and without one; and what must give no figure."""

import json
from datetime import timedelta
from itertools import batched
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from ledger.parts.plans import limit_values, limits, limits_text, percent_value
from ledger.parts.plans.percent_value import StatedPercent, Use, estimate
from ledger.store import db
from tests.app import APP
from tests.ledger.parts.plans.plan_accounts import HOUR, WINDOW, Account, at_prices
from tests.ledger.priced import BOTH, filled
from tests.ledger.written import NOON, writing
from tests.named import for_each

DAYS = 10
ACCOUNTS = [Account(seed, days=DAYS, models=1 + seed % 2) for seed in range(2)]
SETTINGS = [(3, 1), (5, 1), (5, 2), (10, 1), (10, 2), (14, 3), (30, 1), (30, 2)]
"""Days and models of simulated accounts."""


def write(place, entries):
    with writing(str(getattr(place, "url", place)), price=at_prices) as written:
        for some in batched(entries, 200):
            written.wait(*[written.ledger.settle(exchange, read) for exchange, read in some])


def entries(accounts):
    return (pair for each in accounts for pair in each.entries(f"a{each.seed:02}"))


@pytest.fixture(scope="module", params=BOTH)
def few(request, tmp_path_factory):
    yield from filled(request, tmp_path_factory, entries(ACCOUNTS), write=write)


def inside(low: Any, true: float, high: Any) -> bool:
    return bool(low <= true <= high)


def test_the_true_value_is_in_the_interval_of_nine_accounts_in_ten():
    known = right = changed = seen = invented = 0
    for days, models in SETTINGS:
        for seed in range(25):
            account = Account(seed, days=days, models=models)
            found = estimate(account.figures(), account.uses())
            if found.value.usd is None:
                continue
            known += 1
            right += inside(found.value.low, account.value_over_all(), found.value.high)
            assert inside(found.value.low, found.value.usd, found.value.high)
            is_changed = bool(account.is_changed) and account.calls[-1].at > account.changed_at
            changed += is_changed and days >= 14
            for each in found.changes:
                is_it = each.after / each.before == pytest.approx(
                    account.value / account.before, rel=0.2
                )
                seen += is_changed and is_it and days >= 14
                invented += not (is_changed and is_it)
    assert known >= 0.85 * 25 * len(SETTINGS)
    assert 0.9 <= right / known <= 0.99, (right, known)
    assert seen >= 0.8 * changed, (seen, changed)
    assert invented <= 0.02 * known, "changes are not invented"


def test_unrecorded_use_is_found():
    near = known = 0
    for seed in range(40):
        account = Account(seed, days=10)
        found = estimate(account.figures(), account.uses())
        if found.recorded is not None and found.unrecorded is not None:
            known += 1
            stated = found.recorded + found.unrecorded
            near += abs(found.unrecorded - account.unrecorded) <= 0.05 * stated
    assert known >= 35
    assert near >= 0.9 * known, (near, known)


@pytest.mark.large
def test_the_command_and_its_exact_rows(few):
    account = ACCOUNTS[0]
    call = ["limits", "--value", "--ledger", few.url.render_as_string(hide_password=False)]
    now = NOON + timedelta(days=DAYS)
    found = limit_values.limit_values(few, now, key="k-a00")
    assert {each.holder for each in found} == {"a00"}
    row: dict[str, Any] = found[0].as_json()[0]
    assert row["model"] is None
    assert [*row] == [
        "provider", "account", "window", "model", "usd_per_percent", "low", "high", "intervals",
        "recorded_percent", "unrecorded_percent", "changes", "full_at",
    ]  # fmt: skip
    assert row["window"] == "5h"
    stated = max(each.percent for each in account.figures())
    assert row["recorded_percent"] + row["unrecorded_percent"] >= stated
    shown = CliRunner().invoke(APP, [*call, "--format", "json"])
    assert shown.exit_code == 0
    assert isinstance(json.loads(shown.stdout), list)
    (worth,) = limits_text.worths(found)
    assert worth.startswith("example 5h of account a00: a whole window is worth $")
    assert list(limits_text.value_table(found).rows[0][:4]) == ["example", "a00", "5h", "(all)"]


def steady(windows=6, calls=40, step=1.0, usd=1.0, per_percent=2.0):
    """An account of one session without any chance: (figures, uses)."""
    figures: list[StatedPercent] = []
    uses: list[Use] = []
    for window in range(windows):
        for call in range(calls):
            at = window * 6 * HOUR + call * 60.0
            used = (call + 1) * usd / per_percent // step * step
            if not figures or figures[-1][1:] != (used, window * 6 * HOUR):
                figures.append(StatedPercent(at, used, window * 6 * HOUR))
            uses.append(Use(at, "m", usd, is_answered=True))
    return figures, uses


def test_a_steady_account():
    figures, uses = steady()
    found = estimate(figures, uses)
    assert inside(found.value.low, 2.0, found.value.high)
    assert (found.changes, found.unrecorded, found.why) == ((), 0.0, "")
    assert sum(found.percent_of_model.values()) == pytest.approx(found.recorded)


def test_what_used_nothing_is_no_model_of_the_plan():
    figures, uses = steady()
    refused = [use._replace(model="", usd=0.0) for use in uses]
    assert estimate(figures, uses + refused) == estimate(figures, uses)


def test_unrecorded_use_is_what_the_requests_do_not_explain():
    figures, uses = steady(windows=12)
    since = figures[0].window_from
    more = [
        each._replace(percent=each.percent + 10)
        if each.window_from == since and each.at > 1_200
        else each
        for each in figures
    ]
    found = estimate(more, uses)
    assert found.unrecorded == pytest.approx(10, abs=1)
    assert found.value == estimate(figures, uses).value, "one window of twelve"


def test_a_model_has_a_value_where_it_was_used_alone():
    figures, uses = steady(windows=12)
    middle = 6 * 6 * HOUR
    other = [each._replace(model="n") if each.arrived_at >= middle else each for each in uses]
    found = estimate(figures, other).models
    assert {*found} == {"m", "n"}
    assert all(inside(value.low, 2.0, value.high) for value in found.values())
    mixed = [each._replace(model="mn"[at % 2]) for at, each in enumerate(uses)]
    found = estimate(figures, mixed).models
    assert found == {"m": percent_value.UNKNOWN, "n": percent_value.UNKNOWN}


def test_three_windows_are_too_few_and_days_of_a_long_one_are_not():
    figures, uses = steady(windows=3)
    assert estimate(figures, uses).value == percent_value.UNKNOWN
    week = [
        StatedPercent(day * 86_400.0 + n, day * 10.0 + n, 0.0) for day in range(6) for n in range(9)
    ]
    asked = [Use(each.at, "m", 3.0, is_answered=True) for each in week]
    found = estimate(week, asked)
    assert (found.value.usd, found.intervals) == (3.0, 6)


def test_a_request_without_a_price_ends_a_stretch():
    figures, uses = steady()
    some = [each._replace(usd=None) if at % 40 == 10 else each for at, each in enumerate(uses)]
    found = estimate(figures, some).value
    assert inside(found.low, 2.0, found.high)


def test_a_change_has_its_day():
    figures, uses = steady(windows=12)
    middle = 6 * 6 * HOUR
    figures = [
        each._replace(percent=each.percent * 2) if each.at >= middle else each for each in figures
    ]
    found = estimate(figures, uses)
    (change,) = found.changes
    assert abs(change.at - middle) < 12 * HOUR
    assert change.before == pytest.approx(2, rel=0.1)
    assert change.after == pytest.approx(1, rel=0.1)
    assert inside(found.value.low, 1.0, found.value.high)


def unpriced(figures, uses):
    return figures, [each._replace(usd=None) for each in uses]


def two_accounts(figures, uses):
    """Each second answer is of another account with other figures."""
    return [
        each._replace(percent=each.percent + 40 * (at % 2)) for at, each in enumerate(figures)
    ], uses


def above(figures, uses):
    return [each._replace(percent=each.percent + 100) for each in figures], uses


def no_figures(_, uses):
    return [], uses


def one_window_of_three(figures, uses):
    return figures[:3], uses


def still(figures, uses):
    return [each._replace(percent=7.0) for each in figures], uses


def no_requests(figures, _):
    return figures, []


@for_each(
    "broken", [unpriced, two_accounts, above, no_figures, one_window_of_three, still, no_requests]
)
def test_what_says_nothing_gives_no_figure_and_says_why(broken):
    found = estimate(*broken(*steady()))
    assert found.value == percent_value.UNKNOWN
    assert (found.recorded, found.unrecorded, found.changes) == (None, None, ())
    assert found.why


def test_what_was_stated_once_has_not_risen():
    """Its requests have prices; they are between no two figures."""
    figures, uses = steady()
    found = estimate(figures[:1], uses)
    assert (found.value, found.why) == (
        percent_value.UNKNOWN,
        "the used share has not risen often enough yet",
    )


@given(
    st.lists(st.tuples(st.floats(0, 1e7), st.floats(0, 1e5), st.integers(0, 5)), max_size=40),
    st.lists(st.tuples(st.floats(0, 1e7), st.none() | st.floats(0, 1e6)), max_size=40),
)
def test_no_figures_are_an_error(stated, asked):
    """Clocks that jump, figures that fall, above 100, equal times, requests of any value."""
    figures = [StatedPercent(at, percent, window * WINDOW) for at, percent, window in stated]
    uses = [Use(at, "m", usd, is_answered=True) for at, usd in asked]
    found = estimate(figures, uses).value
    assert found.usd is None or inside(found.low, found.usd, found.high)


@pytest.mark.large
def test_thousands_of_windows_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "ROWS_MAX", 100)
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    write(url, Account(3, days=20).entries("a"))
    with db.disposing(db.ensure(url)) as engine:
        (found,) = limit_values.limit_values(engine, NOON + timedelta(days=20))
    assert found.estimate.intervals < 100


def test_a_share_is_what_a_session_bought_and_unrecorded_use_is_nobodys():
    reset = NOON + timedelta(hours=5)
    figures = [
        limits.QuotaFigure(NOON, 0, reset, "1"),
        limits.QuotaFigure(NOON + timedelta(hours=1), 300_000, reset, "2"),
    ]
    bought: dict[str | None, int] = {"a": 60_000, "b": 30_000}
    assert limits.bought_shares(figures, bought) == bought
    # No more than 31 of 62 points can have been used.
    too_much: dict[str | None, int] = {"a": 310_000, "b": 310_000}
    assert limits.bought_shares(figures, too_much) == {"a": 155_000, "b": 155_000}


@for_each("recorded_ppm, points", [(0, 4), (45_000, 4.5), (90_000, 5), (1_000, 3)])
def test_the_pace_between_whole_percents_is_what_was_bought(recorded_ppm, points):
    figures = [
        limits.QuotaFigure(NOON, 10_000, None, "1"),
        limits.QuotaFigure(NOON + timedelta(hours=1), 50_000, None, "2"),
    ]
    now = NOON + timedelta(hours=1)
    found = limits.full_at(figures, None, now, recorded_ppm=recorded_ppm)
    assert found == pytest.approx(now + timedelta(hours=95 / points), abs=timedelta(seconds=1))
