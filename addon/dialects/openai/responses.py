"""Pure. OpenAI Responses, streamed or not; and Realtime, whose messages carry such responses.

https://platform.openai.com/docs/api-reference/responses-streaming

The event's name is in the payload's `type`; some gateways send no `event:` line.
`response.completed`, `.incomplete` and `.failed` all end the response and carry its usage. A
background response answers at once with `queued` and no usage; a later GET returns the usage.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from addon.dialects import shapes
from addon.dialects.counts import Counts, lookup, object_at, objects_at
from addon.dialects.dialect import CostLimits, Dialect, Mark
from addon.dialects.errors import openai_refusal, record_error
from addon.dialects.facts import Ending, Facts
from addon.dialects.openai import usage as openai_usage
from ledger.model.usage import FurtherUsage, Usage

_TERMINAL = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
RATE_LIMITS = "codex.rate_limits"
"""An event of ChatGPT's backend: how much of a plan is used (openai/codex 10324)."""
ITEM_DONE = "response.output_item.done"
TRANSCRIBED = "conversation.item.input_audio_transcription.completed"
_SERVER_TOOLS = {
    "web_search_call": "web_searches",
    "file_search_call": "file_searches",
    "code_interpreter_call": "code_executions",
    "image_generation_call": "image_generations",
    "shell_call": "code_executions",
}
"""Output items of OpenAI's own tools, each billed per call; a shell only in its container."""

SVGS_MAX = 32
"""Of one answer; the ledger keeps 64 further usages."""
_IMAGE_TOKENS = {
    "image_gen.input_tokens": "image_generation_input_tokens",
    "image_gen.output_tokens": "image_generation_output_tokens",
}
_TOOL_USAGE = {"web_search.num_requests": "web_searches", **_IMAGE_TOKENS}
"""Tool counts that newer responses report, in `tool_usage` beside the usage."""


_HIDDEN = (
    Mark(b'"type":"reasoning"'),
    Mark(b'"type": "reasoning"'),
    Mark(b'"encrypted_content"', (b'"encrypted_content":null', b'"encrypted_content": null')),
    Mark(b'"partial_image_b64"'),
    Mark(b'audio.delta"'),
)
"""Reasoning, of which at most a summary is sent; pictures; sound."""


