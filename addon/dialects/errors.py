"""Pure. Reads errors in HTTP error bodies and in streams, in the formats in use.

`{"error": {type, code, message}}` (OpenAI and most), with a number for the code (Gemini, which
writes `status` for type), with text for the code (Chuizi AI), `{"error": "text"}` beside `code`
(xAI, Ollama), `{"message", "error_type"}` (Cohere), `{"message"}` with the type in a header
(Bedrock), `{"object": "error", "message", "type"}` (Mistral), `{"detail": …}` (FastAPI servers),
`{"errors": [{message, code}]}` (Cloudflare).
"""

from typing import Any

from addon.dialects.facts import Facts, clean

_MESSAGE_LENGTH_MAX = 1000
"""Characters kept of an error message, which upstream wrote: enough to explain the error."""


def record_error(facts: Facts, error: object, beside: dict[str, Any] | None = None) -> None:
    """Read an error object or text; `beside` is the object around it, which may have details."""
    facts.failed = True
    if isinstance(error, list) and error:
        error = error[0]
    if isinstance(error, str):
        facts.error_message = clean(error, _MESSAGE_LENGTH_MAX)
        error = beside if beside is not None else {}
    if not isinstance(error, dict):
        return
    kind = _first_text(error, "type", "status", "error_type", "__type")
    # `"type": "error"` has no information (Anthropic's and Responses' envelopes).
    if kind is not None and kind != "error":
        facts.error_type = clean(kind, 128)
    code = error.get("code")
    if isinstance(code, str | int | float) and not isinstance(code, bool) and code != "":
        facts.error_code = clean(str(code), 128)
    message = _first_text(error, "message", "Message", "detail")
    if message is not None:
        facts.error_message = clean(message, _MESSAGE_LENGTH_MAX)


def record_error_in(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read the error of a frame or a document with status 200, if it has one."""
    if body.get("error") or event == "error":
        record_error(facts, body.get("error") or body, body)


def record_error_body(facts: Facts, body: dict[str, Any]) -> None:
    """Read the body of an HTTP answer with an error status."""
    inner = body.get("error") or body.get("errors") or body
    record_error(facts, inner, body)
    kind = facts.headers.get("x-amzn-errortype")
    if kind and facts.error_type is None:
        # `ThrottlingException:http://internal.amazon.com/…`
        facts.error_type = clean(kind.partition(":")[0], 128)


def record_error_text(facts: Facts, body: bytes) -> None:
    """Read an error that is not JSON: keep a line of text, ignore a page of HTML."""
    facts.failed = True
    text = body.decode("utf-8", "replace").strip()
    if text and not text.startswith("<"):
        facts.error_message = clean(text, _MESSAGE_LENGTH_MAX)


def _first_text(error: dict[str, Any], *keys: str) -> str | None:
    for key in keys:
        value = error.get(key)
        if isinstance(value, str) and value:
            return value
    return None
