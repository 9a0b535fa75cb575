"""Pure. OpenAI's plain endpoints: embeddings, images, audio, moderations; Assistants runs.

One object with an optional `usage`, or a stream of typed events the last of which has it. Many
others answer embeddings and reranking the same way (Voyage, Mistral, Azure, Together …).
"""

from dataclasses import replace
from typing import Any

from addon.dialects.dialect import Dialect, Mark
from addon.dialects.errors import see_error
from addon.dialects.facts import Facts
from addon.dialects.openai import usage as openai_usage


def read(facts: Facts, event: str, body: dict[str, Any]) -> None:
    facts.see_model(body.get("model"))
    facts.see_created(body.get("created"))
    facts.see_tier(body.get("service_tier"))
    kind = body.get("type")
    if kind is None:
        facts.see_id(body.get("id"))  # an event's id is its segment's
    facts.see_usage(body.get("usage"), final=True)
    facts.token_seen = True
    if isinstance(kind, str) and kind.endswith((".done", ".completed")):
        facts.ended = True
    if body.get("error") or event == "error":
        see_error(facts, body.get("error") or body, body)


def read_run(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """A run of an assistant; its messages and steps pass in the same stream."""
    if body.get("object") == "thread.run":
        facts.see_id(body.get("id"))
        facts.see_model(body.get("model"))
        facts.see_created(body.get("created_at"))
        facts.see_finish(body.get("status"))
        facts.see_usage(body.get("usage"), final=True)
        if body.get("last_error"):
            see_error(facts, body["last_error"])
    elif event == "thread.message.delta":
        facts.token_seen = True
    if body.get("error"):
        see_error(facts, body["error"], body)


EMBEDDINGS = Dialect(
    name="openai.embeddings",
    operation="embeddings",
    read=read,
    usage_of=openai_usage.usage_of,
    known_keys=openai_usage.KNOWN_KEYS,
    marks=(Mark(b'"usage"'), Mark(b".done"), Mark(b".completed"), Mark(b'"error"')),
)
IMAGES = replace(EMBEDDINGS, name="openai.images", operation="image_generation")
AUDIO = replace(EMBEDDINGS, name="openai.audio", operation="audio", text_marks=(b'"delta"',))
MODERATIONS = replace(EMBEDDINGS, name="openai.moderations", operation="moderation")
RERANK = replace(EMBEDDINGS, name="openai.rerank", operation="rerank")
RUNS = replace(
    EMBEDDINGS,
    name="openai.runs",
    operation="invoke_agent",
    read=read_run,
    marks=(Mark(b'"thread.run"'), Mark(b'"error"', (b'"last_error":null', b'"error":null'))),
    text_marks=(b'"value"',),
)
