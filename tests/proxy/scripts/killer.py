"""Kill a flow at the hook that its request names in `x-kill`, as a user or an addon might."""

from mitmproxy import http


class Killer:
    name = "killer"

    def _kill(self, flow: http.HTTPFlow, hook: str) -> None:
        if flow.request.headers.get("x-kill") == hook:
            flow.kill()

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        self._kill(flow, "requestheaders")

    def request(self, flow: http.HTTPFlow) -> None:
        self._kill(flow, "request")

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        self._kill(flow, "responseheaders")

    def response(self, flow: http.HTTPFlow) -> None:
        self._kill(flow, "response")


addons = [Killer()]
