"""The one table of providers: what it answers, and that one row adds a provider everywhere."""

import re
from datetime import UTC, datetime

import pytest

from addon.run.command.hosts import LlmHosts, set_base_urls
from addon.usage_opt_in import policy
from ledger.model import providers
from ledger.model.providers import PROVIDERS, TABLE, BaseUrl, Provider, ProviderTable, StreamUsage
from ledger.pricing.price_lists import Candidate, PriceQuestion, candidates

NOW = datetime(2026, 11, 20, tzinfo=UTC)


@pytest.mark.parametrize(
    ("host", "path", "name"),
    [
        pytest.param("api.openai.com", "/v1/responses", "openai", id="below-a-name"),
        pytest.param("openai.com", "/", "openai", id="the-name-itself"),
        pytest.param("API.OpenAI.com.", "/", "openai", id="case-and-final-dot"),
        pytest.param("notopenai.com", "/", "notopenai.com", id="no-part-of-a-label"),
        pytest.param("openai.com.evil.example", "/", "openai.com.evil.example", id="not-before"),
        pytest.param("bedrock-runtime.eu-west-1.amazonaws.com", "/", "aws.bedrock", id="glob"),
        pytest.param(
            "bedrock-runtime-fips.us-east-1.amazonaws.com.cn", "/", "aws.bedrock", id="glob-behind"
        ),
        pytest.param(
            "llm-1.us-east-1.elb.amazonaws.com",
            "/v1/chat/completions",
            "llm-1.us-east-1.elb.amazonaws.com",
            id="a-machine-at-aws-is-not-bedrock",
        ),
        pytest.param("files.oss.aliyuncs.com", "/", "files.oss.aliyuncs.com", id="nor-a-bucket"),
        pytest.param("r.services.ai.azure.com", "/models/x", "azure.ai.inference", id="one-host"),
        pytest.param("r.services.ai.azure.com", "/openai/v1", "azure.ai.openai", id="by-path"),
        pytest.param("res.openai.azure.com", "/openai/v1", "azure.ai.openai", id="azure"),
        pytest.param("eu-aiplatform.googleapis.com", "/v1", "gcp.vertex_ai", id="a-region"),
        pytest.param("aiplatform.googleapis.com", "/v1", "gcp.vertex_ai", id="no-region"),
        pytest.param("generativelanguage.googleapis.com", "/v1beta", "gcp.gemini", id="gemini"),
        pytest.param("eu.api.openai.com", "/", "openai", id="far-below-a-name"),
        pytest.param("127.0.0.1", "/v1", "127.0.0.1", id="an-address"),
        pytest.param("", "/", "", id="no-host"),
    ],
)
def test_which_provider_answers_at_a_host(host: str, path: str, name: str) -> None:
    assert providers.provider_of(host, path) == name
    row = TABLE.at(host, path)
    assert (row.name if row else host.lower().rstrip(".")) == name


@pytest.mark.parametrize(
    ("host", "list_id"),
    [
        ("api.openai.com", "openai"),
        ("chatgpt.com", ""),
        ("api.z.ai", "zai"),
        ("open.bigmodel.cn", "zhipuai"),
        ("bedrock-agent-runtime.us-east-1.amazonaws.com", ""),
        ("api.chuizi.ai", providers.VENDOR),
        ("api.replicate.com", ""),
        ("llm.example", ""),
    ],
)
def test_the_price_list_a_host_bills_by(host: str, list_id: str) -> None:
    assert TABLE.price_list_at(host) == list_id


def test_the_list_of_a_model_by_its_vendor() -> None:
    assert TABLE.price_list_of_vendor("z-ai") == "zai"
    assert TABLE.price_list_of_vendor("nobody") is None
    assert TABLE.price_list_of_model("gpt-5", with_open=False) == "openai"
    assert TABLE.price_list_of_model("gpt-oss-120b", with_open=True) is None
    assert TABLE.price_list_of_model("deepseek-chat", with_open=False) is None
    assert TABLE.price_list_of_model("deepseek-chat", with_open=True) == "deepseek"


def test_every_row_can_be_found_by_each_of_its_hosts() -> None:
    """No row hides another, and what is a name is not meant as a glob or a URL."""
    for row in PROVIDERS:
        for host in (*row.hosts, *row.unlisted_hosts):
            assert re.fullmatch(r"[a-z0-9.*-]+", host), host
            assert TABLE.at(host.replace("*", "x")) is row, host
        for host in row.prices_at or {}:
            assert host in row.hosts, host
        for name in (row.under_paths or {}).values():
            assert TABLE.named(name) is not None, name


def test_two_providers_of_one_name_are_refused() -> None:
    with pytest.raises(AssertionError, match="two providers"):
        ProviderTable((Provider(name="lumen"), Provider(name="lumen")))


LUMEN = Provider(
    name="lumen",
    hosts=("lumen.example",),
    prices="openai",
    stream_usage=StreamUsage.OPT_IN,
    base_urls=(BaseUrl("LUMEN_BASE_URL", "https://api.lumen.example/v1"),),
    model_prefixes=("lumen-ai",),
    closed_models=r"glow-",
)


def test_adding_a_provider_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Routing, prices, usage opt-in and the environment of `run` all follow from the row."""
    monkeypatch.setattr(providers, "TABLE", ProviderTable((*PROVIDERS, LUMEN)))
    assert providers.provider_of("api.lumen.example", "/v1/chat/completions") == "lumen"
    assert policy.is_known("lumen")
    assert policy.asks_of("lumen", None, now=NOW)
    assert ("api.lumen.example", 443) in LlmHosts()
    own_url = {"LUMEN_BASE_URL": "https://lumen.corp/v1"}
    assert set_base_urls(own_url) == own_url
    own = PriceQuestion(
        origin="https://api.lumen.example", provider="lumen", response_model="glow-1"
    )
    assert list(candidates(own)) == [Candidate("openai", "glow-1", own=True)]
    resold = PriceQuestion(
        origin="https://api.chuizi.ai", provider="chuizi", response_model="lumen-ai/glow-1"
    )
    assert list(candidates(resold)) == [Candidate("openai", "glow-1", own=False)]
    elsewhere = PriceQuestion(origin="http://localhost", provider="lumen", response_model="glow-1")
    assert Candidate("openai", "glow-1", own=False) in list(candidates(elsewhere))


def test_a_name_that_no_host_has_takes_no_memory():
    kept = TABLE._at.cache_info().currsize
    assert TABLE.at("a" * 254 + ".api.openai.com") is None
    assert TABLE._at.cache_info().currsize == kept


def test_a_host_longer_than_dns_allows_is_no_providers() -> None:
    assert TABLE.at("a." * 200 + "openai.com") is None
