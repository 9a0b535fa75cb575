"""Pure. Tencent Hunyuan's own format, in which every key begins with a capital.

https://www.tencentcloud.com/document/product/1284 (ChatCompletions)

A document wraps the answer in `Response`, a stream does not. A header names the action, and every
call of every Tencent service has the path `/`, so request or answer must confirm it.
"""

from typing import Any

from addon.dialects import shapes
from addon.dialects.counts import object_at
from addon.dialects.dialect import Dialect, Mark
from addon.dialects.errors import record_error
from addon.dialects.facts import Facts
from addon.dialects.frame_paths import FramePaths, UsagePaths

_FIGURES = UsagePaths(
    input=("PromptTokens",),
    output=("CompletionTokens",),
    cache_read=("PromptTokensDetails.CachedTokens",),
)
_LAYOUT = FramePaths(
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


def read(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read one document, wrapped in `Response`, or one unwrapped event."""
    answer = object_at(body, "Response") or body
    _LAYOUT.read(facts, event, answer)
    error = object_at(answer, "Error") or object_at(answer, "ErrorMsg")
    if error is not None:
        words = error.get("Message") or error.get("Msg")
        record_error(facts, {"message": words, "code": error.get("Code")})


CHAT = Dialect(
    name="tencent.chat",
    operation="chat",
    read=read,
    usage_of=_FIGURES.usage_of,
    known_keys=_FIGURES.known_keys("TotalTokens"),
    marks=(
        Mark(b'"Usage"', latest=True),
        Mark(b'"FinishReason"', (b'"FinishReason":""', b'"FinishReason": ""')),
        Mark(b'"Error'),
    ),
    text_marks=(b'"Content"', b'"ReasoningContent"', b'"Arguments"'),
    id_in_frames=True,
    request_shapes=({"Model": shapes.text, "Messages": shapes.with_key("Role")},),
    answer_shapes=(
        {"Response.Choices": shapes.objects, "Response.Usage": shapes.an_object},
        {"Choices": shapes.objects, "Usage": shapes.an_object},
    ),
)
