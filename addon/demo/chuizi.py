"""Pure. Scenes of Chuizi AI, which speaks three protocols, told apart by path.

/v1/chat/completions                              usage when asked, on the finish chunk
/anthropic/v1/messages                            typed events, usage in the first and the last
/gemini/v1beta/models/*/streamGenerateContent     usage on every chunk, the last one counts
"""

from functools import partial
from typing import Any

from addon.demo.chat import begun, chunk, completion, scene, streamed, words
from addon.demo.scene import DONE, Answer, Figures, Scene, compact, document, event


def scenes() -> tuple[Scene, ...]:
    """All of them, in the order they are played."""
    return (*_openai(), *_anthropic(), *_gemini())


def _openai() -> tuple[Scene, ...]:
    model = "openai/gpt-4.1"
    play = partial(scene, provider="chuizi", model=model)
    usage = {"prompt_tokens": 14, "completion_tokens": 17, "total_tokens": 31}
    failure = {
        "error": {"message": "Upstream provider timeout", "type": "server_error", "code": "504"}
    }

    def opt_in(response_id: str) -> Answer:
        content = begun(response_id, model, words("In", " the"))
        finish = chunk(response_id, model, {}, "stop")
        return Answer(
            pieces=streamed(response_id, model, words("In", " the")),
            pieces_when_asked=(*content, event(finish | {"usage": usage}), DONE),
        )

    return (
        play(
            "chat: streamed, usage asked",
            opt_in("gen-demo1"),
            asks=True,
            response_id="gen-demo1",
            input_tokens=14,
            output_tokens=17,
        ),
        play(
            "chat: streamed, usage not asked",
            opt_in("gen-demo2"),
            response_id="gen-demo2",
            input_tokens=14,
            output_tokens=17,
            usage_injected=True,
            usage_stripped=True,
        ),
        play(
            "chat: not streamed",
            document(completion("gen-demo3", model, "In the", usage)),
            stream=False,
            response_id="gen-demo3",
            input_tokens=14,
            output_tokens=17,
        ),
        play(
            "chat: error frame in HTTP 200",
            Answer(pieces=(*begun("gen-demo4", model, words("In")), event(failure), DONE)),
            asks=True,
            response_id="gen-demo4",
            usage_source="estimated",
            outcome="error_frame",
            finish_reason=None,
            error_type="server_error",
            error_code="504",
            error_message="Upstream provider timeout",
        ),
    )


