"""Pure. Ollama's native API: chat, generate, embed.

https://github.com/ollama/ollama/blob/main/docs/api.md

There is no usage object: the counts and durations (nanoseconds) are on the last line, beside
`done: true`. Ollama leaves out a prompt count if the whole prompt was cached.
"""

from dataclasses import replace
from typing import Any

from addon.dialects import shapes
from addon.dialects.counts import counts_among, object_at
from addon.dialects.dialect import Dialect, Mark
from addon.dialects.errors import record_error
from addon.dialects.facts import Ending, Facts
from addon.dialects.frame_paths import UsagePaths

_USAGE_KEYS = (
    "prompt_eval_count",
    "eval_count",
    "total_duration",
    "load_duration",
    "prompt_eval_duration",
    "eval_duration",
)
_FIGURES = UsagePaths(input=("prompt_eval_count",), output=("eval_count",))


def read(facts: Facts, _event: str, body: dict[str, Any]) -> None:
    """Read one document or line."""
    facts.record_model(body.get("model"))
    message = object_at(body, "message") or {}
    if body.get("response") or any(message.get(key) for key in ("content", "thinking")):
        facts.token_seen = True
    if message.get("tool_calls"):
        facts.token_seen = True
    if body.get("error"):
        record_error(facts, body["error"], body)
    if body.get("done") is True or facts.is_document:
        facts.record_finish(body.get("done_reason"))
        usage = counts_among(body, _USAGE_KEYS)
        facts.record_usage(usage or None, final=True)
        facts.ended = True


CHAT = Dialect(
    name="ollama.chat",
    operation="chat",
    read=read,
    usage_of=_FIGURES.usage_of,
    known_keys=frozenset(_USAGE_KEYS),
    marks=(Mark(b'"done"', (b'"done":false', b'"done": false')), Mark(b'"error"')),
    text_marks=(b'"content"', b'"response"', b'"thinking"'),
    streams_unless_told=True,
    ending=Ending.MARK,
    request_shapes=({"model": shapes.text, "messages": shapes.a_list},),
    answer_shapes=(
        {"model": shapes.text, "done": shapes.true_or_false, "message": shapes.an_object},
    ),
)
GENERATE = replace(
    CHAT,
    name="ollama.generate",
    operation="text_completion",
    request_shapes=({"model": shapes.text, "prompt": shapes.anything},),
    answer_shapes=(
        {"model": shapes.text, "done": shapes.true_or_false, "response": shapes.anything},
    ),
)
EMBED = replace(
    CHAT,
    name="ollama.embed",
    operation="embeddings",
    streams_unless_told=False,
    request_shapes=(
        {"model": shapes.text, "input": shapes.prompt},
        {"model": shapes.text, "prompt": shapes.prompt},
    ),
    answer_shapes=({"model": shapes.text, "embeddings": shapes.a_list},),
)
