"""Pure. Clouds whose answers are little more than paths of facts and figures: DeepInfra, Oracle,
watsonx, Yandex.

DeepInfra   https://deepinfra.com/docs/advanced/deepinfra_native: `/v1/inference/MODEL`. The counts
            and DeepInfra's own price are in `inference_status`. Older models have them at the top
            level, as has the last event of a stream.
Oracle      Cloud Infrastructure Generative AI: chat, older text generation, embeddings.
            https://docs.oracle.com/en-us/iaas/api/#/en/generative-ai-inference/20231130/ChatResult/Chat
            Two formats with the same keys: `COHERE` has text and finish reason beside each other,
            `GENERIC` has choices. A stream has neither model nor id; it has usage if
            `streamOptions` asked for it.
watsonx.ai  IBM's text generation; its chat is OpenAI's format under a different path.
            https://cloud.ibm.com/apidocs/watsonx-ai#text-generation
            Each result has the counts. In a stream `generated_token_count` is a running figure, and
            `input_token_count` appears once, with zeros after it, so the largest of each is the
            figure.
Yandex      Foundation Models: completion, embeddings, and operations that complete later.
            https://yandex.cloud/en/docs/foundation-models/text-generation/api-ref/TextGeneration/completion
            Counts are text (64-bit integers of Protocol Buffers). A stream is lines, each of which
            repeats the whole answer so far and its usage. Reasoning is inside the completion's
            tokens.
"""

from dataclasses import replace
from typing import Any

from addon.dialects import shapes
from addon.dialects.counts import counts_among, objects_at
from addon.dialects.dialect import Dialect, Mark
from addon.dialects.errors import record_error
from addon.dialects.facts import Facts
from addon.dialects.frame_paths import FramePaths, UsagePaths
from ledger.model.usage import count_of

_DEEPINFRA_PATHS = FramePaths(
    ids=("request_id",),
    finishes=("details.finish_reason", "results.0.finish_reason"),
    texts=("results.0.generated_text", "generated_text", "token.text", "text", "embeddings"),
    usage_keys=(
        "inference_status.tokens_input",
        "inference_status.tokens_generated",
        "inference_status.cost",
        "num_input_tokens",
        "num_output_tokens",
        "num_tokens",
        "input_tokens",
        "estimated_cost",
    ),
    errors=("error", "detail.error"),
)
_DEEPINFRA = UsagePaths(
    input=("inference_status.tokens_input", "num_input_tokens", "input_tokens"),
    output=("inference_status.tokens_generated", "num_output_tokens"),
    cost_usd=("inference_status.cost", "estimated_cost"),
)

DEEPINFRA = Dialect(
    name="deepinfra.inference",
    operation="text_completion",
    read=_DEEPINFRA_PATHS.read,
    usage_of=_DEEPINFRA.usage_of,
    known_keys=_DEEPINFRA.known_keys("num_tokens"),
    marks=(Mark(b'"num_'), Mark(b'"finish_reason"'), Mark(b'"error"')),
    text_marks=(b'"text"',),
    request_shapes=(
        {"input": shapes.prompt},
        {"inputs": shapes.prompt},
        {"queries": shapes.prompt},
    ),
    answer_shapes=({"inference_status": shapes.an_object},),
)

_ORACLE = UsagePaths(
    input=("promptTokens",),
    output=("completionTokens",),
    cache_read=("promptTokensDetails.cachedTokens",),
    reasoning=("completionTokensDetails.reasoningTokens",),
)

