"""Pure. A Gemini batch as an operation, which holds its answers once it is done.

https://ai.google.dev/gemini-api/docs/batch-api
"""

from typing import Any

from addon.dialects.counts import lookup, object_at, objects_at
from addon.dialects.facts import Facts
from addon.dialects.fetched import sums


def read(facts: Facts, _event: str, body: dict[str, Any]) -> None:
    """Read the operation; one that is not done has no answers."""
    for one in objects_at(lookup(body, "response.inlinedResponses"), "inlinedResponses"):
        answer = object_at(one, "response")
        if answer is not None:
            sums.add(facts, answer)


OPERATION = sums.dialect_of_results("gemini.batch", read, mark=b'"response"')
