"""Pure. Which hosts are LLM hosts, whose TLS `tokentee run` decrypts; and the outbound proxy.

LLM hosts come from the provider table, the option `tee_hosts` and the base URLs in the user's
environment. All other hosts are tunnelled. The outbound proxy is the one that the parent's
environment names, by curl's rules (https://everything.curl.dev/usingcurl/proxies/env.html): the
lower-case variable wins, ALL_PROXY replaces a missing one, NO_PROXY is a list of hosts, of domains
with their subdomains, of addresses and of networks.
"""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from ledger.model import provider_table
from ledger.model.exchange import DEFAULT_PORTS

LOOPBACK = ("localhost", "127.0.0.1", "::1")
NOT_REDIRECTED = {"OLLAMA_HOST"}
"""`ollama serve` listens at this address, so its value is never changed."""
SCHEMES = ("http", "https")
"""Of proxies that mitmproxy can go out through."""
AWS_REGIONS = (
    *("us-east-1", "us-west-2", "us-east-2", "us-west-1", "eu-central-1", "eu-west-1", "eu-west-3"),
    *("eu-west-2", "eu-north-1", "eu-south-1", "eu-south-2", "eu-central-2", "ca-central-1"),
    *("ap-northeast-1", "ap-southeast-1", "ap-southeast-2", "ap-south-1", "ap-northeast-2"),
    *("ap-northeast-3", "ap-south-2", "ap-southeast-4", "sa-east-1", "us-gov-west-1"),
)
"""With a Bedrock endpoint, the busiest first
(https://docs.aws.amazon.com/general/latest/gr/bedrock.html)."""
OF_PATTERNS = (
    *("dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com", "dashscope-us.aliyuncs.com"),
    *("cn-hongkong.dashscope.aliyuncs.com", "ark.cn-beijing.volces.com", "api.minimax.io"),
    *("api.minimaxi.com", "inference.baseten.co", "api.studio.nebius.com", "open.bigmodel.cn"),
    *("api.tokenfactory.nebius.com", "router.requesty.ai", "codestral.mistral.ai"),
    *("us-south.ml.cloud.ibm.com", "router.huggingface.co", "ai-gateway.helicone.ai"),
    "api.inference.crusoecloud.com",
)
"""Hosts that SDKs call and the table has as patterns, or below a domain."""
_LLM_NAME = re.compile(
    r"(^|[.-])(ai|aigateway|anthropic|bedrock|claude|embeddings?|gemini|genai|gpt|inference|litellm"
    r"|llms?|maas|models?|ollama|openai|rerank|vllm)([.-]|$)"
)
"""Words of hosts that sell models; `ai` is also a top-level domain."""
_NO_LLM = re.compile(
    r"(^|\.)(models\.dev|litellm\.ai|(api|trace)\.wandb\.ai|(docs?|www|statsig|static|cdn|auth"
    r"|login|console|status|telemetry|mcp|registry|hub)\..*)$"
)
"""Hosts that are named so and answer no LLM call: price lists, traces, pages, logins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedHost:
    """A host that is not in the table. `port` None: any port."""

    name: str
    port: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmHosts:
    """The set of LLM hosts."""

    named: tuple[NamedHost, ...] = ()
    everything: bool = False
    """All hosts count: `--everything`."""

    def __contains__(self, address: tuple[str, int]) -> bool:
        host, port = address[0].lower().rstrip("."), address[1]
        return (
            self.everything
            or any(each.name == host and each.port in (None, port) for each in self.named)
            or provider_table.TABLE.at(host) is not None
        )


def javascript_pattern(hosts: LlmHosts) -> str:
    """The same test as a JavaScript regular expression on `host:port`."""
    if hosts.everything:
        return "."
    parts = [f"{re.escape(each.name)}:{each.port or r'[0-9]+'}" for each in hosts.named]
    for row in provider_table.TABLE.rows:
        for host in (*row.hosts, *row.unlisted_hosts):
            below = "" if "*" in host else r"(?:[^:]*\.)?"
            name = re.escape(host).replace(r"\*", "[^:]*")
            parts.append(f"{below}{name}:[0-9]+")
    # `re.escape` writes `\-`, which JavaScript refuses in patterns with the flag `u` alone.
    return f"^(?:{'|'.join(parts)})$"


def from_base_urls(environment: Mapping[str, str]) -> tuple[NamedHost, ...]:
    """The hosts in the user's base-URL variables, without this machine."""
    found = []
    for url in set_base_urls(environment).values():
        host, port = address_of(url)
        if host not in LOOPBACK:
            found.append(NamedHost(name=host, port=port))
    return tuple(dict.fromkeys(found))


