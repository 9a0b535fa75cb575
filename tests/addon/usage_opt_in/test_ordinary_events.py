"""Events that fit a template lose their null as a parse would find it; all others do not fit."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon.usage_opt_in import stripping
from addon.usage_opt_in.stripping import OrdinaryEvent, Stripper, learn

NULL = b',"usage":null'


@pytest.fixture(autouse=True, scope="module")
def _learns_at_once():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stripping, "LEARN_FROM_EVENTS", 0)
        yield


def event(text: str, *, more: bytes = NULL, **delta: object) -> bytes:
    choice = {"index": 0, "delta": {"content": text, **delta}, "finish_reason": None}
    body = json.dumps({"id": "x", "choices": [choice]}, separators=(",", ":")).encode()
    return b"data: " + body[:-1] + more + b"}\n\n"


def learned(one: bytes, other: bytes) -> OrdinaryEvent | None:
    start = other.find(NULL)
    return learn(one, other, start, start + len(NULL))


def ordinary() -> OrdinaryEvent:
    found = learned(event("Hel"), event("lo"))
    assert found is not None
    return found


def test_what_is_learned():
    found = ordinary()
    assert found.head.endswith(b'"content":"')
    assert found.tail == b'"},"finish_reason":null}],"usage":null}\n\n'
    assert found.kept_tail == b'"},"finish_reason":null}]}\n\n'
    assert found.removed == NULL


@pytest.mark.parametrize(
    "text", ["", " the", "usage", "a\nb", "\\n twice", "{}[],:", "data: [DONE]", "\u00e9\u4f60"]
)
def test_an_event_with_another_text_fits(text: str):
    assert ordinary().fits(event(text))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(event("x", more=b""), id="no-null"),
        pytest.param(event("x", role="assistant"), id="another-key"),
        pytest.param(event('say "x"'), id="a-quote"),
        pytest.param(event("ends so \\"), id="a-backslash-before-the-tail"),
        pytest.param(event("x") * 2, id="two-events"),
        pytest.param(event("x")[:-1], id="no-end"),
        pytest.param(event("x").replace(b'x"}', b'x\n\n"}'), id="a-raw-line-end"),
        pytest.param(event("x").replace(b'x"}', b'x\r"}'), id="a-raw-cr"),
        pytest.param(b'data: {"id":"x","choices":[],"usage":null}\n\n', id="shorter"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_what_does_not_fit(data: bytes):
    assert not ordinary().fits(data)


def test_overlapping_head_and_tail_do_not_fit():
    found = learned(event("a"), event("b"))
    assert found is not None
    assert not found.fits(found.head + found.tail[1:])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(event("a"), event("a"), id="no-difference-to-learn-from"),
        pytest.param(event("a", n=1), event("a", n=2), id="a-number-differs"),
        pytest.param(event('"'), event("b"), id="a-quote-in-one"),
        pytest.param(event("a"), event("b").replace(b"\n", b"\r\n"), id="crlf"),
        pytest.param(event("a")[:-1], event("b")[:-1], id="no-end"),
        pytest.param(
            event("t", more=NULL + b',"p":"x"'), event("t", more=NULL + b',"p":"y"'), id="behind"
        ),
        pytest.param(b"data: 1", event("b"), id="nothing-in-common"),
        pytest.param(
            event("a", b="c").replace(b'a"', b'\na"'),
            event("d", b="c").replace(b'd"', b'\nd"'),
            id="a-raw-line-end",
        ),
    ],
)
def test_what_nothing_is_learned_from(one: bytes, other: bytes):
    found = learned(one, other)
    # Of two equal events the head runs into the tail; what is learned then fits that event alone.
    assert found is None or (one == other and not found.fits(event("b")))


@given(
    st.lists(
        st.one_of(
            st.text().map(event),
            st.text().map(lambda text: event(text, more=b"")),
            st.text().map(lambda text: event(text, more=NULL + b',"obfuscation":"ab"')),
            st.just(b'data: {"id":"x","choices":[],"usage":{"prompt_tokens":1}}\n\n'),
            st.just(b": ping\n\n"),
            st.just(b"data: [DONE]\n\n"),
        ),
        max_size=12,
    )
)
def test_templates_change_nothing(events: list[bytes]):
    quick, slow = Stripper(), Stripper()
    slow._lessons_left = 0
    assert [quick.feed(one) for one in events] == [slow.feed(one) for one in events]
    assert quick.removed == slow.removed


def test_an_answer_that_never_repeats_itself_stops_costing_lessons(monkeypatch):
    monkeypatch.setattr(stripping, "LESSONS_MAX", 2)
    stripper = Stripper()
    for key in "abcdef":
        delta: dict[str, Any] = {key: 1}
        assert NULL not in stripper.feed(event("x", **delta))
    assert stripper._lessons_left == 0
    assert NULL not in stripper.feed(event("y", f=1))


def test_an_answer_is_stripped_by_its_template():
    stripper = Stripper()
    texts = ["a", "b", " third", "usage", "}"]
    assert [stripper.feed(event(text)) for text in texts] == [
        event(text, more=b"") for text in texts
    ]
    assert stripper.removed == [NULL] * len(texts)
    assert stripper.framed == event("}")
    assert stripper._lessons_left == stripping.LESSONS_MAX - 1


def test_a_short_answer_teaches_nothing(monkeypatch):
    monkeypatch.setattr(stripping, "LEARN_FROM_EVENTS", 3)
    stripper = Stripper()
    for text in "abcd":
        stripper.feed(event(text))
    assert stripper._ordinary is None
    stripper.feed(event("e"))
    assert stripper._ordinary is not None
