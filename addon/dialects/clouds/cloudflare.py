"""Pure. Cloudflare Workers AI: `/ai/run/MODEL`.

https://developers.cloudflare.com/workers-ai/

A document wraps the model's answer in `result`; a stream does not: `{"response": "text"}`, and the
usage on the last event before `[DONE]`. Newer models put OpenAI's format in the same places. Few
answers name their model; for the others the path's name is used.
"""

from dataclasses import replace
from typing import Any

from addon.dialects import shapes
from addon.dialects.counts import object_at
from addon.dialects.errors import record_error
from addon.dialects.facts import Facts
from addon.dialects.openai import chat, responses


def read(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read one document, wrapped in `result`, or one unwrapped event."""
    if facts.response_model is None:
        facts.record_model(facts.path_model)
    if body.get("errors") or body.get("success") is False:
        record_error(facts, body.get("errors") or body, body)
    answer = object_at(body, "result") or body
    if answer.get("object") == "response":
        responses.read_response(facts, answer)
        return
    chat.read(facts, event, answer)
    if answer.get("response"):
        facts.token_seen = True


RUN = replace(
    chat.CHAT,
    name="cloudflare.run",
    read=read,
    text_marks=(*chat.CHAT.text_marks, b'"response"'),
    id_in_frames=False,
    request_shapes=(
        {"messages": shapes.messages},
        {"prompt": shapes.prompt},
        {"text": shapes.prompt},
        {"input": shapes.prompt},
    ),
    answer_shapes=({"result": shapes.an_object, "success": shapes.true_or_false},),
)