def _anthropic() -> tuple[Scene, ...]:
    model = "anthropic/claude-sonnet-4-6"
    answering = "claude-sonnet-4-6"

    def play(name: str, answer: Answer, *, stream: bool = True, **figures: Any) -> Scene:
        body: dict[str, Any] = {
            "max_tokens": 256,
            "messages": [{"role": "user", "content": "Write a haiku about APIs."}],
            "model": model,
        }
        expected = {"response_model": answering, "finish_reason": "end_turn", **figures}
        return Scene(
            name=name,
            provider="chuizi",
            path="/anthropic/v1/messages",
            sdk="anthropic",
            body=body | ({"stream": True} if stream else {}),
            answer=answer,
            figures=Figures(request_model=model, **expected),
        )

    def start(response_id: str, usage: dict[str, int]) -> bytes:
        message: dict[str, Any] = {"id": response_id, "type": "message", "role": "assistant"}
        message |= {"content": [], "model": answering, "stop_reason": None, "usage": usage}
        return event({"type": "message_start", "message": message}, "message_start")

    def block(index: int, opening: dict[str, Any], *deltas: dict[str, Any]) -> tuple[bytes, ...]:
        kinds = [("content_block_start", {"content_block": opening})]
        kinds += [("content_block_delta", {"delta": delta}) for delta in deltas]
        kinds.append(("content_block_stop", {}))
        return tuple(event({"type": kind, "index": index, **more}, kind) for kind, more in kinds)

    def stop(reason: str, usage: dict[str, int]) -> tuple[bytes, ...]:
        delta = {"stop_reason": reason, "stop_sequence": None}
        return (
            event({"type": "message_delta", "delta": delta, "usage": usage}, "message_delta"),
            event({"type": "message_stop"}, "message_stop"),
        )

    text = block(
        0,
        {"type": "text", "text": ""},
        {"type": "text_delta", "text": "In"},
        {"type": "text_delta", "text": " the"},
    )
    thinking = block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "A haiku."},
    )
    tool = block(
        1,
        {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"city":"Tokyo"}'},
    )
    cached = {
        "input_tokens": 25,
        "cache_read_input_tokens": 1000,
        "cache_creation_input_tokens": 200,
        "output_tokens": 1,
    }
    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    message = {
        "id": "msg_demo4",
        "type": "message",
        "role": "assistant",
        "model": answering,
        "content": [{"type": "text", "text": "In the"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 25, "output_tokens": 17},
    }
    return (
        play(
            "messages: streamed",
            Answer(
                pieces=(
                    start("msg_demo1", {"input_tokens": 25, "output_tokens": 1}),
                    event({"type": "ping"}, "ping"),
                    *text,
                    *stop("end_turn", {"output_tokens": 17}),
                )
            ),
            response_id="msg_demo1",
            input_tokens=25,
            output_tokens=17,
        ),
        play(
            "messages: thinking, tool use, cache",
            Answer(
                pieces=(
                    start("msg_demo2", cached),
                    *thinking,
                    *tool,
                    *stop("tool_use", {"output_tokens": 60}),
                )
            ),
            response_id="msg_demo2",
            finish_reason="tool_use",
            input_tokens=1225,
            cache_read_tokens=1000,
            cache_write_tokens=200,
            output_tokens=60,
        ),
        play(
            "messages: error frame in HTTP 200",
            Answer(
                pieces=(
                    start("msg_demo3", {"input_tokens": 25, "output_tokens": 1}),
                    event(overloaded, "error"),
                )
            ),
            response_id="msg_demo3",
            usage_source="partial",
            outcome="error_frame",
            finish_reason=None,
            error_type="overloaded_error",
            error_message="Overloaded",
            input_tokens=25,
            output_tokens=1,
        ),
        play(
            "messages: not streamed",
            document(message),
            stream=False,
            response_id="msg_demo4",
            input_tokens=25,
            output_tokens=17,
        ),
        play(
            "messages: error before the stream",
            document(overloaded, status=529),
            response_id=None,
            response_model=None,
            usage_source="none",
            outcome="http_error",
            finish_reason=None,
            error_type="overloaded_error",
            error_message="Overloaded",
        ),
    )


def _gemini() -> tuple[Scene, ...]:
    model = "gemini-2.5-flash"

    def play(name: str, method: str, answer: Answer, **figures: Any) -> Scene:
        return Scene(
            name=name,
            provider="chuizi",
            path=f"/gemini/v1beta/models/{model}{method}",
            sdk="google-genai",
            body={"contents": [{"parts": [{"text": "Hi"}], "role": "user"}]},
            answer=answer,
            figures=Figures(
                request_model=model, **{"response_model": model, "finish_reason": "STOP", **figures}
            ),
        )

    def part(response_id: str, text: str, finish: str | None, **usage: int) -> dict[str, Any]:
        candidate: dict[str, Any] = {"content": {"parts": [{"text": text}], "role": "model"}}
        if finish:
            candidate["finishReason"] = finish
        return {
            "candidates": [candidate],
            "usageMetadata": usage,
            "modelVersion": model,
            "responseId": response_id,
        }

    def parts(response_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
        return (
            part(response_id, "In", None, promptTokenCount=10, totalTokenCount=10),
            part(
                response_id,
                " the",
                "STOP",
                promptTokenCount=10,
                candidatesTokenCount=4,
                thoughtsTokenCount=30,
                cachedContentTokenCount=6,
                totalTokenCount=44,
            ),
        )

    figures = {
        "input_tokens": 10,
        "cache_read_tokens": 6,
        "output_tokens": 34,
        "reasoning_tokens": 30,
    }
    first, last = map(compact, parts("gemini-demo-2"))
    return (
        play(
            "gemini: streamed as events, thinking",
            "/streamGenerateContent?alt=sse",
            Answer(
                pieces=tuple(event(each).replace(b"\n", b"\r\n") for each in parts("gemini-demo-1"))
            ),
            response_id="gemini-demo-1",
            **figures,
        ),
        play(
            "gemini: streamed as a JSON array",
            ":streamGenerateContent",
            Answer(
                pieces=(b"[" + first, b"\n,\r\n" + last, b"\n]\n"), content_type="application/json"
            ),
            response_id="gemini-demo-2",
            **figures,
        ),
        play(
            "gemini: not streamed",
            ":generateContent",
            document(parts("gemini-demo-3")[1]),
            response_id="gemini-demo-3",
            **figures,
        ),
        play(
            "gemini: error before the stream",
            ":generateContent",
            document(
                {"error": {"code": 429, "message": "Quota.", "status": "RESOURCE_EXHAUSTED"}},
                status=429,
            ),
            response_id=None,
            response_model=None,
            usage_source="none",
            outcome="http_error",
            finish_reason=None,
            error_type="RESOURCE_EXHAUSTED",
            error_code="429",
            error_message="Quota.",
        ),
    )
