"""What a request can cost at most, by the prices of the moment and by how its key was answered."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from addon.parts.caps import holds
from addon.parts.caps.holds import Holds
from addon.parts.caps.limits import Limits
from ledger.model.exchange import Billing, Outcome, UsageSource
from ledger.model.usage import Usage
from ledger.parts.budgets.caps import COST_MAX
from ledger.pricing import overrides
from ledger.pricing.prices import PriceBook
from tests.ledger.written import NOON, opened, reading, settled

LIMITS = Limits(input_bytes=1_000, output_tokens=100)
PRICES = """
[[price]]
model = "small"
until = 2026-11-03
usd_per_mtok = { uncached_input = 0, output = 1 }

[[price]]
model = "small"
from = 2026-11-03
usd_per_mtok = { uncached_input = 0, output = 3 }

[[price]]
model = "large"
usd_per_mtok = { uncached_input = 0, output = 9 }
"""


@pytest.fixture
def found(tmp_path: Path) -> Holds:
    file = tmp_path / "prices.toml"
    file.write_text(PRICES)
    return Holds(PriceBook(overrides.load(str(file))))


def usd(found: Holds, **more: Any) -> int | None:
    """Micro-USD that a request of 100 tokens out holds."""
    exchange = opened("e", **{"request_model": "small", **more})
    amounts, why = found.hold(exchange, LIMITS, {}, Billing.METERED)
    assert not why
    return amounts.usd and amounts.usd // 10**6


def test_a_price_counts_from_its_moment(found):
    assert [usd(found, at=NOON + timedelta(hours=hours)) for hours in (0, 1, 13, 1)] == [
        100, 100, 300, 100,
    ]  # fmt: skip


def test_an_answer_of_a_dearer_model_counts_for_its_key(found):
    assert usd(found) == 100
    done = settled("e", request_model="small", response_model="large")
    found.cost(done, reading(done))
    assert usd(found) == 900
    assert usd(found, key_fingerprint="k") == 100


def test_what_is_remembered_is_bounded(found, monkeypatch):
    monkeypatch.setattr(holds, "ANSWERED_MAX", 2)
    monkeypatch.setattr(holds, "ANSWERS_MAX", 1)
    for number in range(4):
        assert usd(found, path=f"/{number}") == 100
        for model in ("large", "small"):
            done = settled(
                "e", request_model="small", response_model=model, key_fingerprint=f"k{number}"
            )
            found.cost(done, reading(done))
        assert usd(found, key_fingerprint=f"k{number}") == 100
    assert max(map(len, (found._priced, found._answers, found._billings))) <= 2


def test_an_error_costs_nothing_and_a_cut_answer_is_not_known(found):
    nothing = reading(settled("e"), usage_source=UsageSource.NONE, usage=Usage())
    costs = [
        found.cost(replace(settled("e"), outcome=outcome), nothing)
        for outcome in (Outcome.HTTP_ERROR, Outcome.CLIENT_LEFT)
    ]
    assert costs == [(0, 0, 0, 1), (None, None, None, 1)]


@pytest.mark.parametrize("status", [204, 205, 301, 302, 304, 307, 308])
def test_an_answer_that_can_have_no_figure_frees_its_hold(found, status):
    nothing = reading(settled("e"), usage_source=UsageSource.NONE, usage=Usage())
    assert found.cost(settled("e", http_status=status), nothing) == (0, 0, 0, 1)


def test_a_cost_beyond_64_bits_is_more_than_any_cap_allows(found):
    """Not the hold: what is known is that it is large. A price that is not known is another case."""
    done = settled("e", request_model="large", response_model="large")
    usage = Usage(input_tokens=1, output_tokens=10**12)
    assert found.cost(done, reading(done, usage=usage)).usd == COST_MAX
    plan = found.cost(done, reading(done, usage=usage, billing=Billing.PLAN))
    assert (plan.usd, plan.list_value_usd) == (0, COST_MAX)
    unpriced = settled("e", request_model="x", response_model="x")
    assert found.cost(unpriced, reading(unpriced)) == (None, None, 120, 1)
