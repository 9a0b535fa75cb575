"""Keys and types that are written oddly are read like any others, in any place of a stream."""

import pytest

from addon.dialects.routes import DIALECTS
from addon.metering.answers.meter import Meter

CHAT = (
    b'data: {"id":"c1","model":"m","choices":[{"index":0,"delta":{"content":"%d"}}]}\n\n',
    b'data: {"id":"c1","choices":[],%s:{"prompt_tokens":3,"completion_tokens":2}}\n\n',
)
DELTA = b'data: {"type":"response.output_text.delta","item_id":"m","delta":"%d"}\n\n'


@pytest.mark.parametrize(
    "key", [b'"usage"', b'"\\u0075sage"', b'"us\\u0061\\u0067e" ', b'"usage"  ']
)
@pytest.mark.parametrize("frames", [0, 3, 500])
@pytest.mark.parametrize("size", [50, 10**6])
def test_usage_is_found_however_its_key_is_written(key: bytes, frames: int, size: int) -> None:
    meter = Meter(DIALECTS["openai.chat"], content_type="text/event-stream")
    words = b"".join(CHAT[0] % n for n in range(frames))
    body = words + CHAT[1] % key + words + b"data: [DONE]\n\n"
    for at in range(0, len(body), size):
        meter.feed(body[at : at + size])
    meter.end()
    assert meter.facts.usage == {"prompt_tokens": 3, "completion_tokens": 2}


@pytest.mark.parametrize(
    "head",
    [
        b'{"type":"response.completed","response":{',
        b'{"type" :"response.completed", "response" : {',
        b'{"type":"response\\u002ecompleted","\\u0072esponse":{',
        b'{"\\u0074ype":"response.completed","response"\t:{',
    ],
)
def test_the_end_of_a_response_is_found_however_it_is_written(head: bytes) -> None:
    meter = Meter(DIALECTS["openai.responses"], content_type="text/event-stream")
    meter.feed(b"".join(DELTA % n for n in range(300)))
    meter.feed(b"data: " + head + b'"id":"r","status":"completed","usage":{"input_tokens":4}}}\n\n')
    meter.end()
    assert meter.facts.ended
    assert meter.facts.usage == {"input_tokens": 4}


def test_frames_without_content_are_read_up_to_a_bound() -> None:
    meter = Meter(DIALECTS["openai.chat"], content_type="text/event-stream")
    for _ in range(30):
        meter.feed(b": keep-alive\n\n" * 1_000)
    meter.feed(CHAT[1] % b'"usage"')
    meter.end()
    assert meter.facts.usage == {"prompt_tokens": 3, "completion_tokens": 2}
    assert meter.frames == 1
