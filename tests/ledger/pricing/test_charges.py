"""Readings become charges: exact, explained, never a silent zero; by disjoint lines that add up to their
totals, whatever was reported."""

from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ledger.model.charge import remarked
from ledger.model.exchange import SESSION_TOTAL, Billing, UsageSource
from ledger.model.money import AMOUNT_MAX
from ledger.model.usage import FurtherUsage, Usage
from ledger.pricing.charges import charge, reported_picousd
from ledger.pricing.price_lines import (
    INPUT_LINES,
    OUTPUT_LINES,
    Rate,
    Sheet,
    covered,
    input_tokens_of_one_request,
    quantities,
)
from tests.ledger.priced import NOVEMBER, amounts, cost, exchange, reading, reasons
from tests.named import for_each, named

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


def test_what_a_session_states_as_its_cost_is_not_that_of_one_row():
    read = reading(input_tokens=10, output_tokens=0, reported_cost_picousd=7)
    total = exchange(operation=SESSION_TOTAL)
    assert reasons(charge(total, read, Book())) == {None}
    (line,) = charge(total, read, Book(own=Sheet({}, "not in the list")))[:1]
    assert line.amount_picousd is None


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


@for_each("line", ["output_audio", "reasoning", "output_image"])
def test_a_part_of_unreported_output_has_no_price(line):
    """The same part of a reported total has its own."""
    book = Book(own=Sheet({**RATES, line: Rate(5, "list")}, "not in the list"))
    parts: dict[str, dict[str, Any]] = {
        "output_audio": {"output_audio_tokens": 7},
        "reasoning": {"reasoning_tokens": 7},
        "output_image": {"tool_units": {"output_image_tokens": 7}},
    }
    part = parts[line]
    (charged,) = charge(exchange(), reading(**part), book)
    assert (charged.line, charged.quantity, charged.amount_picousd) == (line, 7, None)
    assert charged.reason == "a part of the output tokens, whose total is not reported"
    assert amounts(charge(exchange(), reading(output_tokens=9, **part), book))[line] == (7, 5, 35)


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


@for_each("input_tokens, unit", [(200_000, 10), (200_001, 20)])
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


@for_each("bill", ["", "reported"])
@for_each(
    "figure, differs",
    # 10 out at $15 a million: 150 000 000 pico-USD
    [
        (150_000_000, False),
        (150_150_000, False),
        (150_151_000, True),
        (149_850_000, True),
        (0, True),
    ],
)
def test_a_figure_of_the_provider_that_differs_by_more_than_a_thousandth_is_remarked(
    bill, figure, differs
):
    read = reading(output_tokens=10, reported_cost_picousd=figure)
    charges = charge(exchange(), read, Book(own=Sheet(RATES, "", bill=bill)))
    assert cost(charges) == (figure if bill else 150_000_000)
    remarks = remarked(read, charges).usage.remarks
    assert bool(remarks) is differs
    assert all(
        each.startswith("the provider's own figure differs: ") and each.endswith("is $0.00015")
        for each in remarks
    )


@for_each(
    "more",
    [
        {"tool_units": {"unlisted": 1}},
        {"is_byok": True},
        {},
        {"output_tokens": None, "input_tokens": None},
    ],
    ids=["the-list-value-is-not-whole", "the-upstream-bills-beside", "covered", "no-usage"],
)
def test_figures_that_cannot_be_compared_do_not_differ(more):
    read = reading(**{"output_tokens": 10, "reported_cost_picousd": 7, **more})
    read = replace(read, billing=Billing.PLAN) if more == {} else read
    assert remarked(read, charge(exchange(), read, Book())).usage.remarks == ()


@for_each(
    "fee, lines",
    [(0, {"upstream_cost": (1, None, None)}), (7, {"reported_cost": (1, 7, 7)})],
)
def test_what_an_upstream_bills_the_customers_own_key_is_not_known(fee, lines):
    """PrimeIntellect-ai/prime-agent#2144: $0, as the provider's own figure."""
    for sheet in (Sheet({}, "not in the list"), Sheet(RATES, "", bill="reported")):
        read = reading(output_tokens=10, reported_cost_picousd=fee, is_byok=True)
        charges = charge(exchange(), read, Book(own=sheet))
        assert amounts(charges) == {**lines, "upstream_cost": (1, None, None)}
        assert "does not say how much" in (charges[-1].reason or "")


