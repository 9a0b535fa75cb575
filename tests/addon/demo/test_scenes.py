"""The demo's scenes hang together, and its check finds what is wrong."""

from dataclasses import replace

import pytest

from addon.demo import show
from addon.demo.play import mistakes_in, seed_scenes
from addon.demo.scene import ExpectedRow, Scene, pieces_for

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
