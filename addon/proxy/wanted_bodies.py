"""Edge. Whether another addon or an option needs the bodies of plain answers.

mitmproxy buffers a plain answer: `-w` and `hardump` save its body, `flow_detail=3` prints it, and
the `response` hooks of other addons can read and change it. A streamed body reaches none of them.
So plain answers stream only if no addon needs them whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from mitmproxy import ctx

from addon.proxy.owner import is_known, with_children

_SAVING_OPTIONS = ("save_stream_file", "hardump", "modify_body", "store_streamed_bodies")
"""Options of mitmproxy's own addons that save or change a body; not set in most proxies."""
FLOW_DETAIL_OF_BODIES = 3
"""From here on mitmdump prints bodies."""


@dataclass(slots=True)
class Bodies:
    """Whether other addons or mitmproxy's options need them, determined once for the same addons.
    mitmproxy tells nobody that one was added, or another script loaded again."""

    _are_wanted: bool | None = field(default=None)
    _addons: list[Any] = field(default_factory=list)

    def forget(self) -> None:
        """Forget the result, after a change of options; the next answer determines it."""
        self._are_wanted = None

    @property
    def are_wanted(self) -> bool:
        """Whether a plain answer must be buffered for another addon or an option."""
        addons = list(ctx.master.addons.lookup.values())
        if self._are_wanted is None or addons != self._addons:
            self._addons = addons
            self._are_wanted = options_want_bodies() or has_foreign_hook(ctx.master.addons.chain)
        return self._are_wanted


def options_want_bodies() -> bool:
    """Whether an option saves, changes or prints the bodies of plain answers."""
    options = ctx.options
    return (
        any(getattr(options, name, None) for name in _SAVING_OPTIONS)
        or getattr(options, "flow_detail", 0) >= FLOW_DETAIL_OF_BODIES
    )


def has_foreign_hook(addons: Iterable[Any]) -> bool:
    """Whether one of some addons, or of their children, is foreign and has a `response` hook."""
    return any(
        callable(getattr(addon, "response", None)) and not is_known(addon)
        for addon in with_children(addons)
    )
