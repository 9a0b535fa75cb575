"""The wire formats as upstreams speak them, with the figures they hold, worked out by hand.

Spelling differs on purpose (blanks, CRLF, padding keys, comments, escapes): all of it must reach
the client untouched.
"""

import json
from functools import partial
from typing import Any

from tests.addon.framing.test_eventstream import header, message
from tests.proxy.wire import Ask, Wire

DONE = b"data: [DONE]\n\n"
ESTIMATED = {"usage_source": "estimated"}


def sse(*payloads: str, end: str = "\n") -> tuple[bytes, ...]:
    return tuple(f"data: {payload}{end}{end}".encode() for payload in payloads)


def _chat(model: str, **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "Hi"}], "stream": True, **more}


_CHAT_ERROR = b'{"error":{"message":"no such key","type":"auth_error","code":"bad_key"}}'
_CHAT_ERROR_FIGURES = {
    "error_type": "auth_error",
    "error_code": "bad_key",
    "error_message": None,
}


_wire = partial(Wire, can_ask=True, error_body=_CHAT_ERROR, http_error_figures=_CHAT_ERROR_FIGURES)


def _openai() -> Wire:
    """OpenAI: `usage: null` on every other chunk once usage is asked for, and padding keys."""

    def chunks(null: str, *last: str) -> tuple[bytes, ...]:
        head = '{"id":"chatcmpl-w1","object":"chat.completion.chunk","created":1700000000,'
        head += '"model":"gpt-4o-2024-08-06","service_tier":"default","system_fingerprint":null,'
        part = (
            head + '"choices":[{"index":0,"delta":%s,"logprobs":null,"finish_reason":%s}]%s,'
            '"obfuscation":"%s"}'
        )
        return (
            *sse(
                part % ('{"role":"assistant","content":"","refusal":null}', "null", null, "aXq1"),
                part % ('{"content":"Say \\"usage\\":"}', "null", null, "Zk"),
                part % ('{"content":" {\\"usage\\":null}\\u00e9é\\n\\n"}', "null", null, "9f9f9"),
                part % ('{"content":" done"}', "null", null, ""),
                part % ("{}", '"stop"', null, "qqqq"),
                *(head + each for each in last),
            ),
            DONE,
        )

    usage = (
        '"choices":[],"usage":{"prompt_tokens":1200,"completion_tokens":64,"total_tokens":1264,'
        '"prompt_tokens_details":{"cached_tokens":1024,"audio_tokens":0},'
        '"completion_tokens_details":{"reasoning_tokens":32,"audio_tokens":0,'
        '"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"obfuscation":"xyz"}'
    )
    return _wire(
        name="openai",
        target="/v1/chat/completions",
        body=_chat("gpt-4o"),
        frames=chunks(""),
        frames_asked=chunks(',"usage":null', usage),
        is_opt_in=True,
        figures={
            "response_id": "chatcmpl-w1",
            "request_model": "gpt-4o",
            "response_model": "gpt-4o-2024-08-06",
            "finish_reason": "stop",
            "input_tokens": 1200,
            "cache_read_tokens": 1024,
            "output_tokens": 64,
            "reasoning_tokens": 32,
        },
        cut_after=3,
        figures_cut={"response_id": "chatcmpl-w1", "finish_reason": None, **ESTIMATED},
        error_frame=b'data: {"error":{"message":"Overloaded","type":"server_error","code":null}}\n\n',
        error_figures={
            "error_type": "server_error",
            "error_code": "overloaded",
            "error_message": None,
        },
    )


