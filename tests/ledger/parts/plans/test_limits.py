"""A simulated day of limits, on both databases; and that shares add up, whatever the figures."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from ledger.model.exchange import PPM, window_label
from ledger.parts.pages import html_file
from ledger.parts.plans import limits, limits_text, shown
from ledger.parts.plans.limits import QuotaFigure
from ledger.parts.plans.percent_value import Use
from ledger.store.scope import Scope
from tests.app import APP
from tests.ledger.parts.pages.serving import pages
from tests.ledger.priced import BOTH, filled
from tests.ledger.stated_limits import HOUR, answered, play, rate_of, stated
from tests.ledger.written import NOON, opened, row, rows, writing
from tests.named import for_each

FIRST_RESET = NOON + 5 * HOUR
SECOND_RESET = FIRST_RESET + 5 * HOUR


DAY = [
    # What was used before the first answer, 10, belongs to nobody.
    answered("1", 0, "s1", "k1", [stated(10, FIRST_RESET)]),
    answered("2", 10, "s1", "k1", [stated(12, FIRST_RESET)]),
    # The reset moves by 4 s, which is no change; the figure stands still: no row, and no share.
    answered("3", 20, "s2", "k1", [stated(12, FIRST_RESET + timedelta(seconds=4))]),
    # The login of the next hour has another key; the account is the same.
    answered("4", 70, "s2", "k2", [stated(15, FIRST_RESET)]),
    # Two refusals, which state no limit; the next change is shared by list value, 1 : 3.
    answered("5", 75, "s3", "k2", [], tokens=100, http_status=529),
    answered("6", 80, "s2", "k2", [stated(19, FIRST_RESET)], tokens=300),
    # A new window: its first figure belongs to nobody.
    answered("7", 310, "s1", "k2", [stated(1, SECOND_RESET)]),
    answered("8", 320, "s3", "k2", [stated(4.5, SECOND_RESET)]),
    # Used up, and going on from credits.
    answered("9", 330, "s3", "k2", [
        stated(100, SECOND_RESET, status="rejected"),
        stated(3, None, window="overage", window_minutes=None),
    ]),
]  # fmt: skip


@pytest.fixture(scope="module", params=BOTH)
def engine(request, tmp_path_factory):
    yield from filled(request, tmp_path_factory, DAY, write=play)


def of(engine, minutes, window="5h", **more):
    found = limits.limits(engine, NOON + timedelta(minutes=minutes), **more)
    (limit,) = [each for each in found if each.window == window]
    return limit


def test_a_row_only_where_a_figure_changed(engine):
    kept = "SELECT exchange_id FROM quotas WHERE \"window\" = '5h' ORDER BY observed_at"
    found = [name for (name,) in rows(engine, kept)]
    assert found == ["1", "2", "4", "6", "7", "8", "9"]


def test_the_last_window(engine):
    limit = of(engine, 331)
    assert (limit.used_ppm, limit.status, limit.window_minutes) == (1_000_000, "rejected", 300)
    assert limit.resets_at == SECOND_RESET
    assert limit.full_at == limit.observed_at
    assert dict(limit.shares_ppm) == {"s3": 990_000}


def test_after_a_reset_without_an_answer_nothing_is_known(engine):
    limit = of(engine, 700)
    assert limit.status == "reset"
    assert limit.as_json()["used_percent"] is None
    assert (limit.full_at, limit.remaining, dict(limit.shares_ppm)) == (None, None, {})


def test_keys_and_providers(engine):
    assert of(engine, 331, key="k2").used_ppm == 1_000_000
    assert of(engine, 331, key="k1") == of(engine, 331), "its account's limit, whatever key asked"
    assert limits.limits(engine, NOON + HOUR, key="k3") == []
    assert limits.limits(engine, NOON + 6 * HOUR, provider="other") == []
    assert limits.limits(engine, NOON + timedelta(days=40)) == []


def test_shares_of_the_first_window(sqlite_engine):
    play(sqlite_engine, DAY[:6])
    limit = of(sqlite_engine, 90)
    # 10 -> 12 s1; 12 -> 15 s2; 15 -> 19 shared 1 : 3 by s3 and s2.
    assert dict(limit.shares_ppm) == {"s2": 60_000, "s1": 20_000, "s3": 10_000}
    # 9 points in 80 minutes: the other 81 take 12 hours, and it resets before that.
    assert limit.full_at is None
    assert limit.as_json() == {
        "provider": "example",
        "key": "k2",
        "window": "5h",
        "window_minutes": 300,
        "kind": "plan",
        "used_percent": 19.0,
        "limit": None,
        "remaining": None,
        "resets_at": "2026-11-02T17:00:00Z",
        "status": "allowed",
        "observed_at": "2026-11-02T13:20:00Z",
        "full_at": None,
        "sessions": [
            {"session_id": "s2", "percent_points": 6.0},
            {"session_id": "s1", "percent_points": 2.0},
            {"session_id": "s3", "percent_points": 1.0},
        ],
    }


def test_a_session_keeps_its_share_however_many_figures_came_since(sqlite_engine, monkeypatch):
    monkeypatch.setattr(limits, "RECENT", 3)
    play(
        sqlite_engine,
        [
            answered(f"{at}", at, "s1" if at < 5 else "s2", "k1", [stated(10 + at, FIRST_RESET)])
            for at in range(10)
        ],
    )
    assert dict(of(sqlite_engine, 15).shares_ppm) == {"s2": 50_000, "s1": 40_000}


def test_without_shares_one_figure_of_a_limit_is_read(sqlite_engine, monkeypatch):
    play(sqlite_engine, DAY[:6])
    shared, alone = (of(sqlite_engine, 90, are_shared=each) for each in (True, False))
    assert alone == replace(shared, shares_ppm={}, full_at=None)
    monkeypatch.setattr(limits, "ROWS_MAX", 0)
    assert of(sqlite_engine, 90, are_shared=False) == alone


def test_a_rate_has_what_remains_of_it(sqlite_engine):
    rate = rate_of(200, 150)
    exchange, read = answered("r", 0, "s", "k", [rate], retry_after_ms=1_500, http_status=429)
    play(sqlite_engine, [(exchange, read)])
    (limit,) = limits.limits(sqlite_engine, NOON + HOUR)
    waited = row(sqlite_engine, "SELECT retry_after_ms, account FROM requests")
    assert (limit.kind, limit.used_ppm, limit.remaining) == ("rate", 250_000, 150)
    assert tuple(waited) == (1_500, "a")


def test_replaying_adds_no_row(sqlite_engine):
    play(sqlite_engine, DAY)
    play(sqlite_engine, DAY)
    assert tuple(row(sqlite_engine, "SELECT COUNT(*) FROM quotas")) == (8,)


def test_the_command(url):
    play(url, [answered("1", 0, "s1", "k1", [stated(10, FIRST_RESET)])])
    call = ["limits", "--ledger", url, "--format", "json"]
    assert CliRunner().invoke(APP, call).stdout.startswith("[")


def test_texts(engine):
    now = NOON + timedelta(minutes=331)
    found = limits.limits(engine, now)
    assert limits_text.one_line(found, now) == "5h 100% (full in now) · overage 3%"
    lines = limits_text.lines(found, now, 120)
    assert "s3 99%" in "\n".join(lines)
    assert max(map(len, limits_text.lines(found, now, 60))) <= 60
    assert limits_text.lines([], now, 80) == [limits_text.NO_LIMITS]


def test_an_opened_exchange_has_no_limits(sqlite_engine):
    with writing(str(sqlite_engine.url)) as written:
        written.open(opened("o"))
    assert limits.limits(sqlite_engine, NOON) == []


def test_a_key_whose_answers_changed_no_figure_has_its_accounts_limit(sqlite_engine):
    entries = [*DAY[:2], answered("3", 20, "s2", "k2", [stated(12, FIRST_RESET)])]
    play(sqlite_engine, entries)
    assert of(sqlite_engine, 30, key="k2") == of(sqlite_engine, 30, key="k1")


def test_no_limit_pushes_out_another(sqlite_engine, monkeypatch):
    others = [answered(f"r{n}", n + 1, "s", "k9", [rate_of(9, n)], account="b") for n in range(8)]
    monkeypatch.setattr(limits, "ROWS_MAX", 5)
    play(sqlite_engine, [DAY[0], *others])
    found = limits.limits(sqlite_engine, NOON + timedelta(minutes=20))
    assert [(each.kind, each.used_ppm) for each in found] == [("plan", 100_000), ("rate", 222_222)]


@given(
    first=st.integers(0, PPM),
    rise=st.integers(0, PPM),
    minutes=st.integers(1, 10_000),
    idle=st.integers(0, 10_000),
)
def test_a_limit_that_is_not_full_is_full_later_or_not_before_its_reset(first, rise, minutes, idle):
    last = min(first + rise, PPM - 1)
    at = NOON + timedelta(minutes=minutes)
    now = at + timedelta(minutes=idle)
    figures = [QuotaFigure(NOON, first, None, "1"), QuotaFigure(at, last, None, "2")]
    found = limits.full_at(figures, None, now)
    if last <= first:
        assert found is None
    if found is not None:
        assert found > now
        assert limits.full_at(figures, found - timedelta(seconds=1), now) is None


def test_the_pace_counts_the_time_since_the_last_change():
    figures = [QuotaFigure(NOON, 100_000, None, "1"), QuotaFigure(NOON + HOUR, 600_000, None, "2")]
    # 50 points in 2 hours of which one was idle: the other 40 take 1 hour 36 minutes.
    found = limits.full_at(figures, None, NOON + 2 * HOUR)
    assert found == NOON + 2 * HOUR + timedelta(minutes=96)
    # One millionth in a month would be full in the year 85 000.
    slow = [QuotaFigure(NOON, 0, None, "1"), QuotaFigure(NOON + HOUR, 1, None, "2")]
    assert limits.full_at(slow, None, NOON + timedelta(days=31)) is None
    assert limits.full_at(slow, NOON + timedelta(days=32), NOON + timedelta(days=31)) is None


answers = st.lists(
    st.tuples(st.integers(0, 1_100_000), st.sampled_from(["a", "b", None]), st.integers(0, 10**12)),
    min_size=1,
    max_size=30,
)


@given(drawn=answers, refused=st.sets(st.integers(0, 29)), resets=st.booleans())
def test_shares_add_up_to_the_last_figure_less_the_first(drawn, refused, resets):
    """A stated reset makes all one window, in which figures fall as answers overtake each other."""
    at = [NOON + timedelta(minutes=n) for n in range(len(drawn))]
    reset = FIRST_RESET if resets else None
    figures = [QuotaFigure(at[n], ppm, reset, str(n)) for n, (ppm, _, _) in enumerate(drawn)]
    window = limits.windows_of(figures)[-1]
    begin = len(figures) - len(window)
    uses = [
        Use(0.0, "m", None, n not in refused, str(n), session, value)
        for n, (_, session, value) in enumerate(drawn)
        if n > begin
    ]
    found = limits.shares(window, uses)
    used = [each.used_ppm or 0 for each in window]
    assert sum(found.values()) == max(used[-1] - used[0], 0)
    assert all(share > 0 for share in found.values())


@pytest.mark.large
def test_pages_and_top_show_them(sqlite_engine):
    play(sqlite_engine, DAY)
    now = NOON + timedelta(minutes=331)
    (line,) = shown.lines_of_top(sqlite_engine, now)
    written = html_file.page(sqlite_engine, Scope(), now=now)
    with pages(sqlite_engine, now=lambda: now) as site:
        assert "/section/limits" in site.get("/").text
        live = site.get("/section/limits").text
    assert line == "limits: 5h 100% (full in now) · overage 3%"
    top = CliRunner().invoke(APP, ["top", "--once", "--ledger", str(sqlite_engine.url)])
    assert "limits: " in top.stdout
    for text in (written, live):
        assert 'value="100">100%</meter>' in text
        assert "4 h 29 min" in text


def test_a_ledger_without_limits_has_no_such_part(sqlite_engine):
    play(sqlite_engine, [answered("1", 0, "s", "k", [])])
    with pages(sqlite_engine, now=lambda: NOON) as site:
        assert "/section/limits" not in site.get("/").text
    assert shown.lines_of_top(sqlite_engine, NOON) == []


@for_each(
    "minutes, label",
    [(299, "5h"), (300, "5h"), (10_079, "7d"), (10_080, "7d"), (1_439, "1d"), (60, "1h"),
     (90, "90m"), (1, "1m"), (29, "29m"), (43_200, "30d")],
)  # fmt: skip
def test_a_window_has_the_name_that_people_use(minutes, label):
    assert window_label(minutes) == label
    assert limits.label_of(f"{minutes}m", minutes) == label, "also in older rows"
    assert limits.label_of(f"{minutes}m other", minutes) == f"{label} other"
    assert limits.label_of("7d_oi", minutes) == "7d_oi"


def test_one_window_under_its_old_and_its_new_name_is_one_limit(sqlite_engine):
    old = stated(10, FIRST_RESET, window="299m", window_minutes=299)
    new = stated(12, FIRST_RESET, window_minutes=299)
    play(sqlite_engine, [answered("1", 0, "s", "k", [old]), answered("2", 9, "s", "k", [new])])
    (limit,) = limits.limits(sqlite_engine, NOON + timedelta(minutes=10))
    assert (limit.window, limit.used_ppm) == ("5h", 120_000)
    assert sum(limit.shares_ppm.values()) == 20_000
