"""Pure. The error of an answer, in the spellings in use: its type and code, which are tokens, and a
code of ours for the messages that are known, because a message itself may quote a prompt.
"""

import re
from typing import Any

from msgspec.structs import replace

from addon.dialects.facts import AnswerContext, AnswerError, Facts, clean
from ledger.model.exchange import CAP_ERROR, REFUSED_STATUS

MESSAGE_LENGTH_MAX = 1000
"""Characters of a message that are looked at, and kept if the operator wants them."""
KNOWN_MESSAGES: dict[str, tuple[str, ...]] = {
    "rate_limited": (
        "rate limit", "rate-limit", "too many requests", "request limit", "throttl",
        "resource exhausted", "slow down", "please wait before trying again",
    ),
    "prompt_too_long": (
        "prompt is too long", "prompt too long", "too many tokens", "maximum context length",
        "max context length", "context window", "context length", "context too long",
        "input is too long", "all messages is too long", "exceeds the maximum number of tokens",
        "token limit reached", "exceeds the available context size",
    ),
    "credit_too_low": (
        "credit balance is too low", "insufficient balance", "insufficient credit",
        "requires more credits", "not enough credit", "payment required",
    ),
    "quota_exceeded": (
        "exceeded your current quota", "quota exceeded", "usage limit", "quota has been",
    ),
    "key_invalid": (
        "invalid x-api-key", "incorrect api key", "api key not valid", "api key is invalid",
        "invalid api key", "invalid api-key", "invalid subscription key", "invalid authentication",
        "invalid bearer token", "token has expired", "security token included in the request",
        "signature expired", "api keys are not supported",
    ),
    "key_missing": (
        "missing authentication", "didn't provide an api key", "api key is required",
        "api key is missing", "no api key", "unregistered callers",
    ),
    "model_not_found": (
        "model identifier is invalid", "model does not exist", "model not found", "unknown model",
        "no such model", "invalid model", "no endpoints found", "is not found for api version",
        "end of its life", "deployment for this resource does not exist",
    ),
    "access_denied": (
        "not authorized", "don't have access", "do not have access", "access denied",
        "permission denied", "access to this model",
    ),
    "overloaded": (
        "overloaded", "high demand", "at capacity", "over capacity", "server is busy",
        "server busy", "temporarily unavailable", "service unavailable",
    ),
    "content_filtered": (
        "content management policy", "content policy", "content filter", "content exists risk",
        "safety system", "flagged", "inappropriate content",
    ),
    "tool_call_invalid": (
        "parsing tool call", "failed to call a function", "invalid tool generation",
        "did not call a tool", "parse tool call",
    ),
    "tool_result_missing": (
        "without `tool_result` blocks", "no tool output found", "must be followed by tool messages",
    ),
    "request_too_large": (
        "request too large", "request_too_large", "payload too large", "entity too large",
        "maximum request size", "maximum allowed number of bytes",
    ),
    "option_not_supported": (
        "unsupported parameter", "unsupported value", "unrecognized request argument",
        "extra inputs are not permitted", "is not permitted", "unknown name", "unknown field",
        "is not supported", "not supported", "does not support", "doesn't support",
    ),
    "request_invalid": (
        "malformed", "invalid request", "invalid argument", "invalid json", "field required",
        "does not match the expected", "validation error",
    ),
    "proxy_stopped": ("proxy was stopped",),
    "name_not_resolved": ("name or service not known", "name resolution", "getaddrinfo"),
    "connection_refused": ("connection refused", "connect call failed"),
    "tls_failed": ("certificate verify", "tls ", "tlsv", "ssl"),
    "timeout": ("timed out", "timeout", "deadline exceeded"),
    "upstream_unreachable": (
        "upstream connect error", "no healthy upstream", "bad gateway", "provider returned error",
    ),
    "connection_cut": (
        "connection reset", "reset its connection", "connection closed", "closed connection",
        "disconnect", "broken pipe", "incomplete", "stream reset", "peer closed", "unexpected eof",
        "connection lost", "connection was lost",
    ),
    "internal_error": (
        "internal server error", "internal error", "an error occurred", "server had an error",
    ),
    "not_found": ("not found", "does not exist"),
}  # fmt: skip
"""Code of ours -> what a message has that means it, in lower case. The first that fits counts."""
_KEY_SHAPED = re.compile(
    r"""
      \b(?:sk|pk|rk|xai|gsk|hf|nvapi|pplx|fw|csk|tgp|vck|jina|r8|ghp|gho|ghs|glpat|whsec)
        [-_][A-Za-z0-9_*-]{6,}
    | \bAIza[A-Za-z0-9_-]{16,}
    | \bya29\.[A-Za-z0-9._-]{16,}
    | \beyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]+){0,2}
    | \b(?:AKIA|ASIA)[A-Z0-9]{12,}
    | (?<=[Bb]earer\ )[^\s"',;]{8,}
    | \b[A-Za-z0-9]{32,}
    """,
    re.VERBOSE,
)
MASKED = "<redacted>"


def code_of_message(message: str) -> str | None:
    """The code of ours for what a message says; None: it is not known."""
    lower = message[:MESSAGE_LENGTH_MAX].lower()
    for code, phrases in KNOWN_MESSAGES.items():
        for phrase in phrases:
            if phrase in lower:
                return code
    return None


