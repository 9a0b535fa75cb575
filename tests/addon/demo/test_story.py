"""The demo's check finds what is wrong; the whole is in tests/proxy/test_demo.py."""

from typing import Any

from addon.demo.scenes import ORDINARY, Scene, scenes
from addon.demo.story import mistakes_in
from tests.named import for_each

SCENES = scenes()


def row_of(scene: Scene) -> dict[str, Any]:
    """The row that a right ledger has of a scene."""
    return {"session_id": scene.name, "provider": scene.provider, **ORDINARY, **scene.row}


def test_a_right_ledger_has_no_mistakes():
    bodies = {scene.name: scene.client_body for scene in SCENES}
    assert len(bodies) == len(SCENES)
    assert mistakes_in(SCENES, bodies, [row_of(scene) for scene in SCENES]) == []


@for_each(
    "changes, expected",
    [
        ({"input_tokens": 43}, "input_tokens is 43, sent was 1850"),
        ({"output_tokens": None}, "output_tokens is None, sent was 212"),
        ({"reasoning_tokens": 0}, "reasoning_tokens is 0, sent was None"),
        ({"provider": "x"}, "provider is 'x', sent was 'openai'"),
    ],
)
def test_a_wrong_figure_is_told(changes: dict[str, object], expected: str):
    scene = SCENES[0]
    (mistake,) = mistakes_in([scene], {scene.name: scene.client_body}, [row_of(scene) | changes])
    assert expected in mistake


def test_a_missing_row_a_second_row_and_a_wrong_body_are_told():
    scene = SCENES[0]
    body = {scene.name: scene.client_body}
    assert mistakes_in([scene], body, []) == [f"{scene.name}: 0 rows instead of one"]
    assert mistakes_in([scene], body, [row_of(scene)] * 2) == [
        f"{scene.name}: 2 rows instead of one"
    ]
    (mistake,) = mistakes_in([scene], {scene.name: "other"}, [row_of(scene)])
    assert mistake.endswith("the client did not get what upstream sent")


def test_what_is_injected_is_what_the_client_does_not_get():
    (injected,) = [scene for scene in SCENES if scene.usage]
    assert '"usage"' not in injected.client_body
    assert '"usage"' in "".join(injected.pieces_sent(asked=True))
