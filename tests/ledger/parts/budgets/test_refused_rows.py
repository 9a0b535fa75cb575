"""A refused request is a row of its own kind: in `refused`, and in no other figure."""

import pytest
import sqlalchemy as sa

from ledger.figures.queries import totals
from ledger.model.exchange import CAP_ERROR, Outcome, UsageSource
from ledger.model.usage import NO_USAGE
from ledger.store import db
from ledger.store.scope import Scope
from tests.ledger import written
from tests.ledger.written import settled


@pytest.fixture
def engine(url):
    """One request that was answered, and one that a cap refused."""
    refused = settled(
        "r",
        seconds=7,
        outcome=Outcome.REFUSED,
        http_status=402,
        error_type=CAP_ERROR,
        error_code="daily",
        response_model=None,
    )
    nothing = written.reading(
        refused, usage_source=UsageSource.NONE, usage=NO_USAGE, usage_json=None
    )
    with written.writing(url) as ledger:
        ledger.settle(settled("e"))
        ledger.settle(refused, nothing)
    with db.disposing(db.open_engine(url)) as found:
        yield found


def test_it_counts_as_refused_alone(engine):
    figures = totals(engine, Scope())
    assert (figures.requests, figures.refused, figures.errors) == (1, 1, 0)
    assert (figures.without_usage, figures.without_price, figures.covered) == (0, 0, 0)
    assert totals(engine, Scope(only=(("outcome", "refused"),))).requests == 0


def test_it_has_no_duration_and_no_cost(engine):
    with engine.connect() as connection:
        row = connection.execute(
            sa.text("SELECT duration_ms, first_token_ms, cost_picousd, error_code FROM requests "
                    "WHERE outcome = 'refused'")
        ).one()  # fmt: skip
        by_hour = connection.execute(
            sa.text("SELECT opened, settled, refused, without_usage, errors FROM completeness")
        ).one()
        by_day = connection.execute(
            sa.text("SELECT SUM(requests), SUM(refused), SUM(without_usage) FROM usage_daily")
        ).one()
    assert tuple(row) == (None, None, None, "daily")
    assert tuple(by_hour) == (1, 1, 1, 0, 0)
    assert tuple(by_day) == (1, 1, 0)
