"""What a request says, and never a prompt."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon.dialects import routes
from addon.dialects.request import RequestFacts, read_request
from tests.addon.linear import assert_linear
from tests.named import for_each


def said(path: str, body: dict[str, Any]) -> RequestFacts:
    route = routes.match("POST", "api.example.com", path)
    assert route is not None
    return read_request(route, json.dumps(body).encode())


CHAT = "/v1/chat/completions"
ROUTE = routes.Route(dialect=routes.DIALECTS["openai.chat"])


@for_each(
    "options, expected",
    [
        pytest.param({}, None, id="not-said"),
        pytest.param({"stream_options": None}, None, id="null"),
        pytest.param({"stream_options": {}}, None, id="empty"),
        pytest.param({"stream_options": {"include_usage": True}}, True, id="asked"),
        pytest.param({"stream_options": {"include_usage": False}}, False, id="declined"),
        pytest.param({"stream_options": {"include_usage": "yes"}}, None, id="nonsense"),
    ],
)
def test_whether_usage_is_asked_for(options: dict[str, Any], expected: bool | None) -> None:
    """headroomlabs-ai/headroom#2026: an explicit false must not be taken for nothing."""
    assert said(CHAT, {"model": "m", "stream": True, **options}).usage_asked is expected


def test_dialects_that_cannot_be_asked_are_not() -> None:
    body = {"model": "m", "stream_options": {"include_usage": True}}
    assert said("/v1/messages", body).usage_asked is None


@for_each(
    "path, body, expected",
    [
        (CHAT, {"stream": True}, True),
        (CHAT, {"stream": False}, False),
        (CHAT, {"stream": "true"}, False),
        (CHAT, {}, False),
        ("/api/chat", {}, True),
        ("/api/chat", {"stream": False}, False),
        ("/api/embed", {}, False),
        ("/v1beta/models/m:streamGenerateContent", {}, True),
        ("/v1beta/models/m:generateContent", {"stream": True}, False),
    ],
)
def test_whether_a_stream_is_asked_for(path: str, body: dict[str, Any], expected: bool) -> None:
    assert said(path, body).streamed is expected


@for_each(
    "body, user, session",
    [
        pytest.param({"user": "u"}, "u", None, id="user"),
        pytest.param({"safety_identifier": "s"}, "s", None, id="safety-identifier"),
        pytest.param({"metadata": {"user_id": "u", "session_id": "x"}}, "u", "x", id="metadata"),
        pytest.param(
            {
                "metadata": {
                    "user_id": "user_1f_account__session_01234567-89ab-cdef-0123-456789abcdef"
                }
            },
            "user_1f",
            "01234567-89ab-cdef-0123-456789abcdef",
            id="claude-code",
        ),
        pytest.param(
            {"metadata": {"user_id": '{"device_id":"d","account_uuid":"a","session_id":"s"}'}},
            "a",
            "s",
            id="claude-code-json",
        ),
        pytest.param({"prompt_cache_key": "conversation-1"}, None, "conversation-1", id="codex"),
        pytest.param({"user": 5, "metadata": [1]}, None, None, id="nonsense"),
    ],
)
def test_whose_request_it_is(body: dict[str, Any], user: str | None, session: str | None) -> None:
    facts = said(CHAT, body)
    assert (facts.end_user, facts.session_id) == (user, session)


def test_the_tier_asked_for_and_the_models() -> None:
    facts = said(CHAT, {"model": "gpt", "service_tier": "flex"})
    assert (facts.model, facts.billing) == ("gpt", {"service_tier": "flex"})
    assert said("/openai/deployments/d/chat/completions", {}).model == "d"
    assert said("/openai/deployments/d/chat/completions", {"model": "m"}).model == "m"
    assert said(CHAT, {"model": "x" * 5_000}).model == "x" * 256


def test_the_short_fields_of_a_form() -> None:
    def part(name: str, value: bytes, more: str = "") -> bytes:
        return (
            f'--b\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode()
            + value
            + b"\r\n"
        )

    route = routes.match("POST", "api.openai.com", "/v1/audio/transcriptions")
    assert route is not None
    body = (
        part("model", b"gpt-4o-transcribe")
        + part("file", bytes(range(256)) * 2_000, '; filename="a.mp3"')
        + part("stream", b"true")
        + b"--b--\r\n"
    )
    facts = read_request(route, body)
    assert (facts.model, facts.streamed) == ("gpt-4o-transcribe", True)


