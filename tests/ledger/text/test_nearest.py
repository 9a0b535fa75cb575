"""The nearest known word."""

import pytest

from ledger.text.nearest import nearest, suggestion

WORDS = ("model", "provider", "key", "session")


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("modle", "model"),
        ("Models", "model"),
        ("sesion", "session"),
        ("keys", "key"),
        ("zzz", None),
    ],
)
def test_the_nearest_word(word, meant):
    assert nearest(word, WORDS) == meant


def test_what_an_error_adds():
    assert suggestion("modle", WORDS) == "; did you mean 'model'?"
    assert suggestion("zzz", WORDS) == ""
    assert suggestion("m" * 10**6, WORDS) == ""
