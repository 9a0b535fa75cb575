"""Edge. Access control of the child's proxy, the choice of what is decrypted, and the outbound
route.

It runs when mitmproxy chooses the protocol of a connection, before any byte is answered:

    new connection   its first request must carry the run's credential, otherwise it gets 407;
                     a listener for a local server requires the secret in the path
    after CONNECT    an LLM host is decrypted (TLS and HTTP), any other is tunnelled untouched
    going out        through the proxy that the parent's environment names for this host

The listeners are on loopback, which all users of a machine share; the credential keeps other users
out, whose requests would be on this user's bill.
"""

from __future__ import annotations

import binascii
import hmac
import ipaddress
import re
from base64 import b64decode
from collections import Counter
from collections.abc import Container
from urllib.parse import urlsplit

from mitmproxy import http
from mitmproxy.addons.next_layer import NextLayer
from mitmproxy.connection import Server
from mitmproxy.net.tls import starts_like_tls_record
from mitmproxy.proxy import commands, events, layer, layers
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http import HTTPMode
from mitmproxy.proxy.layers.tls import parse_client_hello

from addon.run.command.hosts import LlmHosts, Outbound

USER = "tokentee"
UNREAD_MAX = 1_000
"""Hosts whose tunnels are counted."""
_CREDENTIAL = re.compile(rb"^proxy-authorization:[ \t]*basic[ \t]+(\S+)[ \t]*\r?$", re.I | re.M)
HEAD_BYTES_MAX = 64 * 2**10
"""The head of a connection's first request: enough for the longest cookies and tokens."""
REFUSAL_HEAD = (
    b"HTTP/1.1 407 Proxy Authentication Required\r\n"
    b'Proxy-Authenticate: Basic realm="tokentee"\r\n'
    b"Content-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
)
REFUSAL_TEXT = b"This proxy belongs to one command that `tokentee run` has started.\n"
NOT_HERE = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class RefusedConnection(layer.Layer):
    """Sends one answer on a connection and closes it."""

    def __init__(self, context: Context, answer: bytes) -> None:
        super().__init__(context)
        self._answer: bytes | None = answer

    def _handle_event(self, _: events.Event) -> layer.CommandGenerator[None]:
        if self._answer is not None:
            answer, self._answer = self._answer, None
            yield commands.SendData(self.context.client, answer)
            yield commands.CloseConnection(self.context.client)


