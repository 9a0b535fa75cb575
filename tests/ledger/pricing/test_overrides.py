"""The operator's price file: what it says, from when, and clear words for what is wrong in it."""

import hashlib
from datetime import UTC, datetime, timedelta

import pytest

from ledger.model.errors import LedgerError
from ledger.pricing.overrides import check, in_force, load
from ledger.pricing.price_lists import PriceQuestion
from tests.named import named

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
                "line 6: price 1: above.usd_per_mtok.cache_read: it has no price below",
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
    with pytest.raises(LedgerError, match=r"\(and 2 more: tokentee prices check\)"):
        load(path)


def test_a_sound_part_is_not_lost_for_a_faulty_one(price_file):
    overrides, problems = check(
        price_file("x = 1\n[[price]]\nmodel = 'gpt-5'\nusd_per_mtok = { output = 1 }\n")
    )
    assert len(problems) == 1
    assert units(overrides) == {"output": 1_000_000}
