"""Readings become charges: exact, explained, never a silent zero."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.model.exchange import UsageSource
from ledger.model.money import AMOUNT_MAX
from ledger.model.usage import FurtherUsage, Usage
from ledger.pricing.charges import charge, reported_picousd
from ledger.pricing.price_lines import Rate, Sheet
from tests.ledger.priced import NOVEMBER, amounts, cost, exchange, reading
from tests.named import named

RATES = {
    "uncached_input": Rate(3_000_000, "list"),
    "cache_read": Rate(300_000, "list"),
    "output": Rate(15_000_000, "list"),
    "web_searches": Rate(10_000_000_000, "list"),
}


class Book:
    """Sheets by model; `None` for the answer's own."""

    def __init__(self, *, own=None, **by_model):
        self.own = own or Sheet(RATES, "not in the list")
        self.by_model = by_model

    def fields(self, reading):
        return {}

    def sheet(self, exchange, fields, *, model=None, is_covered=False):
        return self.by_model[model] if model else self.own


def test_quantity_times_unit_is_the_amount():
    """1 000 000 uncached input at $3, 2 000 000 read from cache at $0.30, 100 000 out at $15."""
    charges = charge(
        exchange(),
        reading(input_tokens=3_000_000, cache_read_tokens=2_000_000, output_tokens=100_000),
        Book(),
    )
    assert amounts(charges) == {
        "uncached_input": (1_000_000, 3_000_000, 3_000_000_000_000),
        "cache_read": (2_000_000, 300_000, 600_000_000_000),
        "output": (100_000, 15_000_000, 1_500_000_000_000),
    }
    assert cost(charges) == 5_100_000_000_000  # $5.10
    assert {each.price_source for each in charges} == {"list"}


def test_charges_are_worked_out_when_the_reading_was_made_unless_said_otherwise():
    later = NOVEMBER + timedelta(days=3)
    assert charge(exchange(), reading(output_tokens=1), Book())[0].priced_at == NOVEMBER
    repriced = charge(exchange(), reading(output_tokens=1), Book(), priced_at=later)
    assert repriced[0].priced_at == later


def test_a_line_without_a_price_has_no_amount_and_a_reason():
    """latitude-dev/latitude-llm#4297: 6.5 billion tokens at $0 over three days."""
    (line,) = charge(exchange(), reading(tool_units={"code_executions": 4}), Book())
    assert (line.line, line.quantity) == ("code_executions", 4)
    assert line.unit_picousd is None
    assert line.amount_picousd is None
    assert line.reason == "not in the list"
    assert line.price_source == "none"


def test_searches_are_lines_beside_the_tokens():
    charges = charge(exchange(), reading(output_tokens=100, tool_units={"web_searches": 3}), Book())
    assert amounts(charges)["web_searches"] == (3, 10_000_000_000, 30_000_000_000)  # $0.03


def test_what_is_billed_once_is_billed_once():
    """Grounding with Google Search up to Gemini 2.5: per prompt, however many queries it took."""
    sheet = Sheet({"web_searches": Rate(35_000_000_000, "list", is_once=True)}, "")
    (line,) = charge(exchange(), reading(tool_units={"web_searches": 3}), Book(own=sheet))
    assert (line.quantity, line.amount_picousd) == (1, 35_000_000_000)
    assert line.reason == "3 reported, billed once for a request"
    (line,) = charge(exchange(), reading(tool_units={"web_searches": 1}), Book(own=sheet))
    assert line.reason is None


def test_a_fee_for_the_request_is_one_line():
    sheet = Sheet({**RATES, "requests": Rate(5_000_000_000, "list")}, "")
    charges = charge(exchange(), reading(output_tokens=1), Book(own=sheet))
    assert amounts(charges)["requests"] == (1, 5_000_000_000, 5_000_000_000)


def test_nothing_reported_is_no_charge():
    assert charge(exchange(), reading(usage_source=UsageSource.NONE), Book()) == ()


def test_zeros_reported_are_a_known_cost_of_nothing():
    charges = charge(exchange(), reading(input_tokens=0, output_tokens=0), Book())
    assert amounts(charges) == {
        "uncached_input": (0, 3_000_000, 0),
        "output": (0, 15_000_000, 0),
    }


def test_estimated_readings_are_priced_as_any_other():
    charges = charge(
        exchange(), reading(usage_source=UsageSource.ESTIMATED, output_tokens=10), Book()
    )
    assert cost(charges) == 150_000_000


def test_a_price_by_context_needs_the_input_tokens():
    stepped = Sheet({"output": Rate(10, "list", above=((200_000, 20),))}, "")
    (line,) = charge(exchange(), reading(output_tokens=5), Book(own=stepped))
    assert line.unit_picousd is None
    assert line.reason == "the price depends on the input tokens, which are not reported"


@pytest.mark.parametrize(("input_tokens", "unit"), [(200_000, 10), (200_001, 20)])
def test_the_whole_input_decides_the_context_step(input_tokens, unit):
    """Cached tokens count for the step, as the vendors count them."""
    stepped = Sheet(
        {"output": Rate(10, "list", above=((200_000, 20),)), "cache_read": Rate(1, "l")}, ""
    )
    charges = charge(
        exchange(),
        reading(input_tokens=input_tokens, cache_read_tokens=input_tokens, output_tokens=5),
        Book(own=stepped),
    )
    assert amounts(charges)["output"] == (5, unit, 5 * unit)


