"""Pure. An answer of a configured host without a known dialect.

It gets a row with NULL tokens, so that it is not missed. The dialect reads likely errors, ids and
models; it does not guess figures. A `status` beside `object` is the state of an object (files are
`processed`, batches `validating`), not a finish reason.
"""

from collections.abc import Mapping
from typing import Any

from addon.dialects.dialect import Dialect, Mark
from addon.dialects.errors import record_error_in
from addon.dialects.facts import Ending, Facts
from ledger.model.usage import NO_USAGE, Usage


def read(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read a likely error, id or model."""
    facts.token_seen = True
    facts.record_id(body.get("id"))
    facts.record_model(body.get("model"))
    if "object" not in body:
        facts.record_finish(body.get("status"))
    record_error_in(facts, event, body)


def usage_of(_usage: Mapping[str, Any], _facts: Facts) -> Usage:
    """No figures, because the format is unknown."""
    return NO_USAGE


UNKNOWN = Dialect(
    name="unknown",
    operation="unknown",
    read=read,
    usage_of=usage_of,
    marks=(Mark(b'"error"', (b'"error":null', b'"error": null')),),
    ending=Ending.CLOSE,
)
