"""Edge. What passed a proxy, counted, to say why nothing was recorded."""

from collections import Counter

from mitmproxy import http, tls

PLACES_MAX = 1_000
"""Hosts that are counted; further ones are not."""


class SeenTraffic:
    """An addon that counts requests, and connections whose client refused our certificate."""

    name = "tokentee-seen"

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.untrusting: Counter[str] = Counter()

    def request(self, flow: http.HTTPFlow) -> None:
        """mitmproxy's hook."""
        count(self.requests, flow.request.pretty_host, flow.request.port)

    def tls_failed_client(self, data: tls.TlsData) -> None:
        """mitmproxy's hook."""
        host, port = data.context.server.address or ("a host", None)
        count(self.untrusting, data.conn.sni or host, port)


def count(counts: Counter[str], host: str, port: int | None) -> None:
    """Count HOST:PORT, without the port of HTTPS."""
    place = host if port in (443, None) else f"{host}:{port}"
    if place in counts or len(counts) < PLACES_MAX:
        counts[place] += 1
