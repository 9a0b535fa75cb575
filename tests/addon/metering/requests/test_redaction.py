"""Error texts hold neither the request's credentials nor its prompt, and stay readable."""

import base64
import html
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from addon.metering.requests import redaction
from addon.metering.requests.messages import NOT_KNOWN, Body
from addon.metering.requests.redaction import (
    BODY_BYTES_MAX,
    BODY_RUN,
    CREDENTIAL_RUN,
    GRAM_BYTES,
    REDACTED,
    TEXT_LENGTH_MAX,
    credentials_of,
    redact,
)
from tests.addon.linear import assert_linear
from tests.named import named

KEY = "sk-proj-Ab12Cd34Ef56Gh78Ij90Kl12Mn34"
PROMPT = "Our merger with Globex closes on Friday; tell nobody before that."
BODY = json.dumps({"model": "gpt-4o", "messages": [{"role": "user", "content": PROMPT}],
                   "tools": [{"additionalProperties": True}]}).encode()  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    named(
        {
            "key-in-a-401": (
                f"Incorrect API key provided: {KEY}. You can find your API key at https://x.example.",
                f"Incorrect API key provided: {REDACTED}. You can find your API key at https://x.example.",
            ),
            "key-that-the-provider-masked": (
                "Incorrect API key provided: sk-pr***********Mn34.",
                "Incorrect API key provided: sk-pr***********Mn34.",
            ),
            "key-of-somebody-else": (
                "invalid token AIzaSyA1234567890abcdefghij in query",
                f"invalid token {REDACTED} in query",
            ),
            "prompt-in-a-validation-error": (
                f"messages.0: input should be a list, got '{PROMPT}'",
                f"messages.0: input should be a list, got '{REDACTED}'",
            ),
            "nothing-to-redact": (
                "prompt is too long: 250000 tokens > 200000 maximum",
                "prompt is too long: 250000 tokens > 200000 maximum",
            ),
            "words-that-begin-like-keys": (
                "api_version_not_supported: use 2024-10-21",
                "api_version_not_supported: use 2024-10-21",
            ),
            "a-key-of-the-body": (
                "'additionalProperties' is required to be supplied and to be false",
                "'additionalProperties' is required to be supplied and to be false",
            ),
            "a-known-type": ("invalid_request_error", "invalid_request_error"),
        }
    ),
)
def test_what_providers_repeat(text: str, expected: str):
    credentials = credentials_of({"authorization": f"Bearer {KEY}"}, "/v1/chat/completions")
    assert redact(text, credentials=credentials, body=Body(BODY)) == expected


def test_a_long_model_name_stays():
    model = "anthropic.claude-sonnet-4-5-20250929-v1:0"
    body = json.dumps({"model": model, "messages": []}).encode()
    text = f"The model `{model}` does not exist"
    assert redact(text, body=Body(body), keep=(model,)) == text
    assert model not in redact(text, body=Body(body))


@pytest.mark.parametrize(
    ("headers", "path", "secret"),
    [
        ({"authorization": f"Bearer {KEY}"}, "/", KEY),
        ({"x-api-key": KEY}, "/", KEY),
        ({"authorization": "Basic " + base64.b64encode(b"me:hunter2hunter2").decode()}, "/",
         "hunter2hunter2"),
        ({"cookie": "a=1; session=abcdefghijklmnop"}, "/", "abcdefghijklmnop"),
        ({"sec-websocket-protocol": f"realtime, openai-insecure-api-key.{KEY}"}, "/",
         f"openai-insecure-api-key.{KEY}"),
        ({}, "/v1beta/models/x:generateContent?key=AIza0123456789&alt=sse", "AIza0123456789"),
        ({}, "/x?code=abc%2Fdefgh%3D%3D", "abc/defgh=="),
    ],
)  # fmt: skip
def test_where_credentials_are(headers: dict[str, str], path: str, secret: str):
    assert secret in credentials_of(headers, path)


def test_what_is_no_credential():
    assert credentials_of({"content-type": "application/json"}, "/x?api-version=2024-10-21") == ()
    assert credentials_of({"authorization": "Basic !"}, "/x") == ()


def runs(text: str, length: int) -> set[str]:
    return {text[at : at + length] for at in range(len(text) - length + 1)}


TEXTS = st.text(min_size=0, max_size=120)


@given(
    before=TEXTS, after=TEXTS, at=st.integers(0, 40), length=st.integers(8, 200),
    key=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=200),
)  # fmt: skip
def test_no_piece_of_a_credential_survives(before, after, at, length, key):
    said = redact(before + key[at : at + length] + after, credentials=(key,), body=Body(b""))
    for piece in said.split(REDACTED):
        assert not runs(piece, CREDENTIAL_RUN) & runs(key, CREDENTIAL_RUN)


