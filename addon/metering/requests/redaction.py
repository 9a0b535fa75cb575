"""Pure. Redacts credentials and prompts in error texts.

Providers repeat what they refuse: `Incorrect API key provided: sk-...`, or a whole message that a
validation error quotes. Three things are redacted from a text before it is stored or logged:

- every run of 8 characters or more that occurs in a credential of the request;
- every run of 16 characters or more that occurs in the request's body, as it is or as JSON, HTML
  or a URL escapes it, but for names: keys of the body, and error types that are known;
- every word with the form of a key, even if it is not the request's.

The work is bounded: a text has at most `TEXT_LENGTH_MAX` characters, a body at most
`BODY_BYTES_MAX` bytes beside pictures and documents. Of a longer one no text is kept.
"""

from __future__ import annotations

import base64
import functools
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from urllib.parse import unquote_plus

from addon.metering.requests.messages import Body

REDACTED = "<redacted>"
NAME_KEPT_MAX = 100
"""A header's name that is longer is looked at each time: it takes no memory."""
TEXT_LENGTH_MAX = 1_000
"""Characters of an error text; a row keeps as many."""
CREDENTIAL_RUN = 8
"""A shorter piece of a key reveals nothing; providers themselves show some characters."""
BODY_RUN = 16
"""Shorter runs are words that any two texts share: model names, short phrases."""
_PUBLISHED_TYPES = (
    "invalid_request_error authentication_error permission_denied_error rate_limit_exceeded "
    "context_length_exceeded insufficient_quota internal_server_error service_unavailable "
    "service_unavailable_error unsupported_parameter missing_required_parameter unknown_parameter "
    "unsupported_value string_above_max_length request_too_large content_policy_violation "
    "billing_hard_limit_reached model_not_found_error not_found_error overloaded_error "
    "tokens_limit_reached previous_response_not_found UNAUTHENTICATED PERMISSION_DENIED "
    "RESOURCE_EXHAUSTED INVALID_ARGUMENT FAILED_PRECONDITION DEADLINE_EXCEEDED "
    "ThrottlingException ValidationException AccessDeniedException ServiceQuotaExceededException "
    "ModelErrorException ModelTimeoutException ModelNotReadyException ModelStreamErrorException "
    "InternalServerException ServiceUnavailableException ResourceNotFoundException"
)
KNOWN_WORDS = frozenset(_PUBLISHED_TYPES.split())
"""Error types and codes of the published APIs: they repeat nothing of a request."""
BODY_BYTES_MAX = 4 * 1024 * 1024
"""Of a request body without its data. One pass over so many takes 25 ms at worst. Of a request that
is longer no error text is kept, but for known words."""
DATA_BLOCK_BYTES = 4 * 1024
DATA_BYTES_MAX = 16 * 1024 * 1024
"""Of a body that is searched for blocks of base64, 15 ms at worst; a multiple of that many bytes
without another character is a picture or a document."""
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=-_"
GRAM_BYTES = BODY_RUN // 2
"""The bytes of one look into a table, 8 as a machine word has. Among any 15 bytes in a row is one
that begins at a multiple of 8."""
SEARCHED_BYTES_MAX = 4 * 1024 * 1024
"""Searched to see how far a run goes, once a part of one is found: 10 ms at worst. What is found
beyond that counts as a run."""
SEARCH_BYTES = 100
"""To make a search takes as long as to search so many bytes."""
CREDENTIALS_LENGTH_MAX = 64 * 1024
"""Bound on the characters of a request's credentials to search for, and on those of a query or a
header to search for credentials."""

