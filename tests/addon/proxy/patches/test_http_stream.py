"""The wrappers go on and come off, and stay off a mitmproxy that they were not written for."""

import pytest
from mitmproxy.proxy.layers.http import HttpStream

from addon.proxy.patches import http_stream
from addon.proxy.patches.http_stream import UnknownMitmproxyError, install

WRAPPED = (
    "handle_protocol_error",
    "send_response",
    "start_response_stream",
    "check_body_size",
)


class Nobody:
    def broke(self, flow, *, by_client: bool) -> None: ...

    def asks_again(self, flow) -> bool:
        return False

    def stream_begins(self, flow) -> None: ...

    def upstream_ended(self, flow) -> None: ...

    def is_cut_short(self, flow) -> bool:
        return False

    def passes_on(self, flow, held_bytes) -> bool:
        return False

    def held_length(self, flow) -> int:
        assert flow.response
        return 0


def test_the_wrappers_come_off_again():
    before = {name: getattr(HttpStream, name) for name in WRAPPED}
    uninstall = install(Nobody())
    assert all(getattr(HttpStream, name) is not own for name, own in before.items())
    uninstall()
    assert {name: getattr(HttpStream, name) for name in WRAPPED} == before


@pytest.mark.parametrize("version", ["11.1.0", "12.1.9", "13.0.0", "14.0.0.dev"])
def test_another_version_is_left_alone(version: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("mitmproxy.version.VERSION", version)
    with pytest.raises(UnknownMitmproxyError, match="mitmproxy"):
        install(Nobody())


@pytest.mark.parametrize("name", http_stream._SHAPE)
def test_another_shape_is_left_alone(name: str, monkeypatch: pytest.MonkeyPatch):
    before = [getattr(HttpStream, each) for each in WRAPPED if each != name]
    monkeypatch.setattr(HttpStream, name, lambda self, one, too, many: None)
    with pytest.raises(UnknownMitmproxyError, match=name):
        install(Nobody())
    assert [getattr(HttpStream, each) for each in WRAPPED if each != name] == before
