"""The hold of a request: no request of the corpus used more, and no usage within it costs more."""

import json
import re
import string
from collections import Counter
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from addon.dialects import routes
from addon.dialects.grpc import XAI_ANSWER
from addon.dialects.request import read_request
from addon.framing.long_json import without_pauses
from addon.metering.segments import read_in_steps
from addon.parts.caps.bound import (
    ADDED_TOKENS_MAX,
    Dearest,
    cost_of,
    dearest_of,
    hold_of,
    tokens_of,
)
from addon.parts.caps.limits import (
    Limits,
    ModelLimits,
    limits_of_model,
    read_limits,
    response_asked,
)
from addon.parts.caps.turns import Turns
from ledger.model import provider_table
from ledger.model.charge import amounts_of
from ledger.model.exchange import Exchange
from ledger.model.usage import Usage, sum_of
from ledger.pricing.price_lines import Rate, Sheet
from ledger.pricing.prices import PriceBook
from tests.addon.test_corpus import CORPUS, exchanges, metered
from tests.ledger.written import opened, reading
from tests.named import for_each

CHAT = routes.DIALECTS["openai.chat"]
MESSAGES = routes.DIALECTS["anthropic.messages"]
RESPONSES = routes.DIALECTS["openai.responses"]
GEMINI = routes.DIALECTS["gemini.generate_content"]
CUT = re.compile(r"(?<=\.\.\.\[)(\d+)(?= more characters cut)")
MADE_UP = {
    "bedrock__bedrock__n__test-prompt-cache__0d4000ba",
    "bedrock__bedrock__n__test-prompt-cache__148c7092",
}
"""Their answers have more input than their requests, which are made up, have bytes."""


def limits_of(dialect: Any, **body: Any) -> Limits:
    return read_limits(dialect, body, json.dumps(body).encode())


def text(content: str = "Hi") -> list[Any]:
    return [{"role": "user", "content": content}]


@pytest.mark.large
@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not beside the project")
def test_no_exchange_of_the_corpus_used_more_than_its_hold():
    bounded: Counter[str] = Counter()
    turns, wrong = Turns(), []
    for row in exchanges():
        body = row["request"]["body"]
        if not isinstance(body, dict) or row["name"] in MADE_UP:
            continue
        route, meter = metered(row)
        usage = meter.usage()
        data = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        # The corpus cuts long texts, and says by how many characters.
        data = CUT.sub(lambda found: "x" * int(found[0]), data.decode()).encode()
        url = urlsplit(row["request"]["url"])
        facts = read_request(route, data)
        exchange = opened(
            row["name"], request_model=facts.model, origin=url.hostname or "",
            provider=provider_table.provider_of(url.hostname or "", url.path),
        )  # fmt: skip
        chat = without_pauses(read_in_steps(data, b"secret"))
        limits = read_limits(route.dialect, body, data, chat.parts)
        by_turn = turns.input_of(exchange, limits)
        turns.add(exchange, usage, limits.turn)
        taken, given_, why = tokens_of(
            limits,
            limits_of_model(facts.model or ""),
            provider=exchange.provider,
            is_embedding=route.dialect.operation == "embeddings",
            by_turn=by_turn,
        )
        if why or usage.input_tokens is None:
            continue
        bounded[route.dialect.name] += 1
        bounded["by turn"] += by_turn is not None
        further = [each.usage for each in usage.further]
        input_tokens = sum_of(usage.input_tokens, *(each.input_tokens for each in further)) or 0
        output_tokens = sum_of(usage.output_tokens, *(each.output_tokens for each in further)) or 0
        if input_tokens > taken or output_tokens > given_:
            wrong.append((row["name"], input_tokens, taken, output_tokens, given_))
    assert wrong == []
    assert sum(bounded.values()) > 900
    assert bounded["by turn"] > 50
    assert {"openai.chat", "openai.responses", "anthropic.messages"} <= bounded.keys()


