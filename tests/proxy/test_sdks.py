"""The official SDKs through the proxy: they iterate and parse as they would without it.

Each function imports the SDK that it plays: importing all three takes a worker seconds, also where
none of these tests runs.
"""

import asyncio
import inspect
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from tests.proxy import rows
from tests.proxy.mitmdump import Mitmdump
from tests.proxy.pair import ANTHROPIC, BY_NAME, OPENAI
from tests.proxy.upstream import Answer, Framing, Request, Upstream
from tests.proxy.wires.wire import asks

pytestmark = pytest.mark.proxy

CHAT_DOCUMENT = {
    "id": "chatcmpl-doc",
    "object": "chat.completion",
    "created": 1700000000,
    "model": "gpt-4o-2024-08-06",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello"},
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9},
}
MESSAGE_DOCUMENT = {
    "id": "msg_doc",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-4-6",
    "content": [{"type": "text", "text": "Hello"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 25, "output_tokens": 17},
}
GEMINI_DOCUMENT = {
    "candidates": [
        {"content": {"parts": [{"text": "Hello"}], "role": "model"}, "finishReason": "STOP"}
    ],
    "usageMetadata": {"promptTokenCount": 4, "candidatesTokenCount": 1, "totalTokenCount": 5},
    "modelVersion": "gemini-2.5-flash",
    "responseId": "gem-doc",
}
RESPONSE_DOCUMENT = {
    "id": "resp_doc",
    "object": "response",
    "created_at": 1700000000,
    "status": "completed",
    "model": "gpt-4.1-2025-04-14",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "usage": {
        "input_tokens": 3,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 5,
    },
}


def answer(request: Request) -> Answer:
    """What the SDKs' services say, streamed or not as the request asks."""
    is_gemini_stream = ":streamGenerateContent" in request.target
    is_stream = is_gemini_stream or json.loads(request.body).get("stream") is True
    for part, wire, document in (
        ("/chat/completions", OPENAI, CHAT_DOCUMENT),
        ("/messages", ANTHROPIC, MESSAGE_DOCUMENT),
        ("/responses", BY_NAME["responses"], RESPONSE_DOCUMENT),
        (
            "GenerateContent" if is_gemini_stream else ":generate",
            BY_NAME["gemini"],
            GEMINI_DOCUMENT,
        ),
    ):
        if part in request.target:
            if is_stream:
                return Answer(pieces=wire.answer(asked=asks(request.body)))
            return Answer(
                pieces=(json.dumps(document).encode(),),
                content_type="application/json",
                framing=Framing.LENGTH,
            )
    raise AssertionError(request.target)


@dataclass
class Stage:
    direct: str
    proxied: str
    proxy: Mitmdump


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("sdks")
    with ExitStack() as running:
        upstream = running.enter_context(Upstream(answer))
        proxy = running.enter_context(
            Mitmdump(
                folder,
                upstreams=[upstream.url],
                options={"tee_hosts": f"127.0.0.1:{upstream.port}=aivene"},
            )
        )
        host, port = proxy.address()
        yield Stage(direct=upstream.url, proxied=f"http://{host}:{port}", proxy=proxy)


MESSAGES: Any = [{"role": "user", "content": "Hi"}]
CHAT: Any = {"model": "gpt-4o", "messages": MESSAGES}
USAGE: Any = {"stream_options": {"include_usage": True}}
MESSAGE: Any = {"model": "claude-sonnet-4-6", "max_tokens": 64, "messages": MESSAGES}
GEMINI: Any = {"model": "gemini-2.5-flash", "contents": "Hi"}


def openai_chat(url: str) -> list[Any]:
    import openai

    with openai.OpenAI(api_key="sk-test", base_url=f"{url}/v1", max_retries=0) as client:
        whole = client.chat.completions.create(**CHAT)
        with client.chat.completions.create(**CHAT, stream=True) as stream:
            unasked = list(stream)
        with client.chat.completions.create(**CHAT, **USAGE, stream=True) as stream:
            asked = list(stream)
        with client.chat.completions.stream(**CHAT) as events:
            final = events.get_final_completion()
    assert all(chunk.choices for chunk in unasked)
    assert asked[-1].usage is not None
    return [dumped(each) for each in (whole, *unasked, *asked, final)]


async def openai_chat_async(url: str) -> list[Any]:
    import openai

    async with openai.AsyncOpenAI(api_key="sk-test", base_url=f"{url}/v1", max_retries=0) as client:
        whole = await client.chat.completions.create(**CHAT)
        unasked = [
            chunk async for chunk in await client.chat.completions.create(**CHAT, stream=True)
        ]
        asked = [
            chunk
            async for chunk in await client.chat.completions.create(**CHAT, **USAGE, stream=True)
        ]
    return [dumped(each) for each in (whole, *unasked, *asked)]


def openai_responses(url: str) -> list[Any]:
    import openai

    with openai.OpenAI(api_key="sk-test", base_url=f"{url}/v1", max_retries=0) as client:
        whole = client.responses.create(model="gpt-4.1", input="Hi")
        events = list(client.responses.create(model="gpt-4.1", input="Hi", stream=True))
    return [dumped(each) for each in (whole, *events)]


async def openai_responses_async(url: str) -> list[Any]:
    import openai

    async with openai.AsyncOpenAI(api_key="sk-test", base_url=f"{url}/v1", max_retries=0) as client:
        whole = await client.responses.create(model="gpt-4.1", input="Hi")
        stream = await client.responses.create(model="gpt-4.1", input="Hi", stream=True)
        events = [event async for event in stream]
    return [dumped(each) for each in (whole, *events)]


def anthropic_messages(url: str) -> list[Any]:
    import anthropic

    with anthropic.Anthropic(
        api_key="sk-ant-test", base_url=f"{url}/anthropic", max_retries=0
    ) as client:
        whole = client.messages.create(**MESSAGE)
        events = list(client.messages.create(**MESSAGE, stream=True))
        with client.messages.stream(**MESSAGE) as stream:
            final = stream.get_final_message()
    assert (final.usage.input_tokens, final.usage.output_tokens) == (25, 17)
    return [dumped(each) for each in (whole, *events, final)]


async def anthropic_messages_async(url: str) -> list[Any]:
    import anthropic

    async with anthropic.AsyncAnthropic(
        api_key="sk-ant-test", base_url=f"{url}/anthropic", max_retries=0
    ) as client:
        whole = await client.messages.create(**MESSAGE)
        events = [event async for event in await client.messages.create(**MESSAGE, stream=True)]
    return [dumped(each) for each in (whole, *events)]


def gemini(url: str) -> list[Any]:
    from google import genai

    with genai.Client(api_key="test", http_options={"base_url": url}) as client:
        whole = client.models.generate_content(**GEMINI)
        chunks = list(client.models.generate_content_stream(**GEMINI))
    return [dumped(each) for each in (whole, *chunks)]


async def gemini_async(url: str) -> list[Any]:
    from google import genai

    async with genai.Client(api_key="test", http_options={"base_url": url}).aio as client:
        whole = await client.models.generate_content(**GEMINI)
        stream = await client.models.generate_content_stream(**GEMINI)
        chunks = [chunk async for chunk in stream]
    return [dumped(each) for each in (whole, *chunks)]


def dumped(value: Any) -> Any:
    """What an SDK made of it, without the headers that carry times."""
    return json.loads(value.model_dump_json(exclude={"sdk_http_response"}))


PLAYS: list[Any] = [
    pytest.param(play, expected, id=play.__name__)
    for play, expected in (
        (openai_chat, {"chatcmpl-doc": 9, "chatcmpl-w1": 1264 * 3}),
        (openai_chat_async, {"chatcmpl-doc": 9, "chatcmpl-w1": 1264 * 2}),
        (openai_responses, {"resp_doc": 5, "resp_w10": 47}),
        (openai_responses_async, {"resp_doc": 5, "resp_w10": 47}),
        (anthropic_messages, {"msg_doc": 42, "msg_w7": 1242 * 2}),
        (anthropic_messages_async, {"msg_doc": 42, "msg_w7": 1242}),
        (gemini, {"gem-doc": 5, "gem-w8": 44}),
        (gemini_async, {"gem-doc": 5, "gem-w8": 44}),
    )
]


@pytest.mark.parametrize(("play", "expected"), PLAYS)
def test_an_sdk_notices_nothing(
    stage: Stage, play: Callable[[str], Any], expected: dict[str, int]
) -> None:
    """The same objects as without a proxy; and the tokens in the ledger, input and output."""
    before = {row["id"] for row in rows.exchanges(stage.proxy.ledger)}
    through, alone = (said(play, url) for url in (stage.proxied, stage.direct))
    assert through == alone
    counted: dict[str, int] = {}
    for row in rows.exchanges(stage.proxy.ledger):
        if row["id"] not in before:
            total = row["input_tokens"] + row["output_tokens"]
            counted[row["response_id"]] = counted.get(row["response_id"], 0) + total
            assert row["outcome"] == "complete"
    assert counted == expected


def said(play: Callable[[str], Any], url: str) -> Any:
    if inspect.iscoroutinefunction(play):
        return asyncio.run(play(url))
    return play(url)


def test_an_sdk_sees_the_services_errors(stage: Stage) -> None:
    """An error in mid-stream raises in the SDK just as it does without us."""

    import openai

    def failing(request: Request) -> Answer:
        return Answer(pieces=(OPENAI.frames[0], OPENAI.error_frame))

    raised = []
    with Upstream(failing) as upstream, ExitStack() as running:
        proxy = running.enter_context(
            Mitmdump(
                stage.proxy.folder / "failing",
                upstreams=[upstream.url],
                options={"tee_hosts": f"127.0.0.1:{upstream.port}=aivene"},
            )
        )
        host, port = proxy.address()
        for url in (upstream.url, f"http://{host}:{port}"):
            with openai.OpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0) as client:
                with pytest.raises(openai.APIError) as error:
                    list(client.chat.completions.create(**CHAT, stream=True))
                raised.append((type(error.value), error.value.message, error.value.body))
    assert raised[0] == raised[1]
