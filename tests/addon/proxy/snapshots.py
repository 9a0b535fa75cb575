"""What a process is: every attribute of every class and module of mitmproxy and of the libraries
under it, the settings of the garbage collector, loggers, and the hooks in their order."""

import gc
import logging
import sys
from types import FunctionType
from typing import Any

from mitmproxy import hooks
from mitmproxy.log import MitmLogHandler
from mitmproxy.master import Master

LIBRARIES = ("mitmproxy", "mitmproxy_rs", "h11", "h2", "hpack", "hyperframe", "wsproto", "asyncio")
_MADE_LATER = ("__doc__", "__annotations__", "__abstractmethods__", "__cached__", "__signature__")


def snapshot(master: Master | None = None) -> dict[str, Any]:
    """Name -> identity of what stands there. A function also by its code and defaults."""
    found: dict[str, Any] = {}
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in LIBRARIES and name != "mitmproxy.ctx":  # it names the master
            for key, value in list(vars(module).items()):
                found[f"{name}:{key}"] = _of(value)
                if isinstance(value, type) and value.__module__ == name:
                    for attribute, inner in list(vars(value).items()):
                        if not attribute.startswith(("_abc_", *_MADE_LATER)):
                            found[f"{name}:{key}.{attribute}"] = _of(inner)
    loggers: dict[str, Any] = {"root": logging.getLogger(), **logging.root.manager.loggerDict}
    for name, logger in loggers.items():
        if isinstance(logger, logging.Logger):
            own = [id(each) for each in logger.handlers if not isinstance(each, MitmLogHandler)]
            found[f"logger {name}"] = (logger.level, logger.propagate, logger.disabled, own)
            for each in logger.handlers:
                found[f"log handler {id(each)}"] = id(each.formatter)
    found["gc threshold"] = gc.get_threshold()
    found["gc frozen"] = gc.get_freeze_count()
    if master is not None:
        found["addon manager"] = type(master.addons)
        for event in hooks.all_hooks:
            found[f"hook {event}"] = [
                id(addon) for addon in master.addons.chain if getattr(addon, event, None)
            ]
    return found


def _of(value: object) -> object:
    if isinstance(value, FunctionType):
        return id(value), id(value.__code__), id(value.__defaults__)
    return id(value)


def changes(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    """What stands for something else now, or is new in a class that was there. What was imported
    meanwhile is no change."""
    after = {**after, "gc frozen": max(after["gc frozen"], before["gc frozen"])}  # some are freed
    changed = {name for name, value in before.items() if after.get(name, value) != value}
    new = {name for name in after if name not in before and "." in name.rpartition(":")[2]}
    return changed | {name for name in new if ":" in name and name.rpartition(".")[0] in before}
