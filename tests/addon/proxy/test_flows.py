"""Which host a request is booked under: the one that the client meant."""

import time

import pytest
from mitmproxy import http
from mitmproxy.proxy.mode_specs import ProxyMode
from mitmproxy.test import tflow, tutils

from addon.proxy import flows


def flow_to(host: str, *, mode: str = "regular", sni: str | None = None, header: str = ""):
    flow = tflow.tflow(req=tutils.treq(host=host, port=443, scheme=b"https", authority=b""))
    flow.client_conn.proxy_mode = ProxyMode.parse(mode)
    flow.client_conn.sni = sni
    flow.request.headers["host"] = header or host
    return flow


@pytest.mark.parametrize("mode", ["regular", "socks5", "transparent", "local", "wireguard"])
@pytest.mark.parametrize(
    ("sni", "header", "meant"),
    [
        pytest.param("api.openai.com", "", "api.openai.com", id="sni"),
        pytest.param("API.OpenAI.com.", "other.example", "api.openai.com", id="sni-first"),
        pytest.param(None, "api.openai.com:443", "api.openai.com", id="host-header"),
        pytest.param(None, "10.0.0.9", "10.0.0.7", id="another-address"),
        pytest.param("10.0.0.9", "", "10.0.0.7", id="an-address-as-sni"),
        pytest.param(None, "[::1]:443", "10.0.0.7", id="ipv6-header"),
        pytest.param(None, "bad host", "10.0.0.7", id="no-name"),
        pytest.param(None, "x" * 300, "10.0.0.7", id="too-long"),
        pytest.param(None, "a\x1b[2J.example", "10.0.0.7", id="escape"),
    ],
)
def test_behind_an_address_the_client_names_the_host(mode: str, sni, header: str, meant: str):
    request = flows.request_of(flow_to("10.0.0.7", mode=mode, sni=sni, header=header))
    assert request.host == meant
    assert request.address == (None if meant == "10.0.0.7" else "10.0.0.7")


def test_a_name_that_is_known_stays():
    flow = flow_to("gateway.example", sni="api.openai.com", header="api.openai.com")
    assert flows.request_of(flow).host == "gateway.example"


def test_a_hostile_host_header_costs_linear_work():
    flow = flow_to("10.0.0.7", header="a" * 250 + "!")
    started = time.process_time()
    assert flows.host_meant(flow) == "10.0.0.7"
    assert time.process_time() - started < 1  # a pattern that backtracks takes minutes


@pytest.mark.parametrize("host", ["1.2.3.4", "::1", "[2001:db8::1]"])
def test_addresses(host: str):
    assert flows.is_address(host)


@pytest.mark.parametrize("host", ["api.openai.com", "localhost", "example.c0", "1.2.3.4.5"])
def test_names(host: str):
    assert not flows.is_address(host)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param((), id="none"),
        pytest.param(((b"Accept-Encoding", b"gzip"), (b"x", b"1")), id="one"),
        pytest.param(((b"x", b"1"), (b"accept-encoding", b"br"), (b"ACCEPT-ENCODING", b"gzip")), id="two"),
        pytest.param(((b"x", b"1"), (b"content-length", b"7")), id="another"),
    ],
)  # fmt: skip
def test_headers_are_set_as_mitmproxy_sets_them(fields):
    ours, theirs = http.Headers(fields), http.Headers(fields)
    changed = {b"accept-encoding": b"identity", b"content-length": b"12"}
    theirs["accept-encoding"] = "identity"
    theirs["content-length"] = "12"
    assert flows.with_headers(ours, changed) == theirs.fields
