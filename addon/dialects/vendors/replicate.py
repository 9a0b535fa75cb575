"""Pure. Replicate predictions: an answer with its id and its state.

https://replicate.com/docs/reference/http#predictions.create

A client creates a prediction and reads it later, or waits for it. When it is done, `metrics` has
the token counts of language models and the billed seconds of other models.
"""

from collections.abc import Mapping
from typing import Any

from addon.dialects import shapes
from addon.dialects.counts import Counts
from addon.dialects.dialect import Dialect, Mark
from addon.dialects.errors import record_error
from addon.dialects.facts import Ending, Facts
from ledger.model.usage import Usage

_FINISHED = ("succeeded", "failed", "canceled", "aborted")


def read(facts: Facts, _event: str, body: dict[str, Any]) -> None:
    """Read one prediction, complete or in progress."""
    facts.record_id(body.get("id"))
    facts.record_model(body.get("model"))
    status = body.get("status")
    if status in _FINISHED or facts.is_document:
        facts.record_finish(status)
    if status in _FINISHED:
        facts.record_usage(body.get("metrics") or None, final=True)
    if body.get("error"):
        record_error(facts, body["error"], body)


def usage_of(usage: Mapping[str, Any], _facts: Facts) -> Usage:
    """The figures of `metrics`."""
    counts = Counts(usage)
    inputs, outputs = counts.first("input_token_count"), counts.first("output_token_count")
    # A model without token counts is billed by its run time.
    milliseconds = counts.milliseconds("predict_time") if inputs is outputs is None else None
    return Usage(
        input_tokens=inputs,
        output_tokens=outputs,
        tool_units={"predict_milliseconds": milliseconds} if milliseconds else {},
        remarks=counts.remarks,
    )


PREDICTIONS = Dialect(
    name="replicate.predictions",
    operation="text_completion",
    read=read,
    usage_of=usage_of,
    known_keys=frozenset(
        {"input_token_count", "output_token_count", "predict_time", "total_time"}
        | {
            "tokens_per_second",
            "time_to_first_token",
            "image_count",
            "video_output_duration_seconds",
        }
    ),
    marks=(Mark(b'"error"', (b'"error":null',)),),
    ending=Ending.CLOSE,
    request_shapes=({"version": shapes.text, "input": shapes.an_object},),
    answer_shapes=({"id": shapes.text, "status": shapes.text, "urls": shapes.an_object},),
)
