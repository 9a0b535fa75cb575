"""Pure. Clouds whose answers are little more than paths of facts and figures: Aleph Alpha,
Baidu, DeepInfra, Oracle, Replicate, Tencent, watsonx, Yandex.

Aleph Alpha Completion and embeddings. https://docs.aleph-alpha.com/api/complete/
            The counts are at the top level of a document and in the last event of a stream. No
            answer names its model: `model_version` is a date.
Baidu       ERNIE on the first Qianfan platform; its successor uses OpenAI's format.
            https://cloud.baidu.com/doc/WENXINWORKSHOP/s/clntwmv7t
            Every event of a stream has a usage of its own, a running figure; `is_end` is the end
            mark. Errors come with status 200 as `error_code` and `error_msg`.
DeepInfra   https://deepinfra.com/docs/advanced/deepinfra_native: `/v1/inference/MODEL`. The counts
            and DeepInfra's own price are in `inference_status`. Older models have them at the top
            level, as has the last event of a stream.
Oracle      Cloud Infrastructure Generative AI: chat, older text generation, embeddings.
            https://docs.oracle.com/en-us/iaas/api/#/en/generative-ai-inference/20231130/ChatResult/Chat
            Two formats with the same keys: `COHERE` has text and finish reason beside each other,
            `GENERIC` has choices. A stream has neither model nor id; it has usage if
            `streamOptions` asked for it.
Replicate   Predictions: an answer with its id and its state.
            https://replicate.com/docs/reference/http#predictions.create
            A client creates a prediction and reads it later, or waits for it. When it is done,
            `metrics` has the token counts of language models and the billed seconds of other
            models.
Tencent     Hunyuan's own format, in which every key begins with a capital.
            https://www.tencentcloud.com/document/product/1284 (ChatCompletions)
            A document wraps the answer in `Response`, a stream does not. A header names the action,
            and every call of every Tencent service has the path `/`, so request or answer must
            confirm it.
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

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from addon.dialects import shapes
from addon.dialects.counts import Counts, counts_among, object_at, objects_at
from addon.dialects.dialect import Dialect, Mark
from addon.dialects.errors import record_error
from addon.dialects.facts import Ending, Facts
from addon.dialects.frame_paths import FramePaths, UsagePaths
from addon.dialects.openai import usage as openai_usage
from ledger.model.usage import Usage, count_of

_ALEPH_ALPHA = UsagePaths(input=("num_tokens_prompt_total",), output=("num_tokens_generated",))
_ALEPH_ALPHA_PATHS = FramePaths(
    finishes=("completions.0.finish_reason", "finish_reason"),
    texts=("completions.0.completion", "completion", "embedding", "embeddings"),
    usage_keys=("num_tokens_prompt_total", "num_tokens_generated"),
)


def read_aleph_alpha(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read one document or event."""
    _ALEPH_ALPHA_PATHS.read(facts, event, body)
    if body.get("type") == "completion_summary":
        facts.ended = True


ALEPH_ALPHA_COMPLETE = Dialect(
    name="aleph_alpha.complete",
    operation="text_completion",
    read=read_aleph_alpha,
    usage_of=_ALEPH_ALPHA.usage_of,
    known_keys=_ALEPH_ALPHA.known_keys(),
    marks=(Mark(b"_summary"), Mark(b'"num_tokens_'), Mark(b'"error"')),
    text_marks=(b'"completion"',),
    request_shapes=({"model": shapes.text, "prompt": shapes.prompt},),
    answer_shapes=({"completions": shapes.objects, "model_version": shapes.text},),
)
ALEPH_ALPHA_EMBED = replace(
    ALEPH_ALPHA_COMPLETE,
    name="aleph_alpha.embed",
    operation="embeddings",
    request_shapes=({"model": shapes.text, "representation": shapes.text},),
    answer_shapes=({"num_tokens_prompt_total": shapes.count},),
)

_BAIDU = FramePaths(
    ids=("id",),
    created=("created",),
    finishes=("finish_reason",),
    texts=("result", "data"),
    usages=("usage",),
    ends=("is_end",),
)


