"""Pure. Hugging Face Text Generation Inference, in its own format: `/generate`.

https://huggingface.github.io/text-generation-inference/

A document has details only if the request asked for them; response headers always have the counts.
The last event of a stream has `generated_text` and details.
"""

from typing import Any

from addon.dialects import shapes
from addon.dialects.counts import HEADER_PREFIX, count_in, object_at
from addon.dialects.dialect import Dialect, Mark
from addon.dialects.facts import Facts
from addon.dialects.frame_paths import FramePaths, UsagePaths

_HEADERS = {name: HEADER_PREFIX + name for name in ("x-prompt-tokens", "x-generated-tokens")}
_FIGURES = UsagePaths(
    input=("details.input_length", _HEADERS["x-prompt-tokens"]),
    output=("details.generated_tokens", _HEADERS["x-generated-tokens"]),
)
_LAYOUT = FramePaths(
    finishes=("details.finish_reason",),
    texts=("token.text", "generated_text"),
    usage_keys=("details.input_length", "details.generated_tokens"),
)


def read(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read one document or event, and the counts in its response headers."""
    _LAYOUT.read(facts, event, body)
    if object_at(body, "details") is not None and not facts.is_document:
        facts.ended = True
    if not facts.is_document:
        return
    reported = {
        key: count
        for name, key in _HEADERS.items()
        if (count := count_in(facts.headers, name)) is not None
    }
    if reported:
        facts.record_usage({**reported, **(facts.usage or {})}, final=True)


GENERATE = Dialect(
    name="tgi.generate",
    operation="text_completion",
    read=read,
    usage_of=_FIGURES.usage_of,
    known_keys=_FIGURES.known_keys(),
    marks=(Mark(b'"details"', (b'"details":null', b'"details": null')), Mark(b'"error"')),
    text_marks=(b'"text"',),
    answer_shapes=(
        {"generated_text": shapes.text, "details.generated_tokens": shapes.count},
        {"generated_text": shapes.text},
        {"token.id": shapes.count, "token.text": shapes.anything},
    ),
    request_shapes=({"inputs": shapes.text, "parameters": shapes.an_object},),
)
