"""Price lists in a folder: what is kept, and what is refused; the commands' tests have the rest.
LiteLLM's file as a second source."""

import hashlib
import json
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.model.errors import LedgerError
from ledger.pricing import snapshots
from ledger.pricing.litellm import LiteLLM
from ledger.pricing.snapshots import Snapshots, read
from tests.ledger.priced import NOVEMBER as NOW

LITELLM = {
    "gpt-99": {
        "litellm_provider": "openai",
        "input_cost_per_token": 3e-06,
        "mode": "chat",
        "is_cost": True,
    },
    "sample_spec": "text",
}
MODELS_DEV = {
    "openai": {
        "id": "openai",
        "models": {
            "gpt-99": {
                "cost": {"input": 3, "output": True, "context_over_200k": {"input": 6}},
                "name": "x",
            },
            "gpt-96": {"cost": {"output": 6}},
            "gpt-98": {"cost": "free"},
            "gpt-97": "text",
        },
    },
    "acme": {"models": []},
    "text": "text",
}


def genai(**wrong):
    model = {"id": "x", "match": {"equals": "x"}, "prices": {"input_mtok": 1}, **wrong}
    return [{"id": "openai", "name": "O", "api_pattern": "x", "models": [model]}]


def listed(document):
    return read(json.dumps(document).encode(), "list.json")


def test_figures_are_the_costs_that_are_numbers():
    three, six = Decimal("0.000003"), Decimal("0.000006")
    assert listed(LITELLM).figures(NOW) == {"gpt-99": {"input_cost_per_token": three}}
    assert listed(MODELS_DEV).figures(NOW) == {
        "openai/gpt-99": {
            "input_cost_per_token": three,
            "input_cost_per_token_above_200k_tokens": six,
        },
        "openai/gpt-96": {"output_cost_per_token": six},
    }


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (7, "list.json is not a price list: it has not the form of"),
        ("text", "list.json is not a price list: it has not the form of"),
        ([], "list.json is not a price list: it has not the form of"),
        ([{"id": "x"}], "list.json is not a price list: it has not the form of"),
        ({}, "list.json is not a price list: it has not the form of"),
        ({"a": {"models": {}}}, "list.json has no prices of models.dev"),
        (genai(match=7), "list.json is not a price list of genai-prices: Expected dict"),
        (genai(match=["x"]), "list.json is not a price list of genai-prices: Expected dict"),
        (genai(prices=[]), "list.json is not a price list of genai-prices: list index"),
        ([{"models": [], "id": 7}], "list.json is not a price list of genai-prices: "),
    ],
)
def test_what_is_no_list_is_one_line(document, problem):
    with pytest.raises(LedgerError) as caught:
        listed(document)
    assert str(caught.value).startswith(problem)
    assert "\n" not in str(caught.value)


def test_lists_in_a_folder(tmp_path):
    first, second = listed(LITELLM), listed(MODELS_DEV)
    kept = Snapshots(tmp_path / "prices")
    with pytest.raises(LedgerError, match="nothing to undo"):
        kept.rollback(now=NOW)
    kept.install(first, source="one", now=NOW)
    kept.install(second, source="two", now=NOW + timedelta(minutes=1))
    assert kept.rollback(now=NOW + timedelta(minutes=2)).digest == first.digest
    assert kept.rollback(now=NOW + timedelta(minutes=3)).digest is None
    with pytest.raises(LedgerError, match="nothing to undo"):
        kept.rollback(now=NOW + timedelta(minutes=4))
    again = Snapshots(tmp_path / "prices")
    assert [entry.digest for entry in again.entries] == [
        first.digest,
        second.digest,
        first.digest,
        None,
    ]
    found, since, until = again.at(NOW + timedelta(seconds=90))
    assert found is not None
    assert (found.digest, found.kind) == (second.digest, "models.dev")
    assert (since, until) == (NOW + timedelta(minutes=1), NOW + timedelta(minutes=2))
    assert again.newest() is None
    with pytest.raises(LedgerError, match="the clock is before the last update"):
        again.install(first, source="one", now=NOW)
    (tmp_path / "prices" / f"{first.digest}.json").write_text("{}")
    with pytest.raises(LedgerError, match="was changed; go back with"):
        again.at(NOW)


def test_an_index_has_an_end(tmp_path, monkeypatch):
    monkeypatch.setattr(snapshots, "ENTRIES_MAX", 1)
    kept = Snapshots(tmp_path)
    kept.install(listed(LITELLM), source="one", now=NOW)
    with pytest.raises(LedgerError, match="has 1 updates; remove its index"):
        kept.install(listed(MODELS_DEV), source="two", now=NOW)


def test_a_damaged_index_and_a_folder_that_is_a_file_are_one_line_each(tmp_path):
    (tmp_path / "index.json").write_text('[{"digest": 7}]')
    with pytest.raises(LedgerError, match=r"is damaged: .*; remove it"):
        Snapshots(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError, match="cannot write to"):
        Snapshots(tmp_path / "file").install(listed(LITELLM), source="one", now=NOW)


JUNK = st.recursive(
    st.sampled_from([None, True, -1, 0, 10**400, 1e308, "", "(", "2026-99-99"]),
    lambda each: (
        st.lists(each, max_size=2)
        | st.dictionaries(
            st.sampled_from(["base", "tiers", "or", "regex", "cost"]), each, max_size=2
        )
    ),
    max_leaves=3,
)


@given(document=st.sampled_from([genai(), LITELLM, MODELS_DEV]), junk=JUNK, data=st.data())
def test_a_list_with_anything_in_any_place_is_read_or_is_one_line(document, junk, data):
    whole = parent = json.loads(json.dumps(document))
    while True:
        places = sorted(parent) if isinstance(parent, dict) else list(range(len(parent)))
        place = data.draw(st.sampled_from(places))
        inner = parent[place]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.booleans()):
            parent[place] = junk
            break
        parent = inner
    try:
        found = listed(whole)
    except LedgerError as error:
        problem = str(error)
    else:
        problem = "list.json " if found.figures(NOW) else ""
    assert problem.startswith("list.json ")
    assert "\n" not in problem


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
def litellm(text_file):
    path = text_file("prices.json", FILE)
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
def test_a_file_of_another_kind(text_file, content, problem):
    path = text_file("prices.json", content)
    with pytest.raises(LedgerError, match=problem):
        LiteLLM.load(path)


def test_an_exponent_beyond_all_decimals_is_no_price(tmp_path):
    path = tmp_path / "prices.json"
    figures = '"input_cost_per_token": 6e-9999999999999999999, "output_cost_per_token": 1e-5'
    path.write_text('{"gpt-5": {"litellm_provider": "openai", ' + figures + "}}")
    found = LiteLLM.load(path).rates("openai", "gpt-5", None)
    assert found is not None
    assert set(found[0]) == {"output"}
