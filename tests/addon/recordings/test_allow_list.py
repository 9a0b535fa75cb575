"""What a capture keeps: names on a list, and nothing that may be a credential."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon.dialects.routes import DIALECTS
from addon.metering.requests.redaction import REDACTED
from addon.recordings.allow_list import KEPT_HEADERS, redacted_headers, redacted_url, redacted_value
from tests.addon.linear import assert_linear

KEY = "sk-proj-Ab12Cd34Ef56Gh78Ij90"


DATA = Path(__file__).parents[2] / "data"


def test_headers_that_a_dialect_reads_are_kept() -> None:
    """Without them a recording reads otherwise than the exchange did, and a rebuild would take
    the figures away."""
    cases = [json.loads(path.read_bytes()) for path in DATA.glob("*/*/expected.json")]
    of_answers = {name.lower() for case in cases for name in case.get("headers", {})}
    of_requests = {one.model_header for one in DIALECTS.values() if one.model_header}
    assert len(of_answers) > 3
    assert of_requests
    assert of_answers | of_requests <= KEPT_HEADERS


@pytest.mark.parametrize(
    "name",
    [
        "Authorization", "x-api-key", "api-key", "Cookie", "Set-Cookie", "X-Goog-Api-Key",
        "x-amz-security-token", "Proxy-Authorization", "OpenAI-Session",
        "cf-access-jwt-assertion", "x-goog-iap-jwt-assertion", "x-password", "x-nobody-knows",
    ],
)  # fmt: skip
def test_headers_that_are_not_listed_are_redacted(name: str):
    assert redacted_headers([(name, "s3cr3t")]) == {name: REDACTED}


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("content-type", "application/json", "application/json"),
        ("x-amzn-bedrock-input-token-count", "12", "12"),
        ("sec-websocket-protocol", f"realtime, openai-insecure-api-key.{KEY}",
         f"realtime, {REDACTED}"),
        ("location", f"https://b.example/x?sig={KEY}", f"https://b.example/x?sig={REDACTED}"),
        ("operation-location", "/ops/1?api-version=2024-10-21&code=zzz",
         f"/ops/1?api-version=2024-10-21&code={REDACTED}"),
        ("referer", "https://u:p@h.example/", "https://h.example/"),
        ("user-agent", "x" * 10_000, "x" * 8_192),
    ],
)  # fmt: skip
def test_headers_that_are_kept(name: str, value: str, kept: str):
    assert redacted_value(name, value) == kept


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://g.example/v1beta/m:x?key=AIza1&alt=sse",
         f"https://g.example/v1beta/m:x?key={REDACTED}&alt=sse"),
        ("https://u:p@h.example/v1?stream=1", "https://h.example/v1?stream=1"),
        ("https://h.example/v1?X-Amz-Signature=ab&limit=2",
         f"https://h.example/v1?X-Amz-Signature={REDACTED}&limit=2"),
        *((f"https://h.example/v1?{name}=v", f"https://h.example/v1?{name}={REDACTED}")
          for name in ("sig", "code", "auth", "jwt", "password", "%6Bey")),
        (f"https://h.example/hooks/{KEY}/v1/chat/completions",
         f"https://h.example/hooks/{REDACTED}/v1/chat/completions"),
        (f"https://h.example/v1?model={KEY}", f"https://h.example/v1?model={REDACTED}"),
        ("https://h.example/v1/chat/completions#x", "https://h.example/v1/chat/completions"),
        ("https://[h/v1", REDACTED),
        ("https://h.example/v1?flag", "https://h.example/v1?flag"),
    ],
)  # fmt: skip
def test_urls(url: str, kept: str):
    assert redacted_url(url) == kept


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_text_is_taken(name: str, value: str):
    redacted_headers([(name, value)])
    redacted_url(value)


@pytest.mark.parametrize("unit", ["&key=", "key", "/", "a1", "%", "?", "@", "a&"])
def test_the_work_is_linear(unit: str):
    def work(size: int) -> None:
        url = "https://h.example/?" + (unit * size)[:size]
        for _ in range(20):
            redacted_url(url)

    assert_linear(work, 500)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("anthropic-ratelimit-unified-5h-utilization", "0.42"),
        ("anthropic-ratelimit-unified-overage-in-use", "true"),
        ("anthropic-ratelimit-requests-reset", "2026-09-30T20:00:01Z"),
        ("x-codex-secondary-window-minutes", "10080"),
        ("x-quota-snapshot-premium_interactions",
         "ent=300&ov=0.0&ovPerm=false&rem=80.1&rst=2026-10-01T00%3A00%3A00Z"),
        ("x-ratelimit-remaining-tokens-minute", "499000"),
        ("retry-after", "Wed, 30 Sep 2026 20:01:00 GMT"),
    ],
)  # fmt: skip
def test_headers_of_quotas_are_kept_unless_they_hold_a_key(name: str, value: str):
    assert redacted_value(name, value) == value
    assert redacted_value(name, KEY) == REDACTED