def _azure() -> Wire:
    """Azure: a first chunk with nothing in it but filter results; blanks after colons."""

    def chunks(*last: str) -> tuple[bytes, ...]:
        first = '{"choices": [], "created": 0, "id": "", "model": "", "object": "", '
        first += '"prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {}}]}'
        part = '{"choices": [{"delta": %s, "finish_reason": %s, "index": 0}], "created": 1700000001'
        part += ', "id": "chatcmpl-w2", "model": "gpt-4o-mini-2024-07-18"}'
        return (
            *sse(
                first,
                part % ('{"content": "Hel"}', "null"),
                part % ('{"content": "lo"}', "null"),
                part % ("{}", '"length"'),
                *last,
            ),
            DONE,
        )

    usage = '{"choices": [], "created": 1700000001, "id": "chatcmpl-w2", "model": '
    usage += '"gpt-4o-mini-2024-07-18", "usage": {"completion_tokens": 2, "prompt_tokens": 9, '
    usage += '"total_tokens": 11}}'
    return _wire(
        name="azure",
        target="/openai/deployments/mini/chat/completions?api-version=2024-10-21",
        body=_chat("mini"),
        frames=chunks(),
        frames_asked=chunks(usage),
        is_opt_in=True,
        figures={
            "response_id": "chatcmpl-w2",
            "response_model": "gpt-4o-mini-2024-07-18",
            "finish_reason": "length",
            "input_tokens": 9,
            "cache_read_tokens": None,
            "output_tokens": 2,
        },
        cut_after=2,
        figures_cut={"response_id": "chatcmpl-w2", **ESTIMATED},
        error_frame=b'data: {"error": {"message": "Overloaded", "code": "500"}}\n\n',
        error_figures={"error_type": "overloaded", "error_code": "500", "error_message": None},
    )


def _chuizi() -> Wire:
    """Chuizi AI: usage, when asked for, as a key of the finish chunk; here with CRLF, comments."""

    def chunks(usage: str) -> tuple[bytes, ...]:
        part = '{"id":"gen-w3","object":"chat.completion.chunk","created":1712000000,'
        part += '"model":"openai/gpt-4.1","choices":[{"index":0,"delta":%s,"finish_reason":%s}]%s}'
        first, second, third, last = sse(
            part % ('{"role":"assistant"}', "null", ""),
            part % ('{"content":"In"}', "null", ""),
            part % ('{"content":" the"}', "null", ""),
            part % ("{}", '"stop"', usage),
            end="\r\n",
        )
        ping = b": keep-alive 12:00\r\n\r\n"
        return (ping, first, ping, second, third, b": comment\r\n" + last, b"data: [DONE]\r\n\r\n")

    return _wire(
        name="chuizi",
        target="/v1/chat/completions",
        body=_chat("openai/gpt-4.1"),
        frames=chunks(""),
        frames_asked=chunks(
            ',"usage":{"prompt_tokens":14,"completion_tokens":17,"total_tokens":31}'
        ),
        is_opt_in=True,
        figures={
            "response_id": "gen-w3",
            "response_model": "openai/gpt-4.1",
            "finish_reason": "stop",
            "input_tokens": 14,
            "cache_read_tokens": None,
            "output_tokens": 17,
        },
        cut_after=4,
        figures_cut={"response_id": "gen-w3", **ESTIMATED},
        error_frame=b'data: {"error":{"message":"late","type":"server_error","code":"504"}}\r\n\r\n',
        error_figures={"error_type": "server_error", "error_code": "504", "error_message": None},
    )


def _completions() -> Wire:
    """Legacy completions, whose usage is asked for in the same way."""

    def chunks(*last: str) -> tuple[bytes, ...]:
        part = '{"id":"cmpl-w4","object":"text_completion","created":1700000002,"choices":'
        part += '[{"text":"%s","index":0,"finish_reason":%s}],"model":"davinci-002"}'
        return (
            *sse(part % ("Once", "null"), part % (" upon", "null"), part % ("", '"stop"'), *last),
            DONE,
        )

    usage = '{"id":"cmpl-w4","object":"text_completion","created":1700000002,"choices":[],'
    usage += '"model":"davinci-002","usage":{"prompt_tokens":3,"completion_tokens":2,'
    usage += '"total_tokens":5}}'
    return _wire(
        name="completions",
        target="/v1/completions",
        body={"model": "davinci-002", "prompt": "Once", "stream": True},
        frames=chunks(),
        frames_asked=chunks(usage),
        is_opt_in=True,
        figures={
            "response_id": "cmpl-w4",
            "response_model": "davinci-002",
            "finish_reason": "stop",
            "input_tokens": 3,
            "output_tokens": 2,
        },
        cut_after=2,
        figures_cut={"response_id": "cmpl-w4", **ESTIMATED},
        error_frame=b'data: {"error":{"message":"Overloaded","type":"server_error"}}\n\n',
        error_figures={
            "error_type": "server_error",
            "error_code": "overloaded",
            "error_message": None,
        },
    )