def test_an_amount_that_no_column_holds_is_not_booked():
    (line,) = charge(exchange(), reading(output_tokens=2**62), Book())
    assert (line.quantity, line.amount_picousd) == (2**62, None)
    assert line.reason == "the amount is beyond 64 bits"


def test_lines_that_no_sum_holds_are_not_booked():
    """Each is within the limit, and their sum is not: a view that adds them up could fail."""
    most = AMOUNT_MAX // 15_000_000
    charges = charge(exchange(), reading(input_tokens=5, output_tokens=most - 1), Book())
    assert cost(charges) == most * 15_000_000
    assert reasons(charges) == {None}
    charges = charge(exchange(), reading(input_tokens=5, output_tokens=most), Book())
    assert [each.quantity for each in charges] == [5, most]
    assert {each.unit_picousd for each in charges} == {None}
    assert {each.amount_picousd for each in charges} == {None}
    assert reasons(charges) == {"the amount is beyond 64 bits"}


def reasons(charges):
    return {each.reason for each in charges}


def test_further_iterations_are_lines_of_their_own_with_their_own_model():
    """Recorded: 61 067 tokens in iterations beside 682 at the top."""
    haiku = Sheet({"uncached_input": Rate(1, "haiku"), "output": Rate(5, "haiku")}, "")
    further = (
        FurtherUsage(
            kind="compaction", model=None, usage=Usage(input_tokens=100, output_tokens=10)
        ),
        FurtherUsage(
            kind="advisor_message", model="haiku", usage=Usage(input_tokens=7, output_tokens=3)
        ),
    )
    charges = charge(
        exchange(), reading(input_tokens=1, output_tokens=1, further=further), Book(haiku=haiku)
    )
    assert amounts(charges) == {
        "uncached_input": (1, 3_000_000, 3_000_000),
        "output": (1, 15_000_000, 15_000_000),
        "compaction.uncached_input": (100, 3_000_000, 300_000_000),
        "compaction.output": (10, 15_000_000, 150_000_000),
        "advisor_message.uncached_input": (7, 1, 7),
        "advisor_message.output": (3, 5, 15),
    }
    assert {each.model for each in charges} == {None, "haiku"}


def test_what_was_cut_is_said_on_the_charge():
    charges = charge(exchange(), reading(input_tokens=7, cache_read_tokens=163), Book())
    assert charges[0].reason == "163 reported, cut to what its total leaves"
    assert charges[0].amount_picousd == 7 * 300_000


def test_the_providers_figure_is_never_added_to_ours():
    charges = charge(
        exchange(), reading(output_tokens=10, reported_cost_picousd=170_000_000), Book()
    )
    assert amounts(charges) == {"output": (10, 15_000_000, 150_000_000)}


@pytest.mark.parametrize("usage", [{"output_tokens": 10}, {}], ids=["unpriced", "no-usage"])
def test_the_providers_figure_is_the_cost_where_we_know_no_price(usage):
    charges = charge(
        exchange(),
        reading(**usage, reported_cost_picousd=7, reported_upstream_cost_picousd=40, is_byok=True),
        Book(own=Sheet({}, "not in the list")),
    )
    assert amounts(charges) == {"reported_cost": (1, 47, 47)}
    assert charges[0].price_source == "provider"
    assert charges[0].reason == ("not in the list" if usage else None)


def test_the_providers_figure_does_not_fill_gaps():
    """One line is priced: the cost is partial, and the provider's figure stands beside it."""
    charges = charge(
        exchange(),
        reading(output_tokens=10, tool_units={"code_executions": 1}, reported_cost_picousd=9),
        Book(),
    )
    assert amounts(charges) == {
        "output": (10, 15_000_000, 150_000_000),
        "code_executions": (1, None, None),
    }


@given(
    split=st.lists(st.integers(0, 10**9), min_size=1, max_size=5),
    cached=st.integers(0, 10**9),
)
def test_cost_is_additive(split, cached):
    """Without context steps, the cost of several readings is that of their sum."""
    parts = sum(
        cost(charge(exchange(), reading(input_tokens=part, output_tokens=part), Book()))
        for part in split
    )
    whole = charge(exchange(), reading(input_tokens=sum(split), output_tokens=sum(split)), Book())
    assert cost(whole) == parts
    dearer = charge(exchange(), reading(input_tokens=cached), Book())
    cheaper = charge(exchange(), reading(input_tokens=cached, cache_read_tokens=cached), Book())
    assert cost(cheaper) <= cost(dearer)


@pytest.mark.parametrize(
    ("usage", "expected"),
    named(
        {
            "not-reported": (Usage(), None),
            "reported-as-zero": (Usage(reported_cost_picousd=0), 0),
            "upstream-is-inside": (
                Usage(reported_cost_picousd=50, reported_upstream_cost_picousd=40, is_byok=False),
                50,
            ),
            "byok-unsaid": (Usage(reported_cost_picousd=50, reported_upstream_cost_picousd=40), 50),
            "byok-adds-upstream": (
                Usage(reported_cost_picousd=2, reported_upstream_cost_picousd=40, is_byok=True),
                42,
            ),
            "byok-without-a-fee": (Usage(reported_upstream_cost_picousd=40, is_byok=True), 40),
            "byok-fee-alone": (Usage(reported_cost_picousd=2, is_byok=True), 2),
        }
    ),
)
def test_upstream_cost_is_added_only_where_the_customer_brought_the_key(usage, expected):
    """yvgude/lean-ctx#746: summing both doubled the cost."""
    assert reported_picousd(usage) == expected
