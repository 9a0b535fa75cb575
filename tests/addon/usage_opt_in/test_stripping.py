"""Taking out what asking brings: the client must not be able to tell that usage was asked for."""

import functools
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon.dialects.openai.chat import CHAT
from tests.addon.feeding import Answer
from tests.addon.linear import assert_linear
from tests.named import for_each, named

HEAD = b'"id":"chatcmpl-7Qx","object":"chat.completion.chunk","created":1761000000,"model":"gpt-5"'


def chunk(choices: bytes, tail: bytes = b"") -> bytes:
    return b"data: {" + HEAD + b',"choices":' + choices + tail + b"}\n\n"


ROLE = b'[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]'
WORD = b'[{"index":0,"delta":{"content":"caf\\u00e9 \\"usage\\":null,"},"finish_reason":null}]'
STOP = b'[{"index":0,"delta":{},"finish_reason":"stop"}]'
USAGE = b'{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}'
DONE = b"data: [DONE]\n\n"

PAIRS = named(
    {
        "openai": (
            b"".join(chunk(c, b',"usage":null') for c in (ROLE, WORD, STOP))
            + chunk(b"[]", b',"usage":' + USAGE)
            + DONE,
            b"".join(chunk(c) for c in (ROLE, WORD, STOP)) + DONE,
        ),
        "obfuscation-after-usage": (
            chunk(WORD, b',"usage":null,"obfuscation":"aB3"')
            + chunk(b"[]", b',"usage":' + USAGE + b',"obfuscation":""'),
            chunk(WORD, b',"obfuscation":"aB3"'),
        ),
        "on-the-finish-chunk": (chunk(STOP, b',"usage":' + USAGE) + DONE, chunk(STOP) + DONE),
        "azure-first-chunk-with-null": (
            chunk(b"[]", b',"usage":null,"prompt_filter_results":[{"prompt_index":0}]'),
            chunk(b"[]", b',"prompt_filter_results":[{"prompt_index":0}]'),
        ),
        "filter-results-that-come-unasked": (
            chunk(b"[]", b',"usage":' + USAGE + b',"prompt_filter_results":[{"prompt_index":0}]'),
            chunk(b"[]", b',"prompt_filter_results":[{"prompt_index":0}]'),
        ),
        "llama-cpp-moves-its-timings": (
            chunk(STOP) + chunk(b"[]", b',"usage":' + USAGE + b',"timings":{"prompt_n":9}') + DONE,
            chunk(STOP) + DONE,
        ),
        "anything-beside-usage-came-with-it": (
            chunk(b"[]", b',"cost":0.5,"usage":' + USAGE + b',"time_info":{"queue_time":0.1}'),
            b"",
        ),
        "a-choice-that-holds-nothing": (
            chunk(b'[{"index":0,"delta":{}}]', b',"usage":' + USAGE)
            + chunk(
                b'[{"index":0,"delta":{"content":null},"finish_reason":null}]', b',"usage":' + USAGE
            ),
            b"",
        ),
        "a-choice-of-nulls-or-of-an-index": (
            b"".join(
                chunk(choices, b',"usage":' + USAGE)
                for choices in (
                    b'[{"index":0,"delta":null,"finish_reason":null}]',
                    b'[{"index":0}]',  # LiteLLM's /v1/completions
                    b'[{"index":0,"text":null,"logprobs":null}]',
                    b'[{"index":0,"delta":{"role":null,"tool_calls":[]}},{"index":1,"delta":{}}]',
                    b"[null]",
                )
            ),
            b"",
        ),
        "empty-text-is-of-the-answer": (
            chunk(b'[{"index":0,"text":""}]', b',"usage":' + USAGE),
            chunk(b'[{"index":0,"text":""}]'),
        ),
        "an-event-of-a-format-without-choices": (
            b'event: response.message.done\ndata: {"messages":[{"role":"assistant"}],"usage":'
            + USAGE
            + b"}\n\n",
            b'event: response.message.done\ndata: {"messages":[{"role":"assistant"}]}\n\n',
        ),
        "choices-of-another-kind": (
            b'data: {"id":"x","choices":{},"usage":' + USAGE + b"}\n\n",
            b'data: {"id":"x","choices":{}}\n\n',
        ),
        "no-choices-at-all": (
            b'data: {"id":"x","usage":' + USAGE + b"}\n\n" + chunk(b"null", b',"usage":' + USAGE),
            b"",
        ),
        "a-first-chunk-with-a-running-usage": (
            chunk(ROLE, b',"usage":' + USAGE)
            + chunk(b'[{"index":0,"delta":{"content":""}}]', b',"usage":' + USAGE),
            chunk(ROLE) + chunk(b'[{"index":0,"delta":{"content":""}}]'),
        ),
        "first-key-spaced-crlf": (
            b'data: {"usage": null, "id": "x", "choices": [ ]}\r\n\r\n',
            b'data: {"id": "x", "choices": [ ]}\r\n\r\n',
        ),
        "spaced-before-another-key": (
            b'data: {"id": "x", "choices": [], "usage": null, "x": 1}\n\n',
            b'data: {"id": "x", "choices": [], "x": 1}\n\n',
        ),
        "spaced-at-the-end": (
            b'data: {"id": "x", "choices": [], "usage": null}\n\n',
            b'data: {"id": "x", "choices": []}\n\n',
        ),
        "a-nested-usage-is-not-ours": (
            b'data: {"id":"x","choices":[{"delta":{"usage":null}}],"usage" : null }\n\n',
            b'data: {"id":"x","choices":[{"delta":{"usage":null}}] }\n\n',
        ),
        "twice-in-one-object": (
            b'data: {"usage":null,"choices":[1],"usage":{"prompt_tokens":1}}\n\n',
            b'data: {"choices":[1]}\n\n',
        ),
        "a-comment-before-a-dropped-event-stays": (
            b": ping - 18:49\n" + chunk(b"[]", b',"usage":' + USAGE),
            b": ping - 18:49\n",
        ),
        "a-retry-line-before-a-dropped-event-stays": (
            b"retry: 3000\n" + chunk(b"[]", b',"usage":' + USAGE),
            b"retry: 3000\n",
        ),
        "error-frame-with-usage": (
            b'data: {"error":{"message":"overloaded"},"usage":' + USAGE + b"}\n\n",
            b'data: {"error":{"message":"overloaded"}}\n\n',
        ),
    }
)
UNTOUCHED = named(
    {
        "nothing-of-ours": (b"".join(chunk(c) for c in (ROLE, WORD, STOP)) + DONE,),
        "comments-and-blanks": (b": OPENROUTER PROCESSING\n\n\n\ndata: [DONE]\n\n",),
        "not-json": (b'data: {"usage":nul\n\ndata: "usage"\n\ndata:\n\n',),
        "in-a-string": (b'event: x\ndata: {"a":"\\"usage\\":null"}\nid: 7\nretry: 3\n\n',),
        "x-groq": (b'data: {"x_groq":{"usage":{"prompt_tokens":1}},"choices":[]}\n\n',),
    }
)