ESCAPES_DEPTH_MAX = 2
"""Layers of escapes in an error text that are undone: JSON in the text of JSON."""
_ESCAPES = (
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[\"'\\/bfnrt])"
    r"|&(?:\#[0-9]{1,7}|\#[xX][0-9a-fA-F]{1,6}|[a-z]{2,6});"
)
_ESCAPE = re.compile(_ESCAPES)
_ESCAPE_OF_URL = re.compile(_ESCAPES + r"|(?:%[0-9a-fA-F]{2})+|\+")
_PERCENT = re.compile(r"%[0-9a-fA-F]{2}")
"""In a text that has one, a plus is a blank."""
_SHORT_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
AROUND_MAX = 4
"""Quotes and brackets around a word that is kept."""
_AROUND_WORDS = " \"'`.,:;()[]{}"
_HEXADECIMAL = re.compile(r"\\u[0-9a-f]{4}")
_CREDENTIAL_HEADER = re.compile(
    r"auth|cookie|key|token|secret|credential|signature|session|jwt|password|assertion|protocol",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"(?:bearer|basic|token|digest|negotiate|apikey|aws4-hmac-sha256)\s+", re.I)
_KEY_SHAPED = re.compile(
    r"""
      \b(?:sk|pk|rk|xai|gsk|hf|nvapi|pplx|fw|csk|tgp|vck|jina|r8|ghp|gho|ghs|glpat|whsec)
        [-_](?=[A-Za-z_-]{0,64}[0-9])[A-Za-z0-9_-]{12,}
    | \bAIza[A-Za-z0-9_-]{16,}
    | \bya29\.[A-Za-z0-9._-]{16,}
    | \beyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]+){0,2}
    | \b(?:AKIA|ASIA)[A-Z0-9]{12,}
    | (?<=[Bb]earer\ )[^\s"',;]{8,}
    | \b(?=[A-Za-z]{0,64}[0-9])[A-Za-z0-9]{36,}
    """,
    re.VERBOSE,
)


def credentials_of(headers: Mapping[str, str], path: str) -> tuple[str, ...]:
    """The possible credentials of a request. `headers` by lower-case name; `path` with query."""
    found: dict[str, None] = {}
    for name, value in headers.items():
        look = _may_hold_credential if len(name) <= NAME_KEPT_MAX else _names_credential
        if look(name):
            found.update(dict.fromkeys(_secrets_in(name, value[:CREDENTIALS_LENGTH_MAX])))
    query = path.partition("?")[2][:CREDENTIALS_LENGTH_MAX]
    for pair in query.split("&") if query else ():
        name, _, value = pair.partition("=")
        if "version" in name.lower():
            continue  # many errors name `api-version`
        found.update(dict.fromkeys((value, unquote_plus(value))))
    return tuple(word for word in found if len(word) >= CREDENTIAL_RUN)


def redact(
    text: str, *, credentials: Iterable[str] = (), body: Body, keep: Iterable[str] = ()
) -> str:
    """The text without credentials and without text from the request's body.

    `body` is the decoded request body. Of one that is not known whole, a text that is long enough
    for a run of the body is redacted as a whole. `keep` are words to keep even if the body has
    them: the name of the model.
    """
    text = text[:TEXT_LENGTH_MAX]
    if text in KNOWN_WORDS:
        return text
    if not body.is_whole and len(text) >= BODY_RUN:
        return REDACTED
    hidden = bytearray(len(text))
    for found in _KEY_SHAPED.finditer(text):
        _hide(hidden, found.start(), found.end())
    grams: set[str] = set()
    left = CREDENTIALS_LENGTH_MAX
    for word in credentials:
        starts = range(min(len(word), left) - CREDENTIAL_RUN + 1)
        grams.update(word[at : at + CREDENTIAL_RUN] for at in starts)
        left = max(0, left - len(word))
    for at in range(len(text) - CREDENTIAL_RUN + 1 if grams else 0):
        if text[at : at + CREDENTIAL_RUN] in grams:
            _hide(hidden, at, at + CREDENTIAL_RUN)
    if body.data:
        kept = tuple(keep)
        search = _Search(body.data)
        if search.is_too_long and len(text) >= BODY_RUN:
            return REDACTED
        for depth, (plain, places) in enumerate(_plain_forms(text)):
            # Where an escape begins may be ambiguous, and cost a run its first character.
            for start, end in _body_runs(plain, search, BODY_RUN - bool(depth)):
                word = plain[start:end].strip(_AROUND_WORDS)
                is_name = end - start - len(word) <= AROUND_MAX and (
                    any(word in each for each in kept) or search.has_key(word)
                )
                if not is_name:
                    _hide(hidden, places[start], places[end])
    return _without(text, hidden)


def _names_credential(name: str) -> bool:
    return _CREDENTIAL_HEADER.search(name) is not None


_may_hold_credential = functools.lru_cache(maxsize=512)(_names_credential)


def _secrets_in(name: str, value: str) -> Iterator[str]:
    if "cookie" in name:
        yield from (pair.partition("=")[2].strip() for pair in value.split(";"))
        return
    secret = _SCHEME.sub("", value.strip(), count=1)
    if "protocol" in name:
        yield from (word.strip() for word in secret.split(","))
        return
    yield secret
    if value[:6].lower() == "basic ":
        try:
            pair = base64.b64decode(secret, validate=True).decode("utf-8", "replace")
        except ValueError:  # not base64, or not ASCII
            return
        yield pair
        yield pair.partition(":")[2]


class _Search:
    """Searches of one request body, with a bound over all of them."""

    def __init__(self, body: bytes) -> None:
        if 2 * DATA_BLOCK_BYTES <= len(body) <= DATA_BYTES_MAX:
            # Without blocks of base64 alone: pictures and documents.
            starts = range(0, len(body), DATA_BLOCK_BYTES)
            blocks = (body[at : at + DATA_BLOCK_BYTES] for at in starts)
            body = b"".join(block for block in blocks if block.translate(None, _BASE64))
        self._body = body
        self._left = SEARCHED_BYTES_MAX
        self.is_too_long = len(self._body) > BODY_BYTES_MAX

    def candidates(self, text: str) -> list[tuple[int, int]]:
        """Spans of a text with a gram that the body has, in any spelling, at a multiple of
        `GRAM_BYTES`. Every run of twice that length has one. One pass over the body, and a look
        into a table for each gram: no text and no body makes it longer."""
        found: dict[int, list[tuple[list[int], int]]] = {}
        for spelled, owners in _spelled_whole(text):
            for shift in range(min(GRAM_BYTES, len(spelled) - GRAM_BYTES + 1)):
                for number, gram in enumerate(_grams(spelled[shift:])):
                    found.setdefault(gram, []).append((owners, shift + number * GRAM_BYTES))
        return sorted(
            {
                (owners[at], owners[at + GRAM_BYTES - 1] + 1)
                for gram in set(found).intersection(_grams(self._body))
                for owners, at in found[gram]
            }
        )

    def holds(self, text: str) -> bool:
        """Whether the body has a text in any spelling; True when the bound is reached."""
        return any(self._has(spelled) for spelled in dict.fromkeys(_spellings(text)))

    def has_key(self, word: str) -> bool:
        """Whether this is a key of an object in the body; False when the bound is reached."""
        if not word.isascii() or not word.isidentifier():
            return False
        key = b'"' + word.encode() + b'"'
        return (self._has(key + b":") or self._has(key + b" :")) and self._left >= 0

    def _has(self, spelled: bytes) -> bool:
        if self._left < 0:
            return True
        at = self._body.find(spelled)
        self._left -= SEARCH_BYTES + (at if at >= 0 else len(self._body))
        return at >= 0


def _grams(data: bytes) -> Sequence[int]:
    """The bytes at each multiple of `GRAM_BYTES`, as numbers."""
    whole = memoryview(data)[: len(data) // GRAM_BYTES * GRAM_BYTES]
    return whole.cast("Q") if whole else ()


def _body_runs(text: str, search: _Search, run: int) -> Iterator[tuple[int, int]]:
    """Spans of the text with `run` characters or more that the body has too."""
    done = 0
    for at, end in search.candidates(text):
        if end > done and search.holds(text[at:end]):
            start, stop = _extent(search, text, at, end)
            if stop - start >= run:
                yield start, stop
                done = stop


def _extent(search: _Search, text: str, at: int, end: int) -> tuple[int, int]:
    """The start of the longest run that ends with a window, and the end of the longest run that
    begins with it. Every run of the body that includes the window lies between the two."""
    before = _longest(at, lambda more: search.holds(text[at - more : end]))
    after = _longest(len(text) - end, lambda more: search.holds(text[at : end + more]))
    return at - before, end + after


def _longest(limit: int, holds: Callable[[int], bool]) -> int:
    """The largest number up to the limit for which `holds` is true. `holds` is true for all smaller
    numbers."""
    low, step = 0, 1
    while low < limit:
        probe = min(low + step, limit)
        if holds(probe):
            low, step = probe, step * 2
        elif step == 1:
            break
        else:
            step = 1
            limit = probe - 1
    return low


def _plain_forms(text: str) -> Iterator[tuple[str, Sequence[int]]]:
    """The text, and again with each layer of escapes undone, as a provider may quote what was not
    escaped in the request: with the place in the text of each of its characters and of its end."""
    places: Sequence[int] = range(len(text) + 1)
    yield text, places
    for _ in range(ESCAPES_DEPTH_MAX):
        of_url = _PERCENT.search(text) is not None
        if not (of_url or "\\" in text or "&" in text):
            return
        pieces: list[str] = []
        kept: list[int] = []
        at = 0
        for found in (_ESCAPE_OF_URL if of_url else _ESCAPE).finditer(text):
            character = _unescaped(found[0])
            pieces += [text[at : found.start()], character]
            kept += [*places[at : found.start()], *[places[found.start()]] * len(character)]
            at = found.end()
        kept += places[at:]
        text, places = "".join([*pieces, text[at:]]), kept
        yield text, places


def _unescaped(escape: str) -> str:
    """The character of one escape, of JSON, Python or HTML; or those of some of a URL."""
    if escape[0] != "\\":
        return html.unescape(escape) if escape[0] == "&" else unquote_plus(escape)
    if escape[1] == "u" and len(escape) > len("\\u0000"):
        high, low = int(escape[2:6], 16) - 0xD800, int(escape[8:], 16) - 0xDC00
        return chr(0x10000 + (high << 10) + low)
    return (
        chr(int(escape[2:], 16)) if escape[1] in "ux" else _SHORT_ESCAPES.get(escape[1], escape[1])
    )


def _spelled_whole(text: str) -> Iterator[tuple[bytes, list[int]]]:
    """Each spelling of a text, with the place in the text of each of its bytes."""
    characters = [_spellings_of_character(character) for character in text]
    seen = set()
    for spelling in zip(*characters, strict=True):
        data = b"".join(spelling)
        if data not in seen:
            seen.add(data)
            yield data, [at for at, piece in enumerate(spelling) for _ in piece]


def _spellings(text: str) -> tuple[bytes, ...]:
    """How a body may spell a text: as it is, and as JSON encoders escape it, character by
    character: Go's escapes what is special in HTML, PHP's escapes slashes."""
    wide = json.dumps(text, ensure_ascii=False)[1:-1]
    narrow = json.dumps(text)[1:-1]
    upper = _HEXADECIMAL.sub(lambda found: "\\u" + found[0][2:].upper(), narrow)
    for_html = wide.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    spellings = (text, wide, narrow, upper, for_html, narrow.replace("/", "\\/"))
    return tuple(spelling.encode("utf-8", "surrogatepass") for spelling in spellings)


_spellings_of_character = functools.lru_cache(maxsize=1024)(_spellings)


def _hide(hidden: bytearray, start: int, end: int) -> None:
    hidden[start:end] = b"\1" * (end - start)


def _without(text: str, hidden: bytearray) -> str:
    """The text with each hidden run replaced by one marker."""
    if not any(hidden):
        return text
    pieces = []
    at = 0
    while at < len(text):
        state = hidden[at]
        change = hidden.find(b"\0" if state else b"\1", at)
        end = len(text) if change < 0 else change
        pieces.append(REDACTED if state else text[at:end])
        at = end
    return "".join(pieces)