def read(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read one document or event."""
    kind = body.get("type")
    response = object_at(body, "response")
    if response is not None:
        read_response(facts, response)
        if kind in _TERMINAL:
            facts.ended = facts.usage_final = True
    elif facts.is_document:
        facts.token_seen |= bool(objects_at(body, "output"))
        read_response(facts, body)
        facts.usage_final = True
    if kind == RATE_LIMITS:
        facts.rare.rate_limits = body
    if "cost" in body:
        facts.rare.cost = body["cost"]  # OpenCode Zen
    if kind == "error" or event == "error" or (kind is None and body.get("error")):
        record_error(facts, body.get("error") or body, body)
    _read_content(facts, kind, body)


def _read_content(facts: Facts, kind: object, body: dict[str, Any]) -> None:
    """Read whether there is content. Some gateways send whole items without deltas, and clients
    leave once they have the item that they need."""
    if isinstance(kind, str) and kind.endswith((".delta", "_item.done")):
        facts.token_seen = True
    item = object_at(body, "item") if kind == ITEM_DONE else None
    if item is None:
        return
    parts = (*objects_at(item, "content"), *objects_at(item, "summary"))
    texts = (
        *(item.get(key) for key in ("arguments", "input")),
        *(part.get("text") or part.get("transcript") for part in parts),
    )
    facts.rare.text_bytes += sum(
        len(text.encode("utf-8", "replace")) for text in texts if isinstance(text, str)
    )
    facts.rare.calls += "call_id" in item


def read_response(facts: Facts, response: dict[str, Any]) -> None:
    """Read a response object, complete or in progress."""
    facts.record_id(response.get("id"))
    facts.record_model(response.get("model"))
    facts.record_created(response.get("created_at"))
    # https://developers.openai.com/api/docs/guides/prompt-caching/diagnostics.md
    facts.record_diagnosis(lookup(response, "prompt_cache_diagnostics.reason"))
    status = response.get("status")
    if status == "incomplete":
        reason = lookup(response, "incomplete_details.reason")
        facts.record_finish(f"incomplete:{reason}" if isinstance(reason, str) else "incomplete")
    elif status not in ("in_progress", "queued") or facts.is_document:
        facts.record_finish(status)
    facts.record_usage(response.get("usage"), final=facts.usage_final)
    if response.get("error"):
        record_error(facts, response["error"])
    elif status == "failed":
        record_error(facts, {})
    # Units of OpenAI's own tools. Opening a found page does not count as a search.
    # Azure leaves a search that ran at `searching` in an answer that is completed.
    left = "searching" if response.get("status") == "completed" else None
    ran = Counter(
        _SERVER_TOOLS[kind]
        for item in objects_at(response, "output")
        if (kind := str(item.get("type"))) in _SERVER_TOOLS
        and item.get("status") in ("completed", None, left)
        and (object_at(item, "action") or {}).get("type") in ("search", None)
        and (kind != "shell_call" or lookup(item, "environment.container_id"))
    )
    counted = Counts(object_at(response, "tool_usage") or {}).units(_TOOL_USAGE)
    units = {**ran, **counted, **openai_usage.units_beside(response)}
    if lookup(response, "tool_usage.web_search.num_requests") == 0:
        units.pop("web_searches", None)  # it counts billable searches (`Response` of the SDK)
    kinds = [str(tool.get("type")) for tool in objects_at(response, "tools")]
    if "web_searches" in units and any(kind.startswith("web_search_preview") for kind in kinds):
        units["web_search_previews"] = units.pop("web_searches")
    facts.rare.units = units
    facts.rare.further = []
    for item in objects_at(response, "output"):
        read_svg(facts, item)
    image = lookup(response, "tool_usage.image_gen")
    # The response repeats the tools of the request, and the models of those that have one.
    tools = (one for one in objects_at(response, "tools") if one.get("type") == "image_generation")
    model = next((model for tool in tools if (model := tool.get("model"))), None)
    if isinstance(image, dict) and model:
        # The tool bills the tokens of its own model. Its calls and its tokens are no units then.
        facts.record_further("image_generation", model, image)
        for unit in ("image_generations", *_IMAGE_TOKENS.values()):
            facts.rare.units.pop(unit, None)


def read_svg(facts: Facts, answer: dict[str, Any]) -> None:
    """Read what the author of an SVG used, "separate from image rendering usage" (`ImagesResponse`
    and `ImageGenerationCall` of the SDK)."""
    svg = object_at(answer, "svg_usage")
    if svg is not None and len(facts.rare.further) < SVGS_MAX:
        facts.record_further("svg", svg.get("model"), svg)


def usage_of(usage: Mapping[str, Any], facts: Facts) -> Usage:
    """The figures, with the tokens of other models beside them: of the image tool, of SVGs."""
    found = openai_usage.usage_of(usage, facts)
    if not facts.rare.further:
        return found
    beside = Facts(is_document=True, of=facts.of)
    further = tuple(
        FurtherUsage(kind=kind, model=model, usage=openai_usage.usage_of(tokens, beside))
        for kind, model, tokens in facts.rare.further
    )
    return replace(found, further=found.further + further)


RESPONSES = Dialect(
    name="openai.responses",
    operation="chat",
    read=read,
    usage_of=usage_of,
    known_keys=openai_usage.KNOWN_KEYS,
    refusal=openai_refusal,
    cost_limits=CostLimits(
        output=("max_output_tokens",),
        answers=(),
        kept=("previous_response_id", "conversation", "prompt"),
        tool_uses=("max_tool_calls",),
        clients_tools=(
            *("function", "custom", "local_shell", "apply_patch", "computer", "namespace"),
        ),
    ),
    marks=(
        Mark(b'"response"'),
        Mark(b'"error"', (b'"error":null', b'"error": null')),
        Mark(b'"codex.rate_limits"'),
        Mark(b'.output_item.done"'),
    ),
    text_marks=(b'"delta"',),
    call_marks=(Mark(b'"response.function_call_arguments.done"'),),
    hidden_marks=_HIDDEN,
    ending=Ending.MARK,
    billed_alone=frozenset({TRANSCRIBED}),
    quota_event=RATE_LIMITS.encode(),
    request_shapes=(
        {"model": shapes.text, "input": shapes.prompt},
        {"model": shapes.text, "prompt": dict},
        {"model": shapes.text, "previous_response_id": shapes.text},
    ),
    answer_shapes=(
        {"object": shapes.beginning("response")},
        {"type": shapes.beginning("response."), "response.object": shapes.text},
        {"output": list, "usage.input_tokens": shapes.count},
    ),
)


def read_realtime(facts: Facts, _event: str, body: dict[str, Any]) -> None:
    """Read one message of a Realtime session's server.

    https://platform.openai.com/docs/api-reference/realtime-server-events

    `response.done` ends a response, successful or not, and carries its usage. A separate model
    transcribes the user's speech, and a separate event carries the usage that bills it.
    """
    kind = body.get("type")
    response = object_at(body, "response")
    if response is not None:
        facts.record_id(response.get("id"))
        status = response.get("status")
        facts.record_finish(status if status != "in_progress" else None)
        # xAI leaves it empty, and reports the figures beside the response.
        usage = response.get("usage") or body.get("usage")
        facts.record_usage(usage, final=kind == "response.done")
        problem = lookup(response, "status_details.error")
        if problem:
            record_error(facts, problem)
        elif status == "failed":
            record_error(facts, {})
        if kind == "response.done":
            facts.ended = True
    elif kind == TRANSCRIBED:
        facts.record_id(body.get("item_id"))
        facts.record_usage(body.get("usage"), final=True)
        facts.ended = True
    elif kind == "error":
        record_error(facts, body.get("error") or body, body)
    else:
        _read_content(facts, kind, body)


REALTIME = Dialect(
    name="openai.realtime",
    operation="chat",
    read=read_realtime,
    usage_of=openai_usage.usage_of,
    known_keys=openai_usage.KNOWN_KEYS,
    refusal=openai_refusal,
    ending=Ending.MARK,
    billed_alone=frozenset({TRANSCRIBED}),
    marks=(Mark(b'"response"'), Mark(b'"error"'), Mark(b"_transcription.completed")),
    text_marks=RESPONSES.text_marks,
    call_marks=RESPONSES.call_marks,
    hidden_marks=_HIDDEN,
)
