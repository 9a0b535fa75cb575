"""One bounded list of what went wrong, and the guard that fills it."""

import logging

import pytest

from addon.metering.troubles import REASON_LENGTH_MAX, REASONS_MAX, Troubles
from ledger.model.errors import named


def fail(secret: str) -> None:
    raise ZeroDivisionError(secret)


def test_nothing_wrong_is_none():
    troubles = Troubles()
    assert not troubles
    assert troubles.text is None


def test_all_reasons_are_kept_in_their_order_once_each():
    troubles = Troubles()
    for reason in ("a", "b", "a", "c"):
        troubles.add(reason)
    assert troubles
    assert troubles.text == "a; b; c"


def test_reasons_are_bounded():
    troubles = Troubles()
    for number in range(REASONS_MAX + 5):
        troubles.add(f"{number} " + "x" * 10_000)
    assert troubles.text is not None
    assert len(troubles.text) < (REASONS_MAX + 1) * (REASON_LENGTH_MAX + 10)
    assert troubles.text.endswith("; 5 more")


def test_an_attempt_gives_the_result_or_notes_and_logs_the_failure(
    caplog: pytest.LogCaptureFixture,
):
    troubles = Troubles()
    assert troubles.attempt(int, "7") == 7
    assert troubles.text is None
    with caplog.at_level(logging.WARNING):
        assert troubles.attempt(fail, "a secret prompt") is None
    assert troubles.text is not None
    assert troubles.text.startswith("ZeroDivisionError in tests.addon.metering.test_troubles:")
    (record,) = caplog.records
    assert "secret" not in record.getMessage() + troubles.text


def test_a_failure_without_a_trace_has_no_place():
    assert named(ValueError()) == "ValueError in unknown place"
