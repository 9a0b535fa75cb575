"""Templates fit how a path ends, in time linear in its length."""

import time

import pytest

from addon.dialects import routes
from addon.dialects.path_templates import PATH_LENGTH_MAX, last_word, template_of


@pytest.mark.parametrize(
    ("template", "path", "model"),
    [
        ("/chat/completions", "/chat/completions", ""),
        ("/chat/completions", "/v1/chat/completions", ""),
        ("/chat/completions", "/completions", None),
        ("/chat/completions", "/xchat/completions", None),
        ("/chat/completions", "chat/completions", None),
        ("/threads/{}/runs", "/v1/threads/t-1/runs", ""),
        ("/threads/{}/runs", "/v1/threads//runs", None),
        ("/threads/{}/runs", "/v1/threads/a/b/runs", None),
        ("/responses/resp_{}", "/v1/responses/resp_1", ""),
        ("/responses/resp_{}", "/v1/responses/other_1", None),
        ("/models/{model}:go", "/v1/models/a/b:go", "a/b"),
        ("/models/{model}:go", "/v1/models/:go", None),
        ("/models/{model}:go", "/v1/models/a:stop", None),
        ("/models/{model}:go", "/v1/model/a:go", None),
        ("/ai/run/{model}", "/accounts/1/ai/run/@cf/m", "@cf/m"),
        ("/", "/", ""),
        ("/", "/x", None),
    ],
)
def test_what_fits(template: str, path: str, model: str | None) -> None:
    assert template_of(template).find(path) == model


def test_the_last_word_of_a_path() -> None:
    assert last_word("/v1/models/a:go") == "go"
    assert last_word("/v1/chat/completions") == "completions"
    assert template_of("/responses/resp_{}").last_word == ""
    assert template_of("/ai/run/{model}").last_word == ""


def test_a_path_beyond_any_in_use_matches_nothing() -> None:
    path = "/x" * PATH_LENGTH_MAX + "/chat/completions"
    assert routes.match("POST", "h", path) is None


def test_a_hostile_path_costs_no_more_than_its_length() -> None:
    """CPU of the worst of these against that of an ordinary path: bounded, whatever it repeats."""
    hostile = [
        "/models/" * 255 + ":generateContent",
        "/deployments/" * 150 + "/chat/completions",
        "/" * 2_000 + "runs",
        "/publishers/anthropic/models/" * 60 + ":rawPredict",
        "/model/" + "x" * 2_000 + "/invoke",
    ]
    started = time.process_time()
    for path in hostile:
        for _ in range(100):
            routes.match("POST", "h.example", path)
    assert time.process_time() - started < 2.0  # 500 matches; 20 µs each when idle
