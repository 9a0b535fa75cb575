"""Edge (sockets, a memory-mapped file). The listening sockets, and which worker accepts next.

The supervisor opens the sockets, and every worker borrows them.

All workers accept from one socket for each address. With SO_REUSEPORT each worker would have a
queue of its own (https://lwn.net/Articles/542629/). That was tried, and has three disadvantages:

- Linux distributes connections by a hash, so a few are distributed unevenly: sixteen as five and
  eleven. With one queue, the worker with the fewest connections accepts (`ConnectionCounts`).
- Connections in the queue of a dead worker wait until it is restarted, and are reset when the
  socket is closed (https://lwn.net/Articles/853637/). The live workers empty one shared queue.
- Only Linux distributes the connections at all.

Windows cannot pass a socket to another process in this way, so the supervisor refuses it
(`supervisor.py`).
"""

import errno
import mmap
import os
import socket
from collections.abc import Sequence
from pathlib import Path

from addon.run.call.arguments import Address
from addon.run.standalone import cannot_listen

QUEUE_MAX = 1_024
"""Connections that wait to be accepted, for each address, while all workers are busy."""

_COUNT_BYTES = 8
_NOT_ACCEPTING = 0
"""The value of a process that does not accept; otherwise it is the number of connections plus
one."""


class Listeners:
    """The sockets by address; two for an address of both IPv4 and IPv6."""

    def __init__(self) -> None:
        self._sockets: dict[Address, list[socket.socket]] = {}

    def open(self, addresses: Sequence[Address]) -> None:
        """Listen on these addresses, too. Raises LedgerError without changing anything."""
        opened: dict[Address, list[socket.socket]] = {}
        for address in addresses:
            if address in self._sockets or address in opened:
                continue
            try:
                opened[address] = _listening(*address)
            except OSError as error:
                _close(opened)
                raise cannot_listen(address, error) from error
        self._sockets |= opened

    def keep_only(self, addresses: Sequence[Address]) -> None:
        """Stop listening on all other addresses."""
        gone = {each: self._sockets.pop(each) for each in set(self._sockets) - set(addresses)}
        _close(gone)

    def descriptors(
        self, addresses: Sequence[Address]
    ) -> tuple[tuple[Address, tuple[int, ...]], ...]:
        """The descriptors that a worker inherits, by address."""
        return tuple(
            (address, tuple(each.fileno() for each in self._sockets[address]))
            for address in addresses
        )

    def shown(self) -> list[str]:
        """The listening addresses, with their real ports."""
        names = (each.getsockname() for found in self._sockets.values() for each in found)
        return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port, *_ in names]

    def close(self) -> None:
        """Close the sockets; listening ends when no worker has them open."""
        _close(self._sockets)
        self._sockets = {}


def _listening(host: str, port: int) -> list[socket.socket]:
    """The sockets of one address, all on one port."""
    places = dict.fromkeys(
        (family, where)
        for family, _, _, _, where in socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    )
    made: list[socket.socket] = []
    try:
        for family, where in places:
            one = _socket(family)
            if one is None:
                continue
            made.append(one)
            one.bind((where[0], made[0].getsockname()[1] or port, *where[2:]))
            one.listen(QUEUE_MAX)
            one.setblocking(False)
    except OSError:
        _close({(host, port): made})
        raise
    return made


def _socket(family: int) -> socket.socket | None:
    """A socket; None if the system lacks the address family: IPv6 addresses are resolved
    nevertheless."""
    try:
        made = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        if error.errno == errno.EAFNOSUPPORT:
            return None
        raise
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    return made


def _close(sockets: dict[Address, list[socket.socket]]) -> None:
    for found in sockets.values():
        for each in found:
            each.close()


class ConnectionCounts:
    """The number of connections of each worker, by its index, in a file that all workers map.

    A worker leaves a new connection to a worker with fewer connections, so that a few long
    connections are distributed as evenly as many short ones. One process writes each count, and all
    read it.
    """

    FILE = "connections"

    def __init__(self, folder: Path, *, processes_max: int | None = None) -> None:
        """`processes_max`: makes the file; without it, the file is there."""
        file = os.open(folder / self.FILE, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            if processes_max is not None:
                os.ftruncate(file, processes_max * _COUNT_BYTES)
            self._counts = memoryview(mmap.mmap(file, 0)).cast("q")
        finally:
            os.close(file)

    def write(self, index: int, connections: int) -> None:
        """Record that a worker accepts, and its number of connections."""
        self._counts[index] = connections + 1

    def clear(self, index: int) -> None:
        """Record that a worker no longer accepts."""
        self._counts[index] = _NOT_ACCEPTING

    def is_least(self, index: int) -> bool:
        """Whether no accepting worker has fewer connections."""
        own = self._counts[index]
        return all(other >= own for other in self._counts if other != _NOT_ACCEPTING)
