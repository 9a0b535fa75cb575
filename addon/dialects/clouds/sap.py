"""Pure. SAP AI Core's orchestration: an OpenAI answer inside `final_result`.

https://help.sap.com/docs/sap-ai-core/generative-ai/harmonized-api

The first version named it `orchestration_result`. The other modules of a pipeline (grounding,
masking) write their results beside it; these bill no tokens.
"""

from dataclasses import replace
from typing import Any

from addon.dialects import shapes
from addon.dialects.counts import object_at
from addon.dialects.dialect import Mark
from addon.dialects.errors import record_error
from addon.dialects.facts import Facts
from addon.dialects.openai import chat


def read(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read the OpenAI answer or chunk inside one document or event."""
    answer = object_at(body, "final_result") or object_at(body, "orchestration_result")
    if answer is not None:
        chat.read(facts, event, answer)
    elif body.get("error") or (body.get("code") and body.get("message")) or event == "error":
        record_error(facts, body.get("error") or body, body)


ORCHESTRATION = replace(
    chat.CHAT,
    name="sap.orchestration",
    read=read,
    marks=(*chat.CHAT.marks, Mark(b'"code"')),
    id_in_frames=False,
    request_shapes=(
        {"config": shapes.an_object},
        {"orchestration_config": shapes.an_object},
        {"config_ref": shapes.an_object},
    ),
    answer_shapes=(
        {"final_result.choices": shapes.a_list},
        {"orchestration_result.choices": shapes.a_list},
    ),
)
