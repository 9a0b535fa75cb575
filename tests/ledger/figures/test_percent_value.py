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

from ledger.figures import least_squares, limit_values, limits, percent_value
from ledger.figures.percent_value import Figure, Use, estimate
from ledger.reports import limits_text
from ledger.store import db
from tests.app import APP
from tests.ledger.figures.plan_accounts import HOUR, WINDOW, Account, at_prices
from tests.ledger.priced import BOTH, filled
from tests.ledger.written import NOON, writing
from tests.named import for_each

ACCOUNTS = [Account(seed, days=5, models=1 + seed % 2) for seed in range(44)]


def write(place, entries):
    with writing(str(getattr(place, "url", place)), price=at_prices) as written:
        for some in batched(entries, 200):
            written.wait(*[written.ledger.settle(exchange, read) for exchange, read in some])


def entries(accounts):
    return (pair for each in accounts for pair in each.entries(f"a{each.seed:02}"))


@pytest.fixture(
    scope="module",
    params=[
        "sqlite",
        pytest.param("postgresql", marks=[pytest.mark.postgres, pytest.mark.nightly]),
    ],
)
def engine(request, tmp_path_factory):
    yield from filled(request, tmp_path_factory, entries(ACCOUNTS), write=write)


@pytest.fixture(scope="module", params=BOTH)
def few(request, tmp_path_factory):
    yield from filled(request, tmp_path_factory, entries(ACCOUNTS[:2]), write=write)


def inside(low: Any, true: float, high: Any) -> bool:
    return bool(low <= true <= high)


@pytest.mark.large
def test_the_true_value_is_in_the_interval_of_nine_accounts_in_ten(engine):
    found = limit_values.limit_values(engine, NOON + timedelta(days=5))
    rows: dict[Any, dict[str, Any]] = {
        (row["account"], row["model"]): row for each in found for row in each.as_json()
    }
    known = right = seen = 0
    for account in ACCOUNTS:
        for model in account.weights:
            row = rows.get((f"a{account.seed:02}", model))
            if row is None or row["usd_per_percent"] is None:
                continue
            known += 1
            right += inside(row["low"], account.true_value(model), row["high"])
            assert row["low"] <= row["usd_per_percent"] <= row["high"]
        whole = rows[f"a{account.seed:02}", None]
        if whole["usd_per_percent"] is not None:
            seen += abs(whole["unrecorded_percent"] - account.unrecorded) <= 8
            changes = [each["after"] / each["before"] for each in whole["changes"]]
            if account.is_changed and changes:
                assert changes == [pytest.approx(account.value / account.before, rel=0.15)]
            else:
                assert not changes
    assert known >= 55
    assert 0.85 <= right / known <= 0.95, (right, known)
    assert seen >= 36, "unrecorded use is found"


@pytest.mark.large
def test_the_command_and_its_exact_rows(few):
    account = ACCOUNTS[0]
    call = ["limits", "--value", "--ledger", few.url.render_as_string(hide_password=False)]
    now = NOON + timedelta(days=5)
    found = limit_values.limit_values(few, now, key="k-a00")
    assert {each.holder for each in found} == {"a00"}
    row: dict[str, Any] = found[0].as_json()[0]
    assert row["model"] is None
    assert [*row] == [
        "provider", "account", "window", "model", "usd_per_percent", "low", "high", "intervals",
        "recorded_percent", "unrecorded_percent", "unrecorded", "changes", "tokens_per_percent",
        "full_at",
    ]  # fmt: skip
    assert row["window"] == "5h"
    stated = max(each.percent for each in account.figures())
    assert row["recorded_percent"] + row["unrecorded_percent"] >= stated
    tokens = row["tokens_per_percent"]
    assert tokens["cache_write"] is None, "not reported is not 0"
    assert tokens["input"] > tokens["cache_read"] > 0
    shown = CliRunner().invoke(APP, [*call, "--format", "json"])
    assert shown.exit_code == 0
    assert isinstance(json.loads(shown.stdout), list)
    (worth,) = limits_text.worths(found)
    assert worth.startswith("example 5h of account a00: a whole window is worth $")
    assert list(limits_text.value_table(found).rows[0][:4]) == ["example", "a00", "5h", "(all)"]


@pytest.mark.nightly
def test_a_simulation_without_a_database():
    known = right = 0
    for seed in range(200, 260):
        account = Account(seed)
        found = estimate(account.figures(), account.uses()).value
        if found.usd is not None:
            known += 1
            right += inside(found.low, account.true_value("model-0"), found.high)
    assert known >= 58
    assert 0.85 <= right / known <= 0.95, (right, known)


def steady(windows=6, calls=40, step=1.0, usd=1.0, per_percent=2.0):
    """An account of one session without any chance: (figures, uses)."""
    figures: list[Figure] = []
    uses: list[Use] = []
    for window in range(windows):
        for call in range(calls):
            at = window * 6 * HOUR + call * 60.0
            used = (call + 1) * usd / per_percent // step * step
            if not figures or figures[-1][1:] != (used, window * 6 * HOUR):
                figures.append(Figure(at, used, window * 6 * HOUR))
            kinds = (usd / 2, 0.0, 0.0, usd / 2)
            uses.append(Use(at, at + 10, "m", usd, kinds, (1, 0, None, 1), True))
    return figures, uses


def test_a_steady_account():
    figures, uses = steady()
    found = estimate(figures, uses)
    assert inside(found.value.low, 2.0, found.value.high)
    assert (found.changes, found.unrecorded, found.why) == ((), (), "")
    assert sum(found.percent_of_model.values()) == pytest.approx(found.recorded)


def test_what_used_nothing_is_no_model_of_the_plan():
    figures, uses = steady()
    refused = [use._replace(model="", usd=0.0, usd_of_kind=(0.0,) * 4) for use in uses]
    assert estimate(figures, uses + refused) == estimate(figures, uses)


def test_unrecorded_use_has_its_time():
    figures, uses = steady()
    since = figures[0].window_from
    more = [
        each._replace(percent=each.percent + 10)
        if each.window_from == since and each.at > 1_200
        else each
        for each in figures
    ]
    (span,) = estimate(more, uses).unrecorded
    assert span.percent == pytest.approx(10, abs=1)
    assert span.since <= 1_260 <= span.until + 60


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
    assert (found.recorded, found.unrecorded, found.changes) == (None, (), ())
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
    st.lists(
        st.tuples(st.floats(0, 1e7), st.floats(0, 1e3), st.none() | st.floats(0, 1e6)), max_size=40
    ),
)
def test_no_figures_are_an_error(stated, asked):
    """Clocks that jump, figures that fall, above 100, equal times, requests of any value."""
    figures = [Figure(at, percent, window * WINDOW) for at, percent, window in stated]
    uses = [
        Use(at, at + took, "m", usd, (usd or 0.0, 0.0, 0.0, 0.0), (None,) * 4, True)
        for at, took, usd in asked
    ]
    found = estimate(figures, uses).value
    assert found.usd is None or inside(found.low, found.usd, found.high)


@for_each("freedom, quantile", [(1, 6.314), (4, 2.132), (10, 1.812), (30, 1.697), (1_000, 1.646)])
def test_quantiles_of_student(freedom, quantile):
    assert least_squares.student90(freedom) == pytest.approx(quantile, abs=0.02)


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
