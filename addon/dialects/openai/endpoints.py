"""Pure. OpenAI's plain endpoints: embeddings, images, videos, audio, moderations, decisions; runs.

One object with an optional `usage`, or a stream of typed events the last of which has it. Many
others answer embeddings and reranking the same way (Voyage, Mistral, Azure, Together …).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from msgspec.structs import replace as with_fields

from addon.dialects import shapes
from addon.dialects.counts import Counts, object_at, objects_at
from addon.dialects.dialect import CostLimits, Dialect, Mark
from addon.dialects.errors import openai_refusal, record_error, record_error_in
from addon.dialects.facts import Facts
from addon.dialects.openai import responses
from addon.dialects.openai import usage as openai_usage
from ledger.model.usage import Usage, count_of, sum_of


def read(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read one document or typed event."""
    facts.record_model(body.get("model"))
    facts.record_created(body.get("created"))
    kind = body.get("type")
    if kind is None:
        facts.record_id(body.get("id"))  # an event has the id of its segment
    usage = body.get("usage")
    if usage is None and facts.of.provider == "gigachat":
        # A usage stands beside each vector; the sum is billed:
        # https://developers.sber.ru/docs/ru/gigachat/api/reference/rest/post-embeddings
        beside = (object_at(one, "usage") or {} for one in objects_at(body, "data"))
        total = sum_of(*(count_of(one.get("prompt_tokens")) for one in beside))
        usage = {"prompt_tokens": total} if total is not None else None
    elif usage is None and "duration" in body and "text" in body:
        # xAI, and `verbose_json` of every Whisper (Groq, Together, DeepInfra): billed by the time.
        # https://docs.x.ai/developers/model-capabilities/audio/speech-to-text
        usage = {"seconds": body["duration"]}
    facts.record_usage(usage, final=True)
    responses.read_svg(facts, body)
    facts.token_seen = True
    if isinstance(kind, str) and kind.endswith((".done", ".completed")):
        facts.ended = True
    record_error_in(facts, event, body)


_IMAGES = "data[].image"
"""Path of images that are billed by their number: the answer has no usage object for them."""
_SECONDS, _VIDEOS = "video.seconds", "video.count"
"""Keys of a video's usage object, which the wire has at its top."""


