"""Rules that every dialect keeps."""

import pytest

from addon.dialects.dialect import Dialect
from addon.dialects.routes import DIALECTS


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_a_harmless_form_holds_its_needle(dialect: Dialect):
    """It would be subtracted from needles that stand elsewhere."""
    for mark in (*dialect.marks, *dialect.call_marks):
        assert all(form.count(mark.needle) == 1 for form in mark.harmless), mark
