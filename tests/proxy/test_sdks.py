"""The official SDKs through the proxy: they iterate and parse as they would without it.

Each function imports the SDK that it plays: importing all three takes a worker seconds, also where
none of these tests runs.
"""

import asyncio
import inspect
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.clients.answers import Answer as Told
from tests.clients.answers import answer_to
from tests.proxy import rows, test_caps
from tests.proxy.mitmdump import Mitmdump
from tests.proxy.pair import OPENAI, tee_before
from tests.proxy.test_caps import cap, capped
from tests.proxy.upstream import Answer, Framing, Request, Upstream

pytestmark = pytest.mark.proxy


@dataclass
class Stage:
    direct: str
    proxied: str
    proxy: Mitmdump
    told: list[Told]
    """What was answered since the last play began."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    told: list[Told] = []

    def script(request: Request) -> Answer:
        """What the SDKs' services say, streamed or not as the request asks."""
        body = json.loads(request.body)
        if body.get("model") == "failing":
            return Answer(pieces=(OPENAI.frames[0], OPENAI.error_frame))
        # The figures are those of the call, which is made with and without a proxy.
        answer = answer_to(request.target.partition("?")[0], body, "sdk", lambda: len(told) + 1)
        assert answer is not None, request.target
        told.append(answer)
        is_stream = "event-stream" in answer.content_type
        return Answer(
            pieces=answer.pieces,
            content_type=answer.content_type,
            framing=Framing.CHUNKED if is_stream else Framing.LENGTH,
        )

    with (
        Upstream(script) as upstream,
        tee_before(upstream, tmp_path_factory.mktemp("sdks")) as proxy,
    ):
        host, port = proxy.address()
        yield Stage(direct=upstream.url, proxied=f"http://{host}:{port}", proxy=proxy, told=told)


MESSAGES: Any = [{"role": "user", "content": "Hi"}]
CHAT: Any = {"model": "gpt-4o", "messages": MESSAGES}
USAGE: Any = {"stream_options": {"include_usage": True}}
MESSAGE: Any = {"model": "claude-sonnet-4-6", "max_tokens": 64, "messages": MESSAGES}
GEMINI: Any = {"model": "gemini-2.5-flash", "contents": "Hi"}


OPENAI_KEY: Any = {"api_key": "sk-test", "max_retries": 0}
ANTHROPIC_KEY: Any = {"api_key": "sk-ant-test", "max_retries": 0}


def whole_and_streamed(create: Callable[..., Any], **asked: Any) -> list[Any]:
    return [dumped(each) for each in (create(**asked), *create(**asked, stream=True))]


async def whole_and_streamed_async(create: Callable[..., Any], **asked: Any) -> list[Any]:
    whole = await create(**asked)
    streamed = [each async for each in await create(**asked, stream=True)]
    return [dumped(each) for each in (whole, *streamed)]


def openai_chat(url: str) -> list[Any]:
    import openai

    with openai.OpenAI(base_url=f"{url}/v1", **OPENAI_KEY) as client:
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

    async with openai.AsyncOpenAI(base_url=f"{url}/v1", **OPENAI_KEY) as client:
        create = client.chat.completions.create
        unasked = await whole_and_streamed_async(create, **CHAT)
        asked = [dumped(each) async for each in await create(**CHAT, **USAGE, stream=True)]
    return [*unasked, *asked]


def openai_responses(url: str) -> list[Any]:
    import openai

    with openai.OpenAI(base_url=f"{url}/v1", **OPENAI_KEY) as client:
        return whole_and_streamed(client.responses.create, model="gpt-4.1", input="Hi")


async def openai_responses_async(url: str) -> list[Any]:
    import openai

    async with openai.AsyncOpenAI(base_url=f"{url}/v1", **OPENAI_KEY) as client:
        return await whole_and_streamed_async(client.responses.create, model="gpt-4.1", input="Hi")


def anthropic_messages(url: str) -> list[Any]:
    import anthropic

    with anthropic.Anthropic(base_url=f"{url}/anthropic", **ANTHROPIC_KEY) as client:
        found = whole_and_streamed(client.messages.create, **MESSAGE)
        with client.messages.stream(**MESSAGE) as stream:
            final = stream.get_final_message()
    assert (final.usage.input_tokens, final.usage.output_tokens) == (1003, 13)
    return [*found, dumped(final)]


