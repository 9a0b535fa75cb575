"""Edge. Asks the caps before a request goes upstream: in place of `Recording.send`, if there are
any."""

from __future__ import annotations

from collections.abc import Awaitable

from mitmproxy.connection import ConnectionState

from addon.caps.limits import Limits
from addon.dialects.agents import refused_status_of
from addon.metering.exchange import Event
from addon.metering.settlement import refused
from addon.proxy import flows
from addon.proxy.caps import with_hold
from addon.proxy.live import Live
from addon.proxy.recording import Recording
from ledger.caps.book import Held, Refusal, Waiting


def admit(recording: Recording, live: Live) -> Awaitable[None] | None:
    """Send a request upstream, or refuse it; what comes back waits for its caps."""
    if live.is_recorded or not live.is_confirmed:
        recording.send(live)
        return None
    dialect = (live.routes.session or live.route).dialect
    if live.is_handshake and dialect.cost_limits is not None:
        recording.send(live)  # each of its responses asks
        return None
    limits = live.asked.limits
    if limits is None and live.routes.rules.limits_of is not None:
        limits = Limits(unbounded="the request could not be read")  # an error of ours
    found = recording.gate.ask(
        live.opened,
        limits,
        fields=live.request.billing,
        billing=live.billing_of(live.opened),
    )
    if isinstance(found, Waiting):
        return _wait(recording, live, found)
    _go(recording, live, found)
    return None


async def _wait(recording: Recording, live: Live, waiting: Waiting) -> None:
    found = await recording.gate.wait(waiting)
    is_gone = not live.flow.client_conn.state & ConnectionState.CAN_READ
    if not (recording.is_over or is_gone):
        _go(recording, live, found)
        return
    if isinstance(found, Held):
        recording.gate.leave(found)
    recording.kill(live)


def _go(recording: Recording, live: Live, found: Held | Refusal) -> None:
    if isinstance(found, Refusal):
        refuse(recording, live, found)
        return
    if live.is_handshake:
        recording.gate.leave(found)
    else:
        live.opened = with_hold(live.opened, found)
    recording.send(live)


def refuse(recording: Recording, live: Live, refusal: Refusal) -> None:
    """Answer a request ourselves; nothing of it goes upstream."""
    dialect = (live.routes.session or live.route).dialect
    body = dialect.refusal(refusal.message, refusal.cap)
    live.flow.response = flows.refusal(body, refusal, refused_status_of(live.opened.agent))
    live.moves(Event.STOPPED)
    recording.live.pop(live.flow.id, None)
    recording.ledger.settle(*refused(live.opened, refusal.cap, now=flows.now()))
