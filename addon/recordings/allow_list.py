"""Pure. The allow-list of headers and URL parameters that a capture keeps; all others are redacted.

A capture needs the values that the meter reads and those that make a served answer equal to the
recorded one. Any other value may be a credential under an unknown name, so allowed names are
listed. Names stay, values are replaced by `<redacted>`.

All patterns run on bounded text and none can backtrack: the work is linear.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import unquote, urlsplit

from addon.dialects.limits import is_quota_header
from addon.metering.attribution import REDACTED, looks_like_key, redacted_path

URL_LENGTH_MAX = 8 * 1024
"""Characters of a URL that are read; the rest is cut off. Servers refuse longer ones."""
HEADER_LENGTH_MAX = 8 * 1024
"""Characters of a header's value that are kept."""

KEPT_HEADERS = frozenset(
    # As a list of quoted words it would be longer than the rest of the module.
    """
    accept accept-encoding accept-language accept-ranges age ai-embedding-model-id
    ai-language-model-id alt-svc anthropic-beta
    anthropic-dangerous-direct-browser-access anthropic-organization-id anthropic-version
    apim-request-id azureml-model-deployment azureml-model-session cache-control cf-cache-status
    cf-aig-cache-status cf-ray chatgpt-account-id connection content-disposition
    content-encoding content-language
    content-length content-range content-type date etag expect expires
    fireworks-server-processing-time helicone-cache
    host idempotency-key keep-alive last-modified openai-beta openai-model
    openai-organization openai-processing-ms openai-project openai-version pragma priority
    request-id server server-timing strict-transport-security te
    trailer transfer-encoding upgrade user-agent vary via warning x-accel-buffering
    x-amzn-bedrock-accept x-amzn-bedrock-cache-read-input-token-count
    x-amzn-bedrock-cache-write-input-token-count x-amzn-bedrock-content-type
    x-amzn-bedrock-input-token-count x-amzn-bedrock-invocation-latency
    x-amzn-bedrock-output-token-count x-amzn-bedrock-performanceconfig-latency
    x-amzn-bedrock-service-tier x-amzn-errortype x-amzn-requestid x-api-warning x-app
    x-client-request-id x-content-type-options x-dashscope-sse x-envoy-upstream-service-time
    x-gemini-service-tier
    x-generated-tokens x-prompt-tokens
    x-goog-api-client x-groq-region x-llm-proxy-cost x-litellm-call-id x-litellm-model-id
    x-litellm-response-cost x-litellm-version x-model x-ms-client-request-id x-ms-region
    x-ms-rai-invoked x-openrouter-title x-portkey-cache-status x-powered-by x-request-id
    x-robots-tag
    x-served-by x-should-retry x-stainless-arch x-stainless-async x-stainless-helper-method
    x-stainless-lang x-stainless-os x-stainless-package-version x-stainless-read-timeout
    x-stainless-retry-count x-stainless-runtime x-stainless-runtime-version x-stainless-timeout
    x-title x-vercel-cache x-xss-protection sec-websocket-version sec-websocket-extensions
    """.split()  # noqa: SIM905
)
"""Headers whose values are kept, beside those of quotas (`is_quota_header`)."""
KEPT_TOKENS_OF = {
    "sec-websocket-protocol": frozenset({"realtime", "openai-beta.realtime-v1", "json", "mcp"}),
}
"""Headers that list words, and the words that are kept: clients put keys between them."""
URL_HEADERS = frozenset(
    {
        *("azure-asyncoperation", "content-location", "http-referer", "location"),
        *("operation-location", "origin", "referer"),
    }
)
"""Headers that hold a URL, which is redacted like the request's."""

KEPT_PARAMETERS = frozenset(
    """
    alt api-version beta deployment deployment_id encoding format include include[] intent
    language limit mode model order page pagesize page_size provider region starting_after stream
    version wait
    """.split()  # noqa: SIM905
)
"""Query parameters whose values are kept, by lower-case name."""


def redacted_headers(headers: Iterable[tuple[str, str]]) -> dict[str, str | list[str]]:
    """Headers by name, several of one name as a list; values that are not allowed are redacted."""
    found: dict[str, str | list[str]] = {}
    for name, value in headers:
        kept = redacted_value(name.lower(), value)
        before = found.get(name)
        if before is None:
            found[name] = kept
        elif isinstance(before, list):
            before.append(kept)
        else:
            found[name] = [before, kept]
    return found


def redacted_value(name: str, value: str) -> str:
    """A header's value for a capture. `name` is in lower case."""
    value = value[:HEADER_LENGTH_MAX]
    if name in KEPT_HEADERS:
        return value
    if is_quota_header(name) and not looks_like_key(value):
        return value
    if name in URL_HEADERS:
        return redacted_url(value)
    if (words := KEPT_TOKENS_OF.get(name)) is not None:
        listed = (word.strip() for word in value.split(","))
        return ", ".join(word if word.lower() in words else REDACTED for word in listed)
    return REDACTED


def redacted_url(url: str) -> str:
    """A URL without its user, its fragment, keys in its path, and most values of its query."""
    url = url[:URL_LENGTH_MAX].partition("#")[0]
    before, mark, query = url.partition("?")
    try:
        parts = urlsplit(before)
    except ValueError:
        return REDACTED
    authority = parts.netloc.rpartition("@")[2]
    start = f"{parts.scheme}://{authority}" if parts.netloc else ""
    pairs = []
    for pair in query.split("&") if query else ():
        name, equals, value = pair.partition("=")
        is_kept = unquote(name).lower() in KEPT_PARAMETERS and not looks_like_key(value)
        pairs.append(pair if is_kept or not equals else f"{name}={REDACTED}")
    return f"{start}{redacted_path(parts.path)}{mark}{'&'.join(pairs)}"
