"""Price lists in a folder: what is kept, and what is refused; the commands' tests have the rest.
LiteLLM's file as a second source. The operator's price file: what it says, from when, and clear words
for what is wrong in it."""

import hashlib
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.model.errors import LedgerError
from ledger.pricing import snapshots
from ledger.pricing.litellm import LiteLLM
from ledger.pricing.overrides import check, in_force, load
from ledger.pricing.price_lists import PriceQuestion
from ledger.pricing.snapshots import Snapshots, read
from tests.ledger.priced import NOVEMBER as NOW
from tests.named import for_each, named

LITELLM = {
    "gpt-99": {
        "litellm_provider": "openai",
        "input_cost_per_token": 3e-06,
        "mode": "chat",
        "is_cost": True,
    },
    "sample_spec": "text",
}


def genai(**wrong):
    model = {"id": "x", "match": {"equals": "x"}, "prices": {"input_mtok": 1}, **wrong}
    return [{"id": "openai", "name": "O", "api_pattern": "x", "models": [model]}]


def listed(document):
    return read(json.dumps(document).encode(), "list.json")


def test_figures_are_the_costs_that_are_numbers():
    three = Decimal("0.000003")
    assert listed(LITELLM).figures(NOW) == {"gpt-99": {"input_cost_per_token": three}}


