"""`usage_json` is what upstream wrote, to the byte."""

import json

import pytest

from addon.dialects.openai import chat, responses
from addon.dialects.vendors import anthropic
from addon.metering.answers import verbatim
from addon.metering.answers.meter import Meter

ODD = '{"prompt_tokens": 1e1, "x":"\\u0041", "x":"é" ,"completion_tokens":2.0,"d":{"a":[ {} ]}}'


def read(dialect, body: str, content_type: str = "application/json") -> Meter:
    meter = Meter(dialect, content_type=content_type)
    meter.feed(body.encode())
    meter.end()
    return meter


@pytest.mark.parametrize(
    ("dialect", "body", "content_type"),
    [
        pytest.param(chat.CHAT, '{"usage": %s}', "application/json", id="document"),
        pytest.param(
            chat.CHAT,
            'data: {"choices":[{"delta":{"content":"\\"usage\\": {}"}}]}\n\n'
            'data: {"choices":[],"usage" :\t%s}\n\ndata: [DONE]\n\n',
            "text/event-stream",
            id="stream",
        ),
        pytest.param(chat.CHAT, '{"choices":[{"usage":%s}]}', "application/json", id="in-a-choice"),
        pytest.param(chat.CHAT, '{"x_groq":{"usage":%s}}', "application/json", id="in-an-object"),
        pytest.param(
            chat.CHAT,
            '{"usage":{"prompt_tokens":3},"usage":%s}',
            "application/json",
            id="the-last-of-two",
        ),
        pytest.param(
            responses.RESPONSES,
            'data: {"type":"response.completed","response":{"usage":%s,"tools":[{"usage":{}}]}}\n\n',
            "text/event-stream",
            id="in-a-response",
        ),
    ],
)
def test_the_text_is_kept(dialect, body: str, content_type: str) -> None:
    meter = read(dialect, body % ODD, content_type)
    assert meter.usage_json == ODD
    compact = '{"prompt_tokens":10.0,"x":"é","completion_tokens":2.0,"d":{"a":[{}]}}'
    assert meter.usage_compact == compact


def test_what_is_put_together_is_compact_json() -> None:
    meter = read(
        anthropic.MESSAGES,
        'event: message_start\ndata: {"type":"message_start","message":{"usage":'
        '{"input_tokens" : 3,"output_tokens":1}}}\n\n'
        'event: message_delta\ndata: {"type":"message_delta","usage":{"output_tokens" : 9}}\n\n',
        "text/event-stream",
    )
    assert meter.usage_json == '{"input_tokens":3,"output_tokens":9}'


def test_an_escaped_key_falls_back_to_compact_json() -> None:
    meter = read(chat.CHAT, '{"\\u0075sage": {"prompt_tokens": 3}}')
    assert meter.usage_json == '{"prompt_tokens":3}'


def test_bytes_that_are_no_text_fall_back() -> None:
    usage = {"a": 1}
    assert verbatim.usage_text(b'{"usage":{"a":1}}', "usage", usage) == '{"a":1}'
    assert verbatim.usage_text(b'{"usage":{"a":1', "usage", usage) is None
    assert verbatim.usage_text(b'{"usage":{"a":NaN}}', "usage", {"a": "NaN"}) is None
    assert verbatim.usage_text(b'{"usage":7}', "usage", usage) is None
    assert verbatim.usage_text(b'{"usage":', "usage", usage) is None
    assert verbatim.usage_text(b'{"usage":{"a":2}}' * 9, "usage", usage) is None


def test_it_is_looked_for_in_few_places_only() -> None:
    """A frame of many `usage` keys costs a few scans, not one for each."""
    usage = {"a": 1}
    deep = {"choices": [[], {"x": 1}, 5, {}, {"usage": usage}]}
    assert verbatim.key_of(deep, usage) is None
    nested: dict[str, object] = {"usage": usage}
    for _ in range(6):
        nested = {"in": nested}
    assert verbatim.key_of(nested, usage) is None
    data = json.dumps({"usage": usage, **{f"k{n}": {"usage": {}} for n in range(9)}}).encode()
    assert verbatim.usage_text(data, "usage", usage) is None


@pytest.mark.parametrize(
    "usage",
    [
        pytest.param({"a": "}{", "b": {"c": '}"'}}, id="braces-in-strings"),
        pytest.param({f"d{n}": {"n": n} for n in range(20)}, id="many-objects"),
        pytest.param({"d": {"d": {"d": {"d": {}}}}, "z": "}"}, id="deep"),
    ],
)
def test_an_object_of_any_form_is_found_whole(usage: dict[str, object]) -> None:
    text = json.dumps(usage, indent=1)
    data = f'{{"usage" : {text}, "x": {{}}}}'.encode()
    assert verbatim.usage_text(data, "usage", usage) == text