def _opentoken() -> Wire:
    """OpenToken: usage comes by itself, whatever the request says."""
    part = '{"id":"chatcmpl-w5","object":"chat.completion.chunk","created":1700000000,'
    part += '"model":"google/gemini-3-flash","choices":%s%s}'
    delta = '[{"index":0,"delta":%s,"finish_reason":%s}]'
    usage = ',"usage":{"prompt_tokens":50,"completion_tokens":40,"total_tokens":90,'
    usage += '"prompt_tokens_details":{"cached_tokens":0},'
    usage += '"completion_tokens_details":{"reasoning_tokens":25}}'
    return _wire(
        name="opentoken",
        target="/v1/chat/completions",
        body=_chat("google/gemini-3-flash"),
        frames=(
            *sse(
                part % (delta % ('{"role":"assistant"}', "null"), ""),
                part % (delta % ('{"content":"Packets "}', "null"), ""),
                part % (delta % ('{"content":"in flight"}', "null"), ""),
                part % (delta % ("{}", '"stop"'), ""),
                part % ("[]", usage),
            ),
            DONE,
        ),
        figures={
            "response_id": "chatcmpl-w5",
            "response_model": "google/gemini-3-flash",
            "finish_reason": "stop",
            "input_tokens": 50,
            "cache_read_tokens": 0,
            "output_tokens": 40,
            "reasoning_tokens": 25,
        },
        cut_after=3,
        figures_cut={"response_id": "chatcmpl-w5", **ESTIMATED},
        error_frame=b'data: {"error":{"message":"Overloaded","type":"server_error","code":"x"}}\n\n',
        error_figures={"error_type": "server_error", "error_code": "x", "error_message": None},
    )


def _stream_chat() -> Wire:
    """The `stream:chat:` endpoint: no [DONE], `model` empty, a finish reason and the close."""
    part = '{"id":"stream:chat:w6","object":"chat.completion","created":1773042793,"model":"",'
    part += '"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":%s}]%s}'
    usage = ',"usage":{"prompt_tokens":20,"completion_tokens":6,"total_tokens":26}'
    return _wire(
        name="stream:chat",
        target="/v1/chat/completions",
        body=_chat("assistant"),
        frames=sse(
            part % ("Hello", "null", ""),
            part % (" world", "null", ""),
            part % ("", '"stop"', usage),
        ),
        ends_by_closing=True,
        figures={
            "response_id": "stream:chat:w6",
            "response_model": None,
            "finish_reason": "stop",
            "input_tokens": 20,
            "output_tokens": 6,
        },
        cut_after=2,
        figures_cut={"response_id": "stream:chat:w6", **ESTIMATED},
        error_frame=b'data: {"id":"stream:chat:w6","choices":[],"error":{"message":"Overloaded"}}\n\n',
        error_figures={"error_code": "overloaded", "error_message": None},
    )


