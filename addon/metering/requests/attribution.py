"""Pure. Whom an exchange is attributed to: key, tags, session; never the key itself."""

import hmac
import re
from collections.abc import Mapping, Sequence

from addon.dialects.facts import clean

TAG_HEADER = "x-tokentee-tag"
SESSION_HEADER = "x-tokentee-session"
TAGS_MAX = 32
"""Tags of one exchange; more is a mistake."""
TAG_LENGTH_MAX = 256
HINT_LENGTH = 4
KEY_LENGTH_MIN = 16
"""Of a shorter key the last four characters would be too much of it."""

PATH_LENGTH_MAX = 64 * 1024
"""Characters of a path with its query that are searched for a key."""

_KEY_HEADERS = ("x-api-key", "api-key", "x-goog-api-key", "ocp-apim-subscription-key")
_BEARER = re.compile(r"(?:bearer|token|basic)\s+(\S+)", re.IGNORECASE)
_PROTOCOL_KEY = re.compile(r"openai-insecure-api-key\.([^\s,]+)")
"""Browsers cannot set headers of a WebSocket: the key is one of its protocols."""
_AWS_CREDENTIAL = re.compile(r"Credential=([A-Za-z0-9]+)/")
_QUERY_KEY = re.compile(r"[?&](?:key|api[-_]key|access_token)=([^&]+)")
"""Gemini clients send `?key=` (BerriAI/litellm#35678)."""


def tags_of_headers(values: Sequence[str]) -> dict[str, str]:
    """Tags of a client's headers: what is not KEY=VALUE is left out, for a request is not to fail
    over a label."""
    tags: dict[str, str] = {}
    for part in ",".join(values).split(",", TAGS_MAX)[:TAGS_MAX]:
        key, equals, value = part.partition("=")
        if equals and key.strip():
            tags[key.strip()[:TAG_LENGTH_MAX]] = value.strip()[:TAG_LENGTH_MAX]
    return tags


def api_key_of(headers: Mapping[str, str], path: str) -> str | None:
    """The credential a request carries, or None. `path` is with its query."""
    authorization = headers.get("authorization", "")
    if aws := _AWS_CREDENTIAL.search(authorization):
        return aws[1]  # the access key id: it names the key, and the secret is not sent at all
    if bearer := _BEARER.match(authorization):
        return bearer[1]
    for name in _KEY_HEADERS:
        if key := headers.get(name):
            return key
    if in_protocol := _PROTOCOL_KEY.search(headers.get("sec-websocket-protocol", "")):
        return in_protocol[1]
    query = _QUERY_KEY.search(path, 0, PATH_LENGTH_MAX)
    return query[1] if query else None


def is_password(headers: Mapping[str, str]) -> bool:
    """Whether the credential ends in a person's password, of which nothing may be shown."""
    return headers.get("authorization", "")[:6].lower() == "basic "


def fingerprint_of(key: str, secret: bytes) -> tuple[str, str | None]:
    """A keyed hash, the same for the same key within one ledger, and the key's last characters.

    The hint is None for a key too short to show any of.
    """
    # In one call: a third of what `hmac.new` takes.
    digest = hmac.digest(secret, key.encode("utf-8", "replace"), "sha256").hex()
    hint = clean(key[-HINT_LENGTH:], HINT_LENGTH) if len(key) >= KEY_LENGTH_MIN else None
    return digest[:32], hint


def is_signed(headers: Mapping[str, str], path: str) -> bool:
    """Whether the body is under a signature or digest, so that no byte of it may change."""
    return (
        headers.get("authorization", "").startswith("AWS4-")
        or any(
            name in headers
            for name in ("x-amz-content-sha256", "content-digest", "digest", "content-md5")
        )
        or "signature" in headers
        or "X-Amz-Signature=" in path
    )
