"""Rules that every dialect keeps."""

import pytest

from addon.dialects.dialect import Dialect, Mark
from addon.dialects.routes import DIALECTS


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_a_harmless_form_begins_with_its_needle(dialect: Dialect):
    """It would be subtracted from needles that stand elsewhere."""
    for mark in (*dialect.marks, *dialect.call_marks):
        for form in mark.harmless:
            assert form.startswith(mark.needle), mark
            assert form.count(mark.needle) == 1, mark


MARK = Mark(b'"usage"', (b'"usage":null', b'"usage": null'))


@pytest.mark.parametrize(
    ("run", "places"),
    [
        pytest.param(b"", [], id="empty"),
        pytest.param(b'"usage":null "usage": null', [], id="harmless"),
        pytest.param(b'"usage":1', [0], id="at-the-start"),
        pytest.param(b'{"usage":null}{"usage":{}}{"usage": null}', [15], id="between"),
        pytest.param(b'"usage":1,"usage":null,"usage":2', [23, 0], id="two"),
    ],
)
def test_a_mark_stands_where_its_form_is_not_harmless(run: bytes, places: list[int]):
    assert MARK.count(run) == len(places)
    assert MARK.matches(run) is bool(places)
    assert MARK.places(run, len(places)) == places