def _anthropic() -> Wire:
    """Anthropic: typed events, blanks before the closing brace, usage at both ends."""

    def event(kind: str, payload: str) -> bytes:
        return f"event: {kind}\ndata: {payload}\n\n".encode()

    start = '{"type":"message_start","message":{"id":"msg_w7","type":"message","role":"assistant",'
    start += '"model":"claude-sonnet-4-6","content":[],"stop_reason":null,"stop_sequence":null,'
    start += '"usage":{"input_tokens":25,"cache_creation_input_tokens":200,'
    start += '"cache_read_input_tokens":1000,"cache_creation":{"ephemeral_5m_input_tokens":50,'
    start += '"ephemeral_1h_input_tokens":150},"output_tokens":3}}   }'
    text = '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%s"}  }'
    return Wire(
        name="anthropic",
        target="/anthropic/v1/messages",
        body={
            "model": "claude-sonnet-4-6",
            "max_tokens": 64,
            "messages": [{"role": "user", "content": "Hi"}],
            "stream": True,
        },
        frames=(
            event("message_start", start),
            event(
                "content_block_start",
                '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}',
            ),
            event("ping", '{"type": "ping"}'),
            event("content_block_delta", text % "In"),
            event("content_block_delta", text % " the"),
            event("content_block_stop", '{"type":"content_block_stop","index":0         }'),
            event(
                "message_delta",
                '{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},'
                '"usage":{"output_tokens":17}          }',
            ),
            event("message_stop", '{"type":"message_stop"       }'),
        ),
        figures={
            "response_id": "msg_w7",
            "response_model": "claude-sonnet-4-6",
            "finish_reason": "end_turn",
            "input_tokens": 1225,
            "cache_read_tokens": 1000,
            "cache_write_tokens": 200,
            "cache_write_5m_tokens": 50,
            "cache_write_1h_tokens": 150,
            "output_tokens": 17,
        },
        cut_after=4,
        figures_cut={"response_id": "msg_w7", "usage_source": "partial", "input_tokens": 1225},
        error_frame=event(
            "error", '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'
        ),
        error_figures={"error_type": "overloaded_error", "error_code": "overloaded"},
        error_body=b'{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}',
        http_error_figures={"error_type": "rate_limit_error", "error_code": "rate_limited"},
        headers={"anthropic-version": "2023-06-01"},
    )


_GEMINI_FIGURES = {
    "request_model": "gemini-2.5-flash",
    "response_model": "gemini-2.5-flash",
    "finish_reason": "STOP",
    "input_tokens": 10,
    "cache_read_tokens": 6,
    "output_tokens": 34,
    "reasoning_tokens": 30,
}
_GEMINI_ERROR = b'{"error": {"code": 429, "message": "Quota.", "status": "RESOURCE_EXHAUSTED"}}'
_GEMINI_ERROR_FIGURES = {
    "error_type": "RESOURCE_EXHAUSTED",
    "error_code": "429",
    "error_message": None,
}


def _gemini_parts(response_id: str) -> tuple[str, str, str]:
    part = '{"candidates": [{"content": {"parts": [{"text": "%s"}],"role": "model"}%s'
    part += ',"index": 0}],"usageMetadata": {"promptTokenCount": 10%s},'
    part += f'"modelVersion": "gemini-2.5-flash","responseId": "{response_id}"}}'
    last = ',"candidatesTokenCount": 4,"thoughtsTokenCount": 30,"cachedContentTokenCount": 6'
    last += ',"totalTokenCount": 44'
    return (
        part % ("In", "", ',"totalTokenCount": 10'),
        part % (" the", "", ',"candidatesTokenCount": 2,"totalTokenCount": 12'),
        part % (" end", ',"finishReason": "STOP"', last),
    )


