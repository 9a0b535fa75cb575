"""Disjoint lines that add up to their totals, whatever was reported."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.model.usage import Usage
from ledger.pricing.price_lines import (
    INPUT_LINES,
    OUTPUT_LINES,
    Rate,
    covered,
    input_tokens_of_one_request,
    quantities,
)
from tests.named import named

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


@pytest.mark.parametrize(
    ("usage", "rates", "expected"),
    named(
        {
            "plain": (
                Usage(input_tokens=100, output_tokens=20),
                PLAIN,
                {"uncached_input": 100, "output": 20},
            ),
            "no-line-for-nothing-but-what-the-cache-replaced": (
                Usage(input_tokens=100, cache_read_tokens=100, output_tokens=0),
                PLAIN,
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
                PLAIN,
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
                PLAIN,
                {"cache_write": 17269, "uncached_input": 2731},
            ),
            "stale-split-below-total": (
                Usage(input_tokens=4000, cache_write_tokens=3337, cache_write_5m_tokens=3068),
                PLAIN,
                {"cache_write_5m": 3068, "cache_write": 269, "uncached_input": 663},
            ),
            "split-without-total": (
                Usage(input_tokens=500, cache_write_5m_tokens=200, cache_write_1h_tokens=100),
                PLAIN,
                {"cache_write_5m": 200, "cache_write_1h": 100, "uncached_input": 200},
            ),
            "input-total-unknown": (
                Usage(cache_read_tokens=7, output_tokens=5),
                PLAIN,
                {"cache_read": 7, "output": 5},
            ),
            "reasoning-inside-output": (
                Usage(input_tokens=10, output_tokens=100, reasoning_tokens=60),
                PLAIN,
                {"uncached_input": 10, "output": 100},
            ),
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
            "sound-at-the-common-price": (
                Usage(input_tokens=1000, input_audio_tokens=500, output_tokens=5),
                PLAIN,
                {"uncached_input": 1000, "output": 5},
            ),
            "units-beside-tokens": (
                Usage(
                    input_tokens=10,
                    tool_units={"web_searches": 2, "web_fetches": 0, "input_text_tokens": 10},
                ),
                PLAIN,
                {"uncached_input": 10, "web_searches": 2},
            ),
            "billed-units-of-cohere": (
                Usage(
                    input_tokens=500,
                    cache_read_tokens=40,
                    output_tokens=30,
                    tool_units={"billed_input_tokens": 60, "billed_output_tokens": 20, "images": 1},
                ),
                PLAIN,
                {"cache_read": 40, "uncached_input": 20, "output": 20},
            ),
            "reported-for-information": (
                Usage(output_tokens=5, tool_units={"citation_tokens": 700, "server_tool_calls": 2}),
                PLAIN,
                {"output": 5},
            ),
            "citations-priced": (
                Usage(output_tokens=5, tool_units={"citation_tokens": 700, "search_units": 2}),
                {**PLAIN, "citation": Rate(2, "list")},
                {"output": 5, "citation": 700, "search_units": 2},
            ),
            "nothing-reported": (Usage(), PLAIN, {}),
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


def test_a_list_without_cache_prices_bills_the_cache_as_input():
    rates = covered({"uncached_input": Rate(5, "list"), "output": Rate(9, "list")})
    assert {line: rate.picousd for line, rate in rates.items()} == {
        "uncached_input": 5,
        "output": 9,
        "cache_read": 5,
        "cache_write": 5,
        "cache_write_5m": 5,
        "cache_write_1h": 5,
        "cache_write_12h": 5,
    }
    assert rates["cache_read"].note == "no price of its own: as uncached_input"


def test_an_hour_in_the_cache_is_not_sold_at_the_price_of_five_minutes():
    """earendil-works/pi#5737: 1h writes at the 5m price are 37.5 % too cheap; no price is better."""
    rates = covered({"uncached_input": Rate(4, "list"), "cache_write": Rate(5, "list")})
    assert rates["cache_write_5m"].picousd == 5
    assert "cache_write_1h" not in rates


def test_an_unsplit_cache_write_says_that_it_is_taken_for_five_minutes():
    rates = covered({"cache_write": Rate(5, "list"), "cache_write_1h": Rate(8, "list")})
    assert rates["cache_write"].note == "how long it is kept is not reported: as five minutes"
    assert rates["cache_write_5m"].note is None


@pytest.mark.parametrize(
    ("usage", "expected"),
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