def set_base_urls(environment: Mapping[str, str]) -> dict[str, str]:
    """Base-URL variable -> its value, for those that the user has set to a complete http(s) URL."""
    found = {}
    for entry in provider_table.TABLE.base_urls():
        url = environment.get(entry.variable, "")
        if url.startswith(("http://", "https://")) and address_of(url)[0]:
            found[entry.variable] = url
    return found


def local_base_urls(environment: Mapping[str, str]) -> dict[str, str]:
    """Those of `set_base_urls` that point to a plain HTTP server on this machine.

    Clients do not send requests for loopback through a proxy, so these are replaced by a listener.
    """
    return {
        variable: url
        for variable, url in set_base_urls(environment).items()
        if url.startswith("http://")
        and address_of(url)[0] in LOOPBACK
        and variable not in NOT_REDIRECTED
    }


def default_hosts() -> tuple[str, ...]:
    """Names of the hosts that clients call, which the bypass check resolves: those of the table and
    their `api.`, and what is known of its patterns. Not hosts where other services answer, too."""
    urls = [entry.default for entry in provider_table.TABLE.base_urls() if entry.default]
    names = [address_of(url)[0] for url in urls if "*" not in url]
    for row in provider_table.TABLE.rows:
        for host in (*row.hosts, *row.unlisted_hosts):
            if "*" in host or row.hosts_are_shared:
                continue
            # Of a domain, its API; a page that a browser shows has the name itself.
            names.append(host if host.count(".") > 1 else f"api.{host}")
            if host.count(".") == 1:
                names.append(host)
    names += OF_PATTERNS
    names += [f"bedrock-runtime.{region}.amazonaws.com" for region in AWS_REGIONS]
    return tuple(dict.fromkeys(names))


def is_llm_name(host: str) -> bool:
    """Whether a host that no table has is named like one that sells models."""
    host = host.lower().rstrip(".")
    return _LLM_NAME.search(host) is not None and _NO_LLM.search(host) is None


def base_url_variable(host: str) -> str:
    """NAME=URL of the variable that leads the SDKs of a host to a reverse proxy; or words."""
    proxy = "http://127.0.0.1:8080"
    setting = provider_table.TABLE.base_url_setting(host, proxy)
    return setting or f"{proxy} as its base URL, with the same path"


def address_of(url: str) -> tuple[str, int]:
    """Host and port of a URL; an empty host if it has none."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "", 0
    return (parts.hostname or ""), port or DEFAULT_PORTS.get(parts.scheme, 80)


def origin_of(url: str) -> str:
    """scheme://host[:port], as in a reverse proxy's spec."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def no_proxy_for(before: str, hosts: LlmHosts) -> list[str]:
    """The child's NO_PROXY: the user's entries that name no LLM host, and loopback.

    An entry that names an LLM host would make the child bypass the recorder; it still applies to
    the proxy's own connections. Loopback is left out if the user names a host on it in `tee_hosts`.
    """
    named = [(each.name, each.port or 443) for each in hosts.named]
    named += [(name, 443) for name in default_hosts()]

    def is_kept(entry: str) -> bool:
        name = entry.lstrip("*.").partition(":")[0]
        if any(covers(entry, host, port) for host, port in named):
            return False
        return (name, 443) not in hosts or name in LOOPBACK

    entries = dict.fromkeys([*before.replace(",", " ").split(), *LOOPBACK])
    return [entry for entry in entries if is_kept(entry)]


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
