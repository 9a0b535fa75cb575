"""Keys in paths are redacted; names of models and resources stay."""

import pytest

from addon.metering.requests.attribution import redacted_path
from addon.metering.requests.redaction import REDACTED


@pytest.mark.parametrize(
    "path",
    [
        "/v1/chat/completions",
        "/v1beta/models/gemini-2.5-flash-preview-09-2025:streamGenerateContent",
        "/model/us.anthropic.claude-sonnet-4-5-20250929-v1:0/converse-stream",
        "/openai/deployments/gpt-4o-mini-2024-07-18/chat/completions",
        "/v1/projects/my-project-123456/locations/us-central1/publishers/google/models/x:predict",
        "/v1/files/1b4e28ba-2fa1-11d2-883f-0016d3cca427/content",
        "/inference/v1/accounts/fireworks/models/llama-v3p1-405b-instruct",
    ],
)
def test_names_stay(path: str):
    assert redacted_path(path) == path


@pytest.mark.parametrize(
    "key",
    [
        "sk-proj-Ab12Cd34Ef56Gh78Ij90Kl",
        "sk-ant-api03-abcdefghijkl-mnopqrst_uvwx",
        "AIzaSyA1234567890abcdefghij_KLM",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc",
        "0123456789abcdef0123456789abcdef",
        "AbCdEfGhIjKlMnOpQrSt1",
        "sk%2Dproj%2DAb12Cd34Ef56Gh78Ij90Kl",
    ],
)
def test_keys_do_not(key: str):
    assert redacted_path(f"/hooks/{key}/v1/messages") == f"/hooks/{REDACTED}/v1/messages"
