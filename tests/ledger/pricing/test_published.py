"""Published prices as our own rates, held against the library's own arithmetic."""

import itertools
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import genai_prices
import pytest
from genai_prices.data import providers
from genai_prices.data_units import unit_data

from ledger.model.money import PICOUSD_PER_USD
from ledger.pricing import published, rules
from ledger.pricing.charges import charge
from ledger.pricing.price_lines import TOKEN_LINES, Sheet, covered
from ledger.pricing.published import Published
from tests.ledger.priced import NOVEMBER, amounts, cost, exchange, reading
from tests.ledger.pricing.test_charges import Book

pytestmark = pytest.mark.large

EVERY: list[tuple[str, Any]] = [
    (provider.id, model) for provider in providers for model in provider.models
]


def listed(list_id, model) -> Published:
    found = published.installed().find(list_id, model)
    assert found is not None
    return found


def period_of(list_id, model, *, tier=None, at=NOVEMBER):
    return published.prices(listed(list_id, model), tier=tier, at=at, source="list")


def units(list_id, model, **more):
    return {line: rate.picousd for line, rate in period_of(list_id, model, **more).rates.items()}


def book_of(period):
    return Book(own=Sheet(covered(period.rates), period.absent))


def test_price_keys_and_their_units_are_the_librarys():
    """Our quantity of a line is counted in its unit: per token, per search, per millisecond."""
    per = {unit["price_key"]: unit["per"] for unit in unit_data.values()}
    milliseconds = {"audio_milliseconds": 1000}
    for line, (key, units_per_price) in published.PRICE_KEYS.items():
        assert units_per_price == per[key] * milliseconds.get(line, 1), line


def test_every_token_line_has_a_price_key_or_the_price_of_a_rule():
    in_rules = {
        line
        for rule in rules.published().rules
        for line in (*rule.table.usd_per_mtok, *rule.table.times)
    }
    assert set(TOKEN_LINES) - set(published.PRICE_KEYS) == in_rules - set(published.PRICE_KEYS)


@pytest.mark.parametrize(
    ("list_id", "model", "expected"),
    [
        # https://platform.claude.com/docs/en/about-claude/pricing, read 2026-10-14
        pytest.param(
            "anthropic",
            "claude-opus-4-5-20251101",
            {
                "uncached_input": 5_000_000,
                "cache_write": 6_250_000,
                "cache_write_1h": 10_000_000,
                "cache_read": 500_000,
                "output": 25_000_000,
                "web_searches": 10_000_000_000,
            },
            id="anthropic",
        ),
        # https://developers.openai.com/api/docs/pricing, read 2026-10-12
        pytest.param(
            "openai",
            "gpt-5",
            {
                "uncached_input": 1_250_000,
                "cache_read": 125_000,
                "output": 10_000_000,
                "web_searches": 10_000_000_000,
                "file_searches": 2_500_000_000,
                "document_searches": 2_500_000_000,
            },
            id="openai",
        ),
        # https://ai.google.dev/gemini-api/docs/pricing, read 2026-10-14
        pytest.param(
            "google",
            "gemini-2.5-flash",
            {
                "uncached_input": 300_000,
                "input_audio": 1_000_000,
                "cache_read": 30_000,
                "cache_read_audio": 100_000,
                "output": 2_500_000,
                "web_searches": 35_000_000_000,
            },
            id="google",
        ),
    ],
)
def test_units_of_published_prices(list_id, model, expected):
    assert units(list_id, model) == expected


@pytest.mark.parametrize(
    ("clock", "output"),
    [
        # https://api-docs.deepseek.com/quick_start/pricing, 2025: discount 16:30 to 00:30 UTC
        ((0, 29, 59), 550_000),
        ((0, 30, 0), 1_100_000),
        ((16, 29, 59), 1_100_000),
        ((16, 30, 0), 550_000),
    ],
)
def test_a_price_by_the_clock(clock, output):
    at = datetime.combine(date(2025, 5, 5), time(*clock), UTC)
    assert units("deepseek", "deepseek-chat", at=at)["output"] == output


