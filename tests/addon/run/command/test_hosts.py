"""Which hosts are decrypted."""

import re

import pytest

from addon.run.command.hosts import (
    LlmHosts,
    NamedHost,
    address_of,
    from_base_urls,
    javascript_pattern,
    no_proxy_for,
    origin_of,
)

GATEWAY = LlmHosts(named=(NamedHost(name="gw.corp", port=8443), NamedHost(name="llm.corp")))


@pytest.mark.parametrize(
    ("host", "port", "is_llm"),
    [
        ("api.openai.com", 443, True),
        ("API.OpenAI.com.", 443, True),
        ("eu.api.openai.com", 443, True),
        ("bedrock-runtime.us-east-1.amazonaws.com", 443, True),
        ("gw.corp", 8443, True),
        ("gw.corp", 443, False),
        ("llm.corp", 1, True),
        ("sub.llm.corp", 1, False),
        ("github.com", 443, False),
        ("s3.amazonaws.com", 443, False),
        ("huggingface.co", 443, False),
        ("notopenai.com", 443, False),
        ("api.openai.com.evil.example", 443, False),
        ("registry.npmjs.org", 443, False),
    ],
)
def test_the_table_and_what_is_named_count(host: str, port: int, is_llm: bool):
    assert ((host, port) in GATEWAY) is is_llm
    if host == host.lower().rstrip("."):
        pattern = re.compile(javascript_pattern(GATEWAY), re.IGNORECASE)
        assert bool(pattern.search(f"{host}:{port}")) is is_llm, "the preload leads the same"


def test_everything_is_everything():
    assert ("github.com", 22) in LlmHosts(everything=True)
    assert re.search(javascript_pattern(LlmHosts(everything=True)), "github.com:22")


def test_base_urls_of_the_user_name_hosts():
    found = from_base_urls(
        {
            "OPENAI_BASE_URL": "https://gw.corp:8443/v1",
            "OPENAI_API_BASE": "https://gw.corp:8443/v1",
            "ANTHROPIC_BASE_URL": "http://localhost:4000",
            "GROQ_BASE_URL": "https://[bad",
            "CO_API_URL": "https://host:notaport",
            "OTHER": "https://other.example",
        }
    )
    assert found == (NamedHost(name="gw.corp", port=8443),)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("", ["localhost", "127.0.0.1", "::1"], id="none"),
        pytest.param(".corp", ["localhost", "127.0.0.1", "::1"], id="covers-a-named-one"),
        pytest.param("*", ["localhost", "127.0.0.1", "::1"], id="all"),
        pytest.param("api.deepseek.com", ["localhost", "127.0.0.1", "::1"], id="in-the-table"),
        pytest.param("openai.com", ["localhost", "127.0.0.1", "::1"], id="a-domain-of-one"),
        pytest.param(
            "10.0.0.0/8, db.local git.corp",
            ["10.0.0.0/8", "db.local", "git.corp", "localhost", "127.0.0.1", "::1"],
            id="others-stay",
        ),
    ],
)
def test_no_proxy_leads_no_llm_host_past(before: str, after: list[str]):
    assert no_proxy_for(before, GATEWAY) == after


def test_loopback_is_led_where_tee_hosts_names_it():
    hosts = LlmHosts(named=(NamedHost(name="127.0.0.1", port=11434),))
    assert no_proxy_for("", hosts) == ["localhost", "::1"]


@pytest.mark.parametrize(
    ("url", "address", "origin"),
    [
        ("https://h/v1", ("h", 443), "https://h"),
        ("http://u:p@h:81/", ("h", 81), "http://h:81"),
        ("http://[::1]:9", ("::1", 9), "http://[::1]:9"),
        ("http://h:x/", ("", 0), "http://h:x"),
    ],
)
def test_parts_of_a_url(url: str, address: tuple[str, int], origin: str):
    assert address_of(url) == address
    assert origin_of(url) == origin
