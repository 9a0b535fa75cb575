"""Pure. Alibaba DashScope's own format: generation, embeddings, reranking, applications,
and tasks: images and videos that are fetched later.

https://www.alibabacloud.com/help/en/model-studio/dashscope-api-reference/

Each event of a stream repeats the whole usage so far. An unfinished choice has the text `"null"` as
its finish reason. Applications list the usage of each model; the exchange has the sum.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from msgspec.structs import replace as with_fields

from addon.dialects import shapes
from addon.dialects.counts import Counts, object_at, objects_at
from addon.dialects.dialect import Dialect, Mark
from addon.dialects.errors import record_error
from addon.dialects.facts import Facts
from addon.dialects.frame_paths import FramePaths, UsagePaths
from addon.dialects.openai import usage as openai_usage
from ledger.model.usage import Usage, count_of, sum_of

_TASK = UsagePaths(units={"image_count": "images"})
_LAYOUT = FramePaths(
    ids=("request_id",),
    finishes=("output.choices.0.finish_reason", "output.finish_reason"),
    unfinished=frozenset({"null"}),
    texts=(
        "output.text",
        "output.choices.0.message.content",
        "output.choices.0.message.reasoning_content",
        "output.choices.0.message.tool_calls",
    ),
    usages=("usage",),
    errors=("error",),
)


def read(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read one document or event."""
    _LAYOUT.read(facts, event, body)
    for one in objects_at(body.get("usage"), "models"):
        facts.record_model(one.get("model_id"))
    if body.get("code") and body.get("message") and "output" not in body:
        record_error(facts, {"code": body["code"], "message": body["message"]})


def usage_of(usage: Mapping[str, Any], facts: Facts) -> Usage:
    """The figures: OpenAI's keys, or the sum over an application's models."""
    models = objects_at(usage, "models")
    if models and "input_tokens" not in usage:
        return Usage(
            input_tokens=sum_of(*(count_of(one.get("input_tokens")) for one in models)),
            output_tokens=sum_of(*(count_of(one.get("output_tokens")) for one in models)),
        )
    found = openai_usage.usage_of(usage, facts)
    units = Counts(usage).units({"image_count": "images"})
    return with_fields(found, tool_units={**found.tool_units, **units}) if units else found


def read_task(facts: Facts, _event: str, body: dict[str, Any]) -> None:
    """Read a task, done or not. Each fetch has a request id of its own, so the task's id counts."""
    output = object_at(body, "output") or {}
    facts.record_id(output.get("task_id"))
    facts.record_finish(output.get("task_status"))
    if output.get("task_status") == "SUCCEEDED":
        facts.record_usage(body.get("usage"), final=True)


def usage_of_task(usage: Mapping[str, Any], facts: Facts) -> Usage:
    """Images by their number, videos by their seconds; older models name these differently."""
    seconds = Counts(usage).milliseconds("video_duration", "output_video_duration", "duration")
    found = _TASK.usage_of(usage, facts)
    if seconds:
        found = with_fields(found, tool_units={**found.tool_units, "video_milliseconds": seconds})
    return found


_ANSWER: tuple[shapes.Shape, ...] = ({"request_id": shapes.text, "output": dict},)

GENERATION = Dialect(
    name="dashscope.generation",
    operation="chat",
    read=read,
    usage_of=usage_of,
    known_keys=openai_usage.KNOWN_KEYS
    | {"models", "models.*", "image_tokens", "video_tokens", "audio_tokens", "image_count"}
    | {"input_tokens_details.text_tokens", "plugins", "plugins.*"},
    marks=(Mark(b'"usage"', latest=True), Mark(b'"finish_reason"', (b'"finish_reason":"null"',))),
    text_marks=(b'"content"', b'"reasoning_content"', b'"text"'),
    id_in_frames=True,
    request_shapes=(
        {"model": shapes.text, "input.messages": shapes.messages},
        {"model": shapes.text, "input.prompt": shapes.prompt},
    ),
    answer_shapes=_ANSWER,
)
EMBEDDING = replace(
    GENERATION,
    name="dashscope.embedding",
    operation="embeddings",
    request_shapes=({"model": shapes.text, "input": dict},),
)
RERANK = replace(EMBEDDING, name="dashscope.rerank", operation="rerank")
TASK = replace(
    GENERATION,
    name="dashscope.task",
    operation="image_generation",
    read=read_task,
    usage_of=usage_of_task,
    known_keys=_TASK.known_keys(
        "video_duration", "video_count", "video_ratio", "duration", "SR", "size"
    )
    | {"input_video_duration", "output_video_duration"},
    marks=(Mark(b'"usage"'),),
    request_shapes=(),
    answer_shapes=({"output.task_id": shapes.text, "usage": dict},),
)
"""https://www.alibabacloud.com/help/en/model-studio/text-to-image-v2-api-reference"""
