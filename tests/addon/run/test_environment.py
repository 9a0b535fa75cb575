"""What a command run under `tokentee run` is told."""

import pytest

from addon.run.environment import base_urls, environment_for, origin_of


def told(environment: dict[str, str], **ports: int) -> dict[str, str]:
    origins = {origin_of(url): 9000 for url in base_urls(environment).values()}
    return environment_for(
        environment,
        reverse_ports={**origins, **ports},
        proxy_port=8080,
        ca_bundle="/tmp/bundle.pem",
        proxy_ca="/tmp/ca.pem",
    )


def test_sdks_are_led_to_a_reverse_proxy_with_their_path():
    child = told({})
    assert child["OPENAI_BASE_URL"] == "http://127.0.0.1:9000/v1"
    assert child["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:9000"


def test_a_base_url_of_ones_own_is_followed():
    mine = {"OPENAI_BASE_URL": "https://user:pw@gateway.example:8443/team/v1"}
    assert origin_of(mine["OPENAI_BASE_URL"]) == "https://gateway.example:8443"
    child = told(mine, **{"https://gateway.example:8443": 9443})
    assert child["OPENAI_BASE_URL"] == "http://127.0.0.1:9443/team/v1"


@pytest.mark.parametrize("variable", ["AZURE_OPENAI_ENDPOINT", "OLLAMA_HOST"])
def test_what_has_no_default_is_only_led_where_it_is_set(variable: str):
    assert variable not in told({})
    child = told({variable: "http://10.0.0.7:1234"}, **{"http://10.0.0.7:1234": 9001})
    assert child[variable] == "http://127.0.0.1:9001"


def test_a_host_without_a_scheme_is_left_alone():
    assert told({"OLLAMA_HOST": "0.0.0.0:11434"})["OLLAMA_HOST"] == "0.0.0.0:11434"


def test_everything_else_goes_through_the_proxy_and_trusts_it():
    child = told({"NO_PROXY": "intranet.example", "HOME": "/home/me"})
    assert child["HTTPS_PROXY"] == child["https_proxy"] == "http://127.0.0.1:8080"
    assert child["NO_PROXY"] == "intranet.example,localhost,127.0.0.1,::1"
    assert child["SSL_CERT_FILE"] == child["REQUESTS_CA_BUNDLE"] == "/tmp/bundle.pem"
    assert child["NODE_EXTRA_CA_CERTS"] == "/tmp/ca.pem"
    assert child["HOME"] == "/home/me"
