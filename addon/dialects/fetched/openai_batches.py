"""Pure. The output file of a batch, one line per answer: OpenAI, Mistral, Groq, and Gemini.

https://platform.openai.com/docs/guides/batch
https://ai.google.dev/gemini-api/docs/batch-api
"""

from typing import Any

from addon.dialects.counts import object_at
from addon.dialects.facts import Facts
from addon.dialects.fetched import sums


def read(facts: Facts, _event: str, body: dict[str, Any]) -> None:
    """Read one line. OpenAI's answer is in `response.body`, Gemini's in `response`."""
    response = object_at(body, "response")
    if response is not None and ("custom_id" in body or "key" in body):
        sums.add(facts, object_at(response, "body") or response)


OUTPUT_FILE = sums.dialect_of_results("openai.batch_output", read, mark=b'"response"')