@for_each(
    "document, problem",
    [
        (7, "list.json is not a price list: it does not have the form of"),
        ("text", "list.json is not a price list: it does not have the form of"),
        ([], "list.json is not a price list: it does not have the form of"),
        ([{"id": "x"}], "list.json is not a price list: it does not have the form of"),
        ({}, "list.json is not a price list: it does not have the form of"),
        ({"a": {"models": {}}}, "list.json is not a price list: it does not have the form of"),
        (
            [{"id": "openai", "name": "O", "api_pattern": "x", "models": []}],
            "list.json has no prices of genai-prices",
        ),
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
    first, second = listed(LITELLM), listed(genai())
    kept = Snapshots(tmp_path / "prices")
    kept.install(first, source="one", now=NOW)
    kept.install(second, source="two", now=NOW + timedelta(minutes=1))
    kept.install(first, source="one", now=NOW + timedelta(minutes=2))
    again = Snapshots(tmp_path / "prices")
    assert [entry.digest for entry in again.entries] == [first.digest, second.digest, first.digest]
    found, since, until = again.at(NOW + timedelta(seconds=90))
    assert found is not None
    assert (found.digest, found.kind) == (second.digest, "genai-prices")
    assert (since, until) == (NOW + timedelta(minutes=1), NOW + timedelta(minutes=2))
    newest = again.newest()
    assert newest is not None
    assert newest.digest == first.digest
    with pytest.raises(LedgerError, match="the clock is before the last update"):
        again.install(first, source="one", now=NOW)
    (tmp_path / "prices" / f"{first.digest}.json").write_text("{}")
    with pytest.raises(LedgerError, match="was changed; read the list again with"):
        Snapshots(tmp_path / "prices").at(NOW)


def test_a_list_of_a_kind_that_is_not_read_any_more_is_left_out(tmp_path):
    known = listed(LITELLM)
    Snapshots(tmp_path).install(known, source="one", now=NOW)
    index = tmp_path / "index.json"
    entries = json.loads(index.read_text())
    later = (NOW + timedelta(minutes=1)).isoformat()
    entries.append({"digest": "0" * 64, "kind": "models.dev", "from": later, "source": "two"})
    index.write_text(json.dumps(entries))
    found = Snapshots(tmp_path).newest()
    assert found is not None
    assert found.digest == known.digest


def test_an_index_has_an_end(tmp_path, monkeypatch):
    monkeypatch.setattr(snapshots, "ENTRIES_MAX", 1)
    kept = Snapshots(tmp_path)
    kept.install(listed(LITELLM), source="one", now=NOW)
    with pytest.raises(LedgerError, match="has 1 updates; remove its index"):
        kept.install(listed(genai()), source="two", now=NOW)


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


def test_a_clause_without_a_condition_is_one_line():
    document = genai()
    document[0]["models"][0]["match"] = {}
    with pytest.raises(LedgerError, match=r"list\.json is not a price list of genai-prices"):
        listed(document)


@given(document=st.sampled_from([genai(), LITELLM]), junk=JUNK, data=st.data())
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


def line_units(rates):
    return {line: (rate.picousd, rate.above) for line, rate in rates.items()}


def test_a_model_under_its_bare_name(litellm):
    rates, _ = litellm.rates("dashscope", "qwen-max", None)
    assert line_units(rates) == {"uncached_input": (1_600_000, ()), "output": (6_400_000, ())}
    digest = hashlib.sha256(FILE.encode()).hexdigest()[:12]
    assert rates["output"].source == f"litellm sha256:{digest} qwen-max"


def test_context_steps_and_a_list_known_by_another_name(litellm):
    assert line_units(litellm.rates("google", "gemini-x", None)[0]) == {
        "uncached_input": (1_250_000, ((200_000, 2_500_000),)),
        "output": (10_000_000, ((200_000, 15_000_000),)),
        "cache_read": (125_000, ()),
        "input_audio": (3_000_000, ()),
    }


@for_each("step, start", [("_above_32k_tokens", 32_000), ("_above_512k_tokens_flex", 0)])
def test_any_step_of_any_line_counts(step, start):
    """At any size that a provider publishes (MiniMax 512k, Qwen 32k), for every line."""
    model = {"litellm_provider": "m", "input_cost_per_audio_token": Decimal("0.000001")}
    lists = LiteLLM(
        {"m/x": {**model, "input_cost_per_audio_token" + step: Decimal("0.000002")}}, "s"
    )
    found = lists.rates("m", "x", None)
    assert found is not None
    steps = ((start, 2_000_000),) if start else ()
    assert line_units(found[0]) == {"input_audio": (1_000_000, steps)}


def test_a_tier_has_no_price_for_a_line_that_only_the_standard_tier_prices(litellm):
    """Gemini's flex tier at the standard price of reasoning would cost 24 % too much."""
    rates, missing = litellm.rates("openai", "gpt-x", "flex")
    assert missing is None
    unknown = rates.pop("reasoning")
    assert (unknown.is_unknown, unknown.note) == (
        True,
        "listed without a price for service tier 'flex'",
    )
    assert line_units(rates) == {"uncached_input": (1_000_000, ()), "output": (4_000_000, ())}


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


SEPTEMBER = datetime(2026, 9, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.fixture
def price_file(text_file):
    return lambda text: str(text_file("prices.toml", text))


@pytest.fixture
def loaded(price_file):
    return lambda text: load(price_file(text))


def question(host="llm.example.com", model="gpt-5", provider="openai"):
    return PriceQuestion(origin=f"https://{host}:443", provider=provider, response_model=model)


def units(overrides, at=SEPTEMBER, tier=None, **about):
    """line -> unit price, of what is in force."""
    entries = tuple(each for each in overrides.entries if each.applies_to(question(**about), tier))
    rates, rest, _, _ = in_force(entries, at)
    assert rest is None
    return {line: rate.picousd for line, rate in rates.items()}


def test_prices_are_exact_and_named_by_the_files_digest(price_file):
    text = """
        [[price]]
        model = "gpt-5*"
        usd_per_mtok = { uncached_input = 1.10, cache_read = 0.0625, output = 8 }
        usd_each = { web_searches = 0.01 }
    """
    path = price_file(text)
    overrides = load(path)
    assert units(overrides) == {
        "uncached_input": 1_100_000,
        "cache_read": 62_500,
        "output": 8_000_000,
        "web_searches": 10_000_000_000,
    }
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    assert overrides.entries[0].rates["output"].source == f"override sha256:{digest}"


@pytest.mark.parametrize(
    ("about", "speaks"),
    [
        ({}, True),
        ({"host": "LLM.example.com"}, True),
        ({"host": "other.example.com"}, False),
        ({"model": "GPT-5-mini"}, True),
        ({"model": "gpt-4.1"}, False),
        ({"provider": "azure"}, False),
        ({"model": None}, False),
    ],
)
def test_an_entry_speaks_of_host_provider_and_model(loaded, about, speaks):
    overrides = loaded("""
        [[price]]
        host = "llm.*"
        provider = "openai"
        model = "gpt-5*"
        usd_per_mtok = { output = 8 }
    """)
    assert units(overrides, **about) == ({"output": 8_000_000} if speaks else {})


@pytest.mark.parametrize(
    ("at", "output"),
    [
        (SEPTEMBER - SECOND, 5_000_000),
        (SEPTEMBER, 8_000_000),
        (datetime(2026, 10, 1, 9, 59, 59, tzinfo=UTC), 8_000_000),
        (datetime(2026, 10, 1, 10, 0, 0, tzinfo=UTC), 5_000_000),
    ],
)
def test_an_entry_is_in_force_from_and_until_a_second(loaded, at, output):
    """`until` at 12:00 in Berlin, which is 10:00 UTC, and is not included."""
    overrides = loaded("""
        [[price]]
        model = "*"
        usd_per_mtok = { output = 5 }
        [[price]]
        model = "gpt-5"
        from = 2026-09-01
        until = 2026-10-01T12:00:00+02:00
        usd_per_mtok = { output = 8 }
    """)
    assert units(overrides, at=at) == {"output": output}


def test_the_span_in_force_ends_where_any_entry_begins(loaded):
    overrides = loaded("""
        [[price]]
        model = "*"
        from = 2026-09-01
        until = 2026-12-01
        usd_per_mtok = { output = 5 }
        [[price]]
        model = "*"
        from = 2026-10-01
        usd_per_mtok = { output = 6 }
    """)
    october = datetime(2026, 10, 1, tzinfo=UTC)
    _, _, since, until = in_force(overrides.entries, SEPTEMBER)
    assert (since, until) == (SEPTEMBER, october)
    _, _, since, until = in_force(overrides.entries, october)
    assert (since, until) == (october, datetime(2026, 12, 1, tzinfo=UTC))


def test_a_later_entry_wins_line_by_line(loaded):
    overrides = loaded("""
        [[price]]
        provider = "openai"
        usd_per_mtok = { uncached_input = 1, output = 5 }
        [[price]]
        model = "gpt-5"
        usd_per_mtok = { output = 6 }
    """)
    assert units(overrides) == {"uncached_input": 1_000_000, "output": 6_000_000}


@pytest.mark.parametrize(
    ("tier", "expected"),
    [
        (None, {"output": 5_000_000}),
        ("default", {"output": 5_000_000}),
        ("flex", {"output": 2_000_000}),
        ("scale", {}),
    ],
)
def test_an_entry_speaks_of_one_tier(loaded, tier, expected):
    overrides = loaded("""
        [[price]]
        model = "*"
        usd_per_mtok = { output = 5 }
        [[price]]
        model = "*"
        service_tier = "Flex"
        usd_per_mtok = { output = 2 }
    """)
    assert units(overrides, tier=tier) == expected


def test_a_context_step_in_any_order(loaded):
    overrides = loaded("""
        [[price]]
        model = "*"
        usd_per_mtok = { uncached_input = 1, output = 5 }
        [[price.above]]
        input_tokens = 272_000
        usd_per_mtok = { uncached_input = 3 }
        [[price.above]]
        input_tokens = 128_000
        usd_per_mtok = { uncached_input = 2, output = 7 }
    """)
    rates = overrides.entries[0].rates
    assert rates["uncached_input"].above == ((128_000, 2_000_000), (272_000, 3_000_000))
    assert rates["output"].above == ((128_000, 7_000_000),)


@pytest.mark.parametrize(
    ("text", "problem"),
    named(
        {
            "not-toml": ("[[price", "not TOML: Expected ']]' at the end"),
            "unknown-table": ("prices = 1", "line 1: prices: unknown; did you mean 'price'?"),
            "one-table": ("[price]\nmodel = 'x'", "line 1: price: write [[price]] for each"),
            "misspelt-line": (
                "[[price]]\nmodel = 'x'\nusd_per_mtok = { inptu = 1 }",
                "line 3: price 1: usd_per_mtok.inptu: unknown line; ",
            ),
            "word-of-vendors": (
                "[[price]]\nmodel = 'x'\nusd_per_mtok = { input = 1 }",
                "line 3: price 1: usd_per_mtok.input: unknown line; did you mean 'uncached_input'?",
            ),
            "misspelt-key": (
                "[[price]]\nmodel = 'x'\nusd_per_mtok = { output = 1 }\n"
                "[[price]]\nmodle = 'y'\nusd_per_mtok = { output = 1 }",
                "line 5: price 2: modle: unknown; did you mean 'model'?",
            ),
            "for-nothing": (
                "[[price]]\nusd_per_mtok = { output = 1 }",
                "line 1: price 1: host, provider or model: one of them must say",
            ),
            "no-price": ("[[price]]\nmodel = 'x'", "line 1: price 1: usd_per_mtok or usd_each"),
            "free-text": (
                "[[price]]\nmodel = 'x'\nfree = 'yes'",
                "line 3: price 1: free: not true or false but a text",
            ),
            "free-and-priced": (
                "[[price]]\nmodel = 'x'\nfree = true\nusd_each = { web_searches = 1 }",
                "line 3: price 1: free: a free entry has no prices",
            ),
            "negative": (
                "[[price]]\nmodel = 'x'\nusd_per_mtok = { output = -1 }",
                "line 3: price 1: usd_per_mtok.output: -1 is not a price",
            ),
            "not-a-number": (
                "[[price]]\nmodel = 'x'\nusd_per_mtok = { output = nan }",
                "line 3: price 1: usd_per_mtok.output: NaN is not a price",
            ),
            "text-price": (
                "[[price]]\nmodel = 'x'\nusd_per_mtok = { output = '3' }",
                "line 3: price 1: usd_per_mtok[...]: not a whole number or a number but a text",
            ),
            "too-much": (
                "[[price]]\nmodel = 'x'\nusd_per_mtok = { output = 1e19 }",
                "line 3: price 1: usd_per_mtok.output: 1E+19 is more than the ledger holds",
            ),
            "not-a-table": (
                "[[price]]\nmodel = 'x'\nusd_per_mtok = 3",
                "line 3: price 1: usd_per_mtok: not a table { ... } but a whole number",
            ),
            "token-line-each": (
                "[[price]]\nmodel = 'x'\nusd_each = { output = 1 }",
                "line 3: price 1: usd_each.output: not a unit; token lines stand in usd_per_mtok",
            ),
            "no-offset": (
                "[[price]]\nmodel = 'x'\nfrom = 2026-09-01T00:00:00\nusd_per_mtok = { output = 1 }",
                "line 3: price 1: from: 2026-09-01 00:00:00 has no offset;"
                " write 2026-09-01T00:00:00Z for UTC",
            ),
            "no-date": (
                "[[price]]\nmodel = 'x'\nfrom = 'soon'\nusd_per_mtok = { output = 1 }",
                "line 3: price 1: from: 'soon' is not a date",
            ),
            "never-in-force": (
                "[[price]]\nmodel = 'x'\nfrom = 2026-09-01\nuntil = 2026-09-01\n"
                "usd_per_mtok = { output = 1 }",
                "line 4: price 1: until: it is not after from",
            ),
            "above-not-tables": (
                "[[price]]\nmodel = 'x'\nabove = 1\nusd_per_mtok = { output = 1 }",
                "line 3: price 1: above: not a list [ ... ] but a whole number",
            ),
            "above-not-tokens": (
                "[[price]]\nmodel = 'x'\nusd_per_mtok = { output = 1 }\n"
                "[[price.above]]\ninput_tokens = 2.5\nusd_per_mtok = { output = 2 }",
                "line 5: price 1: above[0].input_tokens: not a whole number but a number",
            ),
            "above-without-below": (
                "[[price]]\nmodel = 'x'\nusd_per_mtok = { output = 1 }\n"
                "[[price.above]]\ninput_tokens = 2\nusd_per_mtok = { cache_read = 2 }",
                "line 6: price 1: above.usd_per_mtok.cache_read: usd_per_mtok has no price of it",
            ),
            "model-not-text": (
                "[[price]]\nmodel = 3\nusd_per_mtok = { output = 1 }",
                "line 2: price 1: model: not a text but a whole number",
            ),
            "gateway-no-list": ("[[gateway]]\nhost = 'x'", "line 1: gateway 1: prices: missing"),
            "gateway-models": (
                "[[gateway]]\nhost = 'x'\nprices = 'openai'\nmodels = { a = 1 }",
                "line 4: gateway 1: models[...]: not a text but a whole number",
            ),
            "inline-tables": ("price = [{ model = 'x' }]", "price 1: usd_per_mtok or usd_each"),
            "overflow": (
                "[[price]]\nmodel = 'x'\nusd_per_mtok = { output = 1e999999 }",
                "line 3: price 1: usd_per_mtok.output: 1E+999999 is not a price",
            ),
            "underflow": (
                "[[price]]\nmodel = 'x'\nusd_per_mtok = { output = 1e-999999 }",
                "line 3: price 1: usd_per_mtok.output: 1E-999999 is not a price",
            ),
            "many-digits": (
                f"[[price]]\nmodel = 'x'\nusd_per_mtok = {{ output = {'9' * 4000} }}",
                "line 3: price 1: usd_per_mtok.output: a number of more than 64 digits is not a price",
            ),
            "too-many-digits": (f"x = {'9' * 5000}", "not TOML that can be read: "),
            "nested-deeply": (f"x = {'[' * 5000}", "not TOML that can be read: "),
            "before-time": (
                "[[price]]\nmodel = 'x'\nfrom = 0001-01-01T00:00:00+14:00\nfree = true",
                "line 3: price 1: from: '0001-01-01 00:00:00+14:00' is not a date",
            ),
            "empty": ("[[price]]\nmodel = ''\nfree = true", "line 2: price 1: model: empty"),
            "no-host": ("[[gateway]]\nhost = ''\nprices = 'x'", "line 2: gateway 1: host: empty"),
            "step-below-zero": (
                "[[price]]\nmodel = 'x'\n[[price.above]]\ninput_tokens = -1\nusd_per_mtok = {}",
                "line 4: price 1: above.input_tokens: -1 is not a number of tokens",
            ),
            "litellm-not-a-path": ("litellm = 3", "line 1: litellm: 3 is not a path"),
            "litellm-not-there": ("litellm = 'none.json'", "line 1: litellm: cannot read"),
        }
    ),
)
def test_what_is_wrong_is_named_with_its_line_and_key(price_file, text, problem):
    path = price_file(text)
    _, problems = check(path)
    assert problems[0].startswith(problem)
    with pytest.raises(LedgerError) as error:
        load(path)
    assert str(error.value).startswith(f"{path}: {problem}")
    assert "\n" not in str(error.value)


def test_every_problem_is_found_at_once(price_file):
    path = price_file("a = 1\n[[price]]\nmodel = 'x'\n[[gateway]]\nhost = 'y'\n")
    _, problems = check(path)
    assert len(problems) == 3
    with pytest.raises(LedgerError, match=r"\(and 2 more: tokentee prices check .*\)"):
        load(path)


def test_a_sound_part_is_not_lost_for_a_faulty_one(price_file):
    overrides, problems = check(
        price_file("x = 1\n[[price]]\nmodel = 'gpt-5'\nusd_per_mtok = { output = 1 }\n")
    )
    assert len(problems) == 1
    assert units(overrides) == {"output": 1_000_000}
