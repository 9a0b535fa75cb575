"""Pure. Model servers that people run themselves: Ollama, LM Studio, llama.cpp, Text Generation
Inference, SGLang, each in its own format.

Ollama      https://github.com/ollama/ollama/blob/main/docs/api.md. There is no usage object: the
            counts and durations (nanoseconds) are on the last line, beside `done: true`. Ollama
            leaves out a prompt count if the whole prompt was cached; since 0.30 it says how much
            of it was (`prompt_eval_cached_count`, a part of the count).
LM Studio   https://lmstudio.ai/docs/developer/rest/chat: `/api/v1/chat`. The figures are in
            `stats`; a stream ends with `chat.end`, which carries the whole answer.
llama.cpp   https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md:
            `/completion`. There is no usage object: the counts are at the top level of the answer
            and of a stream's last event. `tokens_evaluated` is the whole prompt, of which
            `timings.cache_n` came from the cache; `tokens_cached` counts prompt and answer
            together, and the ledger does not use it. Each frame of a stream repeats the counts so
            far of its prompt, of which a request may have a list.
Hugging Face Text Generation Inference
            https://huggingface.github.io/text-generation-inference/: `/generate`. A document has
            details only if the request asked for them; response headers always have the counts.
            The last event of a stream has `generated_text` and details.
SGLang      https://docs.sglang.io/basic_usage/native_api.html: its `/generate` is TGI's path, so
            one dialect reads both. `meta_info` has the counts; each event of a stream repeats all
            of the text and the counts so far.
"""

from dataclasses import replace
from typing import Any

from addon.dialects import choices, shapes
from addon.dialects.counts import HEADER_PREFIX, counts_among, counts_in, object_at
from addon.dialects.dialect import Dialect, Mark
from addon.dialects.errors import record_error
from addon.dialects.facts import Ending, Facts
from addon.dialects.frame_paths import FramePaths, UsagePaths

_OLLAMA_KEYS = (
    *("prompt_eval_count", "prompt_eval_cached_count", "eval_count", "total_duration"),
    *("load_duration", "prompt_eval_duration", "eval_duration"),
)
_OLLAMA = UsagePaths(
    input=("prompt_eval_count",), output=("eval_count",), cache_read=("prompt_eval_cached_count",)
)


def read_ollama(facts: Facts, _event: str, body: dict[str, Any]) -> None:
    """Read one document or line."""
    facts.record_model(body.get("model"))
    message = object_at(body, "message") or {}
    content = (message.get(key) for key in ("content", "thinking", "tool_calls"))
    if body.get("response") or any(content):
        facts.token_seen = True
    if body.get("error"):
        record_error(facts, body["error"], body)
    if body.get("done") is True or facts.is_document:
        facts.record_finish(body.get("done_reason"))
        usage = counts_among(body, _OLLAMA_KEYS)
        facts.record_usage(usage or None, final=True)
        facts.ended = True


OLLAMA_CHAT = Dialect(
    name="ollama.chat",
    operation="chat",
    read=read_ollama,
    usage_of=_OLLAMA.usage_of,
    known_keys=frozenset(_OLLAMA_KEYS),
    marks=(Mark(b'"done"', (b'"done":false', b'"done": false')), Mark(b'"error"')),
    text_marks=(b'"content"', b'"response"', b'"thinking"'),
    call_marks=(Mark(b'"function"'),),
    streams_unless_told=True,
    ending=Ending.MARK,
    request_shapes=({"model": shapes.text, "messages": list},),
    answer_shapes=({"model": shapes.text, "done": bool, "message": dict},),
)
OLLAMA_GENERATE = replace(
    OLLAMA_CHAT,
    name="ollama.generate",
    operation="text_completion",
    request_shapes=({"model": shapes.text, "prompt": shapes.anything},),
    answer_shapes=({"model": shapes.text, "done": bool, "response": shapes.anything},),
)
OLLAMA_EMBED = replace(
    OLLAMA_CHAT,
    name="ollama.embed",
    operation="embeddings",
    streams_unless_told=False,
    request_shapes=(
        {"model": shapes.text, "input": shapes.prompt},
        {"model": shapes.text, "prompt": shapes.prompt},
    ),
    answer_shapes=({"model": shapes.text, "embeddings": list},),
)

_LM_STUDIO = UsagePaths(
    input=("input_tokens",), output=("total_output_tokens",), reasoning=("reasoning_output_tokens",)
)


