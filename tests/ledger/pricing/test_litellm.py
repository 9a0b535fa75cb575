"""LiteLLM's file as a second source."""

import hashlib
from decimal import Decimal

import pytest

from ledger.model.errors import LedgerError
from ledger.pricing.litellm import LiteLLM

FILE = """{
  "sample_spec": {"input_cost_per_token": "made up", "litellm_provider": "one of"},
  "qwen-max": {"litellm_provider": "dashscope", "input_cost_per_token": 1.6e-06,
               "output_cost_per_token": 6.4e-06},
  "gemini/gemini-x": {"litellm_provider": "gemini",
     "input_cost_per_token": 1.25e-06, "input_cost_per_token_above_200k_tokens": 2.5e-06,
     "output_cost_per_token": 1e-05, "output_cost_per_token_above_200k_tokens": 1.5e-05,
     "cache_read_input_token_cost": 1.25e-07, "input_cost_per_audio_token": 3e-06},
  "gpt-x": {"litellm_provider": "openai", "input_cost_per_token": 2e-06,
     "input_cost_per_token_flex": 1e-06, "output_cost_per_token": 8e-06,
     "output_cost_per_token_flex": 4e-06, "output_cost_per_reasoning_token": 9e-06},
  "odd": {"litellm_provider": "openai", "input_cost_per_token": -1, "output_cost_per_token": true},
  "not a model": 3
}"""


@pytest.fixture
def litellm(tmp_path):
    path = tmp_path / "prices.json"
    path.write_text(FILE)
    return LiteLLM.load(path)


def units(rates):
    return {line: (rate.picousd, rate.above) for line, rate in rates.items()}


def test_a_model_under_its_bare_name(litellm):
    rates, _ = litellm.rates("dashscope", "qwen-max", None)
    assert units(rates) == {"uncached_input": (1_600_000, ()), "output": (6_400_000, ())}
    digest = hashlib.sha256(FILE.encode()).hexdigest()[:12]
    assert rates["output"].source == f"litellm sha256:{digest} qwen-max"


def test_context_steps_and_a_list_known_by_another_name(litellm):
    assert units(litellm.rates("google", "gemini-x", None)[0]) == {
        "uncached_input": (1_250_000, ((200_000, 2_500_000),)),
        "output": (10_000_000, ((200_000, 15_000_000),)),
        "cache_read": (125_000, ()),
        "input_audio": (3_000_000, ()),
    }


@pytest.mark.parametrize(
    ("step", "start"), [("_above_32k_tokens", 32_000), ("_above_512k_tokens_flex", 0)]
)
def test_any_step_of_any_line_counts(step, start):
    """At any size that a provider publishes (MiniMax 512k, Qwen 32k), for every line."""
    model = {"litellm_provider": "m", "input_cost_per_audio_token": Decimal("0.000001")}
    lists = LiteLLM(
        {"m/x": {**model, "input_cost_per_audio_token" + step: Decimal("0.000002")}}, "s"
    )
    found = lists.rates("m", "x", None)
    assert found is not None
    steps = ((start, 2_000_000),) if start else ()
    assert units(found[0]) == {"input_audio": (1_000_000, steps)}


def test_a_tier_has_no_price_for_a_line_that_only_the_standard_tier_prices(litellm):
    """Gemini's flex tier at the standard price of reasoning would cost 24 % too much."""
    rates, missing = litellm.rates("openai", "gpt-x", "flex")
    assert missing is None
    unknown = rates.pop("reasoning")
    assert (unknown.is_unknown, unknown.note) == (
        True,
        "listed without a price for service tier 'flex'",
    )
    assert units(rates) == {"uncached_input": (1_000_000, ()), "output": (4_000_000, ())}


@pytest.mark.parametrize("tier", ["priority", "scale"])
def test_a_tier_without_a_price_is_reported_beside_the_standard_prices(litellm, tier):
    assert litellm.rates("openai", "gpt-x", tier) == (
        litellm.rates("openai", "gpt-x", None)[0],
        tier,
    )


@pytest.mark.parametrize(
    ("list_id", "model"), [("openai", "gpt-y"), ("groq", "gpt-x"), ("openai", "not a model")]
)
def test_a_model_of_another_provider_is_not_it(litellm, list_id, model):
    assert litellm.rates(list_id, model, None) is None


def test_what_is_no_price_is_left_out(litellm):
    assert litellm.rates("openai", "odd", None) == ({}, None)


@pytest.mark.parametrize(
    ("content", "problem"), [("[1]", "no object of models"), ("{", "is not JSON")]
)
def test_a_file_of_another_kind(tmp_path, content, problem):
    path = tmp_path / "prices.json"
    path.write_text(content)
    with pytest.raises(LedgerError, match=problem):
        LiteLLM.load(path)


def test_an_exponent_beyond_all_decimals_is_no_price(tmp_path):
    path = tmp_path / "prices.json"
    figures = '"input_cost_per_token": 6e-9999999999999999999, "output_cost_per_token": 1e-5'
    path.write_text('{"gpt-5": {"litellm_provider": "openai", ' + figures + "}}")
    found = LiteLLM.load(path).rates("openai", "gpt-5", None)
    assert found is not None
    assert set(found[0]) == {"output"}
