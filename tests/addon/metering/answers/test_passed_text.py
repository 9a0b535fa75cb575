"""What is counted of a stream's text, for an estimate where no figure came."""

from addon.dialects.routes import DIALECTS
from addon.metering.answers.passed_text import PassedText


def test_without_marks_of_text_nothing_can_be_told() -> None:
    text = PassedText(DIALECTS["openai.embeddings"])
    text.keep(b'data: {"embedding":[0.1]}\n\n')
    assert not text.is_measured
    assert text.tokens(5) is None


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
