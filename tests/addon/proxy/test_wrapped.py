"""The wrappers go on and come off, and stay off a mitmproxy that they were not written for."""

import pytest
from mitmproxy.proxy.layers.http import HttpStream

from addon.proxy.host import sources
from addon.proxy.host.sources import UnknownSourceError
from addon.proxy.wrapped import RELIES_ON, install

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


@pytest.mark.parametrize("name", RELIES_ON)
def test_with_another_source_nothing_is_wrapped(name: str, monkeypatch: pytest.MonkeyPatch):
    before = {each: getattr(HttpStream, each) for each in WRAPPED}
    monkeypatch.setitem(sources.KNOWN, name, "0" * 16)
    with pytest.raises(UnknownSourceError, match=name.rpartition(".")[2]):
        install(Nobody())
    assert {each: getattr(HttpStream, each) for each in WRAPPED} == before
