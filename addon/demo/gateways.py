"""Pure. Scenes of four systems that speak chat completions, after their streaming pages.

Aivene          usage only when asked, as an extra chunk with empty `choices`
OpenToken       that chunk always; ids repeat between responses; errors have a `code`
Sansa           usage on the final chunk, always; a `sansa` object on the first
`stream:chat:`  object `chat.completion`, model "", no [DONE]: the close is the end
"""

from functools import partial
from typing import Any

from addon.demo.chat import TOOL_CALL, begun, chunk, completion, scene, streamed, words
from addon.demo.scene import DONE, Answer, Scene, document, event


def scenes() -> tuple[Scene, ...]:
    """All of them, in the order they are played."""
    return (*_aivene(), *_opentoken(), *_sansa(), *_stream_chat())


def _aivene() -> tuple[Scene, ...]:
    model = "gpt-4o"
    play = partial(scene, provider="aivene", model=model)
    cached = {
        "prompt_tokens": 42,
        "completion_tokens": 128,
        "total_tokens": 170,
        "prompt_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 8},
    }
    plain = {"prompt_tokens": 17, "completion_tokens": 9, "total_tokens": 26}
    refusal = {"error": {"message": "invalid api key", "type": "authentication_error"}}
    failure = {"error": {"message": "upstream timeout", "type": "stream_error"}}

    def opt_in(response_id: str, deltas: Any, usage: Any, finish: str = "stop") -> Answer:
        return Answer(
            pieces=streamed(response_id, model, deltas, finish=finish),
            pieces_when_asked=streamed(response_id, model, deltas, finish=finish, usage=usage),
        )

    return (
        play(
            "streamed, usage asked",
            opt_in("ilbs_demo1", words("Hello", " there!"), cached),
            asks=True,
            response_id="ilbs_demo1",
            input_tokens=42,
            cache_read_tokens=30,
            cache_write_tokens=8,
            output_tokens=128,
        ),
        play(
            "streamed, usage not asked",
            opt_in("ilbs_demo2", words("Hello", " again!"), plain),
            response_id="ilbs_demo2",
            input_tokens=17,
            output_tokens=9,
            usage_injected=True,
            usage_stripped=True,
        ),
        play(
            "streamed, usage refused by the client",
            opt_in("ilbs_demo3", words("Hello", " quietly."), plain),
            asks=False,
            response_id="ilbs_demo3",
            input_tokens=17,
            output_tokens=9,
            usage_injected=True,
            usage_stripped=True,
        ),
        play(
            "not streamed",
            document(completion("ilbs_demo4", model, "Hello!", cached)),
            stream=False,
            response_id="ilbs_demo4",
            input_tokens=42,
            cache_read_tokens=30,
            cache_write_tokens=8,
            output_tokens=128,
        ),
        play(
            "tool call",
            opt_in("ilbs_demo5", TOOL_CALL, plain, "tool_calls"),
            response_id="ilbs_demo5",
            finish_reason="tool_calls",
            input_tokens=17,
            output_tokens=9,
            usage_injected=True,
            usage_stripped=True,
        ),
        play(
            "reasoning",
            opt_in("ilbs_demo6", ({"reasoning_content": "Hm."}, *words("Four")), plain),
            asks=True,
            response_id="ilbs_demo6",
            input_tokens=17,
            output_tokens=9,
        ),
        play(
            "error frame in HTTP 200",
            Answer(pieces=(*begun("ilbs_demo7", model, words("Half")), event(failure), DONE)),
            asks=True,
            response_id="ilbs_demo7",
            usage_source="estimated",
            outcome="error_frame",
            finish_reason=None,
            error_type="stream_error",
            error_message="upstream timeout",
        ),
        play(
            "error before the stream",
            document(refusal, status=401),
            asks=True,
            response_id=None,
            usage_source="none",
            outcome="http_error",
            error_type="authentication_error",
            error_message="invalid api key",
        ),
        play(
            "upstream breaks off",
            Answer(pieces=begun("ilbs_demo9", model, words("Half", " a", " word")), is_cut=True),
            asks=True,
            response_id="ilbs_demo9",
            usage_source="estimated",
            outcome="upstream_cut",
            error_type="transport",
            finish_reason=None,
        ),
        play(
            "client leaves",
            Answer(
                pieces=begun("ilbs_demo10", model, words("Enough", " said")), waits_for_leave=True
            ),
            asks=True,
            response_id="ilbs_demo10",
            usage_source="estimated",
            outcome="client_left",
            finish_reason=None,
        ),
    )


