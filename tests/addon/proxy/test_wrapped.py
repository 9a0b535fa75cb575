"""The wrappers stay off a mitmproxy that they were not written for."""

import pytest
from mitmproxy.proxy.layers.http import HttpStream

from addon.proxy.host import sources
from addon.proxy.host.sources import UnknownSourceError
from addon.proxy.wrapped import RELIES_ON, install
from tests.addon.proxy.host.layers import Nobody

WRAPPED = (
    "handle_protocol_error",
    "send_response",
    "start_response_stream",
    "check_body_size",
)


@pytest.mark.parametrize("name", RELIES_ON)
def test_with_another_source_nothing_is_wrapped(name: str, monkeypatch: pytest.MonkeyPatch):
    before = {each: getattr(HttpStream, each) for each in WRAPPED}
    monkeypatch.setitem(sources.KNOWN, name, "0" * 16)
    with pytest.raises(UnknownSourceError, match=name.rpartition(".")[2]):
        install(Nobody())
    assert {each: getattr(HttpStream, each) for each in WRAPPED} == before
