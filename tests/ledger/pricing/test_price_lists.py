"""Which list is asked for which host and model name."""

import pytest

from ledger.pricing.price_lists import Candidate, Gateway, PriceQuestion, candidates


def asked(origin, model=None, *, request_model=None, provider="", path="", gateways=()):
    question = PriceQuestion(
        origin=origin,
        provider=provider or origin.partition("://")[2].partition(":")[0],
        path=path,
        request_model=request_model,
        response_model=model,
    )
    return list(candidates(question, gateways))


@pytest.mark.parametrize(
    ("origin", "model", "list_id", "name"),
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


@pytest.mark.parametrize(
    ("origin", "model", "list_id", "name"),
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


@pytest.mark.parametrize("model", ["llama3.2:latest", "deepseek-chat", "gpt-oss-120b", "qwen3"])
def test_an_unknown_host_may_run_open_models_itself(model):
    """Nothing is known of what a model costs that anybody may run."""
    lists = {candidate.list_id for candidate in asked("http://localhost:11434", model)}
    assert lists <= {"localhost"}


@pytest.mark.parametrize(
    ("model", "list_id"),
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


@pytest.mark.parametrize(
    ("path", "request_model", "list_id"),
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


@pytest.mark.parametrize(
    ("origin", "model", "expected"),
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


def test_a_free_variant_is_a_model_of_its_own():
    assert asked("https://openrouter.ai:443", "qwen/qwen3-coder:free") == [
        Candidate("openrouter", "qwen/qwen3-coder:free", own=True)
    ]