def kept_message(message: str | None, context: AnswerContext) -> str | None:
    """A message for an operator who wants it, with what has the form of a key masked. None: nobody
    wants it, or it contains a credential of its request."""
    if not (message and context.keeps_error_text):
        return None
    if any(secret in message for secret in context.secrets):
        return None
    # Before it is cut: of a key that the bound cuts, the rest would have no form.
    return clean(_KEY_SHAPED.sub(MASKED, message[: 4 * MESSAGE_LENGTH_MAX]), MESSAGE_LENGTH_MAX)


def broken_connection(kind: str, cause: str, context: AnswerContext) -> AnswerError:
    """The error of an exchange whose connection broke, from what the proxy says of the cause."""
    return AnswerError(kind, code_of_message(cause), kept_message(cause, context))


def record_error(facts: Facts, error: object, beside: dict[str, Any] | None = None) -> None:
    """Read an error object or text; `beside` is the object around it, which may have details.

    `{"error": {type, code, message}}` (OpenAI and most), with a number for the code (Gemini, which
    writes `status` for type), with text for the code (Chuizi AI), `{"error": "text"}` beside `code`
    (xAI, Ollama), `{"message", "error_type"}` (Cohere), `{"message"}` with the type in a header
    (Bedrock), `{"object": "error", "message", "type"}` (Mistral), `{"detail": …}` (FastAPI),
    `{"errors": [{message, code}]}` (Cloudflare).
    """
    before = facts.error or AnswerError()
    kind = code = message = None
    if isinstance(error, list) and error:
        error = error[0]
    if isinstance(error, str):
        message, error = error, beside
    if isinstance(error, dict):
        # `"type": "error"` has no information (Anthropic's and Responses' envelopes).
        kind = _first_text(error, "type", "status", "error_type", "__type")
        kind = None if kind == "error" else kind
        code = error.get("code")
        if isinstance(code, int | float) and not isinstance(code, bool):
            code = str(code)
        message = _first_text(error, "message", "Message", "detail") or message
    words = " ".join(one for one in (kind, code, message) if isinstance(one, str))
    ours = code_of_message(words)
    kind = facts.token("error_type", kind) or before.type
    code = facts.token("error_code", code if isinstance(code, str) else None)
    code = code or before.code
    if ours is not None and code is None:
        code = ours
    elif ours is not None and kind is None and code is not None and code.isdigit():
        kind = ours  # a number alone says nothing to a reader
    facts.error = AnswerError(kind, code, kept_message(message, facts.of) or before.message)


def record_error_in(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read the error of a frame or a document with status 200, if it has one."""
    if body.get("error") or event == "error":
        record_error(facts, body.get("error") or body, body)


def record_error_body(facts: Facts, body: dict[str, Any]) -> None:
    """Read the body of an HTTP answer with an error status."""
    record_error(facts, body.get("error") or body.get("errors") or body, body)
    kind = facts.of.headers.get("x-amzn-errortype")
    if kind and facts.error is not None and facts.error.type is None:
        # `ThrottlingException:http://internal.amazon.com/…`
        kind = kind.partition(":")[0]
        facts.error = replace(facts.error, type=facts.token("error_type", kind))


def record_error_text(facts: Facts, body: bytes) -> None:
    """Read an error that is not JSON: a line of text may be known, a page of HTML is not."""
    text = body[: 4 * MESSAGE_LENGTH_MAX].decode("utf-8", "replace").strip()
    record_error(facts, "" if text.startswith("<") else text)


def plain_refusal(message: str, cap: str) -> dict[str, Any]:
    """The body of an error of ours, a refused request, in a format without a word for it. `cap` is
    the name of the cap that the request would have passed. SDKs of such formats look for the text
    outside of `error`: boto3 and dashscope as `message`, replicate as `detail`."""
    error = {"message": message, "type": CAP_ERROR, "code": cap}
    return {"error": error, "code": CAP_ERROR, "message": message, "detail": message}


def anthropic_refusal(message: str, _cap: str) -> dict[str, Any]:
    """As `plain_refusal`, as Anthropic words it."""
    return {"type": "error", "error": {"type": "billing_error", "message": message}}


def openai_refusal(message: str, _cap: str) -> dict[str, Any]:
    """As `plain_refusal`, as OpenAI words it."""
    error = {"message": message, "type": "insufficient_quota", "param": None, "code": CAP_ERROR}
    return {"error": error}


def provider_refusal(provider: str, body: dict[str, Any]) -> dict[str, Any]:
    """A refusal as the SDK of a provider reads it, where it wants more than the format does."""
    error = body.get("error", {})
    if provider == "openrouter" and error.get("code") == CAP_ERROR:
        return {"error": {**error, "code": REFUSED_STATUS}}  # it takes numbers alone
    if provider == "voyage":
        return {"detail": error.get("message"), **body}
    return body


def openai_refused_event(message: str, cap: str) -> dict[str, Any]:
    """The message of a WebSocket session that refuses one response. Codex waits on after an error
    without a status, and repeats after any other."""
    return {"type": "error", "status": 400, **openai_refusal(message, cap)}


def google_refusal(message: str, _cap: str) -> dict[str, Any]:
    """As `plain_refusal`, as Google words it."""
    return {"error": {"code": 402, "message": message, "status": "RESOURCE_EXHAUSTED"}}


def _first_text(error: dict[str, Any], *keys: str) -> str | None:
    for key in keys:
        value = error.get(key)
        if isinstance(value, str) and value:
            return value
    return None
