"""Pure. Yandex Foundation Models: completion, embeddings, and operations that complete later.

https://yandex.cloud/en/docs/foundation-models/text-generation/api-ref/TextGeneration/completion

Counts are text (64-bit integers of Protocol Buffers). A stream is lines, each of which repeats the
whole answer so far and its usage. Reasoning is inside the completion's tokens.
"""

from dataclasses import replace

from addon.dialects import shapes
from addon.dialects.dialect import Dialect, Mark
from addon.dialects.frame_paths import FramePaths, UsagePaths

_FIGURES = UsagePaths(
    input=("inputTextTokens", "numTokens"),
    output=("completionTokens",),
    reasoning=("completionTokensDetails.reasoningTokens",),
    counts_are_text=True,
)
_UNFINISHED = frozenset({"ALTERNATIVE_STATUS_PARTIAL", "ALTERNATIVE_STATUS_UNSPECIFIED"})

COMPLETION = Dialect(
    name="yandex.completion",
    operation="chat",
    read=FramePaths(
        finishes=("result.alternatives.0.status", "alternatives.0.status"),
        unfinished=_UNFINISHED,
        texts=("result.alternatives.0.message", "alternatives.0.message"),
        usages=("result.usage", "usage"),
    ).read,
    usage_of=_FIGURES.usage_of,
    known_keys=_FIGURES.known_keys("totalTokens"),
    marks=(Mark(b'"usage"', latest=True), Mark(b'"error"')),
    request_shapes=({"modelUri": shapes.text, "messages": shapes.messages},),
    answer_shapes=(
        {"result.alternatives": shapes.objects, "result.usage": shapes.an_object},
        {"alternatives": shapes.objects, "usage": shapes.an_object},
    ),
)
EMBEDDING = replace(
    COMPLETION,
    name="yandex.embedding",
    operation="embeddings",
    read=FramePaths(texts=("embedding",), usage_keys=("numTokens",)).read,
    request_shapes=({"modelUri": shapes.text, "text": shapes.text},),
    answer_shapes=({"embedding": shapes.a_list, "numTokens": shapes.anything},),
)
OPERATION = replace(
    COMPLETION,
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
