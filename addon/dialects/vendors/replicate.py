"""Pure. Replicate predictions: an answer that names itself and its state; no tokens are said.

https://replicate.com/docs/reference/http#predictions.create
"""

from collections.abc import Mapping
from typing import Any

from addon.dialects.dialect import Dialect, Mark
from addon.dialects.errors import see_error
from addon.dialects.facts import Facts
from ledger.model.usage import NO_USAGE, Usage


def read(facts: Facts, _event: str, body: dict[str, Any]) -> None:
    facts.see_id(body.get("id"))
    facts.see_model(body.get("model"))
    facts.see_finish(body.get("status"))
    if body.get("error"):
        see_error(facts, body["error"], body)


def usage_of(_usage: Mapping[str, Any], _facts: Facts) -> Usage:
    return NO_USAGE


PREDICTIONS = Dialect(
    name="replicate.predictions",
    operation="text_completion",
    read=read,
    usage_of=usage_of,
    marks=(Mark(b'"error"', (b'"error":null',)),),
    closes_without_mark=True,
)
