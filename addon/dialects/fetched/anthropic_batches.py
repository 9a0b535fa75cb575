"""Pure. The results of an Anthropic message batch, one line per answer.

https://docs.claude.com/en/docs/build-with-claude/batch-processing
"""

from typing import Any

from addon.dialects.counts import lookup
from addon.dialects.facts import Facts
from addon.dialects.fetched import sums


def read(facts: Facts, _event: str, body: dict[str, Any]) -> None:
    """Read one line of the results."""
    message = lookup(body, "result.message")
    if isinstance(message, dict) and "custom_id" in body:
        sums.add(facts, message)


RESULTS = sums.dialect_of_results("anthropic.batch_results", read, mark=b'"result"')
