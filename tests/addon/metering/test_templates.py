"""What ordinary frames repeat: learnt only where it is safe, and never read differently."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon.dialects.dialect import Dialect, Mark
from addon.dialects.openai import chat as openai_chat
from addon.dialects.openai import responses as openai_responses
from addon.dialects.vendors import anthropic
from addon.framing.sse import SSE
from addon.metering.estimate import text_bytes_of
from addon.metering.meter import LEARN_FROM_FRAMES, Meter
from addon.metering.templates import Ordinary, OrdinaryFrames, learn
from tests.addon.linear import assert_linear
from tests.named import for_each, named

DONE = Mark(b"[DONE]")


def chat(content: str, **more: Any) -> bytes:
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": None}
    body = {"id": "chatcmpl-1", "model": "m", "choices": [choice]} | more
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


def claude(text: str, blanks: int = 0) -> bytes:
    return (
        'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
        f'"delta":{{"type":"text_delta","text":{json.dumps(text)}}}{" " * blanks}}}\n\n'
    ).encode()


def responses(text: str, number: int) -> bytes:
    return (
        'event: response.output_text.delta\ndata: {"type":"response.output_text.delta",'
        f'"delta":{json.dumps(text)},"item_id":"msg_1","obfuscation":"{"x" * (number % 5)}",'
        f'"sequence_number":{number}}}\n\n'
    ).encode()


def learnt(
    one: bytes,
    other: bytes,
    dialect: Dialect = openai_chat.CHAT,
    *,
    must: bytes = b"",
    measures: bool = True,
) -> Ordinary | None:
    return learn(
        one,
        other,
        marks=(*dialect.marks, DONE),
        text_marks=dialect.text_marks,
        must=must,
        measures_text=measures,
    )


CHAT = (chat("Hel"), chat("lo!"))
CLAUDE = (claude("Hel", 3), claude("lo!", 7))
RESPONSES = (responses("Hel", 8), responses("lo!", 11))


def test_a_run_of_ordinary_frames_is_counted() -> None:
    ordinary = learnt(*CHAT)
    assert ordinary is not None
    assert ordinary.read(chat("one")) == OrdinaryFrames(1, 3)
    assert ordinary.read(chat("one") + chat("") + chat("three")) == OrdinaryFrames(3, 8)


def test_escapes_in_the_text_do_not_matter() -> None:
    ordinary = learnt(*CHAT)
    assert ordinary is not None
    # Three bytes of text: a backslash and a quote are written as two each.
    assert ordinary.read(chat('"') + chat("\\")) == OrdinaryFrames(2, 4)
    assert ordinary.read(chat('\\"') + chat("a\\")) == OrdinaryFrames(2, 7)


def test_escapes_in_what_is_learnt_from_do_not_matter() -> None:
    """Found by a million cuts: an escaped quote was taken for the end of the text."""
    ordinary = learnt(chat('",'), chat("\\"))
    assert ordinary == learnt(*CHAT)


def test_what_differs_outside_of_strings_may_be_a_number_or_blanks() -> None:
    ordinary = learnt(*CLAUDE, anthropic.MESSAGES)
    assert ordinary is not None
    assert ordinary.read(claude("one", 0) + claude("two", 9)) == OrdinaryFrames(2, 6)
    numbered = learnt(*RESPONSES, openai_responses.RESPONSES)
    assert numbered is not None
    assert numbered.read(responses("one", 99) + responses("four", 100)) == OrdinaryFrames(2, 7)


@for_each(
    "pair, dialect, run",
    named({
        "finish": (CHAT, openai_chat.CHAT, chat("x").replace(b":null", b':"stop"')),
        "usage": (CHAT, openai_chat.CHAT, chat("x", usage={"a": 1})),
        "error": (CHAT, openai_chat.CHAT, chat("x", error="e")),
        "another-id": (CHAT, openai_chat.CHAT, chat("x", id="chatcmpl-2")),
        "done": (CHAT, openai_chat.CHAT, b"data: [DONE]\n\n"),
        "comment": (CHAT, openai_chat.CHAT, b": c\n\n"),
        "key": (CHAT, openai_chat.CHAT, chat("x").replace(b"content", b"refusal")),
        "cut": (CHAT, openai_chat.CHAT, chat("x")[:-10]),
        "escaped-and-marked": (CHAT, openai_chat.CHAT, chat('"') + chat("x", usage={"a": 1})),
        "stop": (CLAUDE, anthropic.MESSAGES, b'event: message_stop\ndata: {"type":"message_stop"}\n\n'),
        "ping": (CLAUDE, anthropic.MESSAGES, b"event: ping\ndata: {}\n\n"),
        "done-responses": (RESPONSES, openai_responses.RESPONSES, b"data: [DONE]\n\n"),
        "completed": (RESPONSES,
            openai_responses.RESPONSES,
            b'event: response.completed\ndata: {"type":"response.completed","response":{"usage":{}}}\n\n'),
    }),
)  # fmt: skip
def test_anything_else_is_not_ordinary(
    pair: tuple[bytes, bytes], dialect: Dialect, run: bytes
) -> None:
    ordinary = learnt(*pair, dialect)
    assert ordinary is not None
    for whole in (run, pair[0] + run, run + pair[0], pair[0] + run + pair[1]):
        assert ordinary.read(whole) is None, whole


@for_each(
    "one, other",
    named(
        {
            "other-shape": (chat("a"), b": c\n\n"),
            "id-differs": (chat("a", id="1"), chat("a", id="2")),
            "a-name-differs": (chat("a", provider="x"), chat("b", provider="y")),
            "a-mark-whose-value-differs": (
                b'data: {"finish_reason":1,"content":"a"}\n\n',
                b'data: {"finish_reason":2,"content":"a"}\n\n',
            ),
            "event-differs": (
                b'event: a\ndata: {"content":"a"}\n\n',
                b'event: b\ndata: {"content":"a"}\n\n',
            ),
            "no-text": (b'data: {"x":"a"}\n\n', b'data: {"x":"b"}\n\n'),
            "lines-with-a-loose-gap": (b'{"content":"a","n":1}\n', b'{"content":"b","n":2}\n'),
            "marked": (chat("a", usage={"n": 1}), chat("b", usage={"n": 1})),
        }
    ),
)
def test_what_is_not_learnt(one: bytes, other: bytes) -> None:
    assert learnt(one, other) is None


def test_the_id_must_be_repeated() -> None:
    assert learnt(*CHAT, must=b'"chatcmpl-1"') is not None
    assert learnt(*CHAT, must=b'"chatcmpl-2"') is None


def test_a_constant_must_not_end_in_the_middle_of_a_mark() -> None:
    """`"response":{` would be swallowed if `"response"` were taken for granted before a gap."""
    one = b'data: {"delta":"a","response":1}\n\n'
    other = b'data: {"delta":"b","response":2}\n\n'
    assert learnt(one, other, openai_responses.RESPONSES) is None


CONTENT = st.text(max_size=6) | st.sampled_from(
    ['"', "\\", '\\"', "usage", '"usage":{', "[DONE]", "\n\n"]
)


@given(st.lists(CONTENT, min_size=1, max_size=8))
def test_text_is_measured_as_without_learning(contents: list[str]) -> None:
    """An estimate must not hang on how a stream was cut into runs."""
    for pair, dialect, make in (
        (CHAT, openai_chat.CHAT, lambda text, _n: chat(text)),
        (CLAUDE, anthropic.MESSAGES, claude),
        (RESPONSES, openai_responses.RESPONSES, responses),
    ):
        ordinary = learnt(*pair, dialect)
        assert ordinary is not None
        run = b"".join(make(text, n) for n, text in enumerate(contents))
        seen = ordinary.read(run)
        if seen is not None:
            assert seen == OrdinaryFrames(len(contents), text_bytes_of(run, dialect.text_marks))
        else:
            # Only a gap that could hold a mark is left to be looked at closely.
            assert any("[DONE]" in text for text in contents)


def test_nothing_is_learnt_from_what_a_search_could_miss() -> None:
    """A template would skip the escaped key that all of these frames have."""
    meter = Meter(openai_chat.CHAT)
    meter.framing = SSE()
    for number in range(3 * LEARN_FROM_FRAMES):
        usage = b',"\\u0075sage":{"prompt_tokens":%d,"completion_tokens":1}}\n\n' % number
        meter.read(chat("word").replace(b"}\n\n", usage) * 2)
    assert meter.usage().input_tokens == 3 * LEARN_FROM_FRAMES - 1


def test_nothing_is_learnt_from_long_frames_or_many_gaps() -> None:
    assert learnt(chat("a" * 9_000), chat("b" * 9_000)) is None
    assert learnt(chat("a", x=[1, "k", 1]), chat("b", x=[2, "k", 2])) is not None
    numbers = [part for _ in range(20) for part in (1, "k")]
    others = [part for _ in range(20) for part in (2, "k")]
    assert learnt(chat("a", x=numbers), chat("b", x=others)) is None


@pytest.mark.nightly
def test_the_work_of_learning_is_linear() -> None:
    def frame(size: int, number: int) -> bytes:
        return chat("a", x=[part for _ in range(size) for part in (number, "k")])

    assert_linear(lambda size: learnt(frame(size, 1), frame(size, 2)), 5_000)
