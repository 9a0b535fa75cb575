"""Edge. mitmproxy's addon manager, with the hooks of each event looked up once.

Why: mitmproxy asks each of its three dozen addons at every hook of every exchange whether it has
it, each within a context manager of its own: a third of the CPU of a short answer (measured).
Which addon has which hook changes only when addons come and go. What is called, in which order,
and what happens with an exception stays as it is there.

An event for which an addon has an attribute that is no function, or that raises, goes mitmproxy's
own way each time. Without this nothing but CPU differs: a short stream takes 1.4 times as much,
a JSON answer 1.6 times, a burst 1.2 times (`tests/bench`, interleaved), and 20 000 pings 2.1
times.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from mitmproxy import addonmanager, exceptions, hooks

from addon.parts.fast.mechanisms import InstallContext
from addon.proxy.sources import UnknownSourceError

RELIES_ON = {
    "mitmproxy.addonmanager:AddonManager": "6be8dc580f5c66bf",
    "mitmproxy.addonmanager:safecall": "f2052c18340e99b0",
}
"""What the subclass overrides and calls."""


class HookLists(addonmanager.AddonManager):
    """An addon manager that `install` has taken over: it changes the manager's class."""

    hook_lists: dict[str, list[list[Callable[..., Any]]] | None]
    """By event: for each addon of the chain that has any, its hooks and its children's. None: an
    addon is odd in this, and mitmproxy's own way is taken."""

    def register(self, addon: Any) -> Any:
        """Drop the lists, because the chain changes; then register as mitmproxy does."""
        self.hook_lists.clear()
        return super().register(addon)  # type: ignore[no-untyped-call]

    def add(self, *addons: Any) -> None:
        """Add as mitmproxy does; then drop the lists."""
        super().add(*addons)  # type: ignore[no-untyped-call]
        self.hook_lists.clear()

    def remove(self, addon: Any) -> None:
        """Drop the lists; then remove as mitmproxy does."""
        self.hook_lists.clear()
        super().remove(addon)  # type: ignore[no-untyped-call]

    async def trigger_event(self, event: hooks.Hook) -> None:
        """Call the event's hooks from its list."""
        # A task may begin in a later turn: the manager may have been given back since.
        of_addons = self._hooks_of(event) if type(self) is HookLists else None
        if of_addons is None:
            await addonmanager.AddonManager.trigger_event(self, event)
            return
        for functions in of_addons:
            try:
                for function in functions:
                    result = function(*event.args())
                    if result is not None and inspect.isawaitable(result):
                        await result
            except exceptions.AddonHalt:
                return
            except Exception:  # mitmproxy's own guard: it logs, or lets it through
                with addonmanager.safecall():
                    raise

    def trigger(self, event: hooks.Hook) -> None:
        """Do what mitmproxy does, unless no addon has the hook.

        mitmproxy calls this for each line of its log, 0.1 ms each (measured): a client's 20 000
        pings are 20 000 lines, and all that they trigger runs in one turn of the event loop.
        """
        # A line is triggered in the next turn: the manager may have been given back since.
        if type(self) is not HookLists or self._hooks_of(event) != []:
            addonmanager.AddonManager.trigger(self, event)

    def clear(self) -> None:
        """Remove all addons, and drop the lists before and after."""
        self.hook_lists.clear()
        super().clear()  # type: ignore[no-untyped-call]
        self.hook_lists.clear()

    def _hooks_of(self, event: hooks.Hook) -> list[list[Callable[..., Any]]] | None:
        """From the lists; looked up at the first event of its kind."""
        if event.name not in self.hook_lists:
            try:
                found = [[hook for _, hook in self._iter_hooks(each, event)] for each in self.chain]
                self.hook_lists[event.name] = [functions for functions in found if functions]
            except Exception:  # noqa: BLE001  # an attribute that raises, a hook that is no function
                self.hook_lists[event.name] = None
        return self.hook_lists[event.name]


def install(place: InstallContext) -> Callable[[], None]:
    """Take the manager of a running master over; returns what gives it back."""
    manager = place.master.addons
    if type(manager) is not addonmanager.AddonManager:
        raise UnknownSourceError(f"the addon manager is a {type(manager).__name__} in use")
    manager.__class__ = HookLists
    assert isinstance(manager, HookLists)
    manager.hook_lists = {}

    def uninstall() -> None:
        del manager.hook_lists
        manager.__class__ = addonmanager.AddonManager  # type: ignore[assignment]  # as above

    return uninstall
