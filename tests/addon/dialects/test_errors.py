"""What is kept of an error: no text of a provider, but for who wants it, and a code that says what it
was all the same.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon.dialects.dialect import Dialect, SessionProtocol
from addon.dialects.errors import (
    KNOWN_MESSAGES,
    MASKED,
    MESSAGE_LENGTH_MAX,
    anthropic_refusal,
    broken_connection,
    openai_refusal,
    provider_refusal,
    record_error,
    record_error_body,
    record_error_text,
)
from addon.dialects.facts import AnswerContext, AnswerError, Facts, name_of, token_of
from addon.dialects.routes import DIALECTS
from tests.addon.feeding import JSON, metered
from tests.named import for_each

WITH_TEXT = AnswerContext(keeps_error_text=True)


@for_each(
    "body, kind, code, message",
    [
        pytest.param({"error": {"type": "t", "code": "c", "message": "m"}}, "t", "c", "m", id="openai"),
        pytest.param({"type": "error", "error": {"type": "t", "message": "m"}}, "t", None, "m", id="anthropic"),
        pytest.param({"error": {"code": 429, "message": "m", "status": "S"}}, "S", "429", "m", id="gemini"),
        pytest.param({"error": {"code": "504", "message": "m", "type": "t"}}, "t", "504", "m", id="chuizi"),
        pytest.param({"error": {"code": "c", "message": "m"}}, None, "c", "m", id="sansa"),
        pytest.param({"code": "c", "error": "m"}, None, "c", "m", id="xai"),
        pytest.param({"error": "m"}, None, None, "m", id="ollama"),
        pytest.param({"error_type": "T", "id": "x", "message": "m"}, "T", None, "m", id="cohere"),
        pytest.param({"object": "error", "type": "t", "message": "m", "code": "1500"}, "t", "1500", "m", id="mistral"),
        pytest.param({"message": "m"}, None, None, "m", id="bedrock"),
        pytest.param({"Message": "m"}, None, None, "m", id="bedrock-capital"),
        pytest.param({"__type": "T", "message": "m"}, "T", None, "m", id="aws-json"),
        pytest.param({"detail": "m"}, None, None, "m", id="fastapi"),
        pytest.param({"errors": [{"message": "m", "code": 7}], "success": False}, None, "7", "m", id="cloudflare"),
        pytest.param({"error": {"code": True, "message": 5}}, None, None, None, id="nonsense"),
        pytest.param({"error": []}, None, None, None, id="empty"),
    ],
)  # fmt: skip
def test_an_error_body(
    body: dict[str, Any], kind: str | None, code: str | None, message: str | None
) -> None:
    for context, kept in ((WITH_TEXT, message), (AnswerContext(), None)):
        facts = Facts(of=context)
        record_error_body(facts, body)
        assert facts.error == AnswerError(kind, code, kept)


def test_the_type_may_stand_in_a_header() -> None:
    headers = {"x-amzn-errortype": "ThrottlingException:http://internal/"}
    facts = Facts(of=AnswerContext(headers=headers))
    record_error_body(facts, {"message": "m"})
    assert facts.error == AnswerError("ThrottlingException")


@for_each(
    "message, code",
    [
        ("prompt is too long: 210000 tokens > 200000 maximum", "prompt_too_long"),
        (
            "This endpoint's maximum context length is 200000 tokens. However, you",
            "prompt_too_long",
        ),
        ("Input is too long for requested model.", "prompt_too_long"),
        (
            "The input token count (1) exceeds the maximum number of tokens allowed",
            "prompt_too_long",
        ),
        ("Your credit balance is too low to access the Anthropic API.", "credit_too_low"),
        ("Insufficient Balance", "credit_too_low"),
        ("Overloaded", "overloaded"),
        ("The model is experiencing high demand", "overloaded"),
        ("You exceeded your current quota, please check your plan", "quota_exceeded"),
        ("Rate limit reached for gpt-4o in organization org-x", "rate_limited"),
        ("invalid x-api-key", "key_invalid"),
        ("The security token included in the request is expired", "key_invalid"),
        ("Missing Authentication header", "key_missing"),
        ("The provided model identifier is invalid.", "model_not_found"),
        ("You don't have access to the model with the specified model ID.", "access_denied"),
        ('error parsing tool call: raw="rm -rf /"', "tool_call_invalid"),
        ("No tool output found for tool call call-a.", "tool_result_missing"),
        ("unsupported content[].type is not supported", "option_not_supported"),
        ("messages.0: Input does not match the expected shape.", "request_invalid"),
        ("upstream connect error or disconnect", "upstream_unreachable"),
        ("model 'no-such' not found", "not_found"),
        ("Vielen Dank", None),
    ],
)
def test_a_known_message_has_a_code_of_ours(message: str, code: str | None) -> None:
    for error in (message, {"message": message}):
        facts = Facts()
        record_error(facts, error, {})
        assert facts.error == AnswerError(None, code)
    given_code = Facts()
    record_error(given_code, {"type": "t", "code": "theirs", "message": message})
    assert given_code.error == AnswerError("t", "theirs")
    number = Facts()  # OpenRouter's
    record_error(number, {"code": 400, "message": message})
    assert number.error == AnswerError(code, "400")


def test_every_code_of_ours_is_reached_by_each_of_its_messages() -> None:
    for code, phrases in KNOWN_MESSAGES.items():
        assert token_of(code), code
        for phrase in phrases:
            assert phrase == phrase.lower()
            facts = Facts()
            record_error(facts, f"Sorry: {phrase.title()}!", {})
            assert facts.error is not None
            assert facts.error.code in KNOWN_MESSAGES, phrase
        facts = Facts()
        record_error(facts, phrases[0], {})
        assert facts.error == AnswerError(None, code)


FREE = "please keep this to yourself"


@given(
    st.dictionaries(
        st.sampled_from(["type", "status", "error_type", "__type", "code", "message", "detail"]),
        st.one_of(st.just(FREE), st.just("x" * 65), st.just("ok_1"), st.integers(), st.none()),
    )
)
def test_nothing_of_an_error_is_free_text(error: dict[str, Any]) -> None:
    for form in (error, {"error": error}, {"errors": [error]}, {"error": FREE, **error}):
        facts = Facts()
        record_error_body(facts, form)
        assert facts.error is not None
        for text in (facts.error.type, facts.error.code):
            assert text is None or token_of(text) == text
        assert facts.error.message is None


def test_a_text_that_is_wanted_is_bounded_and_without_keys() -> None:
    key = "sk-proj-abcdefghijklmnop1234"
    facts = Facts(of=AnswerContext(keeps_error_text=True, secrets=("the-key-of-the-request-1",)))
    begin = f"Incorrect API key provided: {key}. a\x00\ud800 "
    record_error(facts, {"message": begin + "some words " * 999})
    assert facts.error is not None
    begin = "Incorrect API key provided: <redacted>. a\N{REPLACEMENT CHARACTER}? "
    assert facts.error.message == (begin + "some words " * 999)[:MESSAGE_LENGTH_MAX]
    facts.error = None
    record_error(facts, "the-key-of-the-request-1 is unknown")
    assert facts.error == AnswerError()


@for_each("before", range(MESSAGE_LENGTH_MAX - 28, MESSAGE_LENGTH_MAX))
def test_no_key_is_cut_instead_of_masked(before: int) -> None:
    facts = Facts(of=AnswerContext(keeps_error_text=True))
    record_error(facts, " " * before + "sk-proj-abcdefghijklmnop1234")
    assert facts.error is not None
    assert facts.error.message == (" " * before + MASKED)[:MESSAGE_LENGTH_MAX]


def test_an_error_that_is_no_json() -> None:
    facts = Facts(of=WITH_TEXT)
    record_error_text(facts, b"  upstream connect error \xff ")
    text = "upstream connect error \N{REPLACEMENT CHARACTER}"
    assert facts.error == AnswerError(None, "upstream_unreachable", text)
    page = Facts(of=WITH_TEXT)
    record_error_text(page, b"<html>502</html>")
    assert page.error == AnswerError()


@for_each(
    "cause, code",
    [
        ("server disconnected", "connection_cut"),
        ("[Errno 111] Connect call failed ('127.0.0.1', 9)", "connection_refused"),
        ("[Errno -2] Name or service not known", "name_not_resolved"),
        ("The remote server does not speak TLS.", None),
        ("Certificate verify failed: self-signed certificate", "tls_failed"),
    ],
)
def test_a_broken_connection_has_a_code(cause: str, code: str | None) -> None:
    assert broken_connection("transport", cause, AnswerContext()) == AnswerError("transport", code)
    assert broken_connection("transport", cause, WITH_TEXT).message == cause


REFUSALS: dict[str, dict[str, Any]] = {
    "anthropic": {"type": "error", "error": {"type": "billing_error", "message": "m"}},
    "openai": {
        "error": {
            "message": "m",
            "type": "insufficient_quota",
            "param": None,
            "code": "tokentee_cap",
        }
    },
    "gemini": {"error": {"code": 402, "message": "m", "status": "RESOURCE_EXHAUSTED"}},
}
OF_OPENAI = ("cloudflare", "sap", "volcengine", "xai", "perplexity")
"""They carry its format in one of their own."""


@for_each("dialect", DIALECTS.values(), ids=DIALECTS)
def test_a_refusal_of_ours_is_worded_as_its_dialect_words_errors(dialect: Dialect) -> None:
    family = dialect.name.partition(".")[0]
    error = {"message": "m", "type": "tokentee_cap", "code": "nightly"}
    plain = {"error": error, "code": "tokentee_cap", "message": "m", "detail": "m"}
    body = dialect.refusal("m", "nightly")
    if dialect.operation == "batch":
        return  # such a request is a GET, which costs nothing
    assert body == REFUSALS.get("openai" if family in OF_OPENAI else family, plain)
    event = dialect.refused_event("m", "nightly")
    is_turns = dialect.session is SessionProtocol.TURNS
    assert event == (body if is_turns else {"type": "error", "status": 400, **REFUSALS["openai"]})
    facts = Facts()
    dialect.read(facts, "", body)
    record_error_body(facts, body)
    assert facts.error is not None
    assert facts.error.message is None


@for_each(
    "provider, refusal, expected",
    [
        ("openrouter", openai_refusal, {"error": REFUSALS["openai"]["error"] | {"code": 402}}),
        ("openrouter", anthropic_refusal, REFUSALS["anthropic"]),
        ("voyage", openai_refusal, {"detail": "m", **REFUSALS["openai"]}),
        ("openai", openai_refusal, REFUSALS["openai"]),
    ],
)
def test_a_refusal_of_ours_is_worded_as_the_sdk_of_a_provider_reads_it(
    provider: str, refusal: Callable[[str, str], dict[str, Any]], expected: dict[str, Any]
) -> None:
    assert provider_refusal(provider, refusal("m", "nightly")) == expected


@given(st.text(max_size=300))
def test_tokens_and_names(text: str) -> None:
    """Against the words of the rule, one character at a time."""
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"
    is_token = 0 < len(text) <= 64 and all(char in letters + "._:/-" for char in text)
    is_name = 0 < len(text) <= 256 and all(
        "!" <= char <= "~" and char not in "\"'`<>{}" for char in text
    )
    assert (token_of(text) is not None, name_of(text) is not None) == (is_token, is_name)


OVERLOADED = {"error": {"type": "overloaded_error", "message": "overloaded"}}
STREAMS = sorted(
    {name for name, dialect in DIALECTS.items() if dialect.operation != "batch"}
    # Their streams name an error otherwise, or end with one of another shape; or there are none.
    - {"bedrock.converse", "bedrock.invoke", "bedrock.agent", "bedrock.session"}
    - {"cohere.chat", "cohere.generate"}
    - {"cohere.embed", "cohere.rerank", "mistral.conversations", "watsonx.generation"}
    - {"dashscope.generation", "dashscope.embedding", "dashscope.rerank", "dashscope.task"}
    - {"baidu.chat", "baidu.embeddings", "tencent.chat", "dify.chat", "dify.workflow"}
    - {"openai.realtime", "perplexity.async"}
)


@for_each("name", sorted(DIALECTS))
def test_an_error_inside_a_document_with_status_200(name: str):
    error = metered(DIALECTS[name], json.dumps(OVERLOADED).encode(), JSON).facts.error
    is_batch = DIALECTS[name].operation == "batch"  # one request of it has failed
    assert error == (None if is_batch else AnswerError("overloaded_error", "overloaded"))


@for_each("texts", [0, 200])
@for_each("name", STREAMS)
def test_an_error_inside_a_stream(name: str, texts: int):
    frames = [{"choices": [{"delta": {"content": "word"}}], "n": 1}] * texts + [OVERLOADED]
    stream = b"".join(b"data: %s\n\n" % json.dumps(frame).encode() for frame in frames)
    error = metered(DIALECTS[name], stream).facts.error
    assert error == AnswerError("overloaded_error", "overloaded")
