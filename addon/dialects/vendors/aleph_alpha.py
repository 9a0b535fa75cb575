"""Pure. Aleph Alpha's own format: completion and embeddings.

https://docs.aleph-alpha.com/api/complete/

The counts are at the top level of a document and in the last event of a stream. No answer names
its model: `model_version` is a date.
"""

from dataclasses import replace
from typing import Any

from addon.dialects import shapes
from addon.dialects.dialect import Dialect, Mark
from addon.dialects.facts import Facts
from addon.dialects.frame_paths import FramePaths, UsagePaths

_FIGURES = UsagePaths(input=("num_tokens_prompt_total",), output=("num_tokens_generated",))
_LAYOUT = FramePaths(
    finishes=("completions.0.finish_reason", "finish_reason"),
    texts=("completions.0.completion", "completion", "embedding", "embeddings"),
    usage_keys=("num_tokens_prompt_total", "num_tokens_generated"),
)


def read(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read one document or event."""
    _LAYOUT.read(facts, event, body)
    if body.get("type") == "completion_summary":
        facts.ended = True


COMPLETE = Dialect(
    name="aleph_alpha.complete",
    operation="text_completion",
    read=read,
    usage_of=_FIGURES.usage_of,
    known_keys=_FIGURES.known_keys(),
    marks=(Mark(b"_summary"), Mark(b'"num_tokens_'), Mark(b'"error"')),
    text_marks=(b'"completion"',),
    request_shapes=({"model": shapes.text, "prompt": shapes.prompt},),
    answer_shapes=({"completions": shapes.objects, "model_version": shapes.text},),
)
EMBED = replace(
    COMPLETE,
    name="aleph_alpha.embed",
    operation="embeddings",
    request_shapes=({"model": shapes.text, "representation": shapes.text},),
    answer_shapes=({"num_tokens_prompt_total": shapes.count},),
)
