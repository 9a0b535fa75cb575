"""Errors in all the spellings in use, and bounded: upstream wrote them."""

from typing import Any

import pytest

from addon.dialects.errors import record_error, record_error_body, record_error_text
from addon.dialects.facts import Facts


@pytest.mark.parametrize(
    ("body", "kind", "code", "message"),
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
    facts = Facts()
    record_error_body(facts, body)
    assert facts.failed
    assert (facts.error_type, facts.error_code, facts.error_message) == (kind, code, message)


def test_the_type_may_stand_in_a_header() -> None:
    facts = Facts(headers={"x-amzn-errortype": "ThrottlingException:http://internal/"})
    record_error_body(facts, {"message": "m"})
    assert facts.error_type == "ThrottlingException"


def test_errors_are_bounded_and_clean() -> None:
    facts = Facts()
    record_error(
        facts, {"type": "t" * 999, "code": "c" * 999, "message": "a\x00\ud800" + "m" * 9_999}
    )
    assert facts.error_type == "t" * 128
    assert facts.error_code == "c" * 128
    assert facts.error_message is not None
    assert len(facts.error_message) == 1_000
    assert "\x00" not in facts.error_message
    facts.error_message.encode()


def test_an_error_that_is_no_json() -> None:
    facts = Facts()
    record_error_text(facts, b"  upstream connect error \xff ")
    assert facts.error_message == "upstream connect error \N{REPLACEMENT CHARACTER}"
    page = Facts()
    record_error_text(page, b"<html>502</html>")
    assert page.failed
    assert page.error_message is None
