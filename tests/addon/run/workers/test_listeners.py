"""The sockets that the supervisor holds, and which worker takes the next connection."""

import errno
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from addon.run.workers.listeners import ConnectionCounts, Listeners
from ledger.model.errors import LedgerError

LOOPBACK = ("127.0.0.1", 0)


@pytest.fixture
def listeners() -> Iterator[Listeners]:
    made = Listeners()
    yield made
    made.close()


def port_of(listeners: Listeners) -> int:
    return int(listeners.shown()[0].rpartition(":")[2])


def test_a_port_that_the_kernel_chooses_is_shown_and_listens(listeners: Listeners):
    listeners.open([LOOPBACK])
    ((address, (descriptor,)),) = listeners.descriptors([LOOPBACK])
    assert (address, descriptor >= 0) == (LOOPBACK, True)
    socket.create_connection(("127.0.0.1", port_of(listeners)), 5).close()


def test_an_empty_host_is_every_interface_on_one_port(listeners: Listeners):
    listeners.open([("", 0)])
    ports = {name.rpartition(":")[2] for name in listeners.shown()}
    assert len(ports) == 1
    socket.create_connection(("127.0.0.1", port_of(listeners)), 5).close()


def test_an_address_that_is_taken_is_named_and_nothing_stays_open(listeners: Listeners):
    listeners.open([LOOPBACK])
    taken = ("127.0.0.1", port_of(listeners))
    other = Listeners()
    with pytest.raises(LedgerError, match=rf"127.0.0.1:{taken[1]}: Address already in use"):
        other.open([LOOPBACK, taken])
    assert other.shown() == []


def test_addresses_come_and_go(listeners: Listeners):
    listeners.open([LOOPBACK])
    before = listeners.shown()
    listeners.open([LOOPBACK, ("127.0.0.2", 0)])
    assert listeners.shown()[:1] == before
    assert len(listeners.shown()) == 2
    listeners.keep_only([("127.0.0.2", 0)])
    assert [name.partition(":")[0] for name in listeners.shown()] == ["127.0.0.2"]


def test_a_system_without_ipv6(listeners: Listeners, monkeypatch: pytest.MonkeyPatch):
    made = socket.socket

    def without(family: int, kind: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "no")
        return made(family, kind)

    monkeypatch.setattr(socket, "socket", without)
    listeners.open([("", 0)])
    assert [name.partition(":")[0] for name in listeners.shown()] == ["0.0.0.0"]


def test_a_host_that_is_none(listeners: Listeners):
    with pytest.raises(LedgerError, match=r"cannot listen on no\.such\.host\.invalid:1"):
        listeners.open([("no.such.host.invalid", 1)])


def test_the_worker_with_the_fewest_connections_takes_the_next(tmp_path: Path):
    one = ConnectionCounts(tmp_path, processes_max=4)
    two = ConnectionCounts(tmp_path)
    one.write(0, 3)
    two.write(1, 2)
    assert not one.is_least(0)
    assert two.is_least(1)
    two.write(1, 3)
    assert one.is_least(0)
    assert two.is_least(1)
    two.write(3, 1)
    assert not one.is_least(0)
    one.clear(3)
    assert one.is_least(0), "one that does not accept does not count"
