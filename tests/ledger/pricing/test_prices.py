"""The price book: sources in their order, what is remembered between exchanges, and which list is asked
for which host and model name."""

import threading
from datetime import UTC, datetime, timedelta

import genai_prices.data
import pytest
from msgspec.structs import replace

from ledger.model.charge import PROVIDER
from ledger.model.errors import LedgerError
from ledger.model.exchange import Billing
from ledger.model.providers import PROVIDERS
from ledger.pricing import prices, published
from ledger.pricing.price_lists import Candidate, Gateway, PriceQuestion, candidates
from ledger.pricing.prices import PriceBook
from tests.ledger.priced import NOVEMBER, amounts, cost, exchange, reading, reasons
from tests.named import for_each, named


@pytest.fixture(scope="module")
def book():
    return PriceBook.load(None)


def sources(charges):
    return {each.price_source for each in charges}


def test_an_answer_is_priced_by_its_vendors_list(book):
    """gpt-4.1, 2026: $2 in, $0.50 cached, $8 out; 600 x 2 + 400 x 0.5 + 50 x 8 micro-USD."""
    charges = book.price(
        exchange("gpt-4.1-2025-04-14"),
        reading(input_tokens=1000, cache_read_tokens=400, output_tokens=50),
    )
    assert amounts(charges) == {
        "cache_read": (400, 500_000, 200_000_000),
        "uncached_input": (600, 2_000_000, 1_200_000_000),
        "output": (50, 8_000_000, 400_000_000),
    }
    (source,) = sources(charges)
    assert source.startswith("genai-prices ")
    assert source.endswith(" openai/gpt-4.1")


@for_each(
    "at, usd",
    [
        (datetime(2025, 6, 9, 23, 59, 59, 999_999, tzinfo=UTC), 50),
        (datetime(2025, 6, 10, tzinfo=UTC), 10),
        (datetime(2025, 6, 10, 1, 0, tzinfo=UTC) - timedelta(hours=1, seconds=1), 50),
    ],
)
def test_the_price_is_that_of_the_exchanges_own_time(book, at, usd):
    """o3: $10 + $40 per million until 2025-06-10, $2 + $8 since; whatever was asked before."""
    charges = book.price(
        exchange("o3", at=at), reading(at=at, input_tokens=10**6, output_tokens=10**6)
    )
    assert cost(charges) == usd * 10**12


def test_the_model_that_answered_is_priced_not_the_one_asked_for(book):
    charges = book.price(
        exchange("gpt-4.1-mini", request_model="gpt-4.1"), reading(output_tokens=1)
    )
    assert cost(charges) == 1_600_000


@for_each("said", [None, ""])
def test_the_model_asked_for_where_the_answer_names_none(book, said):
    charges = book.price(exchange(said, request_model="gpt-4.1"), reading(output_tokens=1))
    assert cost(charges) == 8_000_000


@for_each(
    "about, reason",
    named(
        {
            "unknown-model": (exchange("gpt-99"), "no price for 'gpt-99' in the list of openai"),
            "unknown-host": (
                exchange("llama3.2", provider="localhost", origin="http://localhost:11434"),
                "no price for 'llama3.2' at localhost; declare it in a price file",
            ),
            "no-model": (exchange(None), "the exchange names no model"),
            "unknown-line": (
                exchange("text-embedding-3-small"),
                "openai/text-embedding-3-small is listed without this line",
            ),
        }
    ),
)
def test_what_is_not_known_is_unpriced_with_a_reason(book, about, reason):
    charges = book.price(about, reading(output_tokens=10))
    assert [(each.quantity, each.amount_picousd) for each in charges] == [(10, None)]
    assert reasons(charges) == {reason}


def test_a_vendors_list_for_a_gateway_says_so(book):
    charges = book.price(
        exchange(
            "anthropic/claude-haiku-4-5", provider="chuizi", origin="https://api.chuizi.ai:443"
        ),
        reading(output_tokens=10),
    )
    assert cost(charges) == 50_000_000  # $5 per million
    (source,) = sources(charges)
    assert source.endswith(" anthropic/claude-haiku-4-5 for api.chuizi.ai")


def test_the_override_file_comes_first_line_by_line(book_of):
    book = book_of('[[price]]\nmodel = "gpt-4.1"\nusd_per_mtok = { output = 4 }\n')
    charges = book.price(exchange("gpt-4.1"), reading(input_tokens=10, output_tokens=10))
    assert amounts(charges) == {
        "uncached_input": (10, 2_000_000, 20_000_000),
        "output": (10, 4_000_000, 40_000_000),
    }
    by_line = {each.line: each.price_source.partition(" ")[0] for each in charges}
    assert by_line == {"uncached_input": "genai-prices", "output": "override"}