def _gemini_sse() -> Wire:
    return Wire(
        name="gemini",
        target="/gemini/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse",
        body={"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
        frames=sse(*_gemini_parts("gem-w8"), end="\r\n"),
        figures={"response_id": "gem-w8", **_GEMINI_FIGURES},
        cut_after=2,
        figures_cut={"response_id": "gem-w8", "usage_source": "partial", "input_tokens": 10},
        error_frame=b"data: " + _GEMINI_ERROR + b"\r\n\r\n",
        error_figures=_GEMINI_ERROR_FIGURES,
        error_body=_GEMINI_ERROR,
        http_error_figures=_GEMINI_ERROR_FIGURES,
    )


def _gemini_array() -> Wire:
    first, second, third = (part.encode() for part in _gemini_parts("gem-w9"))
    return Wire(
        name="gemini array",
        target="/gemini/v1beta/models/gemini-2.5-flash:streamGenerateContent",
        body={"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
        frames=(b"[" + first, b"\n,\r\n" + second, b"\n,\r\n" + third, b"\n]\n"),
        content_type="application/json; charset=UTF-8",
        figures={"response_id": "gem-w9", **_GEMINI_FIGURES},
        cut_after=2,
        figures_cut={"response_id": "gem-w9", "usage_source": "partial", "input_tokens": 10},
        error_frame=b"\n,\r\n" + _GEMINI_ERROR + b"\n]\n",
        error_figures=_GEMINI_ERROR_FIGURES,
        error_body=b"[" + _GEMINI_ERROR + b"\n]\n",
        http_error_figures=_GEMINI_ERROR_FIGURES,
    )


def _responses() -> Wire:
    """OpenAI Responses: usage in the last event, `null` in all before."""

    def event(kind: str, more: str) -> bytes:
        return f'event: {kind}\ndata: {{"type":"{kind}",{more}}}\n\n'.encode()

    response = '"response":{"id":"resp_w10","object":"response","created_at":1700000003,'
    response += '"status":"%s","model":"gpt-4.1-2025-04-14","output":[],"usage":%s}'
    delta = '"item_id":"msg_1","output_index":0,"content_index":0,"delta":"%s"'
    usage = '{"input_tokens":36,"input_tokens_details":{"cached_tokens":0},"output_tokens":11,'
    usage += '"output_tokens_details":{"reasoning_tokens":4},"total_tokens":47}'
    return Wire(
        name="responses",
        target="/v1/responses",
        body={"model": "gpt-4.1", "input": "Hi", "stream": True},
        frames=(
            event("response.created", response % ("in_progress", "null")),
            event("response.output_text.delta", delta % "Hel"),
            event("response.output_text.delta", delta % "lo"),
            event("response.completed", response % ("completed", usage)),
        ),
        figures={
            "response_id": "resp_w10",
            "response_model": "gpt-4.1-2025-04-14",
            "finish_reason": "completed",
            "input_tokens": 36,
            "cache_read_tokens": 0,
            "output_tokens": 11,
            "reasoning_tokens": 4,
        },
        cut_after=3,
        figures_cut={"response_id": "resp_w10", **ESTIMATED},
        error_frame=event("error", '"code":"server_error","message":"Overloaded","param":null'),
        error_figures={"error_code": "server_error", "error_message": None},
        error_body=b'{"error":{"message":"slow down","type":"tokens","code":"rate_limit"}}',
        http_error_figures={
            "error_type": "tokens",
            "error_code": "rate_limit",
            "error_message": None,
        },
    )


def _cohere() -> Wire:
    """Cohere v2: what the model read and what is billed differ; the model's figures count."""
    delta = '{"type":"content-delta","index":0,"delta":{"message":{"content":{"text":"%s"}}}}'
    end = '{"type":"message-end","delta":{"finish_reason":"COMPLETE","usage":{"billed_units":'
    end += '{"input_tokens":3,"output_tokens":5},"tokens":{"input_tokens":70,"output_tokens":6}}}}'
    return Wire(
        name="cohere",
        target="/v2/chat",
        body={
            "model": "command-a-03-2025",
            "messages": [{"role": "user", "content": "Hi"}],
            "stream": True,
        },
        frames=tuple(
            b"event: " + json.loads(payload)["type"].encode() + b"\n" + block
            for payload, block in _with_blocks(
                '{"id":"cohere-w11","type":"message-start","delta":{"message":{"content":[]}}}',
                delta % "Hel",
                delta % "lo",
                end,
            )
        ),
        figures={
            "response_id": "cohere-w11",
            "request_model": "command-a-03-2025",
            "finish_reason": "COMPLETE",
            "input_tokens": 70,
            "output_tokens": 6,
        },
        cut_after=3,
        figures_cut={"response_id": "cohere-w11", **ESTIMATED},
        error_frame=b'event: message-end\ndata: {"type":"message-end","delta":{"finish_reason":'
        b'"ERROR","error":"Overloaded"}}\n\n',
        error_figures={
            "error_code": "overloaded",
            "error_message": None,
            "finish_reason": "ERROR",
        },
        error_body=b'{"id":"x","message":"too many requests"}',
        http_error_figures={"error_code": "rate_limited"},
    )


def _with_blocks(*payloads: str) -> list[tuple[str, bytes]]:
    return list(zip(payloads, sse(*payloads), strict=True))


def _ollama() -> Wire:
    """Ollama's own API: lines of JSON, counts on the last."""
    line = '{"model":"llama3.2","created_at":"2026-01-01T00:00:00Z","message":{"role":"assistant",'
    line += '"content":"%s"},"done":%s}\n'
    last = '"stop","total_duration":5,"prompt_eval_count":26,"eval_count":4'
    return Wire(
        name="ollama",
        target="/api/chat",
        body={"model": "llama3.2", "messages": [{"role": "user", "content": "Hi"}]},
        frames=(
            (line % ("Hel", "false")).encode(),
            (line % ("lo", "false")).encode(),
            (line % ("", f'true,"done_reason":{last}')).encode(),
        ),
        content_type="application/x-ndjson",
        figures={
            "response_id": None,
            "response_model": "llama3.2",
            "finish_reason": "stop",
            "input_tokens": 26,
            "output_tokens": 4,
        },
        cut_after=2,
        figures_cut={"response_model": "llama3.2", **ESTIMATED},
        error_frame=b'{"error":"Overloaded"}\n',
        error_figures={"error_code": "overloaded", "error_message": None},
        error_body=b'{"error":"model not found"}',
        http_error_figures={"error_code": "model_not_found"},
    )


def _bedrock() -> Wire:
    """Bedrock Converse: binary messages with checksums, usage in the last; a signed request."""
    usage = '{"usage":{"inputTokens":30,"outputTokens":12,"totalTokens":1042,'
    usage += '"cacheReadInputTokens":1000,"cacheWriteInputTokens":0},"metrics":{"latencyMs":5}}'
    return Wire(
        name="bedrock",
        target="/model/anthropic.claude-3-5-haiku-20241022-v1%3A0/converse-stream",
        body={"messages": [{"role": "user", "content": [{"text": "Hi"}]}]},
        frames=(
            _message("messageStart", '{"p":"abcd","role":"assistant"}'),
            _message("contentBlockDelta", '{"contentBlockIndex":0,"delta":{"text":"Hel"}}'),
            _message("contentBlockDelta", '{"contentBlockIndex":0,"delta":{"text":"lo"}}'),
            _message("messageStop", '{"stopReason":"end_turn"}'),
            _message("metadata", usage),
        ),
        content_type="application/vnd.amazon.eventstream",
        figures={
            "request_model": "anthropic.claude-3-5-haiku-20241022-v1:0",
            "finish_reason": "end_turn",
            "input_tokens": 1030,
            "cache_read_tokens": 1000,
            "cache_write_tokens": 0,
            "output_tokens": 12,
        },
        cut_after=3,
        figures_cut={"finish_reason": None, **ESTIMATED},
        error_frame=_message("throttlingException", '{"message":"slow down"}', kind="exception"),
        error_figures={"error_type": "throttlingException", "error_code": "rate_limited"},
        error_body=b'{"message":"Too many tokens"}',
        http_error_figures={"error_code": "prompt_too_long"},
        headers={"authorization": "AWS4-HMAC-SHA256 Credential=AKIA/x, Signature=00"},
    )


def _message(event: str, payload: str, *, kind: str = "event") -> bytes:
    """One message of `application/vnd.amazon.eventstream`."""
    fields = {
        f":{kind}-type": event,
        ":content-type": "application/json",
        ":message-type": kind,
    }
    return message(b"".join(header(*each) for each in fields.items()), payload.encode())


WIRES = (
    _openai(),
    _azure(),
    _chuizi(),
    _completions(),
    _opentoken(),
    _stream_chat(),
    _anthropic(),
    _gemini_sse(),
    _gemini_array(),
    _responses(),
    _cohere(),
    _ollama(),
    _bedrock(),
)


EVERY_ASK = [
    (wire, ask)
    for wire in WIRES
    # An upstream that must be asked: others are asked by their client.
    for ask in (Ask if wire.is_opt_in else [Ask.ASKED if wire.can_ask else Ask.NOT_ASKED])
]
