"""Chat completions and completions, as six upstreams spell them."""

from functools import partial
from typing import Any

from tests.proxy.wires.wire import DONE, ESTIMATED, Wire, sse


def _chat(model: str, **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "Hi"}], "stream": True, **more}


_CHAT_ERROR = b'{"error":{"message":"no such key","type":"auth_error","code":"bad_key"}}'
_CHAT_ERROR_FIGURES = {
    "error_type": "auth_error",
    "error_code": "bad_key",
    "error_message": "no such key",
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
        error_frame=b'data: {"error":{"message":"boom","type":"server_error","code":null}}\n\n',
        error_figures={"error_type": "server_error", "error_code": None, "error_message": "boom"},
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
        error_frame=b'data: {"error": {"message": "boom", "code": "500"}}\n\n',
        error_figures={"error_type": None, "error_code": "500", "error_message": "boom"},
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
        error_figures={"error_type": "server_error", "error_code": "504", "error_message": "late"},
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
        error_frame=b'data: {"error":{"message":"boom","type":"server_error"}}\n\n',
        error_figures={"error_type": "server_error", "error_message": "boom"},
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
        error_frame=b'data: {"error":{"message":"boom","type":"server_error","code":"x"}}\n\n',
        error_figures={"error_type": "server_error", "error_code": "x", "error_message": "boom"},
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
        error_frame=b'data: {"id":"stream:chat:w6","choices":[],"error":{"message":"boom"}}\n\n',
        error_figures={"error_message": "boom"},
    )


CHAT_WIRES = (_openai(), _azure(), _chuizi(), _completions(), _opentoken(), _stream_chat())