@pytest.mark.parametrize(
    ("model", "list_id", "at"),
    [
        ("o3", "openai", datetime(2025, 6, 9, 23, 59, 59, tzinfo=UTC)),
        ("o3", "openai", datetime(2025, 6, 10, tzinfo=UTC)),
        ("o3", "openai", NOVEMBER),
        ("deepseek-chat", "deepseek", datetime(2025, 5, 5, 0, 0, tzinfo=UTC)),
        ("deepseek-chat", "deepseek", datetime(2025, 5, 5, 12, 0, tzinfo=UTC)),
        ("deepseek-chat", "deepseek", datetime(2025, 5, 5, 23, 59, tzinfo=UTC)),
    ],
)
def test_the_span_of_a_price_is_that_in_which_nothing_changes(model, list_id, at):
    """What is remembered for a span has to be right to its last second, and no longer."""
    period = period_of(list_id, model, at=at)
    assert period.since <= at < period.until
    for moment in (period.since, period.until - timedelta(seconds=1)):
        if moment.year not in {1, 9999}:
            assert period_of(list_id, model, at=moment) == period


@pytest.mark.parametrize(
    ("tier", "at", "output"),
    [
        (None, NOVEMBER, 10_000_000),
        ("default", NOVEMBER, 10_000_000),
        ("auto", NOVEMBER, 10_000_000),
        ("flex", NOVEMBER, 5_000_000),
        ("priority", NOVEMBER, 20_000_000),
        ("batch", NOVEMBER, 5_000_000),
        ("flex", datetime(2026, 10, 12, tzinfo=UTC), 5_000_000),
    ],
)
def test_the_tier_of_the_answer_decides(tier, at, output):
    """BerriAI/litellm#13810: service_tier ignored, off by two. gpt-5, $10 out, from 2026-10-12."""
    assert units("openai", "gpt-5", tier=tier, at=at)["output"] == output


@pytest.mark.parametrize(
    ("tier", "at"),
    [("scale", NOVEMBER), ("flex", datetime(2026, 10, 11, 23, 59, 59, tzinfo=UTC))],
)
def test_a_tier_without_a_price_is_reported_beside_the_standard_prices(tier, at):
    period = period_of("openai", "gpt-5", tier=tier, at=at)
    assert period.missing_tier == tier
    assert period.rates["output"].picousd == 10_000_000


@pytest.mark.parametrize(
    ("tiers", "name"),
    [
        (("SERVICE_TIER_STANDARD", "SERVICE_TIER_UNSPECIFIED", "ON_DEMAND", "on_demand", ""), None),
        ((None,), None),
        (("SERVICE_TIER_FLEX", "ON_DEMAND_FLEX", "Flex"), "flex"),
    ],
)
def test_spellings_of_a_tier(tiers, name):
    assert {published.tier_name(tier) for tier in tiers} == {name}


def test_the_speed_of_an_answer_is_a_tier():
    """https://platform.claude.com/docs/en/build-with-claude/fast-mode: Opus 4.8 at twice."""
    assert units("anthropic", "claude-opus-4-8", tier="fast")["output"] == 50_000_000


def test_a_borrowed_model_has_its_vendors_price_but_not_its_tiers():
    """Azure's own priority prices are not OpenAI's."""
    found = listed("azure", "gpt-5")
    assert found.is_borrowed
    assert found.source.endswith(" openai/gpt-5")
    assert period_of("azure", "gpt-5", tier="priority").missing_tier == "priority"


def test_listed_without_a_price_is_not_free():
    """The library adds it up to $0."""
    period = period_of("google", "gemma-3-27b-it")
    assert (period.rates, period.absent) == ({}, "google/gemma-3 is listed without a price")


@pytest.mark.parametrize(("list_id", "model"), [("openai", "gpt-99"), ("no-such-list", "gpt-5")])
def test_what_no_list_knows_is_not_found(list_id, model):
    assert published.installed().find(list_id, model) is None


@pytest.mark.parametrize(
    ("list_id", "model", "found"),
    [
        ("google", "gemini-3.8-flash-cyber", None),
        ("google", "gemini-3.7-flash-hyper", None),
        ("openai", "gpt-5.4-secret", None),
        ("anthropic", "claude-opus-5-5-turbo", None),
        ("deepseek", "deepseek-r1-distill-llama-70b", None),
        ("google", "gemini-3.1-pro-preview-customtools", "gemini-3.1-pro-preview"),
        ("google", "claude-sonnet-4-5@default", "claude-sonnet-4-5"),
        ("openai", "gpt-5.4-2026-03-05", "gpt-5.4"),
        ("openai", "gpt-3.5-turbo-instruct:20230824-v2", "gpt-3.5-turbo-instruct"),
        ("aws", "us.anthropic.claude-opus-5-5", "regional.anthropic.claude-opus-5-5"),
    ],
)
def test_a_name_that_begins_as_another_is_another_model(list_id, model, found):
    """Unless the list says its further word; a date, a version and a region are no word."""
    listed = published.installed().find(list_id, model)
    assert (listed and listed.model.id) == found