def read_images(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read images. Those of older and of others' models have no usage: their number is billed."""
    read(facts, event, body)
    images = objects_at(body, "data")
    if facts.is_document and facts.usage is None and images:
        facts.record_number(_IMAGES, len(images))


def images_usage_of(usage: Mapping[str, Any], facts: Facts) -> Usage:
    """The figures: tokens, or the number of images."""
    if _IMAGES in usage:
        return Usage(tool_units={"images": usage[_IMAGES]})
    return responses.usage_of(usage, facts)


def read_video(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read a video, made or not yet: billed by its seconds and its resolution, or by the cost that
    a router states.

    https://developers.openai.com/api/docs/guides/video-generation; Azure's jobs spell it otherwise:
    https://learn.microsoft.com/azure/ai-services/openai/concepts/video-generation
    """
    facts.record_id(body.get("id"))
    facts.record_model(body.get("model"))
    facts.record_created(body.get("created_at"))
    facts.record_finish(body.get("status"))
    record_error_in(facts, event, body)
    if body.get("status") not in ("completed", "succeeded"):
        return
    size = body.get("size")
    if size is None and "width" in body:
        size = f"{body.get('width')}x{body.get('height')}"
    facts.record_beside("resolution", size)
    seconds, videos = body.get("seconds", body.get("n_seconds")), body.get("n_variants", 1)
    if isinstance(seconds, str) and seconds.isascii() and seconds.isdigit() and len(seconds) < 10:
        seconds = int(seconds)  # OpenAI writes it as a text
    usage = object_at(body, "usage") or {}
    facts.record_usage({**usage, _SECONDS: seconds, _VIDEOS: videos}, final=True)


def video_usage_of(usage: Mapping[str, Any], facts: Facts) -> Usage:
    """The figures: the seconds of all videos, or their number."""
    counts = Counts(usage)
    seconds, videos = counts.first(_SECONDS), counts.first(_VIDEOS)
    if seconds is not None and videos is not None:
        units = {"video_milliseconds": seconds * videos * 1000}
    else:
        units = {"videos": 1 if videos is None else videos}
    found = openai_usage.usage_of(usage, facts)
    return with_fields(found, tool_units={**found.tool_units, **units})


_RUN_NOT_FINISHED = ("queued", "in_progress", "cancelling")


def read_run(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read a run of an assistant; the same stream has its messages and steps."""
    if body.get("object") == "thread.run":
        facts.record_id(body.get("id"))
        facts.record_model(body.get("model"))
        facts.record_created(body.get("created_at"))
        status = body.get("status")
        if facts.is_document or status not in _RUN_NOT_FINISHED:
            facts.record_finish(status)
        facts.record_usage(body.get("usage"), final=True)
        if body.get("last_error"):
            record_error(facts, body["last_error"])
    elif event == "thread.message.delta":
        facts.token_seen = True
    if body.get("error"):
        record_error(facts, body["error"], body)


EMBEDDINGS = Dialect(
    name="openai.embeddings",
    operation="embeddings",
    read=read,
    usage_of=openai_usage.usage_of,
    known_keys=openai_usage.KNOWN_KEYS,
    refusal=openai_refusal,
    cost_limits=CostLimits(),
    marks=(Mark(b'"usage"'), Mark(b".done"), Mark(b".completed"), Mark(b'"error"')),
    request_shapes=(
        {"model": shapes.text, "input": shapes.prompt},
        {"model": shapes.text, "inputs": shapes.prompt},
    ),
    answer_shapes=(
        {"object": shapes.one_of("list"), "data": shapes.with_key("embedding")},
        {"data": shapes.with_key("embedding"), "usage": dict},
    ),
)
IMAGES = replace(
    EMBEDDINGS,
    name="openai.images",
    operation="image_generation",
    read=read_images,
    usage_of=images_usage_of,
    known_keys=EMBEDDINGS.known_keys | {_IMAGES},
    request_shapes=({"model": shapes.text, "prompt": shapes.prompt},),
    answer_shapes=(
        {"created": shapes.count, "data": shapes.with_key("b64_json")},
        {"created": shapes.count, "data": shapes.with_key("url")},
        {"type": shapes.beginning("image_generation.", "image_edit.")},
    ),
)
VIDEO = replace(
    EMBEDDINGS,
    name="openai.video",
    operation="video_generation",
    read=read_video,
    usage_of=video_usage_of,
    known_keys=EMBEDDINGS.known_keys | {_SECONDS, _VIDEOS},
    marks=(Mark(b'"status"'),),
    request_shapes=(),
    answer_shapes=({"id": shapes.text, "model": shapes.text, "status": shapes.text},),
)
TRANSCRIPTIONS = replace(
    EMBEDDINGS,
    name="openai.audio",
    operation="audio",
    text_marks=(b'"delta"',),
    request_shapes=({"model": shapes.text},),
    answer_shapes=(
        {"text": shapes.anything, "usage": dict},
        {"type": shapes.beginning("transcript.")},
    ),
)
SPEECH = replace(
    TRANSCRIPTIONS,
    name="openai.speech",
    operation="text_to_speech",
    request_shapes=({"model": shapes.text, "input": shapes.text},),
    answer_shapes=({"type": shapes.beginning("speech.audio.")},),
)
MODERATIONS = replace(
    EMBEDDINGS,
    name="openai.moderations",
    operation="moderation",
    answer_shapes=({"id": shapes.text, "model": shapes.text, "results": shapes.objects},),
)
RERANK = replace(
    EMBEDDINGS,
    name="openai.rerank",
    operation="rerank",
    request_shapes=({"model": shapes.text, "query": shapes.text, "documents": list},),
    answer_shapes=(
        {"results": shapes.with_key("relevance_score")},
        {"data": shapes.with_key("relevance_score")},
    ),
)
RUNS = replace(
    EMBEDDINGS,
    name="openai.runs",
    operation="invoke_agent",
    read=read_run,
    marks=(Mark(b'"thread.run"'), Mark(b'"error"', (b'"error":null',))),
    text_marks=(b'"value"',),
    request_shapes=({"assistant_id": shapes.text},),
    answer_shapes=({"object": shapes.one_of("thread.run"), "assistant_id": shapes.text},),
)


def decision_usage_of(usage: Mapping[str, Any], facts: Facts) -> Usage:
    """The figures. The output of a decision has a price of its own: at OpenAI none."""
    found = openai_usage.usage_of(usage, facts)
    if not found.output_tokens:
        return found
    units = {**found.tool_units, "output_decision_tokens": found.output_tokens}
    return with_fields(found, tool_units=units)


DECISIONS = replace(
    EMBEDDINGS,
    name="openai.decisions",
    operation="decision",
    usage_of=decision_usage_of,
    request_shapes=({"model": shapes.text, "questions": shapes.anything},),
    answer_shapes=({"answers": shapes.anything, "usage.input_tokens": shapes.count},),
)
