"""Another addon: reads and changes whole plain answers, as it can without us."""

from mitmproxy import http


def response(flow: http.HTTPFlow) -> None:
    if flow.response is not None and flow.response.content:
        flow.response.content = flow.response.content.replace(b"upstream", b"changed!")
