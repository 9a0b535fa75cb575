"""Edge (sockets). The listening sockets. The supervisor opens them, and every worker borrows them.

All workers accept from one socket for each address. With SO_REUSEPORT each worker would have a
queue of its own (https://lwn.net/Articles/542629/). That was tried, and has three disadvantages:

- Linux distributes connections by a hash, so a few are distributed unevenly: sixteen as five and
  eleven. With one queue, the worker with the fewest connections accepts (`board.py`).
- Connections in the queue of a dead worker wait until it is restarted, and are reset when the
  socket is closed (https://lwn.net/Articles/853637/). The live workers empty one shared queue.
- Only Linux distributes the connections at all.

Windows cannot pass a socket to another process in this way, so the supervisor refuses it
(`supervisor.py`).
"""

import errno
import os
import socket
from collections.abc import Sequence

QUEUE_MAX = 1_024
"""Connections that wait to be accepted, for each address, while all workers are busy."""

type Address = tuple[str, int]
"""Host and port as in mitmproxy's options; an empty host means all interfaces, port 0 any."""


class CannotListenError(Exception):
    """An address cannot be listened on; the text names it and the reason."""


class Listeners:
    """The sockets by address; two for an address of both IPv4 and IPv6."""

    def __init__(self) -> None:
        self._sockets: dict[Address, list[socket.socket]] = {}

    def open(self, addresses: Sequence[Address]) -> None:
        """Listen on these addresses, too. Raises CannotListenError without changing anything."""
        opened: dict[Address, list[socket.socket]] = {}
        for address in addresses:
            if address in self._sockets or address in opened:
                continue
            try:
                opened[address] = _listening(*address)
            except OSError as error:
                _close(opened)
                host, port = address
                reason = os.strerror(error.errno) if error.errno else str(error)
                raise CannotListenError(
                    f"cannot listen on {host or '*'}:{port}: {reason}"
                ) from error
        self._sockets |= opened

    def keep_only(self, addresses: Sequence[Address]) -> None:
        """Stop listening on all other addresses."""
        gone = {each: self._sockets.pop(each) for each in set(self._sockets) - set(addresses)}
        _close(gone)

    def descriptors(self, address: Address) -> tuple[int, ...]:
        """The descriptors that a worker inherits."""
        return tuple(each.fileno() for each in self._sockets[address])

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
