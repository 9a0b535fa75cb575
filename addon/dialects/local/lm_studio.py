"""Pure. LM Studio's own format: `/api/v1/chat`.

https://lmstudio.ai/docs/developer/rest/chat

The figures are in `stats`; a stream ends with `chat.end`, which carries the whole answer.
"""

from typing import Any

from addon.dialects import shapes
from addon.dialects.counts import object_at
from addon.dialects.dialect import Dialect, Mark
from addon.dialects.errors import record_error
from addon.dialects.facts import Facts
from addon.dialects.frame_paths import UsagePaths

_FIGURES = UsagePaths(
    input=("input_tokens",), output=("total_output_tokens",), reasoning=("reasoning_output_tokens",)
)


def read(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read one document or event."""
    kind = body.get("type") or event
    if kind == "error" or body.get("error"):
        record_error(facts, body.get("error") or body, body)
        return
    answer = object_at(body, "result") if kind == "chat.end" else body
    if answer is None:
        return
    facts.record_model(answer.get("model_instance_id"))
    facts.record_id(answer.get("response_id"))
    facts.record_usage(answer.get("stats"), final=True)
    if kind == "chat.end":
        facts.ended = True
    elif isinstance(kind, str) and kind.endswith((".delta", ".arguments")):
        facts.token_seen = True


CHAT = Dialect(
    name="lm_studio.chat",
    operation="chat",
    read=read,
    usage_of=_FIGURES.usage_of,
    known_keys=_FIGURES.known_keys(
        "tokens_per_second", "time_to_first_token_seconds", "model_load_time_seconds"
    ),
    marks=(Mark(b"chat.end"), Mark(b'"error"'), Mark(b'"stats"')),
    text_marks=(b'"content"', b'"arguments"'),
    answer_shapes=(
        {"model_instance_id": shapes.text, "stats": shapes.an_object},
        {"type": shapes.one_of("chat.start", "chat.end"), "model_instance_id": shapes.text},
        {"type": shapes.one_of("chat.end"), "result.stats": shapes.an_object},
    ),
)
