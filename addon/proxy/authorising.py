"""Pure. Who is asked before a request goes upstream: nobody, unless a part says otherwise.

A part attaches `authoriser` with an `Authoriser` of its own, as that of caps does. `recording` is
the `Recording` that asks, whose module imports this one.
"""

# ruff: noqa: ARG002  # what lets everything pass needs no argument

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ledger.model.exchange import Exchange, Reading

if TYPE_CHECKING:
    from mitmproxy import websocket

    from addon.proxy.live import Live


class OpenSocket:
    """What is asked for the responses of one WebSocket."""

    async def refusal_of(self, message: websocket.WebSocketMessage) -> bytes | None:
        """The message that refuses a response which a client's message asks for; None: it goes
        on."""
        return None

    def opened(self, exchange: Exchange) -> Exchange:
        """The exchange of a response that has begun, with what is held for it."""
        return exchange

    def settled(self, exchange: Exchange, reading: Reading) -> tuple[str, ...]:
        """A response is over; what is remarked."""
        return ()

    def close(self) -> None:
        """The WebSocket is closed."""


class Authoriser:
    """What the core calls; this one lets everything pass."""

    is_active = False
    """Whether requests are asked for now."""
    limits_of: Callable[..., object] | None = None
    """Reads of a request what bounds its cost, while it is active."""

    def admit(self, recording: Any, live: Live) -> Awaitable[None] | None:
        """Send a request upstream, or refuse it; what comes back is to be awaited."""
        recording.send(live)
        return None

    def refuses_failed(self, recording: Any, live: Live) -> bool:
        """Refuse a request of which our code failed, if that is wanted; whether it is."""
        return False

    def socket(self, live: Live, recording: Any) -> OpenSocket:
        """A WebSocket is open."""
        return OpenSocket()

    def settled(
        self, exchange: Exchange, reading: Reading | None, limits: object = None
    ) -> tuple[str, ...]:
        """An exchange is over; what is remarked. `reading`: None: it was no call after all.
        `limits`: what was read of its request, if that is known."""
        return ()

    def shares(self) -> tuple[tuple[str, float], ...]:
        """Names and shares of what is used up, for metrics. From any thread."""
        return ()

    async def watch(self, on_change: Callable[[], None]) -> None:
        """Work beside the traffic until it is cancelled. `on_change`: `is_active` has changed."""

    def release(self) -> None:
        """All is over."""


def authoriser_of(*asked: Any, makers: list[Callable[..., Authoriser]]) -> Authoriser:
    """The one that a part makes, of the ledger, its URL, the command's caps and the prices."""
    for make in makers:
        return make(*asked)
    return Authoriser()
