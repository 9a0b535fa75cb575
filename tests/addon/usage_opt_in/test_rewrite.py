"""Asking for usage, and taking out again what that brings: the client must not be able to tell."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon.usage_opt_in.rewrite import Stripper, ask, is_refusal

HEAD = b'"id":"chatcmpl-7Qx","object":"chat.completion.chunk","created":1761000000,"model":"gpt-5"'


def chunk(choices: bytes, tail: bytes = b"") -> bytes:
    return b"data: {" + HEAD + b',"choices":' + choices + tail + b"}\n\n"


ROLE = b'[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]'
WORD = b'[{"index":0,"delta":{"content":"caf\\u00e9 \\"usage\\":null,"},"finish_reason":null}]'
STOP = b'[{"index":0,"delta":{},"finish_reason":"stop"}]'
USAGE = b'{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}'
DONE = b"data: [DONE]\n\n"

PAIRS = [
    pytest.param(
        b"".join(chunk(c, b',"usage":null') for c in (ROLE, WORD, STOP))
        + chunk(b"[]", b',"usage":' + USAGE)
        + DONE,
        b"".join(chunk(c) for c in (ROLE, WORD, STOP)) + DONE,
        id="openai",
    ),
    pytest.param(
        chunk(WORD, b',"usage":null,"obfuscation":"aB3"')
        + chunk(b"[]", b',"usage":' + USAGE + b',"obfuscation":""'),
        chunk(WORD, b',"obfuscation":"aB3"'),
        id="obfuscation-after-usage",
    ),
    pytest.param(
        chunk(STOP, b',"usage":' + USAGE) + DONE, chunk(STOP) + DONE, id="on-the-finish-chunk"
    ),
    pytest.param(
        chunk(b"[]", b',"usage":null,"prompt_filter_results":[{"prompt_index":0}]'),
        chunk(b"[]", b',"prompt_filter_results":[{"prompt_index":0}]'),
        id="azure-first-chunk-with-null",
    ),
    pytest.param(
        chunk(b"[]", b',"usage":' + USAGE + b',"prompt_filter_results":[{"prompt_index":0}]'),
        chunk(b"[]", b',"prompt_filter_results":[{"prompt_index":0}]'),
        id="empty-choices-that-carry-more",
    ),
    pytest.param(
        b'data: {"usage": null, "id": "x", "choices": [ ]}\r\n\r\n',
        b'data: {"id": "x", "choices": [ ]}\r\n\r\n',
        id="first-key-spaced-crlf",
    ),
    pytest.param(
        b'data: {"id":"x","choices":[{"delta":{"usage":null}}],"usage" : null }\n\n',
        b'data: {"id":"x","choices":[{"delta":{"usage":null}}] }\n\n',
        id="a-nested-usage-is-not-ours",
    ),
    pytest.param(
        b'data: {"usage":null,"choices":[1],"usage":{"prompt_tokens":1}}\n\n',
        b'data: {"choices":[1]}\n\n',
        id="twice-in-one-object",
    ),
    pytest.param(
        b": ping - 18:49\n" + chunk(b"[]", b',"usage":' + USAGE),
        b": ping - 18:49\n",
        id="a-comment-before-a-dropped-event-stays",
    ),
    pytest.param(
        b'data: {"error":{"message":"overloaded"},"usage":' + USAGE + b"}\n\n",
        b'data: {"error":{"message":"overloaded"}}\n\n',
        id="error-frame-with-usage",
    ),
]
UNTOUCHED = [
    pytest.param(b"".join(chunk(c) for c in (ROLE, WORD, STOP)) + DONE, id="nothing-of-ours"),
    pytest.param(b": OPENROUTER PROCESSING\n\n\n\ndata: [DONE]\n\n", id="comments-and-blanks"),
    pytest.param(b'data: {"usage":nul\n\ndata: "usage"\n\ndata:\n\n', id="not-json"),
    pytest.param(
        b'event: x\ndata: {"a":"\\"usage\\":null"}\nid: 7\nretry: 3\n\n', id="in-a-string"
    ),
    pytest.param(b'data: {"x_groq":{"usage":{"prompt_tokens":1}},"choices":[]}\n\n', id="x-groq"),
]


def stripped(data: bytes, cuts: list[int]) -> bytes:
    stripper = Stripper()
    edges = [0, *sorted({min(cut, len(data)) for cut in cuts}), len(data)]
    out = b"".join(stripper.feed(data[a:b]) for a, b in itertools.pairwise(edges) if a < b)
    return out + stripper.end()


@pytest.mark.parametrize(("asked", "unasked"), PAIRS)
def test_an_asked_stream_becomes_the_unasked_one(asked: bytes, unasked: bytes):
    assert stripped(asked, []) == unasked
    for cut in range(len(asked)):
        assert stripped(asked, [cut]) == unasked
    assert stripped(asked, list(range(len(asked)))) == unasked


@pytest.mark.parametrize("data", UNTOUCHED)
def test_what_is_not_ours_passes_byte_for_byte(data: bytes):
    assert stripped(data, []) == data
    assert stripped(data, list(range(len(data)))) == data


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=6))
def test_garbage_passes_whatever_the_cuts(data: bytes, cuts: list[int]):
    data = data.replace(b"usage", b"u")
    assert stripped(data, cuts) == data


@pytest.mark.parametrize(("asked", "unasked"), PAIRS)
def test_what_was_removed_is_accounted_for(asked: bytes, unasked: bytes):
    stripper = Stripper()
    out = stripper.feed(asked) + stripper.end()
    assert len(out) + sum(map(len, stripper.removed)) == len(asked)


def test_a_complete_event_goes_on_as_the_object_it_came_in():
    data = chunk(ROLE) + chunk(WORD)
    assert Stripper().feed(data) is data


def test_only_an_incomplete_tail_is_held():
    stripper = Stripper()
    whole, tail = chunk(ROLE), b'data: {"id":"chatcm'
    assert stripper.feed(whole + tail) == whole
    assert stripper.held == tail


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(
            b'{"model":"m","stream":true,"temperature":1.0}',
            b'{"stream_options":{"include_usage":true},"model":"m","stream":true,"temperature":1.0}',
            id="not-there",
        ),
        pytest.param(
            b'{"stream":true,"stream_options":null}',
            b'{"stream":true,"stream_options":{"include_usage":true}}',
            id="null",
        ),
        pytest.param(
            b'{"stream_options": {"include_obfuscation": false}, "stream": true}',
            b'{"stream_options": {"include_usage":true,"include_obfuscation": false}, "stream": true}',
            id="other-options-stay",
        ),
        pytest.param(
            b'{"stream_options":{},"stream":true}',
            b'{"stream_options":{"include_usage":true},"stream":true}',
            id="empty-options",
        ),
        pytest.param(
            b'{"stream_options":{"include_usage" : false},"stream":true}',
            b'{"stream_options":{"include_usage" : true},"stream":true}',
            id="false-becomes-true",
        ),
        pytest.param(
            b'{"messages":[{"content":"\\"stream_options\\" and \\"stream_options\\":1"}],"stream":true}',
            b'{"stream_options":{"include_usage":true},"messages":[{"content":"\\"stream_options\\" and \\"stream_options\\":1"}],"stream":true}',
            id="named-in-a-prompt",
        ),
        pytest.param(
            b'{"metadata":{"stream_options":{"include_usage":false}},"stream":true}',
            b'{"stream_options":{"include_usage":true},"metadata":{"stream_options":{"include_usage":false}},"stream":true}',
            id="named-deeper-down",
        ),
        pytest.param(b'{"stream_options":7,"stream":true}', None, id="not-an-object"),
        pytest.param(b"nothing", None, id="no-object"),
    ],
)
def test_asking_splices_and_changes_nothing_else(body: bytes, expected: bytes | None):
    assert ask(body) == expected
    if expected is not None:
        asked = json.loads(ask(body))
        assert asked.pop("stream_options")["include_usage"] is True
        before = json.loads(body)
        before.pop("stream_options", None)
        assert asked == before


@pytest.mark.parametrize(
    ("status", "body", "proven", "expected"),
    [
        (400, b'{"error":{"message":"Unknown parameter: \'stream_options\'"}}', True, True),
        (
            422,
            b'{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"]}]}',
            False,
            True,
        ),
        (500, b"unexpected keyword argument 'stream_options'", False, True),
        (400, b'{"error":"bad request"}', False, True),
        (400, b'{"error":"no such model"}', True, False),
        (401, b'{"error":"stream_options"}', False, False),
        (429, b"slow down", False, False),
        (500, b"internal error", False, False),
    ],
)
def test_a_refusal_of_what_we_added_is_told_from_others(status, body, proven, expected):
    assert is_refusal(status, body, proven=proven) is expected