@for_each(
    "dialect, body, output, answers",
    [
        (CHAT, {"max_tokens": 10}, 10, 1),
        (CHAT, {"max_completion_tokens": 20, "max_tokens": 10, "n": 3}, 20, 3),
        (CHAT, {"max_tokens": -1}, None, 1),
        (routes.DIALECTS["openai.completions"], {"prompt": ["a", "b"], "best_of": 2}, None, 4),
        (RESPONSES, {"max_output_tokens": 5, "input": "Hi"}, 5, 1),
        (MESSAGES, {"max_tokens": 7}, 7, 1),
        (GEMINI, {"generationConfig": {"maxOutputTokens": 9, "candidateCount": 2}}, 9, 2),
        (
            GEMINI,
            {"request": {"contents": [], "generationConfig": {"maxOutputTokens": 9}}},
            9,
            1,
        ),
    ],
)
def test_each_dialect_says_its_output_in_its_own_words(dialect, body, output, answers):
    found = limits_of(dialect, model="m", **body)
    assert (found.output_tokens, found.answers, found.unbounded) == (output, answers, "")


@for_each(
    "dialect, body, pictures, is_whole",
    [
        (CHAT, {"messages": text('{"image_url": 1}')}, 0, True),
        (CHAT, {"messages": text([{"type": "image_url", "image_url": {"url": "x"}}])}, 1, True),  # type: ignore[arg-type]
        (CHAT, {"messages": text([{"type": "input_audio", "input_audio": {}}])}, 0, False),  # type: ignore[arg-type]
        (RESPONSES, {"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, 1, True),
        (RESPONSES, {"input": "Hi", "previous_response_id": "resp_1"}, 0, False),
        (RESPONSES, {"input": [{"type": "function_call", "arguments": {"image": 1}}]}, 0, True),
        (MESSAGES, {"messages": text([{"type": "document", "source": {}}])}, 0, False),  # type: ignore[arg-type]
        (GEMINI, {"contents": [{"parts": [{"inlineData": {"mimeType": "image/png"}}]}]}, 0, False),
        (GEMINI, {"contents": [], "cachedContent": "cachedContents/1"}, 0, False),
    ],
)
def test_what_is_no_text_of_the_request_is_seen(dialect, body, pictures, is_whole):
    found = limits_of(dialect, **body)
    assert (found.pictures, found.is_whole, found.unbounded) == (pictures, is_whole, "")


def test_a_member_that_is_written_with_escapes_is_seen():
    data = rb'{"messages":[{"content":[{"type":"docu\u006dent"}]}]}'
    assert not read_limits(MESSAGES, json.loads(data), data).is_whole


def test_a_request_of_very_many_values_may_have_any(monkeypatch):
    monkeypatch.setattr("addon.parts.caps.limits.WALKED_MAX", 10)
    many = [{"role": "user", "content": "url"} for _ in range(20)]
    assert not limits_of(CHAT, messages=[*many, {"url": 1}]).is_whole


@for_each(
    "dialect, body, searches, why",
    [
        (CHAT, {"tools": [{"type": "function", "function": {}}]}, 0, ""),
        (CHAT, {"web_search_options": {"search_context_size": "low"}}, 0, "web_search_options"),
        (MESSAGES, {"tools": [{"name": "a", "input_schema": {}}]}, 0, ""),
        (MESSAGES, {"tools": [{"type": "bash_20250124", "name": "bash"}]}, 0, ""),
        (MESSAGES, {"tools": [{"type": "web_search_20250305", "max_uses": 3}]}, 3, ""),
        (MESSAGES, {"tools": [{"type": "web_search_20250305"}]}, 0, "has no limit of uses"),
        (MESSAGES, {"tools": [{"type": "code_execution_1", "max_uses": 1}]}, 0, "has no bound"),
        (MESSAGES, {"context_management": {"edits": [{}]}}, 0, "context_management"),
        (MESSAGES, {"context_management": {"edits": [{"type": "clear_thinking_20251015"}]}}, 0, ""),
        (
            MESSAGES,
            {"context_management": {"edits": [{"type": "clear_1"}, {"type": "compact_20260112"}]}},
            0,
            "context_management",
        ),
        (RESPONSES, {"tools": [{"type": "web_search"}], "max_tool_calls": 2}, 2, ""),
        (GEMINI, {"tools": [{"functionDeclarations": []}]}, 0, ""),
        (GEMINI, {"tools": [{"googleSearch": {}}]}, 0, "googleSearch has no limit"),
        (routes.DIALECTS["openai.images"], {"prompt": "x"}, 0, "openai.images"),
        (routes.DIALECTS["openai.realtime"], {"a": "x"}, 0, "openai.realtime"),
    ],
)
def test_what_the_provider_may_add_is_bounded_by_the_request_or_not_at_all(
    dialect, body, searches, why
):
    found = limits_of(dialect, **body)
    assert found.searches == searches
    assert why in found.unbounded
    assert bool(why) == bool(found.unbounded)


def test_what_is_not_read_has_no_bound():
    assert read_limits(CHAT, {}, b"").unbounded == "the request could not be read"
    assert read_limits(CHAT, {"model": "x"}, b"--form").unbounded


def test_a_call_over_grpc_is_bounded_by_its_message():
    asked = {"model": "grok-4", "max_tokens": 16, "n": 2, "messages": [{}, {}], "tools": [{}]}
    found = read_limits(XAI_ANSWER, asked, bytes(100))
    assert (found.input_bytes, found.output_tokens, found.answers) == (148, 16, 2)
    assert found.is_whole
    assert not found.unbounded
    assert read_limits(XAI_ANSWER, {"model": "grok-4"}, b"").output_tokens is None
    for unread in ({}, {"max_tokens": (1 << 64) - 1}, {"n": 1 << 31}):
        assert read_limits(XAI_ANSWER, unread, b"").unbounded


def test_tokens_in_and_out():
    model = ModelLimits(10_000, 500)
    plain = Limits(input_bytes=100, output_tokens=50, answers=2)
    assert tokens_of(plain, model, provider="p") == (100 + ADDED_TOKENS_MAX, 100, "")
    long = Limits(input_bytes=1_000_000)
    assert tokens_of(long, model, provider="p") == (10_000, 500, "")
    assert tokens_of(long, ModelLimits(), provider="p", is_embedding=True) == (
        1_000_000 + ADDED_TOKENS_MAX,
        0,
        "",
    )
    assert "its output has no limit" in tokens_of(long, ModelLimits(), provider="p")[2]
    picture = Limits(input_bytes=100, output_tokens=50, pictures=1)
    assert tokens_of(picture, ModelLimits(), provider="anthropic")[0] == 100 + 2_048 + 4_784
    kept = Limits(output_tokens=1, is_whole=False)
    assert tokens_of(kept, model, provider="p") == (10_000, 16, "")
    assert "not in the request" in tokens_of(kept, ModelLimits(), provider="p")[2]
    searching = Limits(output_tokens=20, searches=2)
    assert tokens_of(searching, model, provider="p") == (30_000, 20, "")
    assert "searches" in tokens_of(searching, ModelLimits(), provider="p")[2]


def rates(**units: int) -> dict[str, Rate]:
    return {line: Rate(unit, "list") for line, unit in units.items()}


def most(
    sheet: Sheet,
    taken: int,
    given_: int,
    *,
    searches: int = 0,
    has_media: bool = False,
    is_kept_long: bool = False,
) -> tuple[int, str]:
    dearest = dearest_of(sheet, has_media=has_media, is_kept_long=is_kept_long)
    return cost_of(dearest, taken, given_, searches)


def test_the_dearest_price_that_can_apply_counts():
    sheet = Sheet(
        {
            **rates(uncached_input=10, cache_write_5m=12, cache_write_1h=20, input_audio=99),
            **rates(output=50, reasoning=60, requests=1_000, web_searches=7_000),
        },
        "",
    )
    assert most(sheet, 100, 10) == (100 * 12 + 10 * 60 + 1_000, "")
    assert most(sheet, 100, 0, is_kept_long=True) == (3_000, "")
    assert most(sheet, 100, 0, has_media=True) == (10_900, "")
    assert most(sheet, 0, 0, searches=2) == (1_000 + 14_000, "")
    steps = Rate(10, "list", above=((200, 20), (300, 15), (400, 30)))
    long = Sheet({"uncached_input": steps, "output": Rate(1, "list", above=((200, 2),))}, "")
    assert most(long, 200, 1)[0] == 2_001
    assert most(long, 201, 1)[0] == 4_022
    assert most(long, 401, 0)[0] == 401 * 30


@for_each(
    "sheet, why",
    [
        (Sheet({}, "no price for 'x'"), "no price for 'x'"),
        (Sheet({}, ""), "no price of uncached_input is known"),
        (Sheet(rates(uncached_input=1), "listed without this line"), "listed without this line"),
        (Sheet(rates(uncached_input=1), "", partial=("a tier",)), "a tier"),
        (
            Sheet(
                {"uncached_input": Rate(1, "x"), "cache_read": Rate(0, "x", is_unknown=True)}, ""
            ),
            "a price is not known",
        ),
    ],
)
def test_without_a_price_there_is_no_bound(sheet, why):
    assert why in most(sheet, 10, 10)[1]


def test_a_search_without_a_price_has_no_bound():
    assert "search" in most(Sheet(rates(uncached_input=1, output=1), ""), 1, 1, searches=1)[1]


def test_what_is_free_holds_nothing_and_a_plan_is_not_billed():
    def dearest(sheet: Sheet) -> Dearest:
        return dearest_of(sheet, has_media=False, is_kept_long=False)

    free = dearest(Sheet({}, "", rest=Rate(0, "own")))
    limits = Limits()
    assert hold_of(limits, (10, 20, ""), [free], is_covered=False) == ((0, 0, 30, 1), "")
    priced = dearest(Sheet(rates(uncached_input=1, output=2), "", bill="reported"))
    both = [free, priced]
    assert hold_of(limits, (10, 20, ""), both, is_covered=True) == ((0, 50, 30, 1), "")
    hold, why = hold_of(limits, (10, 20, ""), both, is_covered=False)
    assert hold == (None, 50, 30, 1)
    assert "an amount of its own" in why
    nothing = [dearest(Sheet({}, "none"))]
    assert hold_of(limits, (10, 20, ""), nothing, is_covered=False) == (
        (None, None, 30, 1),
        "none",
    )
    assert hold_of(limits, (0, 0, "x"), [free], is_covered=True) == ((0, None, None, 1), "x")
    plain = dearest(Sheet(rates(uncached_input=1, output=2), ""))
    assert hold_of(limits, (10, 20, ""), [plain], is_covered=False) == ((50, 50, 30, 1), "")


@for_each(
    "name, context",
    [
        ("claude-sonnet-4-6", 1_000_000),
        ("us.anthropic.claude-haiku-4-5-20251001-v1:0", 200_000),
        ("anthropic/claude-haiku-4.5", 200_000),
        ("openai/gpt-4o-mini", 128_000),
        ("gpt-5.4-nano", 400_000),
        ("gpt-6.1-sol", 1_050_000),
        ("claude-opus-4-8", 1_000_000),
        ("claude-opus-4-20250514", 200_000),
        ("gemini-3.5-flash-lite", 1_048_576),
        ("models/gemini-2.5-flash", 1_048_576),
        ("somebody-s-own", None),
    ],
)
def test_limits_of_models(name, context):
    assert limits_of_model(name).context == context


def test_a_response_that_is_asked_for_over_a_web_socket():
    assert response_asked(b'{"type":"response.create","model":"m"}') == {
        "type": "response.create",
        "model": "m",
    }
    assert response_asked(b'{"type":"response.create","response":{"model":"m"}}') == {"model": "m"}
    assert response_asked(b'{"type":"response.cancel"}') is None


@pytest.mark.parametrize(
    "message",
    [
        b'"response.create"',
        b"",
        b'[{"type":"response.create"}]',
        b'{"type":"response.create","input":"\xff"}',
        b'{"type":"response.create"}\0',
        b'{"type":"response.create"}{}',
        b'{"type":"response.create",}',
        b'{"type":"response.create","type":"response.cancel"}',
        b'{"type":"response.create","response":[]}',
        b'{"type":"response.create","response":{"model":"a"},"Response":{"model":"b"}}',
    ],
)
def test_a_message_that_some_server_may_read_otherwise_has_no_bound(message):
    assert response_asked(message) == {}
    assert read_limits(RESPONSES, {}, message).unbounded == "the request could not be read"


def test_a_message_is_read_in_any_encoding_of_json():
    message = '{"TYPE":"response.create","model":"m"}'
    for encoding in ("utf-8", "utf-16", "utf-16-le", "utf-32"):
        asked = response_asked(message.encode(encoding))
        assert asked is not None
        assert asked["model"] == "m"


# Whatever usage lies within the tokens of a hold, it costs no more than the hold.

BOOK = PriceBook()
NOW = datetime(2026, 11, 2, tzinfo=UTC)
WHERE: tuple[tuple[str, str, Any, dict[str, Any]], ...] = (
    ("openai", "https://api.openai.com:443", CHAT, {"model": "gpt-4o", "max_tokens": 300}),
    ("openai", "https://api.openai.com:443", RESPONSES, {"model": "gpt-5", "input": "x"}),
    (
        "anthropic",
        "https://api.anthropic.com:443",
        MESSAGES,
        {"model": "claude-sonnet-4-5", "max_tokens": 100},
    ),
    (
        "gcp.gemini",
        "https://generativelanguage.googleapis.com:443",
        GEMINI,
        {"model": "gemini-2.5-pro", "contents": [], "generationConfig": {"candidateCount": 2}},
    ),
)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(WHERE),
    st.text(string.printable, max_size=300),
    st.booleans(),
    st.lists(st.integers(0, 1000), min_size=5, max_size=5),
)
def test_no_usage_within_a_hold_costs_more(where, words, is_long, shares):
    provider, origin, dialect, body = where
    ttl = {"cache_control": {"ttl": "1h"}} if is_long else {}
    asked = {**body, "messages": [{"role": "user", "content": words, **ttl}]}
    data = json.dumps(asked).encode()
    limits = read_limits(dialect, asked, data)
    exchange: Exchange = opened(
        "e", at=NOW, provider=provider, origin=origin, request_model=body["model"],
        dialect=dialect.name, path="/v1/x",
    )  # fmt: skip
    model = limits_of_model(body["model"])
    sheet = BOOK.sheet(exchange, {})
    tokens = tokens_of(limits, model, provider=provider)
    dearest = dearest_of(sheet, has_media=False, is_kept_long=limits.is_kept_long)
    hold, why = hold_of(limits, tokens, [dearest], is_covered=False)
    taken, given_, _ = tokens
    assert why == ""
    read, write, whole, output, reasoning = (share / 1000 for share in shares)
    input_tokens = int(taken * whole)
    cached = int(input_tokens * read)
    written = int((input_tokens - cached) * write)
    usage = Usage(
        input_tokens=input_tokens,
        output_tokens=int(given_ * output),
        reasoning_tokens=int(given_ * output * reasoning),
        cache_read_tokens=cached,
        cache_write_tokens=written,
        cache_write_1h_tokens=written if is_long else 0,
        cache_write_5m_tokens=0 if is_long else written,
    )
    lines = BOOK.price(exchange, replace(reading(exchange), usage=usage, usage_json=None))
    cost = amounts_of("reported", "metered", [(e.amount_picousd, e.price_source) for e in lines])
    assert hold.usd is not None
    assert (cost.cost_picousd or 0) <= hold.usd
    assert hold.tokens is not None
    assert input_tokens + (usage.output_tokens or 0) <= hold.tokens