def test_a_local_model_declared_free(book_of):
    book = book_of('[[price]]\nhost = "localhost"\nfree = true\n')
    charges = book.price(
        exchange("llama3.2", provider="localhost", origin="http://localhost:11434"),
        reading(input_tokens=5, output_tokens=5, tool_units={"web_searches": 1}),
    )
    assert amounts(charges) == {
        "uncached_input": (5, 0, 0),
        "output": (5, 0, 0),
        "web_searches": (1, 0, 0),
    }
    assert reasons(charges) == {"declared free"}


def test_an_azure_deployment_under_its_own_name(book_of):
    book = book_of(
        '[[gateway]]\nhost = "acme.openai.azure.com"\nprices = "azure"\n'
        'models = { "prod-chat" = "gpt-4.1" }\n'
    )
    charges = book.price(
        exchange(None, request_model="prod-chat", origin="https://acme.openai.azure.com:443"),
        reading(output_tokens=1),
    )
    assert cost(charges) == 8_000_000


LITELLM = """{"qwen-max": {"litellm_provider": "dashscope", "input_cost_per_token": 1.6e-06},
 "gpt-4.1": {"litellm_provider": "openai", "output_cost_per_token": 1.0}}"""


def test_litellm_is_asked_where_genai_prices_has_nothing(book_of, text_file):
    text_file("models.json", LITELLM)
    book = book_of('litellm = "models.json"\n')
    there = exchange("qwen-max", provider="dashscope", origin="https://dashscope.aliyuncs.com:443")
    charges = book.price(there, reading(input_tokens=10, output_tokens=10))
    assert [each.amount_picousd for each in charges] == [16_000_000, None]
    assert charges[0].price_source.startswith("litellm sha256:")
    assert charges[1].reason == "'qwen-max' is listed without this line"
    assert cost(book.price(exchange("gpt-4.1"), reading(output_tokens=1))) == 8_000_000


def test_litellm_is_no_help_for_what_it_lacks(book_of, text_file):
    text_file("models.json", LITELLM)
    book = book_of('litellm = "models.json"\n')
    charges = book.price(exchange("gpt-99"), reading(output_tokens=1))
    assert reasons(charges) == {"no price for 'gpt-99' in the list of openai"}


def test_a_bad_file_is_one_clear_line(book_of):
    with pytest.raises(LedgerError, match=r"prices.toml: line 2: price 1: modle: unknown"):
        book_of('[[price]]\nmodle = "x"\n')


@pytest.mark.large
def test_published_prices_are_imported_beside_the_start(monkeypatch):
    imported = threading.Event()
    monkeypatch.setattr(published, "installed", imported.set)
    PriceBook.load(None)
    assert imported.wait(60)


def test_what_was_looked_up_is_looked_up_once(book, monkeypatch):
    about = exchange("gpt-4.1-nano")
    book.price(about, reading(output_tokens=1))
    monkeypatch.setattr(PriceBook, "look_up", None)
    later = exchange("gpt-4.1-nano", at=NOVEMBER + timedelta(minutes=5))
    assert cost(book.price(later, reading(output_tokens=1))) == 400_000


def test_what_is_remembered_is_bounded(monkeypatch):
    """Names of models come from outside."""
    monkeypatch.setattr(prices, "SHEETS_MAX", 3)
    book = PriceBook()
    for number in range(10):
        book.sheet(exchange(f"made-up-{number}"), {})
        assert len(book._sheets) <= 3


@for_each(
    "origin, provider, model, reported, expected",
    [
        # At the price of the vendor: the plan's own list counts against an allowance.
        ("https://api.githubcopilot.com:443", "github_copilot", "gpt-4.1", None, 2_400_000_000),
        ("https://chatgpt.com:443", "openai", "gpt-4.1", None, 2_400_000_000),
        # What a gateway says of its bill is no list price.
        ("https://openrouter.ai:443", "openrouter", "openai/gpt-4.1", 77, 2_400_000_000),
    ],
)
def test_what_a_plan_covers_has_the_list_value_of_its_tokens(
    book, origin, provider, model, reported, expected
):
    """1 000 in at $2 and 50 out at $8 a million."""
    read = reading(input_tokens=1000, output_tokens=50, reported_cost_picousd=reported)
    asked = exchange(model, provider=provider, origin=origin)
    covered = book.price(asked, replace(read, billing=Billing.PLAN))
    assert cost(covered) == expected
    assert PROVIDER not in sources(covered)
    metered = book.price(asked, replace(read, billing=Billing.METERED))
    assert (PROVIDER in sources(metered)) == (reported is not None)


