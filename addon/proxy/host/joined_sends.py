"""Edge. What one event of mitmproxy's layers sends to a connection goes there in one write.

Why: mitmproxy writes the head of a message and each part of its body by itself, and a write to a
socket costs 20 to 40 µs, most of it in the kernel (measured): a tenth of a short exchange. Here
writes to one connection that directly follow each other become one. Their order among all other
commands stays, and none waits for another event or for a hook. Datagrams (UDP: QUIC, DNS) stay
apart, since their borders mean something.
"""

from collections.abc import Generator, Iterable
from time import monotonic
from typing import Any, TypeGuard

from mitmproxy.proxy import commands

type Commands = Generator[commands.Command, Any, None]

JOINED_BYTES_MAX = 65_536
"""A write of more gains nothing: a byte costs more than the call."""
JOINED_SECONDS_MAX = 0.001
"""The layers may work for long on one event; then a write that has waited this long is not joined
any more."""


def joined(given: Iterable[commands.Command]) -> Commands:
    """The commands, with writes that follow each other joined. An exception comes after what was
    sent before it."""
    first: commands.SendData | None = None
    parts: list[bytes] = []
    size, began = 0, 0.0
    try:
        for command in given:
            if _is_of_stream(command):
                if first is not None and (
                    command.connection is first.connection
                    and size + len(command.data) <= JOINED_BYTES_MAX
                    and monotonic() - began < JOINED_SECONDS_MAX
                ):
                    parts.append(command.data)
                    size += len(command.data)
                    continue
                if first is not None:
                    yield _one(first, parts)
                first, parts = command, [command.data]
                size, began = len(command.data), monotonic()
            else:
                if first is not None:
                    yield _one(first, parts)
                    first = None
                yield command
    except Exception:
        if first is not None:
            yield _one(first, parts)
            first = None
        raise
    if first is not None:
        yield _one(first, parts)


def _is_of_stream(command: commands.Command) -> TypeGuard[commands.SendData]:
    return type(command) is commands.SendData and command.connection.transport_protocol == "tcp"


def _one(first: commands.SendData, parts: list[bytes]) -> commands.SendData:
    return first if len(parts) == 1 else commands.SendData(first.connection, b"".join(parts))
