"""Pure. llama.cpp's server, in its own format: `/completion`.

https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md

There is no usage object: the counts are at the top level of the answer and of a stream's last
event. `tokens_evaluated` is the whole prompt, of which `timings.cache_n` came from the cache;
`tokens_cached` counts prompt and answer together, and the ledger does not use it.
"""

from addon.dialects import shapes
from addon.dialects.dialect import Dialect, Mark
from addon.dialects.frame_paths import FramePaths, UsagePaths

_FIGURES = UsagePaths(
    input=("tokens_evaluated",), output=("tokens_predicted",), cache_read=("timings.cache_n",)
)

COMPLETION = Dialect(
    name="llama_cpp.completion",
    operation="text_completion",
    read=FramePaths(
        models=("model",),
        finishes=("stop_type",),
        unfinished=frozenset({"none"}),
        texts=("content",),
        usage_keys=("tokens_evaluated", "tokens_predicted", "tokens_cached", "timings.cache_n"),
        ends=("stop",),
    ).read,
    usage_of=_FIGURES.usage_of,
    known_keys=_FIGURES.known_keys("tokens_cached"),
    marks=(Mark(b'"stop"', (b'"stop":false', b'"stop": false')), Mark(b'"error"')),
    text_marks=(b'"content"',),
    answer_shapes=(
        {"content": shapes.anything, "tokens_predicted": shapes.count},
        {"content": shapes.anything, "stop": shapes.true_or_false, "id_slot": shapes.anything},
    ),
)
