"""Pure. Baidu ERNIE on the first Qianfan platform; its successor uses OpenAI's format.

https://cloud.baidu.com/doc/WENXINWORKSHOP/s/clntwmv7t

Every event of a stream has a usage of its own, a running figure; `is_end` is the end mark. Errors
come with status 200 as `error_code` and `error_msg`.
"""

from dataclasses import replace
from typing import Any

from addon.dialects import shapes
from addon.dialects.dialect import Dialect, Mark
from addon.dialects.errors import record_error
from addon.dialects.facts import Facts
from addon.dialects.frame_paths import FramePaths
from addon.dialects.openai import usage as openai_usage

_LAYOUT = FramePaths(
    ids=("id",),
    created=("created",),
    finishes=("finish_reason",),
    texts=("result", "data"),
    usages=("usage",),
    ends=("is_end",),
)


def read(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read one document or event, and an error in it with status 200."""
    _LAYOUT.read(facts, event, body)
    if body.get("error_code") is not None:
        record_error(facts, {"code": body["error_code"], "message": body.get("error_msg")})


_PATH = b'"is_end"'
CHAT = Dialect(
    name="baidu.chat",
    operation="chat",
    read=read,
    usage_of=openai_usage.usage_of,
    known_keys=openai_usage.KNOWN_KEYS,
    marks=(
        Mark(b'"usage"', latest=True),
        Mark(_PATH, (b'"is_end":false', b'"is_end": false')),
        Mark(b'"error_code"'),
    ),
    text_marks=(b'"result"',),
    id_in_frames=True,
    request_shapes=({"messages": shapes.messages}, {"prompt": shapes.prompt}),
    answer_shapes=({"id": shapes.beginning("as-"), "object": shapes.text},),
)
EMBEDDINGS = replace(
    CHAT,
    name="baidu.embeddings",
    operation="embeddings",
    request_shapes=({"input": shapes.prompt},),
)
