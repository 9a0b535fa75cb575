"""The one table of providers: what it answers, and that one row adds a provider everywhere. Aliases and
snapshots are the model that was asked for; another model is not."""

import gzip
import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from addon.run.command.hosts import LlmHosts, set_base_urls
from addon.usage_opt_in import policy
from ledger.model import provider_table, providers
from ledger.model.aliases import ALIASES, RECORDED, is_another
from ledger.model.provider_table import TABLE, ProviderTable
from ledger.model.providers import PROVIDERS, BaseUrl, Provider, StreamUsage
from ledger.pricing.price_lists import Candidate, PriceQuestion, candidates
from tests.named import for_each

NOW = datetime(2026, 11, 20, tzinfo=UTC)


@for_each(
    "host, path, name",
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
        pytest.param("aiplatform.us.rep.googleapis.com", "/v1", "gcp.vertex_ai", id="regions"),
        pytest.param("bedrock-runtime.eu-west-1.api.aws", "/", "aws.bedrock", id="dual-stack"),
        pytest.param("bedrock-runtime-fips.us-east-1.api.aws", "/", "aws.bedrock", id="dual-fips"),
        pytest.param("generativelanguage.googleapis.com", "/v1beta", "gcp.gemini", id="gemini"),
        pytest.param("eu.api.openai.com", "/", "openai", id="far-below-a-name"),
        pytest.param("claude.googleapis.com", "/v1/messages", "gcp.claude", id="its-own-seller"),
        pytest.param("ws-1.eu-central-1.maas.aliyuncs.com", "/", "dashscope", id="a-workspace"),
        pytest.param("cn-hongkong.dashscope.aliyuncs.com", "/", "dashscope", id="a-regions-host"),
        pytest.param("coding-intl.dashscope.aliyuncs.com", "/", "dashscope", id="a-plans-host"),
        pytest.param("ap-south-1.aws.wxai.ibm.com", "/ml", "ibm.watsonx.ai", id="wx-at-aws"),
        pytest.param("stream.replicate.com", "/v1/x", "replicate", id="a-host-for-streams"),
        pytest.param("ai.mongodb.com", "/v1/embeddings", "voyage", id="a-makers-owner"),
        pytest.param("127.0.0.1", "/v1", "127.0.0.1", id="an-address"),
        pytest.param("", "/", "", id="no-host"),
    ],
)
def test_which_provider_answers_at_a_host(host: str, path: str, name: str) -> None:
    assert provider_table.provider_of(host, path) == name
    row = TABLE.at(host, path)
    assert (row.name if row else host.lower().rstrip(".")) == name


