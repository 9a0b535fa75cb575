"""What the demo prints, at the width of a terminal; its scenes hang together, and its check finds what
is wrong."""

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from addon.demo import show
from addon.demo.scene import ExpectedRow, Scene, pieces_for
from addon.demo.show import Row
from addon.demo.story import mistakes_in, seed_scenes
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


SCENES = seed_scenes()


def row_of(scene: Scene) -> show.Row:
    """The row that a right ledger has of a scene."""
    return show.Row(
        session_id=scene.title,
        provider=scene.provider,
        figures=scene.figures,
        cost_picousd=None,
        cost_state="unpriced",
    )


def test_each_scene_has_a_title_of_its_own() -> None:
    assert len({scene.title for scene in SCENES}) == len(SCENES) == 39


def test_all_five_systems_are_played() -> None:
    providers = {scene.provider for scene in SCENES}
    assert providers == {"aivene", "opentoken", "sansa", "stream-chat", "chuizi"}


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.title)
def test_ids_in_the_figures_are_ids_on_the_wire(scene: Scene) -> None:
    for is_asked in (False, True):
        body = "".join(pieces_for(scene.answer, is_asked=is_asked))
        assert (scene.figures.response_id or "") in body


def test_what_is_injected_is_what_the_client_does_not_get() -> None:
    for scene in SCENES:
        if scene.figures.usage_injected:
            assert scene.figures.usage_asked is not True
            assert '"usage"' in "".join(pieces_for(scene.answer, is_asked=True))
            assert b'"usage"' not in scene.client_body


def test_a_right_ledger_has_no_mistakes() -> None:
    bodies = {scene.title: scene.client_body for scene in SCENES}
    assert mistakes_in(SCENES, bodies, [row_of(scene) for scene in SCENES]) == []


WRONG = [
    pytest.param({"input_tokens": 43}, ["input_tokens is 43, sent was 42"], id="a-figure"),
    pytest.param({"output_tokens": None}, ["output_tokens is None, sent was 128"], id="missing"),
    pytest.param({"outcome": "client_left"}, ["outcome is 'client_left'"], id="outcome"),
    pytest.param({"reasoning_tokens": 0}, ["reasoning_tokens is 0, sent was None"], id="zero"),
]


@pytest.mark.parametrize(("found", "expected"), WRONG)
def test_a_wrong_figure_is_told(found: dict[str, object], expected: list[str]) -> None:
    scene = SCENES[0]
    row = row_of(scene)
    row = replace(row, figures=replace(row.figures, **found))  # type: ignore[arg-type]
    (mistake,) = mistakes_in([scene], {scene.title: scene.client_body}, [row])
    assert expected[0] in mistake


def test_a_missing_row_a_second_row_and_a_wrong_body_are_told() -> None:
    scene = SCENES[0]
    body = {scene.title: scene.client_body}
    assert mistakes_in([scene], body, []) == [f"{scene.title}: 0 rows instead of one"]
    assert mistakes_in([scene], body, [row_of(scene)] * 2) == [
        f"{scene.title}: 2 rows instead of one"
    ]
    (mistake,) = mistakes_in([scene], {scene.title: b"other"}, [row_of(scene)])
    assert mistake.endswith("the client did not get what upstream sent")


def test_an_estimate_need_only_be_marked_as_one() -> None:
    figures = ExpectedRow(
        response_id=None, request_model=None, response_model=None, usage_source="estimated"
    )
    assert show.differences(figures, replace(figures, input_tokens=3, output_tokens=4)) == []
    assert show.differences(figures, replace(figures, usage_source="none")) != []
