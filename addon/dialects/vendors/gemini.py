"""Pure. Gemini on Google AI, Vertex AI and Firebase: generateContent, streamed or not, embeddings;
Interactions, and Live.

https://ai.google.dev/api/generate-content#UsageMetadata

`usageMetadata` is on every chunk, a running figure: the last one counts, as a whole, because it is
not monotonic and a key missing from it no longer applies. Thoughts and tool-use prompts are counted
beside candidates and prompt, the cached content inside the prompt.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from addon.dialects import shapes
from addon.dialects.counts import Counts, added, lookup, object_at, objects_at
from addon.dialects.dialect import CostLimits, Dialect, Mark, SessionProtocol
from addon.dialects.errors import google_refusal, record_error, record_error_in
from addon.dialects.facts import Ending, Facts, ToolFacts
from ledger.model.usage import NO_USAGE, Usage, count_of, sum_of

_DETAILS = (
    *("promptTokensDetails", "cacheTokensDetails", "candidatesTokensDetails"),
    *("toolUsePromptTokensDetails", "promptTokenDetails", "responseTokensDetails"),
)
KNOWN_KEYS = frozenset(
    {"promptTokenCount", "toolUsePromptTokenCount", "cachedContentTokenCount"}
    | {"candidatesTokenCount", "thoughtsTokenCount", "totalTokenCount", "raw_prompt_token"}
    | {f"{details}{key}" for details in _DETAILS for key in ("", ".modality", ".tokenCount")}
    | {"serviceTier", "trafficType", "responseTokenCount", "billablePromptUsage"}
    | {"pydantic_ai_gateway", "pydantic_ai_gateway.*"}
)
_EMBEDDED = "predictions[].embeddings.statistics.token_count"
"""Path of Vertex' embeddings on the wire, which has no usage object for them."""
_QUERIES = {"webSearchQueries": "web_searches", "imageSearchQueries": "image_searches"}
_MODALITY = re.compile(r"[A-Za-z][A-Za-z_]{0,31}")
_TEXT = ("text", "modality_unspecified")
MODALITIES_MAX = 16
_REPORTS_DELTAS = "translat"
"""In the names of models that translate: `gemini-3.5-live-translate-preview`."""


