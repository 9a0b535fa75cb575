"""Real SDKs before a cap that refuses all: each shows the words of the refusal."""

import subprocess
from pathlib import Path

import pytest

from tests.clients import playing
from tests.proxy.test_caps import cap, capped
from tests.proxy.upstream import Upstream, document

pytestmark = [pytest.mark.clients, pytest.mark.timeout(400)]

MESSAGES = '[{"role": "user", "content": "Hi"}]'
PROGRAMS = {
    ("openrouter", "openrouter"): f"""
from openrouter import OpenRouter
client = OpenRouter(api_key="k", server_url=url + "/api/v1")
client.chat.send(model="openai/gpt-4o", messages={MESSAGES})""",
    ("voyageai", "voyage"): """
import voyageai
client = voyageai.Client(api_key="k", max_retries=0)
client._params["base_url"] = url + "/v1"
client.embed(["Hi"], model="voyage-3")""",
    ("boto3", "aws.bedrock"): """
import boto3
keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}
client = boto3.client("bedrock-runtime", endpoint_url=url, **keys)
messages = [{"role": "user", "content": [{"text": "Hi"}]}]
client.converse(modelId="anthropic.claude-sonnet-4-5-20250929-v1:0", messages=messages)""",
    ("replicate", "replicate"): """
import replicate
client = replicate.Client(api_token="k", base_url=url)
client.predictions.create(version="v1", input={"prompt": "Hi"})""",
    ("dashscope", "dashscope"): f"""
import dashscope
dashscope.base_http_api_url = url + "/api/v1"
print(dashscope.Generation.call(model="qwen-plus", api_key="k", messages={MESSAGES}))""",
}


@pytest.mark.parametrize(("package", "provider"), PROGRAMS)
def test_an_sdk_shows_why_a_cap_refuses(package: str, provider: str, tmp_path: Path):
    folder = playing.installed((package,), is_node=False)
    with (
        Upstream(lambda _: document(b"{}")) as upstream,
        capped(upstream.url, tmp_path, cap(usd=0.000001), provider=provider) as proxy,
    ):
        host, port = proxy.address()
        program = f"url = 'http://{host}:{port}'\n{PROGRAMS[package, provider]}"
        ran = subprocess.run(
            [folder / "bin" / "python", "-c", program],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
            env={"HOME": str(tmp_path), "PATH": ""},
        )
        assert "refused by the cap daily" in ran.stdout + ran.stderr, ran
        assert upstream.requests == []
