"""Keys that are written oddly are read like any others, in any place of a stream; of a key that stands
twice the last one counts, for the meter, the ledger and the editor alike."""

import json

from addon.dialects.request import read_request
from addon.dialects.routes import DIALECTS, Route
from addon.usage_opt_in.asking import inject_usage_option
from tests.addon.feeding import JSON, Answer, metered
from tests.named import for_each

CHAT = DIALECTS["openai.chat"]
FRAMES = (
    b'data: {"id":"c1","model":"m","choices":[{"index":0,"delta":{"content":"%d"}}]}\n\n',
    b'data: {"id":"c1","choices":[],%s:{"prompt_tokens":3,"completion_tokens":2}}\n\n',
)
DELTA = b'data: {"type":"response.output_text.delta","item_id":"m","delta":"%d"}\n\n'


@for_each("key", [b'"usage"', b'"\\u0075sage"', b'"us\\u0061\\u0067e" ', b'"usage"  '])
@for_each("frames", [0, 3, 500])
@for_each("size", [50, 10**6])
def test_usage_is_found_however_its_key_is_written(key: bytes, frames: int, size: int) -> None:
    words = b"".join(FRAMES[0] % n for n in range(frames))
    body = words + FRAMES[1] % key + words + b"data: [DONE]\n\n"
    meter = metered(CHAT, body, size=size)
    assert meter.facts.usage == {"prompt_tokens": 3, "completion_tokens": 2}


@for_each(
    "head",
    [
        b'{"type":"response.completed","response":{',
        b'{"type" :"response.completed", "response" : {',
        b'{"type":"response\\u002ecompleted","\\u0072esponse":{',
        b'{"\\u0074ype":"response.completed","response"\t:{',
    ],
)
def test_the_end_of_a_response_is_found_however_it_is_written(head: bytes) -> None:
    deltas = b"".join(DELTA % n for n in range(300))
    end = b"data: " + head + b'"id":"r","status":"completed","usage":{"input_tokens":4}}}\n\n'
    meter = metered(DIALECTS["openai.responses"], deltas + end, size=len(deltas))
    assert meter.facts.ended
    assert meter.facts.usage == {"input_tokens": 4}


def test_frames_without_content_are_read_up_to_a_bound() -> None:
    blanks = b": keep-alive\n\n" * 1_000
    meter = metered(CHAT, blanks * 30 + FRAMES[1] % b'"usage"', size=len(blanks))
    assert meter.facts.usage == {"prompt_tokens": 3, "completion_tokens": 2}
    assert meter.frames == 1


ROUTE = Route(dialect=CHAT)


@for_each(
    "body",
    [
        b'{"model":"a","stream":false,"model":"b","stream":true}',
        b'{"stream":false,"model":"a","model":"b","stream" : true}',
        b'{"\\u006dodel":"a","model":"b","stream":true}',
    ],
)
def test_a_request_that_says_it_twice(body: bytes):
    facts = read_request(ROUTE, body)
    assert (facts.model, facts.streamed) == ("b", True)
    asked = inject_usage_option(body)
    assert asked is not None
    assert json.loads(asked) == {
        **json.loads(body),
        "stream_options": {"include_usage": True},
    }


@for_each("last", [b"true", b"false"])
def test_a_client_that_asks_twice_is_asked_for_in_the_option_that_counts(last: bytes):
    first = b"false" if last == b"true" else b"true"
    options = b'"stream_options":{"include_usage":%s}'
    body = b'{"model":"a",' + options % first + b"," + options % last + b"}"
    assert read_request(ROUTE, body).usage_asked is (last == b"true")
    asked = inject_usage_option(body)
    assert asked is not None
    assert json.loads(asked)["stream_options"] == {"include_usage": True}


ONE, TWO = (
    b'{"prompt_tokens":1,"completion_tokens":1}',
    b'{"prompt_tokens":9,"completion_tokens":4}',
)


@for_each("between", [b"", b'"x":[1],'])
@for_each("first", [ONE, b"null", b"3"])
def test_an_event_with_usage_twice(first: bytes, between: bytes):
    """The last one is metered and stands in the ledger; no usage reaches a client that asked for
    none."""
    choices = b'"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]'
    members = b'"usage":%s,%s%s,"usage":%s' % (first, between, choices, TWO)
    event = b'data: {"id":"c","model":"m",%s}\n\n' % members
    meter = metered(CHAT, event)
    assert (meter.usage().input_tokens, meter.usage().output_tokens) == (9, 4)
    assert meter.usage_json == TWO.decode()
    kept = Answer(CHAT, edits=True).feed(event)
    assert isinstance(kept, bytes)
    assert b"usage" not in kept
    assert json.loads(kept.removeprefix(b"data: "))["choices"]


def test_a_document_with_usage_twice():
    body = b'{"id":"c","model":"a","model":"m","usage":' + ONE + b',"usage":' + TWO + b"}"
    meter = metered(CHAT, body, JSON)
    assert meter.facts.response_model == "m"
    assert (meter.usage().input_tokens, meter.usage().output_tokens) == (9, 4)
    assert meter.usage_json == TWO.decode()
