"""Pure. One answer that is fetched later: xAI's deferred completions, Perplexity's async chat.

https://docs.x.ai/docs/guides/deferred-chat-completions
https://docs.perplexity.ai/api-reference/async-chat-completions-api-request-get
"""

from dataclasses import replace
from typing import Any

from addon.dialects.counts import object_at
from addon.dialects.errors import record_error
from addon.dialects.facts import Facts
from addon.dialects.openai import chat


def read_perplexity(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read the answer in `response`, beside the state of the order."""
    answer = object_at(body, "response")
    if answer is not None:
        chat.read(facts, event, answer)
    if body.get("error_message"):
        record_error(facts, str(body["error_message"]))


XAI = replace(chat.CHAT, name="xai.deferred")
PERPLEXITY = replace(chat.CHAT, name="perplexity.async", read=read_perplexity)