class ConnectionPolicy(NextLayer):
    """mitmproxy's NextLayer with access control."""

    name = "nextlayer"

    def __init__(
        self, *, secret: str, proxy: str, listeners: Container[str], hosts: LlmHosts,
        outbound: Outbound,
    ) -> None:  # fmt: skip
        """`proxy`: the mode's spec of the child's proxy; `listeners`: those of the listeners that
        replace local servers."""
        self._secret = secret
        self._proxy = proxy
        self._listeners = listeners
        self.hosts = hosts
        self._outbound = outbound
        self.unread: Counter[str] = Counter()
        """HOST[:PORT] -> tunnels that were passed on untouched."""

    # Hooks

    def next_layer(self, nextlayer: layer.NextLayer) -> None:
        """Refuse the connection, tunnel it, or leave the choice to mitmproxy."""
        context = nextlayer.context
        spec = context.client.proxy_mode.full_spec
        if nextlayer.layer is None and spec == self._proxy:
            if len(context.layers) == 1:
                head = _head(nextlayer.data_client())
                if head is None:
                    return
                if not shows(head, self._secret):
                    answer = REFUSAL_HEAD % (len(REFUSAL_TEXT), REFUSAL_TEXT)
                    nextlayer.layer = RefusedConnection(context, answer)
                    return
                scheme, host, port = _origin_of(head)
                via = self._outbound.proxy_for(scheme, host, port)
                mode = HTTPMode.regular if via is None else HTTPMode.upstream
                nextlayer.layer = layers.HttpLayer(context, mode)
                return
            is_llm = self._is_llm(nextlayer)
            if is_llm is None:
                return
            if not is_llm and not context.client.tls_established:
                nextlayer.layer = layers.TCPLayer(context, ignore=True)
                host, port = (context.server.address or ("a host", 443))[:2]
                host = self._sni_of(nextlayer) or host
                place = host if port == 443 else f"{host}:{port}"
                if place in self.unread or len(self.unread) < UNREAD_MAX:
                    self.unread[place] += 1
                return
        elif nextlayer.layer is None and spec in self._listeners and len(context.layers) == 1:
            head = _head(nextlayer.data_client())
            if head is None:
                return
            words = head.split(b"\r\n", 1)[0].split(b" ")
            if len(words) != 3 or not words[1].startswith(f"/{self._secret}/".encode()):
                nextlayer.layer = RefusedConnection(context, NOT_HERE)
                return
        super().next_layer(nextlayer)

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        """Remove our secret from the request, and choose the route of a plain HTTP request."""
        spec = flow.client_conn.proxy_mode.full_spec
        if spec in self._listeners:
            prefix = f"/{self._secret}"
            if not flow.request.path.startswith(f"{prefix}/"):
                flow.kill()
                return
            flow.request.path = flow.request.path.removeprefix(prefix)
        elif spec == self._proxy:
            # Headers between the child and this proxy. wget sends the second one to the server,
            # too.
            flow.request.headers.pop("proxy-authorization", None)
            flow.request.headers.pop("proxy-connection", None)
            if flow.request.scheme == "http" and self._outbound.any_proxy is not None:
                # A connection may carry requests to many hosts.
                request = flow.request
                via = self._outbound.proxy_for("http", request.host, request.port)
                if via is None:
                    flow.server_conn = Server(address=(request.host, request.port))
                    return
                flow.server_conn.via = (via.scheme, via.address)  # type: ignore[assignment]
                if via.authorization and request.is_http11:
                    request.headers["Proxy-Authorization"] = via.authorization

    def http_connect(self, flow: http.HTTPFlow) -> None:
        """Choose the route of a tunnel."""
        if flow.client_conn.proxy_mode.full_spec != self._proxy:
            return
        flow.request.headers.pop("proxy-authorization", None)
        via = self._outbound.proxy_for("https", flow.request.host, flow.request.port)
        flow.server_conn.via = (via.scheme, via.address) if via else None  # type: ignore[assignment]

    def http_connect_upstream(self, flow: http.HTTPFlow) -> None:
        """Send our credential to the outbound proxy."""
        host, port = flow.request.host, flow.request.port
        ways = [self._outbound.proxy_for(scheme, host, port) for scheme in ("https", "http")]
        via = next((way for way in ways if way and flow.server_conn.address == way.address), None)
        if via is not None and via.authorization:
            flow.request.headers["Proxy-Authorization"] = via.authorization

    # Decisions

    def _is_llm(self, nextlayer: layer.NextLayer) -> bool | None:
        """Whether a tunnel goes to an LLM host, also one that only its TLS names; None: the
        ClientHello is incomplete."""
        address = nextlayer.context.server.address
        if address is None or (address[0], address[1]) in self.hosts:
            return True
        name = self._sni_of(nextlayer)
        return None if name is None else bool(name) and (name, address[1]) in self.hosts

    @staticmethod
    def _sni_of(nextlayer: layer.NextLayer) -> str | None:
        """What the TLS of a tunnel to an address calls its host, empty if nothing; None: the
        ClientHello is incomplete."""
        data = nextlayer.data_client()
        if not starts_like_tls_record(data):
            return ""
        try:
            ipaddress.ip_address(nextlayer.context.server.address[0])  # type: ignore[index]
            hello = parse_client_hello(data)
        except ValueError:  # a name, or no ClientHello
            return ""
        return None if hello is None else hello.sni or ""


def shows(head: bytes, secret: str) -> bool:
    """Whether the head of a request to a proxy of ours shows this secret as its credential."""
    found = _CREDENTIAL.search(head)
    if found is None:
        return False
    try:
        given = b64decode(found[1], validate=True)
    except (ValueError, binascii.Error):
        return False
    return hmac.compare_digest(given, f"{USER}:{secret}".encode())


def _head(data: bytes) -> bytes | None:
    """The first request's head; None while it is incomplete."""
    end = data.find(b"\r\n\r\n", 0, HEAD_BYTES_MAX)
    if end < 0 and len(data) < HEAD_BYTES_MAX:
        return None
    return data[: end + 2] if end >= 0 else b""


def _origin_of(head: bytes) -> tuple[str, str, int]:
    """Scheme, host and port of a request to a proxy."""
    words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    if len(words) != 3:
        return "http", "", 0
    scheme = "https" if words[0] == "CONNECT" else "http"
    try:
        parts = urlsplit(f"//{words[1]}" if scheme == "https" else words[1])
        return scheme, parts.hostname or "", parts.port or (443 if scheme == "https" else 80)
    except ValueError:
        return scheme, "", 0
