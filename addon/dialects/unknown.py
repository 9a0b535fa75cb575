"""Pure. An answer of a configured host that no dialect is known for.

It gets a row with NULL tokens, so that nothing passes unseen (DESIGN §4). What looks like an
error is read; a figure is not guessed.
"""

from collections.abc import Mapping
from typing import Any

from addon.dialects import json_door
from addon.dialects.dialect import Dialect, Mark
from addon.dialects.facts import Facts
from addon.framing.frame import Frame
from ledger.usage import NO_USAGE, Usage


def read(facts: Facts, frame: Frame) -> None:
    facts.token_seen = True
    body = json_door.loads(frame.data)
    if body is not None and body.get("error"):
        facts.see_error(body["error"])


def usage_of(_usage: Mapping[str, Any], _facts: Facts) -> Usage:
    return NO_USAGE


UNKNOWN = Dialect(
    name="unknown",
    operation="unknown",
    read=read,
    usage_of=usage_of,
    marks=(Mark(b'"error"', (b'"error":null', b'"error": null')),),
    closes_without_mark=True,
)