def read_lm_studio(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read one document or event."""
    kind = body.get("type") or event
    if kind == "error" or body.get("error"):
        record_error(facts, body.get("error") or body, body)
        return
    answer = object_at(body, "result") if kind == "chat.end" else body
    if answer is None:
        return
    facts.record_model(answer.get("model_instance_id"))
    facts.record_id(answer.get("response_id"))
    facts.record_usage(answer.get("stats"), final=True)
    if kind == "chat.end":
        facts.ended = True
    elif isinstance(kind, str) and kind.endswith((".delta", ".arguments")):
        facts.token_seen = True


LM_STUDIO_CHAT = Dialect(
    name="lm_studio.chat",
    operation="chat",
    read=read_lm_studio,
    usage_of=_LM_STUDIO.usage_of,
    known_keys=_LM_STUDIO.known_keys(
        "tokens_per_second", "time_to_first_token_seconds", "model_load_time_seconds"
    ),
    marks=(Mark(b"chat.end"), Mark(b'"error"'), Mark(b'"stats"')),
    text_marks=(b'"content"', b'"arguments"'),
    answer_shapes=(
        {"model_instance_id": shapes.text, "stats": dict},
        {"type": shapes.one_of("chat.start", "chat.end"), "model_instance_id": shapes.text},
        {"type": shapes.one_of("chat.end"), "result.stats": dict},
    ),
)

_LLAMA_CPP_LAYOUT = FramePaths(
    models=("model",),
    finishes=("stop_type",),
    unfinished=frozenset({"none"}),
    texts=("content",),
    usage_keys=("tokens_evaluated", "tokens_predicted", "tokens_cached", "timings.cache_n"),
)
_LLAMA_CPP = UsagePaths(
    input=("tokens_evaluated",), output=("tokens_predicted",), cache_read=("timings.cache_n",)
)


def read_llama_cpp(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read one document, one of a list of them, or one event."""
    before, facts.usage = facts.usage, None
    _LLAMA_CPP_LAYOUT.read(facts, event, body)
    found, facts.usage = facts.usage, facts.usage or before
    if facts.is_document:
        return
    if body.get("stop") is True:
        choices.finish(facts, body)
        facts.ended = choices.all_finished(facts)
    if found is not None:
        choices.record_usage(facts, found, [choices.index_of(body)])


LLAMA_CPP_COMPLETION = Dialect(
    name="llama_cpp.completion",
    operation="text_completion",
    read=read_llama_cpp,
    usage_of=_LLAMA_CPP.usage_of,
    known_keys=_LLAMA_CPP.known_keys("tokens_cached"),
    marks=(
        Mark(b'"stop"', (b'"stop":false', b'"stop": false')),
        Mark(b'"tokens_predicted"'),
        Mark(b'"error"'),
    ),
    text_marks=(b'"content"',),
    answer_shapes=(
        {"content": shapes.anything, "tokens_predicted": shapes.count},
        {"content": shapes.anything, "stop": bool, "id_slot": shapes.anything},
    ),
)

_TGI_HEADERS = {name: HEADER_PREFIX + name for name in ("x-prompt-tokens", "x-generated-tokens")}
_TGI = UsagePaths(
    input=("details.input_length", _TGI_HEADERS["x-prompt-tokens"], "meta_info.prompt_tokens"),
    output=(
        *("details.generated_tokens", _TGI_HEADERS["x-generated-tokens"]),
        "meta_info.completion_tokens",
    ),
    cache_read=("meta_info.cached_tokens",),
)
_TGI_LAYOUT = FramePaths(
    ids=("meta_info.id",),
    finishes=("details.finish_reason", "meta_info.finish_reason.type"),
    texts=("token.text", "generated_text", "text"),
    usage_keys=(
        *("details.input_length", "details.generated_tokens"),
        *("meta_info.prompt_tokens", "meta_info.completion_tokens", "meta_info.cached_tokens"),
    ),
)


def read_tgi(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read one document or event, and the counts in its response headers."""
    _TGI_LAYOUT.read(facts, event, body)
    if object_at(body, "details") is not None and not facts.is_document:
        facts.ended = True
    reported = counts_in(facts.of.headers, _TGI_HEADERS)
    if facts.is_document and reported:
        facts.record_usage({**reported, **(facts.usage or {})}, final=True)


TGI_GENERATE = Dialect(
    name="tgi.generate",
    operation="text_completion",
    read=read_tgi,
    usage_of=_TGI.usage_of,
    known_keys=_TGI.known_keys(),
    count_headers=tuple(_TGI_HEADERS),
    marks=(
        Mark(b'"details"', (b'"details":null', b'"details": null')),
        Mark(b'"meta_info"'),
        Mark(b'"error"'),
    ),
    text_marks=(b'"text"',),
    answer_shapes=(
        {"meta_info.prompt_tokens": shapes.count, "meta_info.completion_tokens": shapes.count},
        {"generated_text": shapes.text, "details.generated_tokens": shapes.count},
        {"generated_text": shapes.text},
        {"token.id": shapes.count, "token.text": shapes.anything},
    ),
    request_shapes=(
        {"inputs": shapes.text, "parameters": dict},
        {"text": shapes.anything, "sampling_params": dict},
    ),
)
