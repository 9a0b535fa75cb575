"""The wires that say their usage without being asked."""

import binascii
import json
import struct

from tests.proxy.wires.wire import ESTIMATED, Wire, sse


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
        error_figures={"error_type": "overloaded_error", "error_message": "Overloaded"},
        error_body=b'{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}',
        http_error_figures={"error_type": "rate_limit_error", "error_message": "slow down"},
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
    "error_message": "Quota.",
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
        error_frame=event("error", '"code":"server_error","message":"boom","param":null'),
        error_figures={"error_code": "server_error", "error_message": "boom"},
        error_body=b'{"error":{"message":"slow down","type":"tokens","code":"rate_limit"}}',
        http_error_figures={
            "error_type": "tokens",
            "error_code": "rate_limit",
            "error_message": "slow down",
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
        b'"ERROR","error":"boom"}}\n\n',
        error_figures={"error_message": "boom", "finish_reason": "ERROR"},
        error_body=b'{"id":"x","message":"too many requests"}',
        http_error_figures={"error_message": "too many requests"},
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
        error_frame=b'{"error":"boom"}\n',
        error_figures={"error_message": "boom"},
        error_body=b'{"error":"model not found"}',
        http_error_figures={"error_message": "model not found"},
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
        error_figures={"error_type": "throttlingException", "error_message": "slow down"},
        error_body=b'{"message":"Too many tokens"}',
        http_error_figures={"error_message": "Too many tokens"},
        headers={"authorization": "AWS4-HMAC-SHA256 Credential=AKIA/x, Signature=00"},
    )


def _message(event: str, payload: str, *, kind: str = "event") -> bytes:
    """One message of `application/vnd.amazon.eventstream`."""
    fields = {
        f":{kind}-type": event,
        ":content-type": "application/json",
        ":message-type": kind,
    }
    headers = b"".join(
        struct.pack(">B", len(name))
        + name.encode()
        + struct.pack(">BH", 7, len(value))
        + value.encode()
        for name, value in fields.items()
    )
    body = payload.encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    head = prelude + struct.pack(">I", binascii.crc32(prelude)) + headers + body
    return head + struct.pack(">I", binascii.crc32(head))


OTHER_WIRES = (
    _anthropic(),
    _gemini_sse(),
    _gemini_array(),
    _responses(),
    _cohere(),
    _ollama(),
    _bedrock(),
)
