"""`usage_json`, which is what upstream wrote, to the byte; and estimates, which are simple and bounded: how
far off they are is measured in tests/bench."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from addon.dialects.openai import chat, responses
from addon.dialects.routes import DIALECTS
from addon.dialects.vendors import anthropic
from addon.framing.long_json import LONG_BYTES
from addon.metering import estimate
from addon.metering.estimate import GeneratedText
from addon.metering.meter import key_of, usage_text
from tests.addon.feeding import JSON as JSON_TYPE
from tests.addon.feeding import SSE, metered
from tests.named import for_each

ODD = '{"prompt_tokens": 1e1, "x":"B", "x":"A" ,"completion_tokens":2.0,"d":{"a":[ {} ]}}'


@for_each(
    "dialect, body, content_type",
    [
        pytest.param(chat.CHAT, '{"usage": %s}', JSON_TYPE, id="document"),
        pytest.param(
            chat.CHAT,
            'data: {"choices":[{"delta":{"content":"\\"usage\\": {}"}}]}\n\n'
            'data: {"choices":[],"usage" :\t%s}\n\ndata: [DONE]\n\n',
            SSE,
            id="stream",
        ),
        pytest.param(chat.CHAT, '{"choices":[{"usage":%s}]}', JSON_TYPE, id="in-a-choice"),
        pytest.param(chat.CHAT, '{"x_groq":{"usage":%s}}', JSON_TYPE, id="in-an-object"),
        pytest.param(
            chat.CHAT, '{"usage":{"prompt_tokens":3},"usage":%s}', JSON_TYPE, id="the-last-of-two"
        ),
        pytest.param(
            responses.RESPONSES,
            'data: {"type":"response.completed","response":{"usage":%s,"tools":[{"usage":{}}]}}\n\n',
            SSE,
            id="in-a-response",
        ),
    ],
)
def test_the_text_is_kept(dialect, body: str, content_type: str) -> None:
    meter = metered(dialect, (body % ODD).encode(), content_type)
    assert meter.usage_json == ODD


def test_what_is_put_together_is_compact_json() -> None:
    meter = metered(
        anthropic.MESSAGES,
        b'event: message_start\ndata: {"type":"message_start","message":{"usage":'
        b'{"input_tokens" : 3,"output_tokens":1}}}\n\n'
        b'event: message_delta\ndata: {"type":"message_delta","usage":{"output_tokens" : 9}}\n\n',
    )
    assert meter.usage_json == '{"input_tokens":3,"output_tokens":9}'


def test_an_escaped_key_falls_back_to_compact_json() -> None:
    meter = metered(chat.CHAT, b'{"\\u0075sage": {"prompt_tokens": 3}}', JSON_TYPE)
    assert meter.usage_json == '{"prompt_tokens":3}'


def test_bytes_that_are_no_text_fall_back() -> None:
    usage = {"a": 1}
    assert usage_text(b'{"usage":{"a":1}}', "usage", usage) == '{"a":1}'
    assert usage_text(b'{"usage":{"a":1', "usage", usage) is None
    assert usage_text(b'{"usage":{"a":NaN}}', "usage", {"a": "NaN"}) is None
    assert usage_text(b'{"usage":7}', "usage", usage) is None
    assert usage_text(b'{"usage":', "usage", usage) is None
    assert usage_text(b'{"usage":{"a":2}}' * 9, "usage", usage) is None


def test_it_is_looked_for_in_few_places_only() -> None:
    """A frame of many `usage` keys costs a few scans, not one for each."""
    usage = {"a": 1}
    deep = {"choices": [[], {"x": 1}, 5, {}, {"usage": usage}]}
    assert key_of(deep, usage) is None
    nested: dict[str, object] = {"usage": usage}
    for _ in range(6):
        nested = {"in": nested}
    assert key_of(nested, usage) is None
    data = json.dumps({"usage": usage, **{f"k{n}": {"usage": {}} for n in range(9)}}).encode()
    assert usage_text(data, "usage", usage) is None


@for_each(
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
    assert usage_text(data, "usage", usage) == text


MARKS = (b'"content"', b'"arguments"')


@for_each(
    "run, expected",
    [
        pytest.param(b'{"content":"abc"}', 3, id="text"),
        pytest.param(b'{"content" : "abc"}', 3, id="spaced"),
        pytest.param(b'{"content":""}', 0, id="empty"),
        pytest.param(b'{"content":null}', 0, id="null"),
        pytest.param(b'{"content":["x"]}', 0, id="list"),
        pytest.param(b'{"other":"abc"}', 0, id="another-key"),
        pytest.param(rb'{"content":"a\"b"}', 4, id="escaped-quote"),
        pytest.param(rb'{"content":"a\\"}', 3, id="escaped-backslash"),
        pytest.param(b'{"content":"ab"}{"arguments":"{}"}', 4, id="two"),
        pytest.param(b'{"content":"cut of', 6, id="cut"),
    ],
)
def test_text_bytes(run: bytes, expected: int) -> None:
    assert estimate.text_bytes_of(run, MARKS) == expected
    long = b" " * LONG_BYTES + run
    assert estimate.text_bytes_of(long, MARKS) == expected


@given(
    st.lists(
        st.sampled_from([*MARKS, b'"', b":", b" ", b"\\", b"a", b'\\"', b'"other"', b"{", b"\r\n"]),
        max_size=40,
    )
)
@example([b'"content"', b":", b'"', b"a", b"\\"])
def test_few_long_texts_count_like_many(words: list[bytes]) -> None:
    """Except for a line feed behind a backslash, which no JSON has."""
    run = b"".join(words).replace(b"\\\r\n", b"")
    counted = sum(map(len, estimate._texts(MARKS).findall(run)))
    assert estimate._long_text_bytes(run, MARKS) == counted


@for_each(
    "frames, text_bytes, calls, expected",
    [(10, 0, 0, 0), (10, 20, 0, 10), (10, 400, 0, 100), (0, 3, 0, 0), (1, 3, 0, 1), (9, 0, 2, 60), (9, 40, 1, 40)],
)  # fmt: skip
def test_a_frame_is_a_token_at_least(
    frames: int, text_bytes: int, calls: int, expected: int
) -> None:
    text = GeneratedText(DIALECTS["openai.chat"])
    text.add(text_bytes)
    text.keep(b'{"name":"f"}' * calls)
    assert text.tokens(frames) == expected


def test_without_marks_of_text_nothing_can_be_told() -> None:
    text = GeneratedText(DIALECTS["openai.embeddings"])
    text.keep(b'data: {"embedding":[0.1]}\n\n')
    assert not text.is_measured
    assert text.tokens(5) is None


@for_each(
    "body, expected",
    [
        pytest.param(b"", None, id="none"),
        pytest.param(b"{}", 1, id="one-at-least"),
        pytest.param(b'["' + b"x" * 396 + b'"]', 100, id="four-bytes-a-token"),
        pytest.param(b"--form\r\n" + bytes(400), None, id="a-form-with-sound"),
        pytest.param(b'{"u":"data:image/png;base64,' + b"A" * 4_000 + b'"}', 5, id="picture"),
        pytest.param(b'{"u":"data:image/png;base64,' + b"A" * 4_000, 1_007, id="picture-cut"),
    ],
)
def test_input_is_estimated_by_length_without_pictures(body: bytes, expected: int | None) -> None:
    """A picture is billed by its size in pixels: its base64 would count for thousands."""
    assert estimate.input_tokens_of(body) == expected


def test_text_that_was_measured_already_counts() -> None:
    text = GeneratedText(DIALECTS["openai.chat"])
    assert text.is_measured
    text.add(40)
    few = text.tokens(1)
    text.add(4_000)
    many = text.tokens(1)
    assert few is not None
    assert many is not None
    assert 5 <= few <= 20
    assert many > 50 * few