@for_each(
    "answered, sourced",
    [
        ("google/gemini-2.0-flash-exp:free", "free"),
        ("google/gemini-2.0-flash-exp", "free"),
        (None, "free"),
        ("x-ai/grok-4", "no price"),
    ],
)
def test_a_rule_of_the_model_asked_for_is_none_of_its_fallback(book, answered, sourced):
    """OpenRouter's `models` names others, which are billed when they answer."""
    asked = exchange(
        answered, provider="openrouter", request_model="google/gemini-2.0-flash-exp:free"
    )
    charges = book.price(asked, reading(input_tokens=1000, output_tokens=50))
    assert {each.amount_picousd for each in charges} == {0 if sourced == "free" else None}
    assert all(sourced in (each.reason or "") for each in charges)


def asked(origin, model=None, *, request_model=None, provider="", path="", gateways=()):
    question = PriceQuestion(
        origin=origin,
        provider=provider or origin.partition("://")[2].partition(":")[0],
        path=path,
        request_model=request_model,
        response_model=model,
    )
    return list(candidates(question, gateways))


@for_each(
    "origin, model, list_id, name",
    [
        ("https://api.openai.com:443", "gpt-5", "openai", "gpt-5"),
        ("https://eu.api.openai.com:443", "gpt-5", "openai", "gpt-5"),
        ("https://acme.openai.azure.com:443", "gpt-4o-2024-11-20", "azure", "gpt-4o-2024-11-20"),
        (
            "https://generativelanguage.googleapis.com:443",
            "models/gemini-2.5-pro",
            "google",
            "gemini-2.5-pro",
        ),
        (
            "https://us-east5-aiplatform.googleapis.com:443",
            "publishers/anthropic/models/claude-sonnet-4-5@20250929",
            "google",
            "claude-sonnet-4-5@20250929",
        ),
        (
            "https://api.fireworks.ai:443",
            "accounts/fireworks/models/llama-v3p1-8b-instruct",
            "fireworks",
            "accounts/fireworks/models/llama-v3p1-8b-instruct",
        ),
        (
            "https://api.fireworks.ai:443",
            "llama-v3p1-8b-instruct",
            "fireworks",
            "accounts/fireworks/models/llama-v3p1-8b-instruct",
        ),
        (
            "https://api.fireworks.ai:443",
            "accounts/fireworks/routers/kimi-k3-fast",
            "fireworks",
            "accounts/fireworks/routers/kimi-k3-fast",
        ),
        ("https://openrouter.ai:443", "openai/gpt-4.1", "openrouter", "openai/gpt-4.1"),
        # A free variant is a model of its own.
        ("https://openrouter.ai:443", "qwen/qwen3:free", "openrouter", "qwen/qwen3:free"),
        (
            "https://openrouter.ai:443",
            "qwen/qwen3-coder:free",
            "openrouter",
            "qwen/qwen3-coder:free",
        ),
        ("https://dashscope-intl.aliyuncs.com:443", "qwen-max", "dashscope", "qwen-max"),
    ],
)
def test_a_host_with_a_list_is_asked_for_under_it_alone(origin, model, list_id, name):
    assert asked(origin, model) == [Candidate(list_id, name, own=True)]


def test_a_routing_suffix_is_tried_without():
    assert asked("https://openrouter.ai:443", "openai/gpt-4o:nitro") == [
        Candidate("openrouter", "openai/gpt-4o:nitro", own=True),
        Candidate("openrouter", "openai/gpt-4o", own=True),
    ]


@for_each(
    "origin, model, list_id, name",
    [
        (
            "https://api.chuizi.ai:443",
            "anthropic/claude-sonnet-4-5",
            "anthropic",
            "claude-sonnet-4-5",
        ),
        ("https://api.chuizi.ai:443", "google/gemini-2.5-flash", "google", "gemini-2.5-flash"),
        ("https://api.aivene.com:443", "gpt-4.1", "openai", "gpt-4.1"),
        ("https://api.aivene.com:443", "deepseek-chat", "deepseek", "deepseek-chat"),
        ("https://ai-gateway.vercel.sh:443", "xai/grok-4", "x-ai", "grok-4"),
    ],
)
def test_a_gateway_without_a_list_falls_back_to_the_vendors(origin, model, list_id, name):
    assert asked(origin, model) == [Candidate(list_id, name, own=False)]


def test_a_gateway_is_known_by_its_provider_name_on_any_host():
    assert asked("http://127.0.0.1:9000", "mistral-large-latest", provider="sansa") == [
        Candidate("mistral", "mistral-large-latest", own=False)
    ]