def read_baidu(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read one document or event, and an error in it with status 200."""
    _BAIDU.read(facts, event, body)
    if body.get("error_code") is not None:
        record_error(facts, {"code": body["error_code"], "message": body.get("error_msg")})


BAIDU_CHAT = Dialect(
    name="baidu.chat",
    operation="chat",
    read=read_baidu,
    usage_of=openai_usage.usage_of,
    known_keys=openai_usage.KNOWN_KEYS,
    marks=(
        Mark(b'"usage"', latest=True),
        Mark(b'"is_end"', (b'"is_end":false', b'"is_end": false')),
        Mark(b'"error_code"'),
    ),
    text_marks=(b'"result"',),
    id_in_frames=True,
    request_shapes=({"messages": shapes.messages}, {"prompt": shapes.prompt}),
    answer_shapes=({"id": shapes.beginning("as-"), "object": shapes.text},),
)
BAIDU_EMBEDDINGS = replace(
    BAIDU_CHAT,
    name="baidu.embeddings",
    operation="embeddings",
    request_shapes=({"input": shapes.prompt},),
)

_DEEPINFRA_PATHS = FramePaths(
    ids=("request_id",),
    finishes=("details.finish_reason", "results.0.finish_reason"),
    texts=("results.0.generated_text", "generated_text", "token.text", "text", "embeddings"),
    usage_keys=(
        *("inference_status.tokens_input", "inference_status.tokens_generated"),
        *("inference_status.cost", "num_input_tokens", "num_output_tokens", "num_tokens"),
        *("input_tokens", "estimated_cost"),
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
    answer_shapes=({"inference_status": dict},),
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
            *("chatResponse.text", "chatResponse.choices", "inferenceResponse", "message.content"),
            *("message.toolCalls", "text"),
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
        {"servingMode": dict, "chatRequest": dict},
        {"servingMode": dict, "inferenceRequest": dict},
    ),
    answer_shapes=({"modelId": shapes.text, "chatResponse": dict},),
)
ORACLE_EMBED = replace(
    ORACLE_CHAT,
    name="oci.embed",
    operation="embeddings",
    request_shapes=({"servingMode": dict, "inputs": shapes.prompt},),
    answer_shapes=({"modelId": shapes.text, "embeddings": list},),
)

_REPLICATE_ENDS = ("succeeded", "failed", "canceled", "aborted")


def read_replicate(facts: Facts, _event: str, body: dict[str, Any]) -> None:
    """Read one prediction, complete or in progress."""
    facts.record_id(body.get("id"))
    facts.record_model(body.get("model"))
    status = body.get("status")
    if status in _REPLICATE_ENDS or facts.is_document:
        facts.record_finish(status)
    if status in _REPLICATE_ENDS:
        facts.record_usage(body.get("metrics") or None, final=True)
    if body.get("error"):
        record_error(facts, body["error"], body)


def replicate_usage_of(usage: Mapping[str, Any], _facts: Facts) -> Usage:
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


REPLICATE = Dialect(
    name="replicate.predictions",
    operation="text_completion",
    read=read_replicate,
    usage_of=replicate_usage_of,
    known_keys=frozenset(
        {"input_token_count", "output_token_count", "predict_time", "total_time"}
        | {"tokens_per_second", "time_to_first_token"}
        | {"image_count", "video_output_duration_seconds"}
    ),
    marks=(Mark(b'"error"', (b'"error":null',)),),
    ending=Ending.CLOSE,
    request_shapes=({"version": shapes.text, "input": dict},),
    answer_shapes=({"id": shapes.text, "status": shapes.text, "urls": dict},),
)

_TENCENT = UsagePaths(
    input=("PromptTokens",),
    output=("CompletionTokens",),
    cache_read=("PromptTokensDetails.CachedTokens",),
)
_TENCENT_PATHS = FramePaths(
    ids=("Id",),
    created=("Created",),
    finishes=("Choices.0.FinishReason",),
    texts=(
        "Choices.0.Message.Content",
        "Choices.0.Delta.Content",
        "Choices.0.Delta.ReasoningContent",
        "Choices.0.Delta.ToolCalls",
    ),
    usages=("Usage",),
)


def read_tencent(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read one document, wrapped in `Response`, or one unwrapped event."""
    answer = object_at(body, "Response") or body
    _TENCENT_PATHS.read(facts, event, answer)
    error = object_at(answer, "Error") or object_at(answer, "ErrorMsg")
    if error is not None:
        words = error.get("Message") or error.get("Msg")
        record_error(facts, {"message": words, "code": error.get("Code")})


TENCENT = Dialect(
    name="tencent.chat",
    operation="chat",
    read=read_tencent,
    usage_of=_TENCENT.usage_of,
    known_keys=_TENCENT.known_keys("TotalTokens"),
    marks=(
        Mark(b'"Usage"', latest=True),
        Mark(b'"FinishReason"', (b'"FinishReason":""', b'"FinishReason": ""')),
        Mark(b'"Error'),
    ),
    text_marks=(b'"Content"', b'"ReasoningContent"', b'"Arguments"'),
    id_in_frames=True,
    request_shapes=({"Model": shapes.text, "Messages": shapes.with_key("Role")},),
    answer_shapes=(
        {"Response.Choices": shapes.objects, "Response.Usage": dict},
        {"Choices": shapes.objects, "Usage": dict},
    ),
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
            facts.record_usage({**before, **reported}, final=facts.is_finished)
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
        {"result.alternatives": shapes.objects, "result.usage": dict},
        {"alternatives": shapes.objects, "usage": dict},
    ),
)
YANDEX_EMBEDDING = replace(
    YANDEX_COMPLETION,
    name="yandex.embedding",
    operation="embeddings",
    read=FramePaths(texts=("embedding",), usage_keys=("numTokens",)).read,
    request_shapes=({"modelUri": shapes.text, "text": shapes.text},),
    answer_shapes=({"embedding": list, "numTokens": shapes.anything},),
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
    answer_shapes=({"response.usage": dict},),
)
