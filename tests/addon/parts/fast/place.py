"""A place to install a mechanism in, without a whole master."""

from types import SimpleNamespace
from typing import Any

from addon.parts.fast.mechanisms import Place


def place(addons: Any = None, *, takes_runs: Any = lambda _: False) -> Place:
    """`addons`: the master's; `takes_runs`: whether a flow's callable is ours."""
    master: Any = SimpleNamespace(addons=addons)
    return Place(master=master, takes_runs=takes_runs)
