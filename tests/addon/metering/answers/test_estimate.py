"""Estimates are simple and bounded; how far off they are is measured in tests/bench."""

import pytest

from addon.dialects.routes import DIALECTS
from addon.metering.answers import estimate
from addon.metering.answers.passed_text import PassedText

MARKS = (b'"content"', b'"arguments"')


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        pytest.param(b'{"content":"abc"}', 3, id="text"),
        pytest.param(b'{"content" : "abc"}', 3, id="spaced"),
        pytest.param(b'{"content":""}', 0, id="empty"),
        pytest.param(b'{"content":null}', 0, id="null"),
        pytest.param(b'{"content":["x"]}', 0, id="list"),
        pytest.param(b'{"other":"abc"}', 0, id="another-key"),
        pytest.param(rb'{"content":"a\"b"}', 4, id="escaped-quote"),
        pytest.param(rb'{"content":"a\\"}', 3, id="escaped-backslash"),
        pytest.param(b'{"content":"ab"}{"arguments":"{}"}', 4, id="two"),
        pytest.param(b'{"content":"cut of', 6, id="cut"),
    ],
)
def test_text_bytes(run: bytes, expected: int) -> None:
    assert estimate.text_bytes_of(run, MARKS) == expected


@pytest.mark.parametrize(
    ("frames", "text_bytes", "calls", "expected"),
    [(10, 0, 0, 0), (10, 20, 0, 10), (10, 400, 0, 100), (0, 3, 0, 0), (1, 3, 0, 1), (9, 0, 2, 60), (9, 40, 1, 40)],
)  # fmt: skip
def test_a_frame_is_a_token_at_least(
    frames: int, text_bytes: int, calls: int, expected: int
) -> None:
    text = PassedText(DIALECTS["openai.chat"])
    text.add(text_bytes)
    text.keep(b'{"name":"f"}' * calls)
    assert text.tokens(frames) == expected


def test_without_marks_of_text_nothing_can_be_told() -> None:
    text = PassedText(DIALECTS["openai.embeddings"])
    text.keep(b'data: {"embedding":[0.1]}\n\n')
    assert not text.is_measured
    assert text.tokens(5) is None


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(b"", None, id="none"),
        pytest.param(b"{}", 1, id="one-at-least"),
        pytest.param(b"x" * 400, 100, id="four-bytes-a-token"),
        pytest.param(b'{"u":"data:image/png;base64,' + b"A" * 4_000 + b'"}', 5, id="picture"),
        pytest.param(b'{"u":"data:image/png;base64,' + b"A" * 4_000, 1_007, id="picture-cut"),
    ],
)
def test_input_is_estimated_by_length_without_pictures(body: bytes, expected: int | None) -> None:
    """A picture is billed by its size in pixels: its base64 would count for thousands."""
    assert estimate.input_tokens_of(body) == expected


def test_text_that_was_measured_already_counts() -> None:
    text = PassedText(DIALECTS["openai.chat"])
    assert text.is_measured
    text.add(40)
    few = text.tokens(1)
    text.add(4_000)
    many = text.tokens(1)
    assert few is not None
    assert many is not None
    assert 5 <= few <= 20
    assert many > 50 * few