ORACLE_CHAT = Dialect(
    name="oci.chat",
    operation="chat",
    read=FramePaths(
        ids=("id",),
        models=("modelId",),
        finishes=(
            "chatResponse.finishReason",
            "chatResponse.choices.0.finishReason",
            "inferenceResponse.generatedTexts.0.finishReason",
            "inferenceResponse.choices.0.finishReason",
            "finishReason",
        ),
        texts=(
            "chatResponse.text",
            "chatResponse.choices",
            "inferenceResponse",
            "message.content",
            "message.toolCalls",
            "text",
        ),
        usages=("chatResponse.usage", "usage"),
        errors=("error", "chatResponse.errorMessage"),
    ).read,
    usage_of=_ORACLE.usage_of,
    known_keys=_ORACLE.known_keys(
        "totalTokens",
        "completionTokensDetails.acceptedPredictionTokens",
        "completionTokensDetails.rejectedPredictionTokens",
    ),
    marks=(Mark(b'"usage"'), Mark(b'"finishReason"'), Mark(b'"error"')),
    text_marks=(b'"text"',),
    request_shapes=(
        {"servingMode": shapes.an_object, "chatRequest": shapes.an_object},
        {"servingMode": shapes.an_object, "inferenceRequest": shapes.an_object},
    ),
    answer_shapes=({"modelId": shapes.text, "chatResponse": shapes.an_object},),
)
ORACLE_EMBED = replace(
    ORACLE_CHAT,
    name="oci.embed",
    operation="embeddings",
    request_shapes=({"servingMode": shapes.an_object, "inputs": shapes.prompt},),
    answer_shapes=({"modelId": shapes.text, "embeddings": shapes.a_list},),
)

_WATSONX = UsagePaths(input=("input_token_count",), output=("generated_token_count",))
_WATSONX_KEYS = ("input_token_count", "generated_token_count")


def read_watsonx(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read one document or event: its results with their counts."""
    facts.record_model(body.get("model_id"))
    for result in objects_at(body, "results"):
        if result.get("generated_text"):
            facts.token_seen = True
        if result.get("stop_reason") != "not_finished":
            facts.record_finish(result.get("stop_reason"))
        reported = counts_among(result, _WATSONX_KEYS)
        if reported:
            before = facts.usage or {}
            for key, value in reported.items():
                if (count_of(before.get(key)) or 0) > (count_of(value) or 0):
                    reported[key] = before[key]
            facts.record_usage({**before, **reported}, final=facts.finish_reason is not None)
    if body.get("errors") or event == "error":
        record_error(facts, body.get("errors") or body, body)


WATSONX = Dialect(
    name="watsonx.generation",
    operation="text_completion",
    read=read_watsonx,
    usage_of=_WATSONX.usage_of,
    known_keys=frozenset(_WATSONX_KEYS),
    marks=(Mark(b'"input_token_count"'), Mark(b'"errors"')),
    text_marks=(b'"generated_text"',),
    request_shapes=({"model_id": shapes.text, "input": shapes.prompt},),
    answer_shapes=({"model_id": shapes.text, "results": shapes.with_key("generated_text")},),
)

_YANDEX = UsagePaths(
    input=("inputTextTokens", "numTokens"),
    output=("completionTokens",),
    reasoning=("completionTokensDetails.reasoningTokens",),
    counts_are_text=True,
)
_UNFINISHED = frozenset({"ALTERNATIVE_STATUS_PARTIAL", "ALTERNATIVE_STATUS_UNSPECIFIED"})

YANDEX_COMPLETION = Dialect(
    name="yandex.completion",
    operation="chat",
    read=FramePaths(
        finishes=("result.alternatives.0.status", "alternatives.0.status"),
        unfinished=_UNFINISHED,
        texts=("result.alternatives.0.message", "alternatives.0.message"),
        usages=("result.usage", "usage"),
    ).read,
    usage_of=_YANDEX.usage_of,
    known_keys=_YANDEX.known_keys("totalTokens"),
    marks=(Mark(b'"usage"', latest=True), Mark(b'"error"')),
    request_shapes=({"modelUri": shapes.text, "messages": shapes.messages},),
    answer_shapes=(
        {"result.alternatives": shapes.objects, "result.usage": shapes.an_object},
        {"alternatives": shapes.objects, "usage": shapes.an_object},
    ),
)
YANDEX_EMBEDDING = replace(
    YANDEX_COMPLETION,
    name="yandex.embedding",
    operation="embeddings",
    read=FramePaths(texts=("embedding",), usage_keys=("numTokens",)).read,
    request_shapes=({"modelUri": shapes.text, "text": shapes.text},),
    answer_shapes=({"embedding": shapes.a_list, "numTokens": shapes.anything},),
)
YANDEX_OPERATION = replace(
    YANDEX_COMPLETION,
    name="yandex.operation",
    read=FramePaths(
        ids=("id",),
        finishes=("response.alternatives.0.status",),
        texts=("response.alternatives",),
        usages=("response.usage",),
        ends=("done",),
    ).read,
    request_shapes=(),
    answer_shapes=({"response.usage": shapes.an_object},),
)
