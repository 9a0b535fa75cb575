"""Speak HTTP/2 to a TLS upstream whatever the client speaks; alone, mitmproxy mirrors it."""

from mitmproxy.proxy import server_hooks


class Http2Upstream:
    name = "h2_upstream"

    def server_connect(self, data: server_hooks.ServerConnectionHookData) -> None:
        data.server.alpn_offers = (b"h2", b"http/1.1")


addons = [Http2Upstream()]