def fed(answer: Answer, data: bytes) -> bytes:
    passed = answer.feed(data)
    return passed if isinstance(passed, bytes) else b"".join(passed)


def stripped(data: bytes, cuts: list[int]) -> bytes:
    answer = Answer(CHAT, edits=True)
    edges = [0, *sorted({min(cut, len(data)) for cut in cuts}), len(data)]
    out = b"".join(fed(answer, data[a:b]) for a, b in itertools.pairwise(edges) if a < b)
    out += fed(answer, b"")
    answer.end()
    return out


@for_each("asked, unasked", PAIRS)
def test_an_asked_stream_becomes_the_unasked_one(asked: bytes, unasked: bytes):
    assert stripped(asked, []) == unasked
    for cut in range(len(asked)):
        assert stripped(asked, [cut]) == unasked
    assert stripped(asked, list(range(len(asked)))) == unasked


@for_each("data", UNTOUCHED)
def test_what_is_not_ours_passes_byte_for_byte(data: bytes):
    assert stripped(data, []) == data
    assert stripped(data, list(range(len(data)))) == data


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=6))
def test_garbage_passes_whatever_the_cuts(data: bytes, cuts: list[int]):
    data = data.replace(b"usage", b"u")
    assert stripped(data, cuts) == data


def test_a_complete_event_goes_on_as_the_object_it_came_in():
    data = chunk(ROLE) + chunk(WORD)
    assert Answer(CHAT, edits=True).feed(data) is data


