"""Edge. mitmproxy's layers go on behind a hook that waits for nothing in the turn of its event.

Why: mitmproxy makes a task of asyncio for each hook, and comes back to its layers in a later turn:
40 µs each, three for a short exchange, a twentieth of all that it costs (measured). Here the layers
go on at once, as soon as they have said all that they want done. A hook that has to wait for
something waits in a task, as there, and after a turn that has taken long the layers go on in a
later one: nobody else is served before its end. Which hooks of a flow are called, in which order,
with what, and what happens with an exception stays as it is there.

Without it hooks cost what they cost in mitmproxy, and nothing else differs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import copy_context
from time import monotonic
from typing import Any

from mitmproxy import flow, hooks
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layer import Layer
from mitmproxy.proxy.mode_servers import ProxyConnectionHandler
from mitmproxy.utils import asyncio_utils

from addon.proxy.host.hook_lists import HookLists
from addon.proxy.host.joined_sends import joined
from addon.proxy.host.mechanisms import Place
from addon.proxy.host.sources import UnknownSourceError

type Commands = Generator[commands.Command, Any, None]

TURN_SECONDS_MAX = 0.005
"""In a turn that has taken longer the layers hear of no more hooks."""


class PromptHooks:
    """Stands for a connection's first layer: takes its events, and gives its commands but hooks,
    with its writes joined."""

    def __init__(self, layer: Layer, handler: ProxyConnectionHandler, manager: HookLists) -> None:
        self._layer = layer
        self._handler = handler
        self._manager = manager

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)

    def handle_event(self, event: events.Event) -> Commands:
        """As `Layer.handle_event`; goes on with the events of hooks that are over."""
        began = monotonic()
        is_prompt = type(self._manager) is HookLists and self._manager.is_on
        over: deque[commands.StartHook] = deque()
        try:
            while True:
                for command in joined(self._layer.handle_event(event)):
                    if isinstance(command, commands.StartHook) and is_prompt:
                        # A task has a context of its own, too.
                        is_over = copy_context().run(self._call, command)
                        if is_over and command.blocking:
                            over.append(command)
                    else:
                        yield command
                if not over or monotonic() - began > TURN_SECONDS_MAX:
                    return
                event = events.HookCompleted(over.popleft())
        finally:
            for hook in over:  # the turn took long, or something of this event has crashed
                self._in_task(hook, self._handler.server_event(events.HookCompleted(hook)))

    def _call(self, hook: commands.StartHook) -> bool:
        """Call a hook; whether it is over. If not, a task waits for it."""
        (data,) = hook.args()
        try:
            rest = self._manager.begin_event(hook)
        except Exception as raised:  # noqa: BLE001  # mitmproxy lets it through to the task
            self._in_task(hook, _raise(raised))
            return False
        if rest is None and (
            not isinstance(data, flow.Flow)
            or not (data.intercepted or self._manager.has_hooks(hooks.UpdateHook([data])))
        ):
            return True
        self._in_task(hook, self._wait(hook, data, rest))
        return False

    def _in_task(self, hook: commands.StartHook, rest: Coroutine[Any, Any, None]) -> None:
        asyncio_utils.create_task(
            rest,
            name=f"handle_hook({hook.name})",
            keep_ref=True,
            client=self._handler.client.peername,
        )

    async def _wait(
        self, hook: commands.StartHook, data: Any, rest: Coroutine[Any, Any, None] | None
    ) -> None:
        """What mitmproxy does behind a hook that has begun."""
        with self._handler.timeout_watchdog.disarm():
            if rest is not None:
                await rest
            if isinstance(data, flow.Flow):
                await self._manager.trigger_event(hooks.UpdateHook([data]))
                await data.wait_for_resume()
        if hook.blocking:
            await self._handler.server_event(events.HookCompleted(hook))


async def _raise(raised: Exception) -> None:
    raise raised


RELIES_ON = (
    "mitmproxy.proxy.server:ConnectionHandler.handle_client",
    "mitmproxy.proxy.server:ConnectionHandler.hook_task",
    "mitmproxy.proxy.server:ConnectionHandler.server_event",
    "mitmproxy.proxy.mode_servers:ProxyConnectionHandler",
    "mitmproxy.addonmanager:AddonManager.handle_lifecycle",
    "mitmproxy.flow:Flow.wait_for_resume",
)
"""Functions that are replaced, or whose behaviour is taken over."""


def install(place: Place) -> Callable[[], None]:
    """Put the wrapper on for connections that begin from now on; returns what takes it off."""
    manager = place.master.addons
    if type(manager) is not HookLists or not manager.is_on:
        raise UnknownSourceError("it needs hook_lists")
    handle_client = ProxyConnectionHandler.handle_client

    def begin(handler: ProxyConnectionHandler) -> Coroutine[Any, Any, None]:
        if type(handler) is ProxyConnectionHandler and handler.master.addons is manager:
            handler.layer = PromptHooks(handler.layer, handler, manager)  # type: ignore[assignment]
        return handle_client(handler)

    ProxyConnectionHandler.handle_client = begin  # type: ignore[method-assign, assignment]

    def uninstall() -> None:
        del ProxyConnectionHandler.handle_client

    return uninstall
