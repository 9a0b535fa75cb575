"""Pure. OpenAI Chat Completions and legacy Completions, in all compatible variants.

https://platform.openai.com/docs/api-reference/chat-streaming

Usage is read from any chunk that has it: an extra last chunk, the finish chunk, every
chunk (cumulative: the last one counts), twice, inside a choice, or only in `x_groq`.

The end: `[DONE]` is the end mark of this wire, and the meter checks for it. A finish reason is a
weak end: a few providers close without `[DONE]` after it, but the usage may still follow, so the
stream is whole only if the connection then closes in order. The endpoint with ids like
`stream:chat:<uuid>` may close without either. GigaChat's v2 ends with `response.message.done`.
"""

from collections import Counter
from dataclasses import replace
from typing import Any

from addon.dialects import choices, shapes
from addon.dialects.counts import lookup, object_at, objects_at
from addon.dialects.dialect import Asking, CostLimits, Dialect, Mark
from addon.dialects.errors import openai_refusal, record_error, record_error_in
from addon.dialects.facts import ChoiceFacts, Ending, Facts, Fingerprint, ToolFacts
from addon.dialects.openai import usage as openai_usage

_CONTENT = (
    *("content", "reasoning_content", "reasoning", "reasoning_details", "refusal", "tool_calls"),
    *("function_call", "audio"),
)
_ENDS_BY_CLOSING = "stream:chat:"
"""Prefix of the ids of the endpoint without an end mark."""
_EXECUTED_TOOLS = {"search": "web_searches", "python": "code_executions", "visit": "web_fetches"}
"""https://console.groq.com/docs/compound/built-in-tools; others keep their own name."""
_EXECUTED_MAX = 1_024
"""Executed tools of one answer that are counted; Groq runs ten at most."""


