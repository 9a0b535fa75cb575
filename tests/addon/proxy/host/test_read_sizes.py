"""How much is read at once follows what passing it on takes."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
from mitmproxy import options
from mitmproxy.proxy import events
from mitmproxy.proxy.mode_specs import ProxyMode
from mitmproxy.proxy.server import SimpleConnectionHandler

from addon.proxy.host import read_sizes
from addon.proxy.host.read_sizes import (
    PIECE_BYTES,
    READ_BYTES_FIRST,
    READ_BYTES_MAX,
    READ_BYTES_MIN,
    TURN_SECONDS_LOW,
    TURN_SECONDS_MAX,
)

SENT = bytes(1024 * 1024)


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The clock of the wrappers."""
    passed = [0.0]
    monkeypatch.setattr(read_sizes, "monotonic", lambda: passed[0])
    uninstall = read_sizes.install(None)
    yield passed
    uninstall()


type SecondsOf = Callable[[int], float]
"""What passing on a piece of this size takes."""


def handler_of(
    reader: object, writer: object, passed_on: Callable[[int], None]
) -> SimpleConnectionHandler:
    """mitmproxy's handler of a client, with a layer that is told how much was read."""

    def handle_event(event: events.Event) -> list[object]:
        if isinstance(event, events.DataReceived):
            passed_on(len(event.data))
        return []

    mode = ProxyMode.parse("regular")
    handler = SimpleConnectionHandler(reader, writer, options.Options(), mode, {})
    handler.layer = SimpleNamespace(handle_event=handle_event)  # type: ignore[assignment]
    return handler


def sizes_read(seconds: list[float], seconds_of: SecondsOf) -> list[int]:
    """What a layer gets at once of `SENT`."""
    got: list[int] = []

    def passed_on(size: int) -> None:
        got.append(size)
        seconds[0] += seconds_of(size)

    async def scenario() -> None:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=ours)
        handler = handler_of(reader, writer, passed_on)
        reading = asyncio.create_task(handler.handle_connection(handler.client))
        with theirs:
            await asyncio.get_running_loop().sock_sendall(theirs, SENT)
        while sum(got) < len(SENT):
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        writer.close()
        await writer.wait_closed()

    asyncio.run(scenario())
    assert sum(got) == len(SENT)
    return got


def sizes_of_turns(seconds: list[float], seconds_of: SecondsOf) -> list[int]:
    """What a layer gets in each turn of the loop, of 256 KB that one read has brought."""
    got = [0]

    def passed_on(size: int) -> None:
        got[-1] += size
        seconds[0] += seconds_of(size)

    async def scenario() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(bytes(READ_BYTES_MAX))
        writer = SimpleNamespace(get_extra_info=lambda _name, default=None: default, close=list)
        handler = handler_of(reader, writer, passed_on)
        handler.transports[handler.client].writer = None
        reading = asyncio.create_task(handler.handle_connection(handler.client))
        while sum(got) < READ_BYTES_MAX:
            await asyncio.sleep(0)
            got.append(0)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

    asyncio.run(scenario())
    return [size for size in got if size]


def test_cheap_bytes_are_soon_read_in_large_parts(seconds: list[float]):
    got = sizes_read(seconds, lambda _: 0.0)
    # Two reads may be passed on together.
    assert got[0] <= 2 * READ_BYTES_FIRST
    assert max(got) > 2 * READ_BYTES_FIRST


@pytest.mark.parametrize("size", [READ_BYTES_FIRST, PIECE_BYTES + 1, READ_BYTES_MAX])
async def test_two_cheap_full_reads_double_the_next_ones_up_to_what_asyncio_reads(
    seconds: list[float], size: int
):
    transport = SimpleNamespace(max_size=size)
    writer = SimpleNamespace(get_extra_info=lambda _name, default=None: default, close=list)
    reader = SimpleNamespace(_transport=transport)
    handler = handler_of(reader, writer, lambda _: None)
    half = bytes(READ_BYTES_FIRST // 2)
    await handler.server_event(events.DataReceived(handler.client, half))
    assert transport.max_size == size
    full = bytes(min(size, PIECE_BYTES))
    for data in (full, half, full, full):  # not two in a row before the last
        assert transport.max_size == size
        await handler.server_event(events.DataReceived(handler.client, data))
    assert transport.max_size == min(2 * size, READ_BYTES_MAX)


async def test_cheap_reads_between_long_ones_do_not_make_the_next_larger(seconds: list[float]):
    """As with TLS records, of which the last part alone brings mitmproxy any frames."""
    transport = SimpleNamespace(max_size=READ_BYTES_FIRST)
    turn = [0.0]

    def passed_on(_: int) -> None:
        seconds[0] += turn[0]

    writer = SimpleNamespace(get_extra_info=lambda _name, default=None: default, close=list)
    handler = handler_of(SimpleNamespace(_transport=transport), writer, passed_on)
    for turn[0] in (0.0, 2 * TURN_SECONDS_MAX, 0.0, 2 * TURN_SECONDS_MAX, 0.0):
        data = bytes(transport.max_size)
        await handler.server_event(events.DataReceived(handler.client, data))
    assert transport.max_size == READ_BYTES_FIRST // 4


def test_a_turn_ends_with_the_piece_that_took_long(seconds: list[float]):
    """Reads had become large; mitmproxy takes what one brought in pieces of 64 KB."""
    got = sizes_of_turns(seconds, lambda _: 2 * TURN_SECONDS_MAX)
    assert got == [65535, 65535, 65535, 65535, 4]


def test_a_turn_goes_on_while_pieces_take_little(seconds: list[float]):
    assert sizes_of_turns(seconds, lambda _: 0.0) == [READ_BYTES_MAX]


def test_bytes_that_take_long_are_read_in_small_parts(seconds: list[float]):
    got = sizes_read(seconds, lambda size: size * 2 * TURN_SECONDS_MAX / 4096)
    assert got[0] <= 2 * READ_BYTES_FIRST
    assert max(got[20:]) <= 4096


def test_no_read_is_smaller_than_the_least(seconds: list[float]):
    got = sizes_read(seconds, lambda _: 2 * TURN_SECONDS_MAX)
    assert min(got[:-1]) >= READ_BYTES_MIN
    assert max(got[20:]) <= 2 * READ_BYTES_MIN


def test_what_takes_neither_long_nor_little_stays_as_it_is(seconds: list[float]):
    got = sizes_read(seconds, lambda _: (TURN_SECONDS_LOW + TURN_SECONDS_MAX) / 2)
    assert max(got) <= 2 * READ_BYTES_FIRST
    assert len(got) <= 2 * len(SENT) // READ_BYTES_FIRST


async def test_a_connection_of_another_kind_is_read_as_mitmproxy_reads_it(seconds: list[float]):
    """The streams of mitmproxy's own UDP have no transport of asyncio's."""
    read: list[object] = []

    async def ends(_bytes: int) -> bytes:
        read.append(_bytes)
        raise asyncio.CancelledError

    writer = SimpleNamespace(get_extra_info=lambda _name, default=None: default, close=list)
    handler = handler_of(SimpleNamespace(read=ends), writer, lambda _: None)
    await handler.server_event(events.DataReceived(handler.client, bytes(READ_BYTES_MAX)))
    with pytest.raises(asyncio.CancelledError):
        await handler.handle_connection(handler.client)
    assert read == [65535]
