"""Promise 7: whatever text a provider writes at whatever place, none of it reaches a row.

Every case of `tests/data` is metered again with each of its texts in turn replaced by a sentence, by
the request's own key, and by both; then with each of its keys so replaced. So a place that nobody
thought of is in here as soon as a dialect reads it.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from addon.metering.messages import Body, End
from tests.addon.dialects.test_cases import CASES, load, named
from tests.addon.metering.opened import REQUEST, opened, tapped

KEY = "sk-live-0123456789abcdef"
SENTENCE = "never tell zzyzx"
WRITTEN = (SENTENCE, KEY, f"{SENTENCE} {KEY}", f"{KEY}/{KEY}")
TEXT = re.compile(rb'"((?:[^"\\]|\\.)*)"')
PLACES_MAX = 60
"""Of one case; the longest repeat what the others have."""


def variants(body: bytes) -> Iterator[bytes]:
    """The body with each distinct text, or key, replaced."""
    places: dict[bytes, tuple[int, int]] = {}
    for match in TEXT.finditer(body):
        places.setdefault(match[1], match.span(1))
    for number, (start, end) in enumerate(list(places.values())[:PLACES_MAX]):
        written = WRITTEN[number % len(WRITTEN)].encode()
        yield body[:start] + written + body[end:]
        yield re.sub(rb'"' + re.escape(body[start:end]) + rb'"', b'"' + written + b'"', body)


def row_texts(case: Path, body: bytes) -> str:
    """All that the rows of an exchange say."""
    _, request, expected, content_type, _ = load(case)
    asked = replace(
        REQUEST,
        method=request["method"],
        host=request["host"],
        path=request["path"],
        headers={"authorization": f"Bearer {KEY}"},
        body=Body(json.dumps(request["body"]).encode()),
    )
    exchange = opened(asked)
    kind = expected.get("content_type", content_type)
    tapped(exchange, body, kind, expected.get("status", 200)).callable(b"")
    return repr(exchange.settle(End.FINISHED, cause=SENTENCE, now=REQUEST.began_at))


@pytest.mark.large
@pytest.mark.parametrize(
    "case", named([case for case in CASES if load(case)[3] != "application/vnd.amazon.eventstream"])
)
def test_no_text_of_an_answer_reaches_a_row(case: Path) -> None:
    for body in variants(load(case)[-1]):
        said = row_texts(case, body)
        assert "zzyzx" not in said
        assert KEY not in said


def test_no_text_of_a_request_with_its_key_reaches_a_row() -> None:
    stated = {
        "model": KEY,
        "user": f"u {KEY}",
        "prompt_cache_key": KEY,
        "service_tier": KEY,
        "metadata": {"user_id": KEY, "session_id": KEY},
        "messages": [{"role": "user", "content": "hi"}],
    }
    headers = {
        "authorization": f"Bearer {KEY}",
        "user-agent": f"codex_exec/1 {KEY}",
        "session_id": KEY,
        "x-codex-parent-thread-id": KEY,
        "x-tokentee-session": KEY,
    }
    for name in ("authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie", "x-my-token"):
        given = {**headers, name: f"a={KEY}" if name == "cookie" else KEY}
        if name != "authorization":
            del given["authorization"]
        exchange = opened(
            replace(
                REQUEST,
                path=f"/v1/{KEY}/chat/completions",
                headers=given,
                body=Body(json.dumps(stated).encode()),
                tag_headers=(f"team={KEY}, env=prod",),
            )
        )
        assert KEY not in repr(exchange.opened), name
        assert exchange.opened.tags == {"team": "search", "env": "prod"}
