"""What the demo prints, at the width of a terminal."""

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from addon.demo import show
from addon.demo.play import seed_scenes
from addon.demo.show import Row
from ledger.reports.layout import layout

ROWS = [
    Row(
        session_id=scene.title,
        provider=scene.provider,
        figures=scene.figures,
        cost_picousd=None if scene.provider == "opentoken" else 1_347_500_000,
        cost_state="unpriced" if scene.provider == "opentoken" else "priced",
    )
    for scene in seed_scenes()
]


@pytest.mark.parametrize("width", [80, 100, 150])
def test_no_line_is_wider_than_the_terminal(width: int):
    shown = layout(show.requests(ROWS), width)
    assert all(len(line) <= width for row in shown.rows for line in row.split("\n"))
    for heading in ("Response id", "Model", "Input", "Output", "Cost", "Outcome"):
        assert heading in shown.heading


def test_a_wide_terminal_shows_every_column():
    shown = layout(show.requests(ROWS), 200)
    assert shown.left_out == ()
    assert "Answered by" in shown.heading


def test_not_reported_estimated_and_unpriced_look_different():
    first = ROWS[0]
    figures = replace(first.figures, usage_source="estimated", input_tokens=29)
    row = replace(first, figures=figures, session_id="x")
    text = "\n".join(layout(show.requests([row, *ROWS]), 200).rows)
    assert "~29" in text
    assert "~$0.001" in text
    assert "unpriced" in text
    assert " - " in text


def test_the_notes_say_what_the_table_does_not():
    text = " ".join(show.notes(ROWS))
    assert "not reported, which is not 0" in text
    assert "requests have no price; they do not count as $0" in text
    assert "no price" not in " ".join(show.notes([ROWS[0]]))


def test_requests_without_a_price_are_counted_as_the_report_counts_them():
    unpriced = [row for row in ROWS if row.cost_state == "unpriced"]
    reported = [row for row in unpriced if row.figures.usage_source != "estimated"]
    assert 0 < len(reported) < len(unpriced)
    text = " ".join(show.notes(ROWS))
    assert (
        f"{len(reported)} requests have no price; they do not count as $0, nor do the estimates of "
        in text
    )
    assert "the estimates of" not in " ".join(show.notes(reported))


def test_the_queries_name_the_ledger(tmp_path: Path):
    first, second = show.queries(tmp_path / "a b.db")
    assert f"'{tmp_path}/a b.db'" in first
    assert "outcome <> 'complete'" in second


def test_what_is_no_terminal_is_wide():
    assert isinstance(show.console(), Console)
    assert show.console().width >= show.WIDTH_COLUMNS_MIN
    assert show.differences(ROWS[0].figures, ROWS[0].figures) == []