def test_a_block_without_data_goes_on_whatever_it_says():
    data = b': "usage":null\n\nevent: "usage"\n\n' + chunk(WORD)
    assert stripped(data, []) == data


def test_only_an_incomplete_tail_is_held():
    answer = Answer(CHAT, edits=True)
    whole, tail = chunk(ROLE), b'data: {"id":"chatcm'
    assert fed(answer, whole + tail) == whole
    assert fed(answer, b"") == tail


def test_escaped_keys_are_stripped_like_any_other():
    usage = b',"\\u0075s\\u0061ge":' + USAGE
    assert stripped(chunk(STOP, usage), []) == chunk(STOP)
    assert stripped(chunk(b"[]", usage), []) == b""
    assert stripped(chunk(WORD, b',"us\\u0061ge" :null'), []) == chunk(WORD)


@for_each(
    "usage, kept",
    [
        pytest.param(b',"usage":' + USAGE, b"", id="last"),
        pytest.param(b' , "usage" : ' + USAGE + b" ", b" ", id="spaced"),
        pytest.param(b',"usage":' + USAGE + b',"x":1', b',"x":1', id="before-another"),
        pytest.param(b',"usage":null', b"", id="null"),
    ],
)
def test_of_a_large_event_the_end_is_read(usage: bytes, kept: bytes):
    picture = b'[{"delta":{"image":"' + b"A" * 200_000 + b'"}}]'
    assert stripped(chunk(picture, usage), [3, 70_000]) == chunk(picture, kept)


def test_a_large_event_without_a_choice_goes_whole():
    beside = b',"usage":' + USAGE + b',"token_ids":[' + b"1," * 40_000 + b"1]"
    assert stripped(chunk(STOP) + chunk(b"[]", beside) + DONE, [70_000]) == chunk(STOP) + DONE


def test_usage_that_begins_a_large_object_is_taken_out():
    data = b'data: {"choices":[{"x":"' + b"A" * 70_000 + b'"}]}\n\n'
    spliced = data.replace(b'"choices"', b'"usage":null,"choices"')
    answer = Answer(CHAT, edits=True)
    assert answer.feed(spliced) == spliced
    assert "left in the stream" in (answer.troubles.text or "")


@for_each(
    "tail",
    [
        pytest.param(b'],"x":{"usage":1}}', id="nested"),
        pytest.param(b'],"usage":}', id="broken"),
    ],
)
def test_of_a_large_event_nothing_else_is_taken(tail: bytes):
    data = b'data: {"choices":["' + b"A" * 70_000 + b'"' + tail + b"\n\n"
    assert stripped(data, []) == data


def test_usage_alone_in_a_large_object_leaves_an_empty_one():
    data = b"data: {" + b" " * 70_000 + b'"usage":null}\n\n'
    assert stripped(data, []) == data.replace(b'"usage":null', b"")
    data = b"data: {" + b" " * 70_000 + b'"usage":null, "x":1}\n\n'
    assert stripped(data, []) == data.replace(b'"usage":null, ', b"")


@pytest.mark.nightly
@pytest.mark.large
def test_the_work_for_an_unfinished_event_does_not_grow_with_it():
    def feed(size: int) -> None:
        answer = Answer(CHAT, edits=True)
        answer.feed(b'data: {"x":"' + b"y" * (200 * size))
        for _ in range(size):
            answer.feed(b"y")

    assert_linear(feed, 5_000)


@pytest.mark.nightly
@for_each(
    "event",
    [
        pytest.param(lambda n: b"{" + b",".join([b'"usage":null'] * n) + b"}", id="one-object"),
        pytest.param(lambda n: b'{"a":[' + b",".join([b'{"usage":1}'] * n) + b"]}", id="nested"),
        pytest.param(lambda n: b"{" + b'"usage":{"a":' * n + b"1" + b"}" * n + b"}", id="deep"),
        pytest.param(lambda n: b"[" * n + b'"usage"' + b"]" * n, id="brackets"),
    ],
)
def test_the_work_for_an_event_is_linear_in_its_usage_keys(event):
    @functools.cache  # making a large event takes longer than the work on it
    def large(size: int) -> bytes:
        return b"data: " + event(size) + b"\n\n"

    def feed(size: int) -> None:
        Answer(CHAT, edits=True).feed(large(size))

    assert_linear(feed, 8_000)
