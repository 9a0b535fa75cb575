"""Aliases and snapshots are the model that was asked for; another model is not."""

import gzip
import json
from pathlib import Path

import pytest

from ledger.model.aliases import ALIASES, RECORDED, is_another

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


@pytest.mark.parametrize(("provider", "asked", "answered"), SAME)
def test_these_are_the_same(provider, asked, answered):
    assert not is_another(provider, asked, answered)


@pytest.mark.parametrize(("provider", "asked", "answered"), ANOTHER)
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
