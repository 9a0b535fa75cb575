"""What the wire says of how an exchange is billed."""

import pytest

from addon.metering.requests.billing import SENT_KEY, of_answer, of_request
from ledger.model.reading import Billing

OAUTH = {
    "authorization": "Bearer sk-ant-oat01-abc",
    "anthropic-beta": "claude-code-20250219,oauth-2025-04-20",
}
CLAUDE = ("api.anthropic.com", "/v1/messages", "anthropic")
CODEX = ("chatgpt.com", "/backend-api/codex/responses", "openai")
OVERAGE = "anthropic-ratelimit-unified-overage-in-use"
NO_MODELS = (None, None)
METERED, PLAN, FREE = Billing.METERED, Billing.PLAN, Billing.FREE


@pytest.mark.parametrize(
    ("upstream", "headers", "has_key", "expected"),
    [
        (CLAUDE, OAUTH, True, PLAN),
        (CLAUDE, {"x-api-key": "sk-ant-api03-abc"}, True, METERED),
        (CLAUDE, OAUTH | {"x-api-key": "sk-ant-api03-abc"}, True, METERED),
        (CLAUDE, {"authorization": "Bearer sk-ant-oat01-abc"}, True, METERED),
        (CLAUDE, {"anthropic-beta": "oauth-2025-04-20"}, False, None),
        (CLAUDE, {}, False, None),
        (CODEX, {"authorization": "Bearer ey"}, True, PLAN),
        (("localhost", "/backend-api/codex/responses", "localhost"), {}, True, PLAN),
        (("api.openai.com", "/v1/responses", "openai"), {"authorization": "x"}, True, METERED),
        (("api.githubcopilot.com", "/chat/completions", "github_copilot"), {}, True, PLAN),
        (("api.business.githubcopilot.com", "/responses", "github_copilot"), {}, True, PLAN),
        (("notgithubcopilot.com", "/responses", "notgithubcopilot.com"), {}, True, None),
        (("cloudcode-pa.googleapis.com", "/v1internal:x", "gcp.gemini"), {}, True, PLAN),
        (("generativelanguage.googleapis.com", "/v1beta/x", "gcp.gemini"), {}, True, METERED),
        (("api.z.ai", "/api/coding/paas/v4/chat/completions", "zai"), {}, True, PLAN),
        (("api.z.ai", "/api/paas/v4/chat/completions", "zai"), {}, True, METERED),
        (("api.kimi.com", "/coding/v1/messages", "api.kimi.com"), {}, True, PLAN),
        (("example.com", "/coding/v1/messages", "example.com"), {}, True, None),
        (("ollama.com", "/api/chat", "ollama"), {}, True, None),
        (("10.0.0.1", "/v1/chat/completions", "10.0.0.1"), {}, True, None),
    ],
)
def test_a_request(upstream, headers, has_key, expected):
    host, path, provider = upstream
    found = of_request(headers, host=host, path=path, provider=provider, has_key=has_key)
    assert found is expected


@pytest.mark.parametrize(
    ("headers", "redacted", "expected"),
    [
        ({"anthropic-beta": OAUTH["anthropic-beta"]}, {"authorization"}, PLAN),
        ({"anthropic-beta": OAUTH["anthropic-beta"]}, {"x-api-key", "authorization"}, METERED),
        ({}, {"x-api-key"}, METERED),
        ({}, {SENT_KEY}, METERED),
        ({}, {"cookie"}, None),
    ],
)
def test_a_recorded_request_without_its_credential(headers, redacted, expected):
    host, path, provider = CLAUDE
    found = of_request(
        headers,
        host=host,
        path=path,
        provider=provider,
        has_key=False,
        redacted=frozenset(redacted),
    )
    assert found is expected


@pytest.mark.parametrize(
    ("asked", "headers", "provider", "models", "expected"),
    [
        (PLAN, {}, "anthropic", ("claude-x", None), (PLAN, False)),
        (None, {}, "example", NO_MODELS, (None, False)),
        # Credits pay for what goes beyond the plan, whatever a file of the operator says.
        (PLAN, {OVERAGE: "true"}, "anthropic", NO_MODELS, (METERED, True)),
        (PLAN, {OVERAGE: "false"}, "anthropic", NO_MODELS, (PLAN, False)),
        (METERED, {"anthropic-ratelimit-unified-status": "allowed"}, "x", NO_MODELS, (PLAN, False)),
        (None, {"x-codex-primary-used-percent": "12"}, "localhost", NO_MODELS, (PLAN, False)),
        (METERED, {}, "openrouter", ("a/b", "a/b:free"), (FREE, False)),
        (METERED, {}, "openrouter", ("a/b:free", "a/c"), (FREE, False)),
        (METERED, {}, "openrouter", (None, "a/b:free"), (FREE, False)),
        # A fallback in `models` that is billed.
        (
            METERED,
            {},
            "openrouter",
            ("x-ai/grok-4", "google/gemini-2.0-flash-exp:free"),
            (METERED, False),
        ),
        (METERED, {}, "openrouter", ("a/b", None), (METERED, False)),
        (METERED, {}, "openai", ("a/b:free", None), (METERED, False)),
    ],
)
def test_an_answer(asked, headers, provider, models, expected):
    assert of_answer(asked, headers, provider=provider, models=models) == expected
