"""What telemetry keeps of an exchange."""

from datetime import timedelta

import pytest

from ledger.model.exchange import Outcome
from ledger.model.reading import UsageSource
from tests.addon.telemetry.made import NOON, line, one, reading


def test_figures_and_cost():
    found = one(charges=(line(10), line(5, "uncached_input")))
    assert found.amounts.cost_picousd == 15
    assert not found.is_unpriced
    assert found.model == "gpt-4.1-2025-04-14"
    assert (found.seconds, found.seconds_to_first_token) == (2.0, 0.25)
    assert found.server == ("api.openai.com", 443)


@pytest.mark.parametrize(
    ("charges", "cost", "is_unpriced"),
    [((), None, True), ((line(None),), None, True), ((line(3), line(None)), 3, True)],
)
def test_a_line_without_a_price_is_unpriced_and_never_free(charges, cost, is_unpriced):
    found = one(charges=charges)
    assert (found.amounts.cost_picousd, found.is_unpriced) == (cost, is_unpriced)


def test_no_usage_is_not_unpriced():
    found = one(reading(UsageSource.NONE), charges=())
    assert not found.has_usage
    assert not found.is_unpriced


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({}, None),
        ({"outcome": Outcome.CLIENT_LEFT}, "client_left"),
        ({"outcome": Outcome.HTTP_ERROR, "http_status": 429}, "429"),
        ({"outcome": Outcome.HTTP_ERROR, "http_status": None}, "http_error"),
        ({"outcome": Outcome.ERROR_FRAME, "error_type": "overloaded_error"}, "overloaded_error"),
    ],
)
def test_error_types(changed, error):
    assert one(**changed).error_type == error


def test_a_clock_that_went_back_gives_no_negative_duration():
    found = one(settled_at=NOON - timedelta(seconds=5), first_token_at=NOON - timedelta(seconds=9))
    assert (found.seconds, found.seconds_to_first_token) == (0.0, 0.0)


def test_what_is_not_known():
    found = one(
        origin="http://h:70000", response_model=None, request_model=None, first_token_at=None
    )
    assert (found.model, found.server[1], found.seconds_to_first_token) == ("unknown", None, None)
