"""Pure. DeepInfra's own format: `/v1/inference/MODEL`.

https://deepinfra.com/docs/advanced/deepinfra_native

The counts and DeepInfra's own price are in `inference_status`. Older models have them at the top
level, as has the last event of a stream.
"""

from addon.dialects import shapes
from addon.dialects.dialect import Dialect, Mark
from addon.dialects.frame_paths import FramePaths, UsagePaths

_LAYOUT = FramePaths(
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
_FIGURES = UsagePaths(
    input=("inference_status.tokens_input", "num_input_tokens", "input_tokens"),
    output=("inference_status.tokens_generated", "num_output_tokens"),
    cost_usd=("inference_status.cost", "estimated_cost"),
)

INFERENCE = Dialect(
    name="deepinfra.inference",
    operation="text_completion",
    read=_LAYOUT.read,
    usage_of=_FIGURES.usage_of,
    known_keys=_FIGURES.known_keys("num_tokens"),
    marks=(Mark(b'"num_'), Mark(b'"finish_reason"'), Mark(b'"error"')),
    text_marks=(b'"text"',),
    request_shapes=(
        {"input": shapes.prompt},
        {"inputs": shapes.prompt},
        {"queries": shapes.prompt},
    ),
    answer_shapes=({"inference_status": shapes.an_object},),
)