def _opentoken() -> tuple[Scene, ...]:
    model = "google/gemini-3-flash"
    play = partial(scene, provider="opentoken", model=model)
    plain = {"prompt_tokens": 12, "completion_tokens": 18, "total_tokens": 30}
    thought: dict[str, Any] = {
        "prompt_tokens": 50,
        "completion_tokens": 40,
        "total_tokens": 90,
        "prompt_tokens_details": {"cached_tokens": 20},
        "completion_tokens_details": {"reasoning_tokens": 25},
    }
    failure = {"error": {"message": "model overloaded", "type": "server_error", "code": "503"}}
    refusal = {"error": {"message": "no such model", "type": "invalid_request", "code": "404"}}
    return (
        play(
            "streamed, usage asked",
            Answer(
                pieces=streamed("chatcmpl-1", model, words("Packets ", "in flight"), usage=plain)
            ),
            asks=True,
            response_id="chatcmpl-1",
            input_tokens=12,
            output_tokens=18,
        ),
        play(
            "streamed, usage not asked, the id of the one before",
            Answer(pieces=streamed("chatcmpl-1", model, words("Two"), usage=thought)),
            response_id="chatcmpl-1",
            input_tokens=50,
            cache_read_tokens=20,
            output_tokens=40,
            reasoning_tokens=25,
        ),
        play(
            "not streamed",
            document(completion("chatcmpl-2", model, "Three", thought)),
            stream=False,
            response_id="chatcmpl-2",
            input_tokens=50,
            cache_read_tokens=20,
            output_tokens=40,
            reasoning_tokens=25,
        ),
        play(
            "tool call",
            Answer(
                pieces=streamed("chatcmpl-3", model, TOOL_CALL, finish="tool_calls", usage=plain)
            ),
            response_id="chatcmpl-3",
            finish_reason="tool_calls",
            input_tokens=12,
            output_tokens=18,
        ),
        play(
            "error frame in HTTP 200",
            Answer(pieces=(*begun("chatcmpl-4", model, words("Pack")), event(failure), DONE)),
            response_id="chatcmpl-4",
            usage_source="estimated",
            outcome="error_frame",
            finish_reason=None,
            error_type="server_error",
            error_code="503",
            error_message="model overloaded",
        ),
        play(
            "error before the stream",
            document(refusal, status=404),
            response_id=None,
            usage_source="none",
            outcome="http_error",
            error_type="invalid_request",
            error_code="404",
            error_message="no such model",
        ),
    )