@pytest.mark.nightly
@for_each(
    "unit",
    [
        b'name="model"\r\n',
        b"--b\r\n",
        b"\r\n",
        b'--b\r\nname="model"\r\n\r\n',
        b'name="user"\r\nx\r\n',
        b"--b\r\n\r\n\r\n",
        b"-",
    ],
)
def test_a_form_is_read_in_linear_time(unit: bytes) -> None:
    def work(size: int) -> None:
        read_request(routes.UNKNOWN, b"--b\r\n" + unit * (size // len(unit)))

    assert_linear(work, 30_000)


@given(st.binary(max_size=200) | st.from_regex(rb'--b\r\n.*name="model".*', fullmatch=True))
def test_no_bytes_raise(body: bytes) -> None:
    for route in (routes.match("POST", "", CHAT), routes.UNKNOWN):
        assert route is not None
        read_request(route, body)


def test_the_model_may_stand_in_a_header() -> None:
    route = routes.match("POST", "ai-gateway.vercel.sh", "/v3/ai/language-model")
    assert route is not None
    body = json.dumps({"prompt": [{"role": "user", "content": []}]}).encode()
    facts = read_request(route, body, {"ai-language-model-id": "openai/gpt-5"})
    assert facts.model == "openai/gpt-5"
    assert facts.is_confirmed
    assert read_request(route, body).model is None


@for_each(
    "host, path, body, units",
    [
        ("api.x.ai", "/v1/tts", {"text": "hello", "voice_id": "eve"}, {"input_characters": 5}),
        ("api.openai.com", "/v1/audio/speech", {"input": "Gr\u00fc\u00df dich"}, {"input_characters": 9}),
        ("api.openai.com", "/v1/audio/speech", {"input": ["a"]}, {}),
    ],
)  # fmt: skip
def test_speech_is_measured_by_its_text(host: str, path: str, body: dict[str, Any], units) -> None:
    route = routes.match("POST", host, path)
    assert route is not None
    assert read_request(route, json.dumps(body, ensure_ascii=False).encode()).units == units


@for_each(
    "host, path, body",
    [
        ("hunyuan.tencentcloudapi.com", "/", {"Stream": True}),
        ("api.dify.ai", "/v1/chat-messages", {"response_mode": "streaming"}),
        ("llm.api.cloud.yandex.net", "/foundationModels/v1/completion", {"completionOptions": {"stream": True}}),
        ("h", "/20231130/actions/chat", {"chatRequest": {"isStream": True}}),
    ],
)  # fmt: skip
def test_a_stream_is_asked_for_in_many_words(host: str, path: str, body: dict[str, object]) -> None:
    route = routes.match("POST", host, path)
    assert route is not None
    assert read_request(route, json.dumps(body).encode()).streamed
    assert not read_request(route, b"{}").streamed


def test_a_body_with_pictures_is_read_and_confirms_all_the_same() -> None:
    picture = {
        "type": "image_url",
        "image_url": {"url": "data:image/png;base64," + "A" * 2_000_000},
    }
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": [picture]}]})
    facts = read_request(ROUTE, body.encode())
    assert facts.model == "m"
    assert facts.is_confirmed


PART = {"type": "tool_result", "content": [{"type": "text", "text": "x", "more": {"a": [{}]}}]}
MESSAGE = {"role": "user", "content": [PART, PART]}


@for_each("count", [3_000, 30_000])
def test_a_conversation_of_many_parts_is_read_at_its_outside(count: int) -> None:
    """The model comes behind the messages, as OpenAI's library writes it."""
    body = {
        "messages": [MESSAGE] * count,
        "model": "m",
        "metadata": {"user_id": "u", "session_id": "s"},
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [{"type": "function", "function": {"name": "f"}}] * count,
        "service_tier": "flex",
    }
    facts = read_request(ROUTE, json.dumps(body).encode())
    assert facts == RequestFacts(
        model="m",
        streamed=True,
        usage_asked=True,
        end_user="u",
        session_id="s",
        billing={"service_tier": "flex"},
        is_confirmed=True,
    )


def test_of_a_body_with_many_members_those_with_a_name_are_read() -> None:
    many = ",".join(f'"{number}":"a text of some length"' for number in range(50_000))
    body = b'{"model":"m","stream":true,' + many.encode() + b',"user":"u"}'
    facts = read_request(ROUTE, body)
    assert (facts.model, facts.streamed, facts.end_user) == ("m", True, "u")


def test_a_body_of_brackets_has_no_facts_and_takes_bounded_time() -> None:
    began = time.thread_time()
    assert read_request(ROUTE, b'{"model":' + b"[" * 60_000_000) == RequestFacts()
    assert time.thread_time() - began < 1


@for_each("records, queries", [(0, 1), (1, 1), (100, 1), (101, 2)])
def test_ranking_is_billed_by_the_hundred_records(records: int, queries: int) -> None:
    path = "/v1/projects/p/locations/global/rankingConfigs/default_ranking_config:rank"
    route = routes.match("POST", "discoveryengine.googleapis.com", path)
    assert route is not None
    ranked = [{"id": str(at), "content": "a"} for at in range(records)]
    body = json.dumps({"model": "semantic-ranker-default-004", "query": "q", "records": ranked})
    assert read_request(route, body.encode()).units == {"search_units": queries}
