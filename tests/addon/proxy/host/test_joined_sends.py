"""Writes that follow each other become one, and nothing else changes."""

from collections.abc import Iterator

import pytest
from mitmproxy import connection
from mitmproxy.proxy import commands

from addon.proxy.host import joined_sends
from addon.proxy.host.joined_sends import joined

CLIENT, SERVER = (
    connection.Client(peername=("c", 1), sockname=("s", 2), timestamp_start=0.0),
    connection.Server(address=("s", 3)),
)


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Stands still unless it is moved."""
    times = [0.0]
    monkeypatch.setattr(joined_sends, "monotonic", lambda: times[0])
    return times


def to(side: connection.Connection, data: bytes) -> commands.SendData:
    return commands.SendData(side, data)


def sent(given: list[commands.Command]) -> list[object]:
    """What comes out: the side and the data of a write, or another command as it is."""
    return [
        (one.connection, one.data) if isinstance(one, commands.SendData) else one
        for one in joined(given)
    ]


def test_writes_that_follow_each_other_are_one():
    given = [to(CLIENT, b"head"), to(CLIENT, b""), to(CLIENT, b"body")]
    assert sent([*given]) == [(CLIENT, b"headbody")]


def test_a_write_alone_is_passed_on_as_it_is():
    alone = to(CLIENT, b"head")
    assert list(joined([alone])) == [alone]
    assert list(joined([])) == []


def test_datagrams_stay_apart():
    udp = connection.Server(address=("s", 3), transport_protocol="udp")
    given = [to(CLIENT, b"a"), to(udp, b"b"), to(udp, b"c"), to(CLIENT, b"d"), to(CLIENT, b"e")]
    assert sent([*given]) == [(CLIENT, b"a"), (udp, b"b"), (udp, b"c"), (CLIENT, b"de")]


def test_the_order_among_others_stays():
    log, close = commands.Log("said"), commands.CloseConnection(CLIENT)
    assert sent(
        [to(CLIENT, b"a"), to(SERVER, b"b"), to(CLIENT, b"c"), log, to(CLIENT, b"d"), close]
    ) == [(CLIENT, b"a"), (SERVER, b"b"), (CLIENT, b"c"), log, (CLIENT, b"d"), close]


def test_nothing_waits_for_a_hook():
    """mitmproxy's hooks may take long, and what came before them is under way then."""
    under_way = False

    def layers() -> Iterator[commands.Command]:
        yield to(CLIENT, b"head")
        yield commands.Log("a hook")
        assert under_way

    passed_on = joined(layers())
    assert isinstance(next(passed_on), commands.SendData)
    under_way = True
    assert [type(one) for one in passed_on] == [commands.Log]


def test_writes_grow_to_a_bound(monkeypatch):
    monkeypatch.setattr(joined_sends, "JOINED_BYTES_MAX", 4)
    given = [to(CLIENT, data) for data in (b"ab", b"cd", b"e", b"fghijk", b"l")]
    assert sent([*given]) == [
        (CLIENT, b"abcd"),
        (CLIENT, b"e"),
        (CLIENT, b"fghijk"),
        (CLIENT, b"l"),
    ]


def test_a_write_waits_for_a_millisecond(clock):
    def layers() -> Iterator[commands.Command]:
        yield to(CLIENT, b"a")
        clock[0] += joined_sends.JOINED_SECONDS_MAX / 2
        yield to(CLIENT, b"b")
        clock[0] += joined_sends.JOINED_SECONDS_MAX / 2
        yield to(CLIENT, b"c")
        yield to(CLIENT, b"d")

    found = [one.data for one in joined(layers()) if isinstance(one, commands.SendData)]
    assert found == [b"ab", b"cd"]


def test_what_was_sent_before_an_exception_is_sent():
    def layers() -> Iterator[commands.Command]:
        yield to(CLIENT, b"a")
        yield to(CLIENT, b"b")
        raise RuntimeError("a bug of a layer")

    found: list[object] = []
    with pytest.raises(RuntimeError, match="a bug of a layer"):
        found.extend((one.connection, one.data) for one in joined(layers()))  # type: ignore[attr-defined]
    assert found == [(CLIENT, b"ab")]
