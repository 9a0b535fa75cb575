"""Kill a flow at the hook that its request names in `x-kill`, as a user or an addon might."""

from functools import partialmethod

from mitmproxy import http


class Killer:
    name = "killer"

    def _kill(self, hook: str, flow: http.HTTPFlow) -> None:
        if flow.request.headers.get("x-kill") == hook:
            flow.kill()

    requestheaders = partialmethod(_kill, "requestheaders")
    request = partialmethod(_kill, "request")
    responseheaders = partialmethod(_kill, "responseheaders")
    response = partialmethod(_kill, "response")


addons = [Killer()]
