"""Pure. Clouds that wrap OpenAI's format in an object of their own: Cloudflare, SAP.

Cloudflare  Workers AI: `/ai/run/MODEL`, https://developers.cloudflare.com/workers-ai/
            A document wraps the model's answer in `result`; a stream does not:
            `{"response": "text"}`, and the usage on the last event before `[DONE]`. Newer models
            put OpenAI's format in the same places. Few answers name their model; for the others the
            path's name is used.
SAP         AI Core's orchestration: an OpenAI answer inside `final_result`.
            https://help.sap.com/docs/sap-ai-core/generative-ai/harmonized-api
            The first version named it `orchestration_result`. The other modules of a pipeline
            (grounding, masking) write their results beside it; these bill no tokens.
"""

from dataclasses import replace
from typing import Any

from addon.dialects import shapes
from addon.dialects.counts import object_at
from addon.dialects.dialect import Mark
from addon.dialects.errors import record_error
from addon.dialects.facts import Facts
from addon.dialects.openai import chat, responses


def read_cloudflare(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read one document, wrapped in `result`, or one unwrapped event."""
    if facts.response_model is None:
        facts.record_model(facts.of.path_model)
    if body.get("errors") or body.get("success") is False:
        record_error(facts, body.get("errors") or body, body)
    answer = object_at(body, "result") or body
    if answer.get("object") == "response":
        responses.read_response(facts, answer)
        return
    chat.read(facts, event, answer)
    if answer.get("response"):
        facts.token_seen = True


CLOUDFLARE = replace(
    chat.CHAT,
    name="cloudflare.run",
    cost_limits=None,
    read=read_cloudflare,
    text_marks=(*chat.CHAT.text_marks, b'"response"'),
    id_in_frames=False,
    request_shapes=(
        {"messages": shapes.messages},
        {"prompt": shapes.prompt},
        {"text": shapes.prompt},
        {"input": shapes.prompt},
    ),
    answer_shapes=({"result": dict, "success": bool},),
)


def read_sap(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read the OpenAI answer or chunk inside one document or event."""
    answer = object_at(body, "final_result") or object_at(body, "orchestration_result")
    if answer is not None:
        chat.read(facts, event, answer)
    elif body.get("error") or (body.get("code") and body.get("message")) or event == "error":
        record_error(facts, body.get("error") or body, body)


SAP = replace(
    chat.CHAT,
    name="sap.orchestration",
    cost_limits=None,
    read=read_sap,
    marks=(*chat.CHAT.marks, Mark(b'"code"')),
    id_in_frames=False,
    request_shapes=({"config": dict}, {"orchestration_config": dict}, {"config_ref": dict}),
    answer_shapes=({"final_result.choices": list}, {"orchestration_result.choices": list}),
)
