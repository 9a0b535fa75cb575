"""Pure. Whom an exchange is attributed to: key, tags, session; never the key itself."""

import base64
import contextlib
import hmac
import re
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

from addon.dialects.billing import KEY_BEGINS, KEY_HEADERS, PROTOCOL_KEY
from addon.dialects.facts import clean

REDACTED = "<redacted>"
TAG_HEADER = "x-tokentee-tag"
SESSION_HEADER = "x-tokentee-session"
TAGS_MAX = 32
"""Tags of one exchange; more tags are a mistake."""
TAG_LENGTH_MAX = 256
HINT_LENGTH = 4
KEY_LENGTH_MIN = 16
"""For a shorter key, the last four characters would reveal too much."""
SECRET_LENGTH_MIN = 8
"""Of what is looked for in texts before they are recorded. A shorter one, and one of letters alone
that is shorter than a key, is a placeholder (`lm-studio`) that models are named like, too."""
SECRETS_MAX = 16
HEADER_READ_MAX = 8_192
"""Characters of a header that are searched for credentials."""

PATH_LENGTH_MAX = 64 * 1024
"""Characters of a path and its query to search for a key."""

_BEARER = re.compile(r"(?:bearer|token|basic)\s+(\S+)", re.IGNORECASE)
_AWS_CREDENTIAL = re.compile(r"Credential=([A-Za-z0-9]+)/")
_QUERY_KEY = re.compile(r"[?&](?:key|api[-_]key|access_token)=([^&]+)")
"""Gemini clients send `?key=` (BerriAI/litellm#35678)."""
_QUERY_SECRETS = re.compile(
    r"[?&](?:key|code|api[-_]?key|(?:access_|auth_)?token|sig|(?:x-amz-)?signature|x-amz-security-token)"
    r"=([^&]+)",
    re.IGNORECASE,
)
"""`code` is the key of an Azure function."""
_SECRET_HEADERS = re.compile(
    r"authorization|cookie|-?key$|token$|secret$|signature$|password$|assertion$|jwt$"
)
_IN_AUTHORIZATION = re.compile(r"(?:Credential|Signature)=([A-Za-z0-9]+)")
_WORD_LENGTH_MIN = 20
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_SEPARATOR = re.compile(r"([/:])")


def tags_of_headers(values: Sequence[str], secrets: tuple[str, ...] = ()) -> dict[str, str]:
    """Tags from a client's headers. Values that are not KEY=VALUE are left out, because a bad
    label must not fail a request, as are those with a credential of the request."""
    tags: dict[str, str] = {}
    for part in ",".join(values).split(",", TAGS_MAX)[:TAGS_MAX]:
        key, equals, value = part.partition("=")
        if equals and key.strip() and not any(secret in part for secret in secrets):
            tags[key.strip()[:TAG_LENGTH_MAX]] = value.strip()[:TAG_LENGTH_MAX]
    return tags


def api_key_of(headers: Mapping[str, str], path: str) -> str | None:
    """The credential of a request, or None. `path` includes its query."""
    if authorization := headers.get("authorization"):
        if aws := _AWS_CREDENTIAL.search(authorization):
            return aws[1]  # the access key id: it names the key; the request has no secret
        if bearer := _BEARER.match(authorization):
            return bearer[1]
    for name in KEY_HEADERS:
        if key := headers.get(name):
            return key
    protocol = headers.get("sec-websocket-protocol")
    if protocol and (in_protocol := PROTOCOL_KEY.search(protocol)):
        return in_protocol[1]
    if "=" not in path:
        return None
    query = _QUERY_KEY.search(path, 0, PATH_LENGTH_MAX)
    return query[1] if query else None


def credentials_of(headers: Mapping[str, str], path: str) -> tuple[str, ...]:
    """The credentials of a request, which no recorded text may contain. `headers` by lower-case
    name; `path` includes its query."""
    words = _QUERY_SECRETS.findall(path, 0, PATH_LENGTH_MAX) if "=" in path else []
    for name, whole in headers.items():
        if _SECRET_HEADERS.search(name) is None or "idempotency" in name:
            continue
        value = whole[:HEADER_READ_MAX]
        if "cookie" in name:
            pairs = (pair.partition("=")[2].strip() for pair in value.split(";"))
            words += [word for word in pairs if len(word) >= KEY_LENGTH_MIN]
        elif value.startswith("AWS4-"):
            words += _IN_AUTHORIZATION.findall(value)
        else:
            scheme, _, word = value.strip().rpartition(" ")
            words.append(word)
            if scheme.lower() == "basic":
                with contextlib.suppress(ValueError):  # no base64, or no UTF-8
                    words.append(base64.b64decode(word).decode().partition(":")[2])
    words += PROTOCOL_KEY.findall(headers.get("sec-websocket-protocol", "")[:HEADER_READ_MAX])
    found = {
        word: None
        for given in words
        for word in (given, unquote(given))
        if len(word) >= KEY_LENGTH_MIN
        or (len(word) >= SECRET_LENGTH_MIN and [char for char in word if char.isdigit()])
    }
    return tuple(found)[:SECRETS_MAX]


def is_password(headers: Mapping[str, str]) -> bool:
    """Whether the credential ends in a person's password, so that no character may be shown."""
    return headers.get("authorization", "")[:6].lower() == "basic "


def fingerprint_of(key: str, secret: bytes) -> tuple[str, str | None]:
    """A keyed hash, the same for the same key within one ledger, and the key's last characters.

    The hint is None if the key is too short to show a part of it.
    """
    # One call takes a third of the time of `hmac.new`.
    digest = hmac.digest(secret, key.encode("utf-8", "replace"), "sha256").hex()
    hint = clean(key[-HINT_LENGTH:], HINT_LENGTH) if len(key) >= KEY_LENGTH_MIN else None
    return digest[:32], hint


def is_signed(headers: Mapping[str, str], path: str) -> bool:
    """Whether a signature or digest covers the body, so that no byte of it may change."""
    return (
        headers.get("authorization", "").startswith("AWS4-")
        or any(
            name in headers
            for name in ("x-amz-content-sha256", "content-digest", "digest", "content-md5")
        )
        or "signature" in headers
        or "X-Amz-Signature=" in path
    )


def redacted_path(path: str, secrets: tuple[str, ...] = ()) -> str:
    """A path without its query, with each segment replaced that looks like a key or has one of the
    `secrets`: webhook-like URLs carry one. Each is checked once, and no pattern can backtrack, so
    the work is linear."""
    pieces = _SEPARATOR.split(path)
    return "".join(
        REDACTED
        if at % 2 == 0 and (looks_like_key(piece) or any(one in piece for one in secrets))
        else piece
        for at, piece in enumerate(pieces)
    )


def looks_like_key(word: str) -> bool:
    """Whether a segment of a path may be a credential.

    Model names and resource ids stay: they are short, UUIDs, or made of words and digits that are
    joined. A key is one long run of letters and digits, or has a prefix that only keys have.
    """
    word = unquote(word)
    if len(word) < _WORD_LENGTH_MIN or _UUID.fullmatch(word):
        return False
    runs = re.split(r"[^A-Za-z0-9]+", word)
    longest = max(runs, key=len)
    if KEY_BEGINS.match(word) and (len(longest) >= 16 or len(runs) > 5):
        return True
    # Letters and digits are mixed in random text.
    digits = sum(char.isdigit() for char in longest)
    is_mixed = digits >= 3 or longest.lower() != longest != longest.upper()
    return len(longest) >= _WORD_LENGTH_MIN and 0 < digits < len(longest) and is_mixed