async def anthropic_messages_async(url: str) -> list[Any]:
    import anthropic

    async with anthropic.AsyncAnthropic(base_url=f"{url}/anthropic", **ANTHROPIC_KEY) as client:
        return await whole_and_streamed_async(client.messages.create, **MESSAGE)


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
    *(openai_chat, openai_chat_async, openai_responses, openai_responses_async),
    *(anthropic_messages, anthropic_messages_async, gemini, gemini_async),
]


@pytest.mark.parametrize("play", PLAYS)
def test_an_sdk_notices_nothing(stage: Stage, play: Callable[[str], Any]) -> None:
    """The same objects as without a proxy; and the tokens in the ledger, input and output."""
    before = {row["id"] for row in rows.exchanges(stage.proxy.ledger)}
    alone = said(play, stage, stage.direct)
    through = said(play, stage, stage.proxied)
    assert through == alone
    told = [("complete", each.response_id, each.tokens) for each in stage.told]

    def recorded() -> list[Any]:
        return [
            (row["outcome"], row["response_id"], (row["input_tokens"], row["output_tokens"]))
            for row in rows.exchanges(stage.proxy.ledger)
            if row["id"] not in before
        ]

    # OpenAI's SDK leaves a stream at `[DONE]`, the async one if the end is late by a tenth of a
    # second (findings/openai-connection-lost-after-done).
    assert rows.eventually(lambda: recorded() == told), recorded()


def said(play: Callable[[str], Any], stage: Stage, url: str) -> Any:
    stage.told.clear()
    found = asyncio.run(play(url)) if inspect.iscoroutinefunction(play) else play(url)
    assert stage.told
    return found


def test_an_sdk_sees_the_services_errors(stage: Stage) -> None:
    """An error in mid-stream raises in the SDK just as it does without us."""
    import openai

    raised = []
    for url in (stage.direct, stage.proxied):
        with openai.OpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0) as client:
            with pytest.raises(openai.APIError) as error:
                list(client.chat.completions.create(**CHAT | {"model": "failing"}, stream=True))
            raised.append((type(error.value), error.value.message, error.value.body))
    assert raised[0] == raised[1]


def ask_openai(url: str) -> Any:
    import openai

    with openai.OpenAI(base_url=f"{url}/v1", api_key="sk-test") as client:
        client.chat.completions.create(model="gpt-4o", max_tokens=99, messages=MESSAGES)


def ask_responses(url: str) -> Any:
    import openai

    with openai.OpenAI(base_url=f"{url}/v1", api_key="sk-test") as client:
        list(client.responses.create(model="gpt-4o", input="Hi", stream=True))


def ask_anthropic(url: str) -> Any:
    import anthropic

    with anthropic.Anthropic(base_url=f"{url}/anthropic", api_key="sk-ant-test") as client:
        client.messages.create(model="claude-sonnet-4-6", max_tokens=64, messages=MESSAGES)


def ask_google(url: str) -> Any:
    from google import genai

    options: Any = {"base_url": f"{url}/gemini"}
    with genai.Client(api_key="test", http_options=options) as client:
        list(client.models.generate_content_stream(model="gemini-2.5-flash", contents="Hi"))


@pytest.fixture(scope="module")
def under_a_cap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Upstream, Mitmdump]]:
    """A proxy that refuses everything."""
    with (
        Upstream(test_caps.script) as upstream,
        capped(
            upstream.url,
            tmp_path_factory.mktemp("capped"),
            cap("tiny", tokens=10, unpriced="refuse"),
        ) as proxy,
    ):
        yield upstream, proxy


@pytest.mark.parametrize("play", [ask_openai, ask_responses, ask_anthropic, ask_google])
def test_an_sdk_under_a_cap_stops_at_once_and_shows_the_message(
    under_a_cap: tuple[Upstream, Mitmdump],
    play: Callable[[str], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    upstream, proxy = under_a_cap
    before = len(rows.exchanges(proxy.ledger))
    host, port = proxy.address()
    with pytest.raises(Exception, match="refused by the cap tiny") as raised:
        play(f"http://{host}:{port}")
    assert getattr(raised.value, "status_code", getattr(raised.value, "code", None)) == 402
    assert upstream.requests == []
    assert rows.eventually(lambda: len(rows.exchanges(proxy.ledger)) == before + 1)
