"""Pure. IBM watsonx.ai text generation; its chat is OpenAI's format under a different path.

https://cloud.ibm.com/apidocs/watsonx-ai#text-generation

Each result has the counts. In a stream `generated_token_count` is a running figure, and
`input_token_count` appears once, with zeros after it, so the largest of each is the figure.
"""

from typing import Any

from addon.dialects import shapes
from addon.dialects.counts import counts_among, objects_at
from addon.dialects.dialect import Dialect, Mark
from addon.dialects.errors import record_error
from addon.dialects.facts import Facts
from addon.dialects.frame_paths import UsagePaths
from ledger.model.usage import count_of

_FIGURES = UsagePaths(input=("input_token_count",), output=("generated_token_count",))
_KEYS = ("input_token_count", "generated_token_count")


def read(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read one document or event: its results with their counts."""
    facts.record_model(body.get("model_id"))
    for result in objects_at(body, "results"):
        if result.get("generated_text"):
            facts.token_seen = True
        if result.get("stop_reason") != "not_finished":
            facts.record_finish(result.get("stop_reason"))
        _read_counts(facts, result)
    if body.get("errors") or event == "error":
        record_error(facts, body.get("errors") or body, body)


def _read_counts(facts: Facts, result: dict[str, Any]) -> None:
    reported = counts_among(result, _KEYS)
    if not reported:
        return
    before = facts.usage or {}
    merged = {**before, **reported}
    for key, value in reported.items():
        if (count_of(before.get(key)) or 0) > (count_of(value) or 0):
            merged[key] = before[key]
    facts.record_usage(merged, final=facts.finish_reason is not None)


GENERATION = Dialect(
    name="watsonx.generation",
    operation="text_completion",
    read=read,
    usage_of=_FIGURES.usage_of,
    known_keys=frozenset(_KEYS),
    marks=(Mark(b'"input_token_count"'), Mark(b'"errors"')),
    text_marks=(b'"generated_text"',),
    request_shapes=({"model_id": shapes.text, "input": shapes.prompt},),
    answer_shapes=({"model_id": shapes.text, "results": shapes.with_key("generated_text")},),
)