def test_units_are_rounded_half_even_below_a_picousd():
    """$0.21 an hour of sound is 58 333.3 pico-USD a millisecond."""
    assert published.picousd_of_price(Decimal("0.21"), 3_600_000) == 58_333
    assert published.picousd_of_price(Decimal("0.0000025"), 1_000_000) == 2
    assert published.picousd_of_price(Decimal("0.18000000000000002"), 1_000_000) == 180_000


@pytest.mark.parametrize("input_tokens", [1000, 200_000, 200_001, 272_001])
def test_the_cost_of_every_listed_model_is_the_librarys(input_tokens):
    """All models of all lists: input, cache reads, cache writes and output.

    The library is given only what the list prices: it counts the rest as nothing, or as input.
    """
    compared = 0
    for list_id, model in EVERY:
        found = published.Published(list_id, model, is_borrowed=False)
        period = published.prices(found, tier=None, at=NOVEMBER, source="list")
        if not {"uncached_input", "output"} <= set(period.rates):
            continue
        usage = {"input_tokens": input_tokens, "output_tokens": 70}
        for line, count in (("cache_read", 300), ("cache_write", 50)):
            if line in period.rates:
                usage[f"{line}_tokens"] = count
        charges = charge(exchange(at=NOVEMBER), reading(**usage), book_of(period))
        theirs = model.calc_price(
            genai_prices.Usage(**usage),
            next(each for each in providers if each.id == list_id),
            genai_request_timestamp=NOVEMBER,
        ).total_price
        # Some lists hold floats, 0.18000000000000002: half a pico-USD a token is the most it makes.
        difference = abs(cost(charges) - theirs * PICOUSD_PER_USD)
        assert difference <= Decimal("0.5") * input_tokens, (list_id, model.id)
        compared += 1
    assert compared > 2000


@pytest.mark.parametrize(
    ("model", "tier"),
    list(itertools.product(["gpt-5", "gpt-5.6-sol", "o3"], ["default", "flex", "priority"])),
)
def test_the_cost_at_a_tier_is_the_librarys(model, tier):
    usage = {"input_tokens": 272_001, "cache_read_tokens": 5000, "output_tokens": 777}
    book = book_of(period_of("openai", model, tier=tier))
    charges = charge(exchange(at=NOVEMBER), reading(**usage), book)
    theirs = genai_prices.calc_price(
        genai_prices.Usage(**usage),
        model,
        provider_id="openai",
        genai_request_timestamp=NOVEMBER,
        price_context={"service_tier": tier},
    ).total_price
    assert Decimal(cost(charges)) == theirs * PICOUSD_PER_USD


def test_sound_cached_and_not_costs_what_the_library_says():
    usage = {"input_tokens": 1000, "cache_read_tokens": 400, "input_audio_tokens": 500}
    book = book_of(period_of("google", "gemini-2.5-flash"))
    read = reading(**usage, tool_units={"cache_read_audio_tokens": 150})
    charges = charge(exchange(), read, book)
    # 250 at $0.30, 250 cached at $0.03, 350 sound at $1.00, 150 cached sound at $0.10
    assert amounts(charges) == {
        "uncached_input": (250, 300_000, 75_000_000),
        "cache_read": (250, 30_000, 7_500_000),
        "input_audio": (350, 1_000_000, 350_000_000),
        "cache_read_audio": (150, 100_000, 15_000_000),
    }
    theirs = genai_prices.calc_price(
        genai_prices.Usage(**usage, cache_audio_read_tokens=150, output_tokens=0),
        "gemini-2.5-flash",
        provider_id="google",
        genai_request_timestamp=NOVEMBER,
    ).total_price
    assert Decimal(cost(charges)) == theirs * PICOUSD_PER_USD
