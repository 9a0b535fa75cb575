"""Set the stream at `responseheaders` as the request's `x-stream` says, after our addon did."""

from collections.abc import Callable, Iterable

from mitmproxy import http


def upper(data: bytes) -> Iterable[bytes] | bytes:
    return data.upper() or []


class Streamer:
    name = "streamer"

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        assert flow.response is not None
        ours = flow.response.stream

        def around(data: bytes) -> Iterable[bytes] | bytes:
            assert callable(ours)
            return ours(data)

        choices: dict[str, bool | Callable[[bytes], Iterable[bytes] | bytes]] = {
            "true": True,
            "false": False,
            "upper": upper,
            "around": around,
        }
        choice = flow.request.headers.get("x-stream")
        if choice in choices:
            flow.response.stream = choices[choice]


addons = [Streamer()]
