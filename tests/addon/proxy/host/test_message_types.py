"""What mitmproxy refuses in a message stays refused, and is checked once for each kind."""

import pytest
from mitmproxy import http

from addon.proxy.host import message_types


@pytest.fixture
def checked(monkeypatch):
    """The messages that mitmproxy's own check has seen since the patch was put on."""
    seen: list[http.MessageData] = []
    own = http.MessageData.__post_init__

    def check(data: http.MessageData) -> None:
        seen.append(data)
        own(data)

    monkeypatch.setattr(http.MessageData, "__post_init__", check)
    uninstall = message_types.install(None)
    yield seen
    uninstall()
    assert http.MessageData.__post_init__ is check


def request(**more) -> http.Request:
    given = {
        "host": "a.example",
        "port": 443,
        "method": b"POST",
        "scheme": b"https",
        "authority": b"",
        "path": b"/",
        "http_version": b"HTTP/1.1",
        "headers": http.Headers(),
        "content": b"",
        "trailers": None,
        "timestamp_start": 1.0,
        "timestamp_end": None,
    }
    return http.Request(**{**given, **more})


def test_a_kind_of_message_is_checked_once(checked):
    for _ in range(3):
        request()
        http.Response.make(200, b"x")
    assert len(checked) == 2
    request(content=None)
    assert len(checked) == 3


@pytest.mark.parametrize(
    "wrong", [{"port": "443"}, {"timestamp_end": "now"}, {"path": None}, {"trailers": b""}]
)
def test_what_is_wrong_is_refused_every_time(checked, wrong):
    request()
    for _ in range(2):
        with pytest.raises(TypeError, match=next(iter(wrong))):
            http.RequestData(**{**vars(request().data), **wrong})


def test_no_more_kinds_are_remembered_than_there_is_room_for(checked, monkeypatch):
    monkeypatch.setattr(message_types, "KNOWN_MAX", 0)
    for _ in range(3):
        request()
    assert len(checked) == 3
