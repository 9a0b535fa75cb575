"""Pure. Oracle Cloud Infrastructure Generative AI: chat, older text generation, embeddings.

https://docs.oracle.com/en-us/iaas/api/#/en/generative-ai-inference/20231130/ChatResult/Chat

Two formats with the same keys: `COHERE` has text and finish reason beside each other, `GENERIC` has
choices. A stream has neither model nor id; it has usage if `streamOptions` asked for it.
"""

from dataclasses import replace

from addon.dialects import shapes
from addon.dialects.dialect import Dialect, Mark
from addon.dialects.frame_paths import FramePaths, UsagePaths

_FIGURES = UsagePaths(
    input=("promptTokens",),
    output=("completionTokens",),
    cache_read=("promptTokensDetails.cachedTokens",),
    reasoning=("completionTokensDetails.reasoningTokens",),
)

CHAT = Dialect(
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
    usage_of=_FIGURES.usage_of,
    known_keys=_FIGURES.known_keys(
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
EMBED = replace(
    CHAT,
    name="oci.embed",
    operation="embeddings",
    request_shapes=({"servingMode": shapes.an_object, "inputs": shapes.prompt},),
    answer_shapes=({"modelId": shapes.text, "embeddings": shapes.a_list},),
)
