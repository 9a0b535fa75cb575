"""Pure. An answer of a configured host that no dialect is known for.

It gets a row with NULL tokens, so that nothing passes unseen. What looks like an error, an id or a
model is read; a figure is not guessed. A `status` beside `object` is the state of a thing (files
are `processed`, batches `validating`), which is no finish reason.
"""

from collections.abc import Mapping
from typing import Any

from addon.dialects.dialect import Dialect, Mark
from addon.dialects.errors import see_error
from addon.dialects.facts import Ending, Facts
from ledger.model.usage import NO_USAGE, Usage


def read(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read what looks like an error, an id or a model."""
    facts.token_seen = True
    facts.see_id(body.get("id"))
    facts.see_model(body.get("model"))
    if "object" not in body:
        facts.see_finish(body.get("status"))
    if body.get("error") or event == "error":
        see_error(facts, body.get("error") or body, body)


def usage_of(_usage: Mapping[str, Any], _facts: Facts) -> Usage:
    """No figures: none is guessed."""
    return NO_USAGE


UNKNOWN = Dialect(
    name="unknown",
    operation="unknown",
    read=read,
    usage_of=usage_of,
    marks=(Mark(b'"error"', (b'"error":null', b'"error": null')),),
    ending=Ending.CLOSE,
)