@for_each(
    "host, list_id",
    [
        ("api.openai.com", "openai"),
        ("chatgpt.com", ""),
        ("api.z.ai", "zai"),
        ("open.bigmodel.cn", "zhipuai"),
        ("bedrock-agent-runtime.us-east-1.amazonaws.com", ""),
        ("api.chuizi.ai", providers.VENDOR),
        ("api.replicate.com", ""),
        ("claude.googleapis.com", providers.VENDOR),
        ("us-east-1.aws.wxai.ibm.com", "watsonx"),
        ("wxai.ibmforusgov.com", ""),
        ("ark.ap-southeast.bytepluses.com", ""),
        ("api.sarvam.ai", "sarvam"),
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


@pytest.mark.parametrize("name", ["volcengine", "cerebras", "deepinfra"])
def test_a_documented_opt_in_is_asked_from_the_first_stream_on(name: str) -> None:
    assert policy.asks_of(name, None, now=NOW)


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
    monkeypatch.setattr(provider_table, "TABLE", ProviderTable((*PROVIDERS, LUMEN)))
    assert provider_table.provider_of("api.lumen.example", "/v1/chat/completions") == "lumen"
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


CORPUS = Path(__file__).parents[4] / "shared" / "corpus"
SAME = [
    ("anthropic", "claude-haiku-4-5", "claude-haiku-4-5-20251001"),
    ("anthropic", "claude-3-5-haiku-latest", "claude-3-5-haiku-20241022"),
    ("anthropic", "claude-sonnet-4-0", "claude-sonnet-4-20250514"),
    ("aws.bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5-20250929"),
    ("aws.bedrock", "anthropic.claude-v2", "claude-2.0"),
    ("aws.bedrock", "arn:aws:sagemaker:us-east-1:1:endpoint/mine", "/opt/ml/model"),
    ("azure.ai.openai", "mine", "gpt-4.1-mini-2025-04-14"),
    ("openai", "gpt-4o", "gpt-4o-2024-08-06"),
    ("openai", "gpt-3.5-turbo", "gpt-3.5-turbo-0613"),
    ("openai", "davinci-002", "davinci:2023-07-21-v2"),
    ("openai", "gpt-4-vision-preview", "gpt-4-1106-vision-preview"),
    ("openai", "gpt-5.6", "gpt-5.6-sol"),
    ("openrouter", "anthropic/claude-sonnet-4.6", "anthropic/claude-4.6-sonnet-20260217"),
    ("openrouter", "openrouter/auto", "x-ai/grok-4"),
    ("openrouter", "moonshotai/kimi-k2.5", "moonshotai/kimi-k2.5-0127"),
    ("huggingface", "moonshotai/Kimi-K2-Instruct-0905:groq", "moonshotai/kimi-k2-instruct-0905"),
    ("gcp.gemini", "gemini-flash-latest", "gemini-3.6-flash"),
    ("mistral_ai", "mistral-large-latest", "mistral-large-2411"),
    ("localhost", "Qwen3-1.7B-Q4_K_M", "/models/Qwen3-1.7B-Q4_K_M.gguf"),
    ("openai", None, "gpt-5"),
    ("openai", "gpt-5", ""),
]
ANOTHER = [
    ("openai", "gpt-4o", "gpt-4o-mini"),
    ("openai", "gpt-5", "gpt-5-mini-2025-08-07"),
    ("openai", "gpt-5", "gpt-5.1"),
    ("anthropic", "claude-opus-4-5", "claude-opus-4-6"),
    ("anthropic", "claude-opus-4-5", "claude-sonnet-4-5-20250929"),
    ("openrouter", "google/gemini-2.0-flash-exp:free", "x-ai/grok-4"),
    ("openrouter", "anthropic/claude-sonnet-4.5", "anthropic/claude-4.5-haiku-20251001"),
    ("deepseek", "deepseek-chat", "gpt-4o"),
    ("deepseek", "deepseek-v3", "deepseek-v2"),
    ("gcp.gemini", "gemini", "gpt-5"),
    ("localhost", "Qwen3-1.7B", "Qwen3-8B"),
    ("mistral_ai", "mistral-large", "mistral-small"),
]


@for_each("provider, asked, answered", SAME)
def test_these_are_the_same(provider, asked, answered):
    assert not is_another(provider, asked, answered)


@for_each("provider, asked, answered", ANOTHER)
def test_these_are_another(provider, asked, answered):
    assert is_another(provider, asked, answered)


def test_every_alias_has_a_source():
    assert all(each.source == RECORDED or each.source.startswith("https://") for each in ALIASES)


@pytest.mark.skipif(
    not CORPUS.is_dir(), reason=f"the recorded corpus is not beside the project ({CORPUS})"
)
def test_no_false_alarm_over_recorded_exchanges():
    answered = {}
    for line in (CORPUS / "expected.jsonl").read_text().splitlines():
        one = json.loads(line)
        answered[one["name"]] = one["model"]
    found = set()
    for path in CORPUS.glob("*.jsonl.gz"):
        for data in gzip.decompress(path.read_bytes()).splitlines():
            one = json.loads(data)
            body = one["request"]["body"]
            asked = body.get("model") if isinstance(body, dict) else None
            model = answered.get(one["name"])
            if isinstance(asked, str) and model and is_another(one["provider"], asked, model):
                found.add((asked, model.rpartition("/")[2]))
    assert found <= {
        # what another model answered indeed
        ("gpt-4.1-mini", "kimi-k2"),
        ("google/gemini-2.0-flash-exp:free", "grok-4"),
        ("Qwen3-1.7B-Q4_K_M", "Qwen3-8B-Q4_K_M.gguf"),
    }
