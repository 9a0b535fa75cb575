"""Pure. The outbound proxy that the parent's environment names, and NO_PROXY.

The rules are curl's (https://everything.curl.dev/usingcurl/proxies/env.html): the lower-case
variable wins, ALL_PROXY replaces a missing one, NO_PROXY is a list of hosts, of domains with their
subdomains, of addresses and of networks.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from ledger.model.exchange import DEFAULT_PORTS

SCHEMES = ("http", "https")
"""Of proxies that mitmproxy can go out through."""


class BadProxyError(ValueError):
    """A proxy variable with an unusable value; the text names both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """An outbound proxy."""

    scheme: str
    host: str
    port: int
    credentials: str | None = None
    """`user:password`."""

    @property
    def authorization(self) -> str | None:
        """Value of the header Proxy-Authorization, or None."""
        if self.credentials is None:
            return None
        return "Basic " + base64.b64encode(self.credentials.encode()).decode()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return self.host, self.port

    @property
    def url(self) -> str:
        """Without credentials, as mitmproxy's upstream mode takes it, and as errors show it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outbound:
    """The outbound proxies, by scheme of the request."""

    https: Proxy | None = None
    http: Proxy | None = None
    no_proxy: tuple[str, ...] = ()

    def proxy_for(self, scheme: str, host: str, port: int) -> Proxy | None:
        """The proxy for a request, None for a direct connection."""
        if any(covers(entry, host, port) for entry in self.no_proxy):
            return None
        return self.https if scheme == "https" else self.http

    @property
    def any_proxy(self) -> Proxy | None:
        """One of the proxies, None if there is none at all."""
        return self.https or self.http


def outbound_of(environment: Mapping[str, str]) -> Outbound:
    """The outbound proxies of the environment. Raises BadProxyError for an unusable variable."""
    return Outbound(
        https=_proxy_in(environment, "https_proxy") or _proxy_in(environment, "all_proxy"),
        http=_proxy_in(environment, "http_proxy") or _proxy_in(environment, "all_proxy"),
        no_proxy=tuple(no_proxy_of(environment).replace(",", " ").split()),
    )


def no_proxy_of(environment: Mapping[str, str]) -> str:
    """The value of NO_PROXY or no_proxy."""
    return environment.get("no_proxy") or environment.get("NO_PROXY") or ""


def covers(entry: str, host: str, port: int) -> bool:
    """Whether an entry of NO_PROXY names a host."""
    if entry == "*":
        return True
    host = host.lower().rstrip(".").strip("[]")
    entry = entry.lower()
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        pass
    name, colon, wanted = entry.rpartition(":")
    if colon and wanted.isdigit():
        if int(wanted) != port:
            return False
        entry = name
    entry = entry.removeprefix("*").removeprefix(".")
    return bool(entry) and (host == entry or host.endswith("." + entry))


def _proxy_in(environment: Mapping[str, str], name: str) -> Proxy | None:
    variable = name if environment.get(name) else name.upper()
    value = environment.get(variable)
    if not value:
        return None
    parts = urlsplit(value if "://" in value else f"http://{value}")
    try:
        port = parts.port
    except ValueError:
        port = -1
    if not parts.hostname or port == -1:
        raise BadProxyError(f"{variable} is not the URL of a proxy: http://HOST:PORT is one")
    if parts.scheme not in SCHEMES:
        other = "HTTPS_PROXY and HTTP_PROXY" if name == "all_proxy" else variable
        raise BadProxyError(
            f"{variable} names a {parts.scheme} proxy, and what is recorded goes out through an "
            f"HTTP proxy: set {other} to http://HOST:PORT"
        )
    credentials = None
    if parts.username is not None:
        credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return Proxy(
        scheme=parts.scheme,
        host=parts.hostname,
        port=port or DEFAULT_PORTS[parts.scheme],
        credentials=credentials,
    )