@given(
    before=TEXTS, after=TEXTS, at=st.integers(0, 40), length=st.integers(BODY_RUN, 400),
    prompt=st.text(st.characters(exclude_categories=["Cs"]), min_size=BODY_RUN, max_size=400),
    is_ascii=st.booleans(), quotes=st.booleans(),
)  # fmt: skip
@example("", "", 0, 60, 'é"\\/\n\t\x00<&>' * 10, True, False)
@example("", "", 0, 60, 'é"\\/\n\t\x00<&>' * 10, False, True)
@example("x" * 7, "", 3, 30, "abcdefghijklmnopqrstuvwxyz0123456789", False, False)
def test_no_piece_of_a_prompt_survives(before, after, at, length, prompt, is_ascii, quotes):
    """Said as it is or as JSON, whatever the body's encoder."""
    body = json.dumps({"messages": [prompt, before]}, ensure_ascii=is_ascii).encode()
    quoted = prompt[at : at + length]
    if quotes:
        quoted = json.dumps(quoted, ensure_ascii=is_ascii)[1:-1]
        prompt = json.dumps(prompt, ensure_ascii=is_ascii)[1:-1]
    said = redact(before + quoted + after, body=Body(body))
    for piece in said.split(REDACTED):
        assert not runs(piece, BODY_RUN) & runs(prompt, BODY_RUN)


def test_a_prompt_that_is_quoted_with_escapes_of_its_own_is_found():
    """Spelled as JSON, Python, HTML, a URL or a form, and as JSON in JSON, though the request has
    it as it is."""
    prompt = "Tell nobody: \N{MONEY BAG}\N{GRINNING FACE} caf\u00e9 \u2028 and the rest of it\n" * 2
    body = json.dumps({"messages": [prompt]}, ensure_ascii=False).encode()
    for quoted in (
        json.dumps(prompt),
        json.dumps(json.dumps(prompt)),
        json.dumps(prompt).replace("\\u00e9", "\\xe9"),
        html.escape(prompt).replace(" ", "&#32;"),
        quote(prompt),
        quote_plus(prompt),
        json.dumps(quote_plus(prompt)),
    ):
        said = redact(f"invalid: {quoted}", body=Body(body))
        assert said.startswith("invalid: ")
        assert REDACTED in said
        assert "nobody" not in said
        assert "rest of" not in said


def test_two_halves_that_only_meet_in_the_text_are_found():
    left, right, middle = "abcdefghijklmnop", "qrstuvwxyz012345", "MIDDLE-OF-12"
    body = f"{left}{middle} and {middle}{right}".encode()
    assert redact(left + middle + right, body=Body(body)) == REDACTED


def test_long_texts_are_cut():
    assert len(redact("a " * TEXT_LENGTH_MAX, body=Body(b""))) == TEXT_LENGTH_MAX


def test_beyond_the_bound_nothing_is_kept():
    body = b"x " * (BODY_BYTES_MAX // 2 + 1)
    assert redact("the quick brown fox jumps over the lazy dog", body=Body(body)) == REDACTED


def test_beyond_the_bound_of_searches_no_name_is_kept(monkeypatch):
    text = "unexpected additionalProperties here"
    assert redact(text, body=Body(BODY)) == text
    monkeypatch.setattr(redaction, "SEARCHED_BYTES_MAX", 0)
    assert "additionalProperties" not in redact(text, body=Body(BODY))


@pytest.mark.parametrize("unit", ["sk-", "eyJ.", "a-", "Bearer ", "AIza", "0" * 35 + " ", "\\u00"])
def test_the_work_is_linear(unit: str):
    def work(size: int) -> None:
        text = (unit * size)[:size]
        for _ in range(20):
            redact(text, credentials=(text,), body=Body(text.encode()))

    assert_linear(work, 200)


def test_a_run_of_the_request_that_is_too_short_to_tell_anything_stays():
    before, word, behind = "he says:", "quarters", " arrived"
    assert len(before) == len(word) == GRAM_BYTES < BODY_RUN
    text = f"{before}{word}{behind}"
    assert redact(text, body=Body(f"no; {word}? yes".encode())) == text
    assert redact(text, body=Body(text.encode())) == REDACTED


def test_a_basic_credential_that_is_no_ascii_hides_no_other_credential():
    headers = {"authorization": "Basic \xe9\xe9\xe9\xe9\xe9\xe9\xe9\xe9", "x-api-key": "k" * 20}
    assert "k" * 20 in credentials_of(headers, "/v1/chat/completions")


def test_a_text_is_redacted_as_a_whole_if_the_body_cannot_be_searched():
    message = "prompt is too long: 250000 tokens > 200000 maximum"
    assert redact(message, body=NOT_KNOWN) == REDACTED
    assert redact("invalid_request_error", body=NOT_KNOWN) == "invalid_request_error"
    assert redact(f"{KEY[:23]}", body=NOT_KNOWN) == REDACTED


def test_pictures_beside_a_prompt_do_not_count():
    picture = base64.b64encode(bytes(range(256)) * 20_000).decode()
    body = json.dumps({"messages": [{"content": [picture, PROMPT, picture]}]}).encode()
    assert len(body) > BODY_BYTES_MAX
    text = f"the image is larger than 5 MB; '{PROMPT}'"
    assert redact(text, body=Body(body)) == f"the image is larger than 5 MB; '{REDACTED}'"


def test_a_long_name_of_a_header_takes_no_memory():
    kept = redaction._may_hold_credential.cache_info().currsize
    name = "x" * redaction.NAME_KEPT_MAX
    assert credentials_of({f"{name}-api-key": "0123456789abcdef"}, "/") == ("0123456789abcdef",)
    assert credentials_of({name + name: "0123456789abcdef"}, "/") == ()
    assert redaction._may_hold_credential.cache_info().currsize == kept