@for_each(
    "category, output, fields",
    [
        ("cyber", 0, {"refused": "cyber"}),
        ("cyber", 9, {}),
        ("cyber", None, {}),
        ("", 0, {"refused": "none"}),
        (None, 0, {}),
    ],
)
def test_a_refusal_counts_where_there_was_no_output(category, output, fields):
    """`category`: None: it ended otherwise."""
    asked = []

    class Asked(Book):
        def fields(self, reading):
            return {"refused": category} if category else {}

        def sheet(self, exchange, fields, *, model=None, is_covered=False):
            asked.append(fields)
            return self.own

    ended = exchange(finish_reason="stop" if category is None else "refusal")
    further = FurtherUsage(kind="refusal_bio", model=None, usage=Usage(input_tokens=1))
    plain = FurtherUsage(kind="message", model=None, usage=Usage(input_tokens=1))
    charge(ended, reading(input_tokens=5, output_tokens=output, further=(further, plain)), Asked())
    assert asked == [fields, {"refused": "bio"}, {}]


@for_each("usage", [{"output_tokens": 10}, {}], ids=["unpriced", "no-usage"])
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


@for_each(
    "usage, expected",
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


PLAIN = {"uncached_input": Rate(1, "list"), "output": Rate(2, "list")}
REALTIME = {
    **PLAIN,
    "cache_read": Rate(3, "list"),
    "input_audio": Rate(4, "list"),
    "cache_read_audio": Rate(5, "list"),
    "output_audio": Rate(6, "list"),
    "reasoning": Rate(7, "list"),
}


def counts(usage, rates=PLAIN):
    return {line: count for line, count, _ in quantities(usage, rates)}


AT_PLAIN_RATES = {
    "plain": (Usage(input_tokens=100, output_tokens=20), {"uncached_input": 100, "output": 20}),
    "no-line-for-nothing-but-what-the-cache-replaced": (
        Usage(input_tokens=100, cache_read_tokens=100, output_tokens=0),
        {"cache_read": 100, "uncached_input": 0},
    ),
    "cache-split": (
        Usage(
            input_tokens=1000,
            cache_read_tokens=300,
            cache_write_tokens=500,
            cache_write_5m_tokens=200,
            cache_write_1h_tokens=300,
            output_tokens=10,
        ),
        {
            "cache_read": 300,
            "cache_write_5m": 200,
            "cache_write_1h": 300,
            "uncached_input": 200,
            "output": 10,
        },
    ),
    "stale-split-of-zeros": (
        Usage(
            input_tokens=20000,
            cache_write_tokens=17269,
            cache_write_5m_tokens=0,
            cache_write_1h_tokens=0,
        ),
        {"cache_write": 17269, "uncached_input": 2731},
    ),
    "stale-split-below-total": (
        Usage(input_tokens=4000, cache_write_tokens=3337, cache_write_5m_tokens=3068),
        {"cache_write_5m": 3068, "cache_write": 269, "uncached_input": 663},
    ),
    "split-without-total": (
        Usage(input_tokens=500, cache_write_5m_tokens=200, cache_write_1h_tokens=100),
        {"cache_write_5m": 200, "cache_write_1h": 100, "uncached_input": 200},
    ),
    "input-total-unknown": (
        Usage(cache_read_tokens=7, output_tokens=5),
        {"cache_read": 7, "output": 5},
    ),
    "reasoning-inside-output": (
        Usage(input_tokens=10, output_tokens=100, reasoning_tokens=60),
        {"uncached_input": 10, "output": 100},
    ),
    "each-kind-is-a-line-of-its-own": (
        Usage(
            input_tokens=1000,
            input_audio_tokens=500,
            output_tokens=5,
            output_audio_tokens=2,
            tool_units={"input_image_tokens": 100, "output_image_tokens": 1},
        ),
        {
            "input_audio": 500,
            "input_image": 100,
            "uncached_input": 400,
            "output_audio": 2,
            "output_image": 1,
            "output": 2,
        },
    ),
    "units-beside-tokens": (
        Usage(
            input_tokens=10,
            tool_units={"web_searches": 2, "web_fetches": 0, "input_text_tokens": 10},
        ),
        {"uncached_input": 10, "web_searches": 2},
    ),
    "billed-units-of-cohere": (
        Usage(
            input_tokens=500,
            cache_read_tokens=40,
            output_tokens=30,
            tool_units={"billed_input_tokens": 60, "billed_output_tokens": 20, "images": 1},
        ),
        {"cache_read": 40, "uncached_input": 20, "output": 20},
    ),
    "reported-for-information": (
        Usage(output_tokens=5, tool_units={"citation_tokens": 700, "server_tool_calls": 2}),
        {"output": 5},
    ),
    "nothing-reported": (Usage(), {}),
}


@for_each(
    "usage, rates, expected",
    named(
        {name: (usage, PLAIN, lines) for name, (usage, lines) in AT_PLAIN_RATES.items()}
        | {
            "reasoning-priced-apart": (
                Usage(input_tokens=10, output_tokens=100, reasoning_tokens=60),
                REALTIME,
                {"uncached_input": 10, "reasoning": 60, "output": 40},
            ),
            "sound-cached-and-not": (
                Usage(
                    input_tokens=1000,
                    cache_read_tokens=400,
                    input_audio_tokens=500,
                    output_tokens=50,
                    output_audio_tokens=30,
                    tool_units={"cache_read_audio_tokens": 150},
                ),
                REALTIME,
                {
                    "cache_read_audio": 150,
                    "cache_read": 250,
                    "input_audio": 350,
                    "uncached_input": 250,
                    "output_audio": 30,
                    "output": 20,
                },
            ),
            "citations-priced": (
                Usage(output_tokens=5, tool_units={"citation_tokens": 700, "search_units": 2}),
                {**PLAIN, "citation": Rate(2, "list")},
                {"output": 5, "citation": 700, "search_units": 2},
            ),
        }
    ),
)
def test_the_lines_of_a_reading(usage, rates, expected):
    assert counts(usage, rates) == expected


def test_a_part_beyond_its_whole_is_cut_and_says_so():
    """Recorded: Azure AI Foundry reports 163 cached of 7 prompt tokens; new-api#5003 went negative."""
    assert quantities(Usage(input_tokens=7, cache_read_tokens=163, output_tokens=1), PLAIN) == [
        ("cache_read", 7, "163 reported, cut to what its total leaves"),
        ("uncached_input", 0, None),
        ("output", 1, None),
    ]


def test_reasoning_beyond_output_is_cut():
    """Recorded: counted by another tokenizer, 44 recorded answers."""
    lines = quantities(Usage(output_tokens=12, reasoning_tokens=15), REALTIME)
    assert [(line, count) for line, count, _ in lines] == [("reasoning", 12)]


TOKENS = st.none() | st.integers(0, 2000)


@given(
    usage=st.builds(
        Usage,
        input_tokens=st.integers(0, 2000),
        cache_read_tokens=TOKENS,
        cache_write_tokens=TOKENS,
        cache_write_5m_tokens=TOKENS,
        cache_write_1h_tokens=TOKENS,
        output_tokens=st.integers(0, 2000),
        reasoning_tokens=TOKENS,
        input_audio_tokens=TOKENS,
        output_audio_tokens=TOKENS,
        tool_units=st.dictionaries(
            st.sampled_from(
                ["cache_read_audio_tokens", "input_image_tokens", "output_text_tokens"]
            ),
            st.integers(0, 2000),
        ),
    ),
    rates=st.sampled_from([PLAIN, REALTIME]),
)
def test_token_lines_are_disjoint_and_add_up(usage, rates):
    """new-api#5003, langfuse#10592: cached tokens counted twice, or negative uncached input."""
    lines = quantities(usage, rates)
    assert len({line for line, _, _ in lines}) == len(lines)
    assert all(count >= 0 for _, count, _ in lines)
    assert sum(count for line, count, _ in lines if line in INPUT_LINES) == usage.input_tokens
    assert sum(count for line, count, _ in lines if line in OUTPUT_LINES) == usage.output_tokens


def test_an_hour_in_the_cache_is_not_sold_at_the_price_of_five_minutes():
    """earendil-works/pi#5737: 1h writes at the 5m price are 37.5 % too cheap; no price is better."""
    rates = covered({"uncached_input": Rate(4, "list"), "cache_write": Rate(5, "list")})
    assert rates["cache_write_5m"].picousd == 5
    assert "cache_write_1h" not in rates


def test_an_unsplit_cache_write_says_that_it_is_taken_for_five_minutes():
    rates = covered({"cache_write": Rate(5, "list"), "cache_write_1h": Rate(8, "list")})
    assert rates["cache_write"].note == "how long it is kept is not reported: as five minutes"
    assert rates["cache_write_5m"].note is None


@for_each(
    "usage, expected",
    named(
        {
            "one-request": (Usage(input_tokens=300_000), 300_000),
            "not-reported": (Usage(), None),
            "a-batch": (Usage(input_tokens=300_000, tool_units={"batch_results": 3}), 100_000),
        }
    ),
)
def test_a_batch_is_not_one_long_request(usage, expected):
    """300 000 tokens of three requests pay no surcharge for more than 200 000 in one."""
    assert input_tokens_of_one_request(usage) == expected
    assert "batch_results" not in counts(usage)
