"""The proxy that the parent's environment names."""

import pytest

from addon.run.command.outbound import BadProxyError, Proxy, covers, outbound_of

CORP = "http://me:p%40ss@proxy.corp:3128"


def test_nothing_set_is_a_direct_way():
    found = outbound_of({})
    assert found.any_proxy is None
    assert found.proxy_for("https", "api.openai.com", 443) is None


def test_a_proxy_with_a_credential():
    found = outbound_of({"HTTPS_PROXY": CORP}).proxy_for("https", "api.openai.com", 443)
    assert found == Proxy(scheme="http", host="proxy.corp", port=3128, credentials="me:p@ss")
    assert found.authorization == "Basic bWU6cEBzcw=="
    assert found.url == "http://proxy.corp:3128", "mitmproxy's mode must not show the password"


@pytest.mark.parametrize(
    ("environment", "https", "http"),
    [
        ({"HTTPS_PROXY": "http://a:1", "https_proxy": "http://b:2"}, "b", None),
        ({"HTTPS_PROXY": "http://a:1", "HTTP_PROXY": "http://c:3"}, "a", "c"),
        ({"ALL_PROXY": "http://d:4"}, "d", "d"),
        ({"ALL_PROXY": "http://d:4", "HTTPS_PROXY": "http://a:1"}, "a", "d"),
        ({"https_proxy": "a:1"}, "a", None),
        ({"HTTPS_PROXY": "https://a"}, "a", None),
    ],
)
def test_which_variable_counts(environment: dict[str, str], https: str | None, http: str | None):
    found = outbound_of(environment)
    for scheme, host in (("https", https), ("http", http)):
        proxy = found.proxy_for(scheme, "api.openai.com", 443)
        assert (proxy.host if proxy else None) == host


def test_ports_of_the_scheme():
    assert outbound_of({"HTTPS_PROXY": "https://a"}).any_proxy.port == 443  # type: ignore[union-attr]
    assert outbound_of({"HTTPS_PROXY": "http://[::1]"}).any_proxy.url == "http://[::1]:80"  # type: ignore[union-attr]


def test_no_credential_is_no_header():
    assert outbound_of({"HTTPS_PROXY": "a:1"}).any_proxy.authorization is None  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("value", "named"),
    [("socks4://a:1", "socks4"), ("http://:80", "http://HOST:PORT"), ("http://a:b", "HOST:PORT")],
)
def test_what_cannot_be_used_is_named(value: str, named: str):
    with pytest.raises(BadProxyError, match="ALL_PROXY") as raised:
        outbound_of({"ALL_PROXY": value})
    assert named in str(raised.value)


@pytest.mark.parametrize(
    ("entry", "host", "port", "is_covered"),
    [
        ("*", "anything", 1, True),
        ("corp", "corp", 1, True),
        ("corp", "a.corp", 1, True),
        (".corp", "a.corp", 1, True),
        ("*.corp", "a.b.corp", 1, True),
        ("corp", "notcorp", 1, False),
        ("corp:8080", "a.corp", 8080, True),
        ("corp:8080", "a.corp", 80, False),
        ("10.0.0.0/8", "10.1.2.3", 1, True),
        ("10.0.0.0/8", "11.1.2.3", 1, False),
        ("10.0.0.0/8", "name", 1, False),
        ("127.0.0.1", "127.0.0.1", 1, True),
        ("::1", "[::1]", 1, True),
        ("[::1]", "::1", 1, True),
        ("CORP", "A.Corp.", 1, True),
        (".", "a", 1, False),
    ],
)
def test_no_proxy(entry: str, host: str, port: int, is_covered: bool):
    assert covers(entry, host, port) is is_covered


def test_no_proxy_goes_before_the_proxy():
    found = outbound_of({"HTTPS_PROXY": CORP, "NO_PROXY": "a, openai.com"})
    assert found.proxy_for("https", "api.openai.com", 443) is None
    assert found.proxy_for("https", "api.anthropic.com", 443) is not None


def test_a_socks_proxy_can_stand_for_both_schemes_and_be_replaced():
    found = outbound_of({"ALL_PROXY": "socks5h://me:secret@gate"})
    (socks,) = found.socks
    assert (socks.url, socks.credentials) == ("socks5h://gate:1080", "me:secret")
    bridge = Proxy(scheme="http", host="127.0.0.1", port=7, only_tunnels=True)
    replaced = found.replaced({socks: bridge})
    assert (replaced.https, replaced.http, replaced.socks) == (bridge, bridge, ())


def test_an_http_proxy_beside_a_socks_proxy_stays():
    found = outbound_of({"HTTP_PROXY": "http://corp:3128", "ALL_PROXY": "socks5://gate"})
    (socks,) = found.socks
    bridge = Proxy(scheme="http", host="127.0.0.1", port=7, only_tunnels=True)
    replaced = found.replaced({socks: bridge})
    assert replaced.https == bridge
    assert replaced.http is not None
    assert replaced.http.host == "corp"