def read(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read one document or chunk."""
    # Every frame repeats these.
    if (response_id := body.get("id")) != facts.response_id:
        facts.record_id(response_id)
    if (model := body.get("model") or body.get("model_id")) != facts.response_model:
        facts.record_model(model)  # watsonx has both
    if facts.created is None:
        facts.record_created(body.get("created"))
    if "copilot_usage" in body:
        facts.rare.units = openai_usage.units_beside(body)
    if facts.of.provider in ("zai", "zhipuai") and objects_at(body, "web_search"):
        # https://docs.z.ai/guides/tools/web-search: what it found; billed by the use.
        facts.rare.units = {**facts.rare.units, "web_searches": 1}
    if "cost" in body:
        facts.rare.cost = body["cost"]  # Venice: {"usd": …, "diem": …}; Zen: "0.00431"
    usage = body.get("usage")
    if type(usage) is not dict or not usage:
        usage = object_at(body["x_groq"], "usage") if "x_groq" in body else None
    elif "extra_properties" in usage:
        # Vertex, whose own format has it in `trafficType` (its models are named `google/…`).
        facts.record_tier(lookup(usage, "extra_properties.google.traffic_type"))
    if usage is None and "timings" in body:
        usage = openai_usage.counts_in_timings(body["timings"])
    if usage is None and "bot_usage" in body:
        # Volcengine's bots have an object for each model that ran, with the names of a chat's usage
        # and the model beside them: https://www.volcengine.com/docs/82379/1526787
        models = objects_at(body["bot_usage"], "model_usage")
        usage = {"model_usage": models} if len(models) > 1 else next(iter(models), None)
    answered = objects_at(body, "choices")
    for choice in answered:
        _read_choice(facts, choice)
        if "usage" in choice:
            usage = usage or object_at(choice, "usage")
    if not facts.is_document:
        _read_signs(facts.rare.choices, body, answered)
    if isinstance(response_id, str) and response_id.startswith(_ENDS_BY_CLOSING):
        facts.ending = Ending.CLOSE
        # Its documentation: complete when a finish reason has come and/or the connection is closed.
        facts.ended = facts.is_finished
    # When all choices are over, or in a chunk of its own, it is the billed usage; before that, a
    # running figure (Perplexity, Databricks).
    if usage is not None and facts.is_document:
        facts.record_usage(usage, final=True)
        if "timings" in body and len(answered) > 1:
            facts.record_beside("count_mode", "lower_bound")  # llama.cpp: of one of the results
    elif usage is not None:
        choices.record_usage(facts, usage, [choices.index_of(choice) for choice in answered])
    if "messages" in body or event == "response.message.done":
        # GigaChat's v2 has messages instead of choices, and an end mark of its own:
        # https://developers.sber.ru/docs/ru/gigachat/api/reference/rest/gigachat-api
        facts.record_created(body.get("created_at"))
        facts.record_finish(body.get("finish_reason"))
        facts.usage_final = facts.is_finished
        facts.token_seen |= bool(objects_at(body, "messages"))
        facts.ended |= event == "response.message.done"
    if event == "error" or "error" in body:
        record_error_in(facts, event, body)


def _read_signs(seen: ChoiceFacts, body: dict[str, Any], answered: list[dict[str, Any]]) -> None:
    """Read what tells whether asking for usage changes more of a stream than it should."""
    usage = body.get("usage")
    has_usage = bool(usage) and isinstance(usage, dict)
    seen.usage_beside += has_usage and bool(answered)
    seen.usage_alone += has_usage and not answered
    has_fingerprint = bool(body.get("system_fingerprint"))
    if answered and not [choice for choice in answered if choice.get("finish_reason")]:
        if seen.fingerprint is Fingerprint.UNKNOWN:
            seen.fingerprint = Fingerprint.FIRST if has_fingerprint else Fingerprint.NOT_FIRST
    elif has_fingerprint and seen.fingerprint is Fingerprint.NOT_FIRST:
        seen.fingerprint = Fingerprint.LAST


def _read_choice(facts: Facts, choice: dict[str, Any]) -> None:
    if (reason := choice.get("finish_reason")) is not None:
        facts.record_finish(reason)
        if reason != "":  # a filler of TGI
            choices.finish(facts, choice)
    if reason == "error" or choice.get("error"):
        record_error(facts, choice.get("error"))  # Sansa, OpenRouter
    facts.token_seen = facts.token_seen or bool(choice.get("text"))
    for part in (choice.get("delta"), choice.get("message")):
        if isinstance(part, dict):
            if "executed_tools" in part:
                # Groq's compound systems: tools that ran, each with its index; a stream repeats it.
                ran = {**facts.rare.tools.executed}
                for at, tool in enumerate(objects_at(part, "executed_tools")):
                    kind, index = tool.get("type"), tool.get("index", at)
                    if isinstance(kind, str) and type(index) is int and 0 <= index < _EXECUTED_MAX:
                        other = f"{facts.token('executed_tools', kind) or 'other'}_calls"
                        ran[index] = _EXECUTED_TOOLS.get(kind, other)
                facts.rare.tools = ToolFacts(executed=ran)
                facts.rare.units = {**facts.rare.units, **Counter(ran.values())}
            if not facts.token_seen and [key for key in _CONTENT if part.get(key)]:
                facts.token_seen = True


CHAT = Dialect(
    name="openai.chat",
    operation="chat",
    read=read,
    usage_of=openai_usage.usage_of,
    known_keys=openai_usage.KNOWN_KEYS,
    refusal=openai_refusal,
    cost_limits=CostLimits(),
    marks=(
        Mark(b'"finish_reason"', (b'"finish_reason":null', b'"finish_reason": null')),
        Mark(b'"usage"', (b'"usage":null', b'"usage": null')),
        Mark(b'"error"', (b'"error":null', b'"error": null')),
        Mark(b'"executed_tools"'),
        Mark(b'"cost"'),
        Mark(b'"timings"'),
    ),
    text_marks=(b'"content"', b'"reasoning_content"', b'"reasoning"', b'"arguments"', b'"text"'),
    call_marks=(Mark(b'"name"', (b'"name":null', b'"name": null', b'"name":""')),),
    hidden_marks=(
        Mark(b'"reasoning.encrypted"'),
        Mark(b'"audio"', (b'"audio":null', b'"audio": null')),
        Mark(b'"images"', (b'"images":null', b'"images": null', b'"images":[]')),
    ),
    id_in_frames=True,
    asking=Asking.STREAM_OPTIONS,
    request_shapes=({"messages": shapes.messages},),
    answer_shapes=(
        {"object": shapes.beginning("chat.completion")},
        {"choices": shapes.with_key("message")},
        {"choices": shapes.with_key("delta")},
        {"choices": list, "usage.prompt_tokens": shapes.count},
    ),
)
COMPLETIONS = replace(
    CHAT,
    name="openai.completions",
    operation="text_completion",
    cost_limits=CostLimits(inputs="prompt"),
    request_shapes=({"model": shapes.text, "prompt": shapes.prompt},),
    answer_shapes=(
        {"object": shapes.beginning("text_completion")},
        {"choices": shapes.with_key("text")},
        {"choices": list, "usage.prompt_tokens": shapes.count},
    ),
)