def _sansa() -> tuple[Scene, ...]:
    asked_for, model = "sansa-auto", "openai/gpt-5.4-mini"
    play = partial(scene, provider="sansa", model=asked_for)
    routing = {"routed": True, "routed_model": model, "routing_latency_ms": 287}
    usage = {"prompt_tokens": 12, "completion_tokens": 84, "total_tokens": 96}
    refusal = {"error": {"code": "insufficient_credits", "message": "Insufficient credits."}}
    failure = {
        "error": {"code": "provider_error", "message": "Provider disconnected"},
        "choices": [{"finish_reason": "error"}],
    }

    def first(response_id: str) -> bytes:
        return event(chunk(response_id, model, {"role": "assistant"}, sansa=routing))

    def answer(response_id: str, deltas: Any, finish: str = "stop") -> Answer:
        content = [event(chunk(response_id, model, delta)) for delta in deltas]
        last = event(chunk(response_id, model, {}, finish, usage=usage))
        return Answer(pieces=(first(response_id), *content, last, DONE))

    reasoning = {"reasoning_details": [{"type": "reasoning.text", "text": "Let me see."}]}
    return (
        play(
            "streamed, routed to another model",
            answer("sansa-demo-1", words("Hello")),
            response_id="sansa-demo-1",
            response_model=model,
            input_tokens=12,
            output_tokens=84,
        ),
        play(
            "not streamed",
            document(completion("sansa-demo-2", model, "Hello", usage) | {"sansa": routing}),
            stream=False,
            response_id="sansa-demo-2",
            response_model=model,
            input_tokens=12,
            output_tokens=84,
        ),
        play(
            "reasoning, usage asked",
            answer("sansa-demo-3", (reasoning, *words("Four"))),
            asks=True,
            response_id="sansa-demo-3",
            response_model=model,
            input_tokens=12,
            output_tokens=84,
        ),
        play(
            "tool call",
            answer("sansa-demo-4", TOOL_CALL, "tool_calls"),
            response_id="sansa-demo-4",
            response_model=model,
            finish_reason="tool_calls",
            input_tokens=12,
            output_tokens=84,
        ),
        play(
            "error frame in HTTP 200",
            Answer(pieces=(first("sansa-demo-5"), event(failure), DONE)),
            response_id="sansa-demo-5",
            response_model=model,
            usage_source="none",
            outcome="error_frame",
            finish_reason="error",
            error_code="provider_error",
            error_message="Provider disconnected",
        ),
        play(
            "error before the stream",
            document(refusal, status=402),
            response_id=None,
            usage_source="none",
            outcome="http_error",
            error_code="insufficient_credits",
            error_message="Insufficient credits.",
        ),
    )


def _stream_chat() -> tuple[Scene, ...]:
    play = partial(scene, provider="stream-chat", model="assistant")
    usage = {"prompt_tokens": 20, "completion_tokens": 6, "total_tokens": 26}
    prefix = "stream:chat:demo-"

    def answer(number: int, *chunks: tuple[Any, str | None], **last: Any) -> Answer:
        parts = [
            chunk(f"{prefix}{number}", "", delta, finish, object="chat.completion")
            for delta, finish in chunks
        ]
        parts[-1] |= last
        return Answer(pieces=tuple(event(part) for part in parts), is_closed_after=True)

    call = {
        "tool_calls": [
            {
                "index": 0,
                "id": "call_1",
                "type": "function",
                "function": {"name": "get_weather", "arguments": '{"city":"Singapore"}'},
            }
        ]
    }
    hello, world, nothing = words("Hello", " world", "")
    return (
        play(
            "streamed, closed without [DONE]",
            answer(1, (hello, None), (world, None), (nothing, "stop")),
            response_id=f"{prefix}1",
            response_model=None,
            usage_source="none",
        ),
        play(
            "streamed with usage",
            answer(2, (hello, None), (world, None), (nothing, "stop"), usage=usage),
            response_id=f"{prefix}2",
            response_model=None,
            input_tokens=20,
            output_tokens=6,
        ),
        play(
            "tool call",
            answer(3, (call, None), (nothing, "tool_calls"), usage=usage),
            response_id=f"{prefix}3",
            response_model=None,
            finish_reason="tool_calls",
            input_tokens=20,
            output_tokens=6,
        ),
        play(
            "error in the stream",
            answer(4, (nothing, None), error={"message": "context too long", "code": "length"}),
            response_id=f"{prefix}4",
            response_model=None,
            usage_source="none",
            outcome="error_frame",
            finish_reason=None,
            error_code="length",
            error_message="context too long",
        ),
    )
