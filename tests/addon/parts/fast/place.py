"""A place to install a mechanism in, without a whole master."""

from types import SimpleNamespace
from typing import Any

from addon.parts.fast.mechanisms import InstallContext


def place(addons: Any = None, *, takes_runs: Any = lambda _: False) -> InstallContext:
    """`addons`: the master's; `takes_runs`: whether a flow's callable is ours."""
    master: Any = SimpleNamespace(addons=addons)
    return InstallContext(master=master, takes_runs=takes_runs)
