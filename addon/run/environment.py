"""Pure. What a command run under `tokentee run` is told, so that its LLM traffic comes to us.

Two ways, both for the child alone. SDKs that take a base URL get one that leads to a reverse
proxy on loopback: plain HTTP, so no certificate is asked for. Everything else meets the usual
proxy variables and a CA bundle that trusts the proxy as well as what was trusted before.
"""

from collections.abc import Mapping
from urllib.parse import urlsplit

from ledger.model import providers

_CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE")
_PROXY_VARIABLES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY")
_LOOPBACK = "localhost,127.0.0.1,::1"


def base_urls(environment: Mapping[str, str]) -> dict[str, str]:
    """Variable -> the URL that the child would have gone to: its own setting or the default."""
    found = {}
    for entry in providers.TABLE.base_urls():
        url = environment.get(entry.variable) or entry.default
        if url is not None and urlsplit(url).scheme in ("http", "https"):
            found[entry.variable] = url
    return found


def origin_of(url: str) -> str:
    """scheme://host[:port], what a reverse proxy's spec takes."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def environment_for(
    environment: Mapping[str, str],
    *,
    reverse_ports: Mapping[str, int],
    proxy_port: int,
    ca_bundle: str,
    proxy_ca: str,
) -> dict[str, str]:
    """The child's environment.

    `reverse_ports`: origin -> loopback port; `ca_bundle`: what was trusted before and the
    proxy's CA; `proxy_ca`: the latter alone, for Node, which adds it to its own.
    """
    child = dict(environment)
    for variable, url in base_urls(environment).items():
        port = reverse_ports[origin_of(url)]
        child[variable] = f"http://127.0.0.1:{port}{urlsplit(url).path}"
    for variable in _PROXY_VARIABLES:
        child[variable] = f"http://127.0.0.1:{proxy_port}"
    for variable in ("NO_PROXY", "no_proxy"):
        before = environment.get(variable)
        child[variable] = f"{before},{_LOOPBACK}" if before else _LOOPBACK
    for variable in _CA_VARIABLES:
        child[variable] = ca_bundle
    child["NODE_EXTRA_CA_CERTS"] = proxy_ca
    return child