def read(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read one document, chunk of a stream, or item of an array."""
    body = object_at(body, "response") or body  # Code Assist wraps it
    facts.record_id(body.get("responseId"))
    facts.record_model(body.get("modelVersion"))
    record_error_in(facts, event, body)
    for candidate in objects_at(body, "candidates"):
        facts.record_finish(candidate.get("finishReason"))
        _read_content(facts, candidate, "content")
    blocked = lookup(body, "promptFeedback.blockReason")
    if blocked is not None and not facts.is_finished:
        facts.record_finish(f"blocked:{blocked}")
    # The last chunk carries the finish reason; with server-side tools an earlier one does, too.
    facts.ended = facts.is_finished
    facts.record_usage(body.get("usageMetadata"), final=facts.ended)


def _read_content(facts: Facts, answer: dict[str, Any], key: str) -> None:
    """Read whether there is text, and the server tools that ran.

    Grounding is billed per query that is not empty, each counted once (Gemini 3), or per prompt. An
    answer from Google Maps alone has the queries of Maps, which is billed per prompt.
    https://ai.google.dev/gemini-api/docs/google-search#pricing, BerriAI/litellm#38418
    """
    parts = objects_at(object_at(answer, key), "parts")
    # An empty part stands in an answer without a token (finishReason STOP, no candidates' count).
    facts.token_seen |= any(part != {"text": ""} for part in parts)
    grounding = object_at(answer, "groundingMetadata") or {}
    sources = {kind for chunk in objects_at(grounding, "groundingChunks") for kind in chunk}
    is_context = "urlContextMetadata" in answer or "retrievedContext" in sources
    if is_context or any("executableCode" in part for part in parts):
        facts.rare.tools = ToolFacts(are_billed=True)
    if "maps" in sources:
        facts.rare.units["maps_prompts"] = 1
    for unit_key, unit in _QUERIES.items():
        queries = grounding.get(unit_key)
        searched = {str(query) for query in queries if query} if isinstance(queries, list) else ()
        if "maps" in sources and "web" not in sources:
            facts.rare.units.pop(unit, None)
        elif searched:
            facts.rare.units[unit] = len(searched)


def read_embeddings(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read embeddings; Vertex puts the counts into each prediction."""
    read(facts, event, body)
    statistics = [
        lookup(prediction, "embeddings.statistics.token_count")
        for prediction in objects_at(body, "predictions")
    ]
    if any(count is not None for count in statistics):
        facts.record_usage({_EMBEDDED: statistics}, final=True)


def usage_of(usage: Mapping[str, Any], facts: Facts) -> Usage:
    """The figures: output includes thoughts, input includes tool use; Gemini counts them apart."""
    counts = Counts(usage)
    thoughts = counts.first("thoughtsTokenCount")
    # Live names it response; all others name it candidates.
    candidates = counts.first("candidatesTokenCount", "responseTokenCount")
    prompt = counts.first("promptTokenCount")
    tool_use = counts.first("toolUsePromptTokenCount")
    total = counts.first("totalTokenCount")
    if candidates is None and total is not None and prompt is not None and facts.token_seen:
        # Some answers leave the candidates out; what the total has beside the rest is theirs.
        candidates = max(0, total - prompt - (tool_use or 0) - (thoughts or 0)) or None
    inputs = _by_modality(usage, "promptTokensDetails", "toolUsePromptTokensDetails")
    outputs = _by_modality(usage, "candidatesTokensDetails", "responseTokensDetails")
    cached = _by_modality(usage, "cacheTokensDetails")
    return Usage(
        input_tokens=sum_of(prompt, tool_use),
        cache_read_tokens=counts.first("cachedContentTokenCount"),
        output_tokens=sum_of(candidates, thoughts),
        reasoning_tokens=thoughts,
        input_audio_tokens=inputs.get("audio"),
        output_audio_tokens=outputs.get("audio"),
        tool_units={
            **facts.rare.units,
            **_searched(facts, facts.rare.units, tool_use),
            **_modality_units(inputs, outputs, cached),
        },
        remarks=counts.remarks,
    )


def _searched(facts: Facts, units: Mapping[str, int], tool_use: int | None) -> dict[str, int]:
    """The tokens of what Google Search retrieved, which have a price of their own: none. Where
    another tool ran, too, its tokens cannot be told from them, and all are ordinary input
    (https://ai.google.dev/gemini-api/docs/pricing)."""
    if not tool_use or facts.rare.tools.are_billed or "web_searches" not in units:
        return {}
    return {"input_search_tokens": tool_use}


def embeddings_usage_of(usage: Mapping[str, Any], facts: Facts) -> Usage:
    """The figures of embeddings: the sum of Vertex' counts, or the ordinary usage."""
    if _EMBEDDED not in usage:
        return usage_of(usage, facts)
    counted = [count_of(count) for count in usage[_EMBEDDED]]
    return Usage(input_tokens=sum_of(*counted))


def _by_modality(usage: Mapping[str, Any], *keys: str, count: str = "tokenCount") -> dict[str, int]:
    """Tokens by modality, without text; the enum may be a number, which is ignored."""
    tokens: dict[str, int] = {}
    for key in keys:
        for detail in objects_at(usage, key):
            modality = str(detail.get("modality")).lower()
            number = count_of(detail.get(count))
            if number is None or modality in _TEXT or not _MODALITY.fullmatch(modality):
                continue
            if modality in tokens or len(tokens) < MODALITIES_MAX:
                tokens[modality] = tokens.get(modality, 0) + number
    return tokens


def _modality_units(
    inputs: Mapping[str, int], outputs: Mapping[str, int], cached: Mapping[str, int]
) -> dict[str, int]:
    """Tokens that have a price of their own, by the name of their unit. One of a new modality has
    none until a list names it."""
    kinds = (
        ("cache_read", cached, "document"),
        ("input", inputs, "audio"),
        ("output", outputs, "audio"),
    )
    return {
        f"{kind}_{modality}_tokens": count
        for kind, tokens, other in kinds
        for modality, count in tokens.items()
        if count and modality != other
    }


GENERATE_CONTENT = Dialect(
    name="gemini.generate_content",
    operation="generate_content",
    read=read,
    usage_of=usage_of,
    known_keys=KNOWN_KEYS,
    refusal=google_refusal,
    cost_limits=CostLimits(
        output=("generationConfig.maxOutputTokens",),
        answers=("generationConfig.candidateCount",),
        kept=("cachedContent",),
        clients_tools=("functionDeclarations", "function_declarations"),
    ),
    marks=(
        Mark(b'"usageMetadata"', latest=True),
        Mark(b'"finishReason"'),
        Mark(b'"blockReason"'),
        Mark(b'"error"'),
        Mark(b'SearchQueries"'),
        Mark(b'"groundingChunks"'),
        Mark(b'"urlContextMetadata"'),
        Mark(b'"executableCode"'),
    ),
    text_marks=(b'"text"',),
    id_in_frames=True,
    ending=Ending.UNSURE,
    request_shapes=(
        {"contents": shapes.with_key("parts")},
        {"contents.parts": shapes.objects},
        {"request.contents": shapes.with_key("parts")},
    ),
    answer_shapes=(
        {"candidates": shapes.objects},
        {"usageMetadata": dict},
        {"promptFeedback": dict},
        {"response.usageMetadata": dict},
    ),
)
EMBEDDINGS = replace(
    GENERATE_CONTENT,
    name="gemini.embeddings",
    operation="embeddings",
    read=read_embeddings,
    usage_of=embeddings_usage_of,
    known_keys=KNOWN_KEYS | {_EMBEDDED},
    request_shapes=(
        {"content.parts": shapes.objects},
        {"requests": shapes.with_key("content")},
        {"instances": shapes.with_key("content")},
    ),
    answer_shapes=(
        {"embedding.values": list},
        {"embeddings": shapes.with_key("values")},
        {"predictions": shapes.with_key("embeddings")},
    ),
)
IMAGE_MODELS = ("imagen", "imagegeneration", "virtual-try-on")
MUSIC_MODELS = ("lyria",)
_GENERATED = "predictions[].mimeType"
"""Path of images and clips, which have no usage object."""
_VIDEOS = "videos[].uri"
"""Path of the videos of an operation, at Vertex; Google AI has them deeper."""
_CONTENTS = ("bytesBase64Encoded", "gcsUri", "audioContent")


def read_predictions(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read the images of Imagen, the clips of Lyria. One that was filtered has no content and is
    not billed.

    https://docs.cloud.google.com/vertex-ai/generative-ai/docs/model-reference/imagen-api
    https://docs.cloud.google.com/vertex-ai/generative-ai/docs/model-reference/lyria-music-generation
    """
    facts.record_model(facts.of.path_model)
    record_error_in(facts, event, body)
    if "predictions" in body:
        predictions = objects_at(body, "predictions")
        made = [one for one in predictions if any(one.get(content) for content in _CONTENTS)]
        facts.record_number(_GENERATED, len(made), is_usage=True)


def read_videos(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read the operation that makes videos, done or not. What was filtered is not there and is not
    billed. Seconds and resolution, by which they are billed, stand in an earlier request alone.

    https://ai.google.dev/gemini-api/docs/video
    https://docs.cloud.google.com/vertex-ai/generative-ai/docs/model-reference/veo-video-generation
    """
    facts.record_id(body.get("name"))
    name = str(body.get("name") or "")
    facts.record_model(name.partition("/operations/")[0].rpartition("models/")[2])
    record_error_in(facts, event, body)
    response = object_at(body, "response") or {}
    samples = objects_at(response.get("generateVideoResponse"), "generatedSamples")
    if videos := len(objects_at(response, "videos") or samples):
        facts.record_finish("done")
        facts.record_usage({_VIDEOS: videos}, final=True)


IMAGES = replace(
    GENERATE_CONTENT,
    name="gemini.images",
    ending=Ending.FINISH,
    operation="image_generation",
    read=read_predictions,
    usage_of=lambda usage, _facts: Usage(tool_units={"images": usage[_GENERATED]}),
    known_keys=frozenset({_GENERATED}),
    request_shapes=({"instances": shapes.with_key("prompt")},),
    answer_shapes=tuple({"predictions": shapes.with_key(content)} for content in _CONTENTS),
)
MUSIC = replace(
    IMAGES,
    name="gemini.music",
    operation="music_generation",
    usage_of=lambda usage, _facts: Usage(tool_units={"clips": usage[_GENERATED]}),
)
VIDEOS = replace(
    IMAGES,
    name="gemini.videos",
    operation="video_generation",
    read=read_videos,
    usage_of=lambda usage, _facts: Usage(tool_units={"videos": usage[_VIDEOS]}),
    known_keys=frozenset({_VIDEOS}),
    request_shapes=(),
    answer_shapes=({"name": shapes.text, "response": dict},),
)
RANKING = replace(
    GENERATE_CONTENT,
    name="gemini.ranking",
    ending=Ending.FINISH,
    operation="rerank",
    usage_of=lambda _usage, _facts: NO_USAGE,
    known_keys=frozenset(),
    request_shapes=({"query": shapes.text, "records": shapes.with_key("id")},),
    answer_shapes=({"records": shapes.with_key("score")},),
)
"""https://docs.cloud.google.com/generative-ai-app-builder/docs/ranking: billed by the query."""


_CANCELLED = "interaction.cancelled"
_STATES = (_CANCELLED, "interaction.status_update")
"""Events that are an interaction themselves (`InteractionCancelledEvent` of the SDK)."""
_BILLED_STEPS = ("url_context_call", "code_execution_call", "file_search_call", "retrieval_call")
"""Steps of server tools whose results are billed as input."""
_GROUNDING = {"google_search": "web_searches", "google_maps": "maps_prompts"}


def read_interaction(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read one document or event of the Interactions API: its own event names and usage keys.

    https://ai.google.dev/gemini-api/docs/interactions
    """
    kind = body.get("event_type") or event
    interaction = object_at(body, "interaction")
    if interaction is None and (facts.is_document or kind in _STATES):
        interaction = body
    if interaction is not None:
        facts.record_id(interaction.get("id") or interaction.get("interaction_id"))
        facts.record_model(interaction.get("model"))
        status = interaction.get("status") or (kind == _CANCELLED and "cancelled")
        if status != "in_progress" or facts.is_document:
            facts.record_finish(status)
        facts.record_usage(interaction.get("usage"), final=kind != _STATES[1])
    for step in (object_at(body, "step") or {}, *objects_at(interaction, "steps")):
        if step.get("type") in _BILLED_STEPS:
            facts.rare.tools = ToolFacts(are_billed=True)
    if kind in ("interaction.complete", "interaction.completed", "interaction.failed", _CANCELLED):
        facts.ended = True
    elif kind in ("step.delta", "content.delta"):
        facts.token_seen = True
    error = body.get("error") or (interaction or {}).get("error")
    if error or kind == "error":
        record_error(facts, error or body, body)


def interaction_usage_of(usage: Mapping[str, Any], facts: Facts) -> Usage:
    """The figures: output includes thoughts, input includes tool use; Gemini counts them apart."""
    counts = Counts(usage)
    thoughts = counts.first("total_thought_tokens")
    inputs = counts.first("total_input_tokens")
    tool_use = counts.first("total_tool_use_tokens")
    grounded = {
        _GROUNDING.get(kind, f"{facts.token('grounding_tool_count', kind) or 'other'}_calls"): count
        for one in objects_at(usage, "grounding_tool_count")[:MODALITIES_MAX]
        if (count := count_of(one.get("count"))) and isinstance(kind := one.get("type"), str)
    }
    inputs_by, outputs_by, cached_by = (
        _by_modality(usage, *keys, count="tokens")
        for keys in (
            ("input_tokens_by_modality", "tool_use_tokens_by_modality"),
            ("output_tokens_by_modality",),
            ("cached_tokens_by_modality",),
        )
    )
    return Usage(
        input_tokens=sum_of(inputs, tool_use),
        cache_read_tokens=counts.first("total_cached_tokens"),
        output_tokens=sum_of(counts.first("total_output_tokens"), thoughts),
        reasoning_tokens=thoughts,
        input_audio_tokens=inputs_by.get("audio"),
        output_audio_tokens=outputs_by.get("audio"),
        tool_units={
            **facts.rare.units,
            **grounded,
            **_searched(facts, grounded, tool_use),
            **_modality_units(inputs_by, outputs_by, cached_by),
        },
        remarks=counts.remarks,
    )


INTERACTIONS = Dialect(
    name="gemini.interactions",
    operation="chat",
    read=read_interaction,
    usage_of=interaction_usage_of,
    known_keys=frozenset(
        {"total_input_tokens", "total_output_tokens", "total_thought_tokens", "total_tokens"}
        | {"total_cached_tokens", "total_tool_use_tokens", "raw_prompt_token"}
        | {"initial_input_tokens", "grounding_tool_count", "grounding_tool_count.*"}
        | {
            f"{kind}_tokens_by_modality{key}"
            for kind in ("input", "output", "cached", "tool_use")
            for key in ("", ".modality", ".tokens")
        }
    ),
    refusal=google_refusal,
    marks=(Mark(b"interaction."), Mark(b'"step.start"'), Mark(b'"error"')),
    text_marks=(b'"text"', b'"arguments"'),
    request_shapes=(
        {"model": shapes.text, "input": shapes.anything},
        {"agent": shapes.text, "input": shapes.anything},
    ),
    answer_shapes=(
        {"object": shapes.one_of("interaction"), "usage": dict},
        {"event_type": shapes.beginning("interaction."), "interaction": dict},
    ),
)


def read_live(facts: Facts, _event: str, body: dict[str, Any]) -> None:
    """Read one message of the server of a Live session, for one turn of the model.

    https://ai.google.dev/api/live

    The server's messages belong to the open turn. Usage usually comes beside `turnComplete`, and
    may come earlier in the turn too: the last one counts. Each turn is billed with the whole
    context of the session, so the turns of a session are exchanges of their own. Models that
    translate live report what came since the last report instead, so that a turn has the sum
    (https://ai.google.dev/gemini-api/docs/live).
    """
    content = object_at(body, "serverContent")
    if content is not None:
        facts.token_seen |= bool(content.get("outputTranscription"))
        _read_content(facts, content, "modelTurn")
        if content.get("interrupted") is True:
            facts.record_finish("interrupted")
        facts.record_finish(content.get("turnCompleteReason"))
        if content.get("turnComplete") is True:
            facts.ended = True
    elif body.get("toolCall"):
        facts.token_seen = True
    usage = object_at(body, "usageMetadata")
    if usage is not None:
        before = facts.usage
        if before is not None and _REPORTS_DELTAS in (facts.response_model or ""):
            # The sum of the two, count by count and modality by modality.
            total = added(before, usage)
            for key in (key for key in usage if key.endswith("TokensDetails")):
                tokens: Counter[str] = Counter()
                for one in objects_at(before, key) + objects_at(usage, key):
                    tokens[str(one.get("modality"))] += count_of(one.get("tokenCount")) or 0
                total[key] = [
                    {"modality": modality, "tokenCount": count}
                    for modality, count in tokens.most_common(MODALITIES_MAX)
                ]
            usage = total
        facts.record_usage(usage, final=True)
    if body.get("error"):
        record_error(facts, body["error"], body)


LIVE = replace(
    GENERATE_CONTENT,
    name="gemini.live",
    operation="chat",
    read=read_live,
    marks=(Mark(b'"usageMetadata"'), Mark(b'"turnComplete"'), Mark(b'"error"')),
    hidden_marks=(Mark(b'"inlineData"'),),
    session=SessionProtocol.TURNS,
    cost_limits=None,
    refused_event=google_refusal,
    ending=Ending.MARK,
)
