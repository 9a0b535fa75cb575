"""Edge. mitmproxy's addon manager, with the hooks of each event looked up once.

mitmproxy asks each of its three dozen addons at every hook of every exchange whether it has it,
each within a context manager of its own: a third of what a short answer costs it (measured). Which
addon has which hook changes only when addons come and go. What is called, in which order, and what
becomes of an exception in it stays as it is there; what recording costs is more than made up for.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from mitmproxy import addonmanager, exceptions, hooks


class HookLists(addonmanager.AddonManager):
    """An addon manager that `install` has taken over."""

    hook_lists: dict[str, list[list[Callable[..., Any]]]]
    """By event: for each addon of the chain that has any, its hooks and its children's."""

    def register(self, addon: Any) -> Any:
        self.hook_lists.clear()
        return super().register(addon)  # type: ignore[no-untyped-call]

    def add(self, *addons: Any) -> None:
        super().add(*addons)  # type: ignore[no-untyped-call]
        self.hook_lists.clear()

    def remove(self, addon: Any) -> None:
        self.hook_lists.clear()
        super().remove(addon)  # type: ignore[no-untyped-call]

    async def trigger_event(self, event: hooks.Hook) -> None:
        of_addons = self.hook_lists.get(event.name)
        if of_addons is None:
            of_addons = self.hook_lists[event.name] = self._look_up(event)
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

    def _look_up(self, event: hooks.Hook) -> list[list[Callable[..., Any]]]:
        found = ([hook for _, hook in self._iter_hooks(addon, event)] for addon in self.chain)
        return [functions for functions in found if functions]


def install(manager: addonmanager.AddonManager) -> Callable[[], None]:
    """Take a running master's manager over; returns what gives it back. A manager that is not
    mitmproxy's own is left as it is."""
    if type(manager) is not addonmanager.AddonManager:
        return lambda: None
    manager.__class__ = HookLists
    assert isinstance(manager, HookLists)
    manager.hook_lists = {}

    def uninstall() -> None:
        manager.__class__ = addonmanager.AddonManager  # type: ignore[assignment]  # as above
        del manager.hook_lists

    return uninstall