@for_each("model", ["llama3.2:latest", "deepseek-chat", "gpt-oss-120b", "qwen3"])
def test_an_unknown_host_may_run_open_models_itself(model):
    """Nothing is known of what a model costs that anybody may run."""
    lists = {candidate.list_id for candidate in asked("http://localhost:11434", model)}
    assert lists <= {"localhost"}


@for_each(
    "model, list_id",
    [("gpt-4o", "openai"), ("o3-mini", "openai"), ("claude-haiku-4-5", "anthropic")],
)
def test_whoever_serves_a_closed_model_buys_it_from_its_vendor(model, list_id):
    assert Candidate(list_id, model, own=False) in asked("http://localhost:4000", model)


def test_bedrock_bills_the_profile_that_was_asked_for():
    """The answer names the model without the region that decides the price."""
    found = asked(
        "https://bedrock-runtime.us-east-1.amazonaws.com:443",
        "claude-sonnet-4-5-20250929",
        request_model="global.anthropic.claude-sonnet-4-5-20250929-v1:0",
    )
    assert [candidate.model for candidate in found] == [
        "global.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "claude-sonnet-4-5-20250929",
    ]
    assert {candidate.list_id for candidate in found} == {"aws"}


def test_the_request_names_the_model_where_the_answer_does_not():
    assert asked("https://api.openai.com:443", None, request_model="gpt-5") == [
        Candidate("openai", "gpt-5", own=True)
    ]


def test_no_model_no_list():
    assert asked("https://api.openai.com:443") == []


@for_each(
    "path, request_model, list_id",
    [
        ("/groq/openai/v1/chat/completions", "llama-3.3-70b-versatile", "huggingface_groq"),
        ("/v1/chat/completions", "moonshotai/Kimi-K2:novita", "huggingface_novita"),
    ],
)
def test_the_hugging_face_router_bills_what_the_chosen_provider_takes(path, request_model, list_id):
    found = asked("https://router.huggingface.co:443", None, request_model=request_model, path=path)
    assert {candidate.list_id for candidate in found} == {list_id}
    assert found[-1].model == request_model.partition(":")[0]


GATEWAYS = (
    Gateway(host="*.other.example", prices="google"),
    Gateway(host="*.corp.example", prices="openai", models={"big": "gpt-5"}),
    Gateway(host="llm.*", prices="azure"),
    Gateway(host="vendors.example", prices="vendor", models={"fast": "zai/glm-4.6"}),
)


@for_each(
    "origin, model, expected",
    [
        ("http://llm.corp.example:80", "big", Candidate("openai", "gpt-5", own=True)),
        ("http://llm.corp.example:80", "gpt-4.1", Candidate("openai", "gpt-4.1", own=True)),
        ("https://api.openai.com:443", "gpt-5", Candidate("openai", "gpt-5", own=True)),
        ("http://vendors.example:80", "fast", Candidate("zai", "glm-4.6", own=False)),
    ],
)
def test_the_first_of_the_operators_rows_that_matches_counts_and_names_models(
    origin, model, expected
):
    assert asked(origin, model, gateways=GATEWAYS) == [expected]


def test_bedrock_by_what_is_known():
    origin = "https://bedrock-runtime.us-east-1.amazonaws.com:443"
    assert asked(origin, None, request_model="amazon.nova-lite-v1:0") == [
        Candidate("aws", "amazon.nova-lite-v1:0", own=True)
    ]


def test_an_origin_that_is_no_url_is_a_host_of_its_own():
    assert PriceQuestion(origin="https://[x", provider="p").host == "https://[x"


def test_what_a_plan_covers_has_the_list_value_of_the_vendor():
    question = PriceQuestion(
        origin="https://api.githubcopilot.com",
        provider="github-copilot",
        response_model="gpt-5",
        is_covered=True,
    )
    assert list(candidates(question)) == [Candidate("openai", "gpt-5", own=False)]


LISTED = {
    provider.id: model.id
    for provider in genai_prices.data.providers
    for model in provider.models
    if "/" not in model.id and published.installed().find(provider.id, model.id)
}
"""A model of each list."""


@for_each(
    "row, prefix",
    [
        pytest.param(row, prefix, id=f"{row.name}-{prefix}")
        for row in PROVIDERS
        for prefix in row.model_prefixes
        if row.prices in LISTED
    ],
)
def test_a_vendors_own_host_may_name_the_vendor(book, row, prefix):
    """Vertex' chat names its models `google/gemini-…`, in requests and in answers."""
    model = LISTED[row.prices]

    def rates(name):
        question = PriceQuestion(
            origin=f"https://{row.hosts[0].replace('*', 'x')}",
            provider=row.name,
            response_model=name,
        )
        return book.look_up(question, tier=None, at=NOVEMBER).rates

    assert rates(model)
    assert rates(f"{prefix}/{model}") == rates(model)
