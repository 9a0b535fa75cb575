"""Edge. Whose process it is: decided here, and nowhere else.

Ours is a process that `tokentee run` made, and a mitmdump whose only script is ours. Every other is
somebody else's: mitmweb, mitmproxy, other scripts or addons beside ours, a program that embeds
mitmproxy. There we are a guest, and change nothing that can be left alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mitmproxy.master import Master
from mitmproxy.tools.dump import DumpMaster

from addon.proxy.options import Fast

_OWN_PACKAGE = __name__.rpartition(".proxy.")[0]
"""`addon`, or `tokentee.addon` in a wheel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who owns the process, and why."""

    is_us: bool
    reason: str

    def is_fast(self, fast: Fast) -> bool:
        """Whether the mechanisms of the host go in."""
        return self.is_us if fast is Fast.AUTO else fast is Fast.YES


def owner_of(master: Master) -> Owner:
    """The owner of the process that a master runs in."""
    if type(master).__module__.startswith(f"{_OWN_PACKAGE}."):
        return Owner(is_us=True, reason="tokentee run")
    if type(master) is not DumpMaster:
        kind = type(master).__module__.split(".")[-2:]
        return Owner(is_us=False, reason=f"runs in {'.'.join(kind)}")
    if is_embedded():
        return Owner(is_us=False, reason="a program embeds mitmproxy")
    if len(master.options.scripts) > 1 or any(
        not is_known(addon) for addon in with_children(master.addons.chain)
    ):
        return Owner(is_us=False, reason="other scripts or addons are loaded")
    return Owner(is_us=True, reason="mitmdump with this script alone")


def is_embedded() -> bool:
    """Whether a program of its own runs mitmproxy, and not one of its tools."""
    return Path(sys.argv[0]).stem not in ("mitmdump", "mitmweb", "mitmproxy")


def with_children(addons: Any) -> Iterator[Any]:
    """Addons, and those that they hold: a script holds its own."""
    for addon in addons:
        yield addon
        yield from with_children(getattr(addon, "addons", ()))


def is_known(addon: Any) -> bool:
    """Whether an addon is mitmproxy's or ours. A script is a module; its addons are asked instead,
    unless it is an addon itself."""
    module = type(addon).__module__
    if module == "builtins":  # the module of a script
        return not _has_hooks(addon)
    return module.startswith(("mitmproxy.", f"{_OWN_PACKAGE}."))


def _has_hooks(script: Any) -> bool:
    from mitmproxy import hooks

    return any(callable(getattr(script, name, None)) for name in hooks.all_hooks)
