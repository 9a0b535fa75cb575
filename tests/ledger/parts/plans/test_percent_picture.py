"""The picture of what a percent buys: in its box, with the same as text."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from ledger.parts.pages import rendering
from ledger.parts.plans import limits_text, percent_picture, shown
from ledger.parts.plans.limit_values import LimitValue
from ledger.parts.plans.percent_value import StatedPercent, estimate
from ledger.store import db
from tests.ledger.parts.pages.serving import pages
from tests.ledger.parts.plans.plan_accounts import Account
from tests.ledger.parts.plans.test_percent_value import steady, write
from tests.ledger.written import NOON


def limit_value(windows: int, factor: float = 1.0) -> LimitValue:
    """An account whose windows bought `factor` times as many percent in their second half."""
    figures, uses = steady(windows=windows)
    middle = figures[len(figures) // 2].window_from
    stated = [
        StatedPercent(
            each.at,
            each.percent * (factor if each.window_from >= middle else 1.0),
            each.window_from,
        )
        for each in figures
    ]
    return LimitValue(
        provider="<b>",
        holder="a",
        window="5h",
        observed_at=datetime.fromtimestamp(uses[-1].arrived_at, UTC),
        estimate=estimate(stated, uses),
        full_at=None,
    )


@pytest.mark.parametrize(
    "windows",
    [
        12,
        pytest.param(60, marks=pytest.mark.large),
        pytest.param(150, marks=[pytest.mark.large, pytest.mark.nightly]),
    ],
)
@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_all_of_it_is_in_the_box_and_in_the_text(windows, factor):
    one = limit_value(windows, factor)
    notes = [*limits_text.value_notes([one])]
    (picture,) = percent_picture.pictures([one], [notes])
    html = rendering.section(shown.VALUE, {"pictures": [picture]})
    for points in re.findall(r'points="([^"]*)"', html):
        for point in points.split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= percent_picture.WIDTH
            assert 0 <= y <= percent_picture.HEIGHT - percent_picture.FOOT
    assert len(picture.changes) == (factor != 1.0)
    assert all(0 <= x <= percent_picture.WIDTH for x in picture.changes)
    sides = [point.split(",")[0] for point in picture.line.split()]
    assert all(sides.count(f"{x:.1f}") == 2 for x in picture.changes), "a change is a step"
    assert len(picture.levels) == len(picture.changes) + 1
    assert html.count("<tr><td>") == len(picture.levels), "each level as text"
    assert "<b>" not in html.replace("<b></b>", "")


def test_no_picture_of_what_is_not_known():
    assert (
        percent_picture.pictures([replace(limit_value(1), estimate=estimate([], []))], [[]]) == []
    )
    assert "<svg" not in rendering.section(shown.VALUE, {"pictures": []})


@pytest.mark.large
def test_the_live_page_loads_it(tmp_path):
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    write(url, Account(1, days=6).entries("a"))
    now = NOON + timedelta(days=6)
    with db.disposing(db.ensure(url)) as engine:
        assert shown.percent_pictures(engine, now)
        with pages(engine, now=lambda: now) as site:
            assert "/section/value" in site.get("/").text
            text = site.get("/section/value").text
    assert "<svg" in text
    assert "What a percent buys" in text
