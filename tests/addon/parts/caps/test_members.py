"""A bound is read from what a request says in any spelling that a server may take; what is not understood
has none."""

import json
import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from addon.dialects import routes
from addon.dialects.dialect import Dialect
from addon.dialects.request import read_request
from addon.dialects.routes import Route
from addon.parts.caps.beyond_tokens import TABLE, table, works_by_itself
from addon.parts.caps.holds import Holds
from addon.parts.caps.limits import OPERATIONS, Limits, limits_of_model, read_limits
from addon.parts.caps.members import folded
from ledger.model.exchange import Billing
from ledger.pricing.prices import PriceBook
from tests.ledger.written import NOON, opened
from tests.named import for_each

CHAT = routes.DIALECTS["openai.chat"]
MESSAGES = routes.DIALECTS["anthropic.messages"]
RESPONSES = routes.DIALECTS["openai.responses"]
GEMINI = routes.DIALECTS["gemini.generate_content"]
CONVERSE = routes.DIALECTS["bedrock.converse"]


def limits_of(dialect: Dialect, **body: Any) -> Limits:
    return read_limits(dialect, body, json.dumps(body).encode())


def limits_in(dialect: Dialect, text: str) -> Limits:
    return read_limits(dialect, json.loads(text), text.encode())


@for_each(
    "dialect, body",
    [
        (CHAT, {"web_search_options": {}}),
        (CHAT, {"webSearchOptions": {}}),
        (CHAT, {"search_parameters": {}}),
        (CHAT, {"search_parameters": {"mode": "auto"}}),
        (CHAT, {"search_parameters": 0}),
        (CHAT, {"data_sources": [{"type": "azure_search"}]}),
        (CHAT, {"dataSources": {}}),
        (CHAT, {"enable_search": 1}),
        (CHAT, {"enable_search": "false"}),
        (CHAT, {"models": ["a", "b"]}),
        (CHAT, {"max_tokens": "8"}),
        (CHAT, {"max_tokens": 5, "max_completion_tokens": True}),
        (CHAT, {"max_tokens": [8]}),
        (CHAT, {"n": "8"}),
        (CHAT, {"n": 1.5}),
        (CHAT, {"tools": {"type": "web_search"}}),
        (CHAT, {"tools": "web_search"}),
        (CHAT, {"tools": [None]}),
        (CHAT, {"tools": {}}),
        (CHAT, {"Tools": [{"Type": "web_search"}]}),
        (CHAT, {"tools": [{"type": ["web_search"], "name": "a"}]}),
        (CHAT, {"service_tier": 1}),
        (CHAT, {"service_tier": ""}),
        (CHAT, {"Service_Tier": "priority"}),
        (CHAT, {"service_tier": "flex", "serviceTier": "priority"}),
        (CHAT, {"model": "a", "Model": "b"}),
        (CHAT, {"model": ["a"]}),
        (MESSAGES, {"speed": 2}),
        (MESSAGES, {"speed": ["fast"]}),
        (MESSAGES, {"inference_geo": {}}),
        (MESSAGES, {"tools": [{"type": "web_search_20250305", "max_uses": "1"}]}),
        (MESSAGES, {"context_management": {}}),
        (MESSAGES, {"context_management": {"edits": [{"type": "clear_1"}, "compact"]}}),
        (MESSAGES, {"context_management": {"edits": [{"type": "clear_1"}], "more": 1}}),
        (MESSAGES, {"system": [{"type": "text", "cache_control": {"ttl": "2h"}}]}),
        (MESSAGES, {"system": [{"type": "text", "cacheControl": {"TTL": 3600}}]}),
        (RESPONSES, {"prompt_cache_options": {"ttl": "24h"}}),
        (RESPONSES, {"tools": [{"type": "web_search"}], "max_tool_calls": "2"}),
        (RESPONSES, {"context_management": {"type": "compaction"}}),
        (GEMINI, {"contents": [], "generationConfig": {"candidateCount": "8"}}),
        (GEMINI, {"contents": [], "generationConfig": []}),
        (GEMINI, {"contents": [], "tools": {"googleSearch": {}}}),
        (GEMINI, {"contents": [], "tools": [{"google_search": {}, "name": "a"}]}),
        (GEMINI, {"contents": [], "tools": [{"functionDeclarations": [], "urlContext": {}}]}),
        (CONVERSE, {"messages": [], "toolConfig": []}),
        (CONVERSE, {"messages": [], "additionalModelRequestFields": {"thinking": {}}}),
        (routes.DIALECTS["openai.completions"], {"prompt": {}}),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_not_understood_has_no_bound(dialect, body):
    assert limits_of(dialect, **body).unbounded
    assert not limits_of(dialect, **dict.fromkeys(body)).unbounded  # null is absent


@for_each(
    "dialect, body",
    [
        (CHAT, {"search_parameters": {"mode": "off"}, "plugins": [], "enable_search": False}),
        (CHAT, {"data_sources": [], "tools": [], "max_tokens": 8.0, "n": 1}),
        (CHAT, {"service_tier": "flex"}),
        (CHAT, {"serviceTier": {"type": "priority"}}),
        (CHAT, {"tools": {"type": "function", "function": {}}}),
        (MESSAGES, {"mcp_servers": [], "speed": "fast", "inference_geo": "us"}),
        (MESSAGES, {"messages": [{"content": [{"type": "tool_use", "input": {"ttl": 1}}]}]}),
        (CONVERSE, {"messages": [], "additionalModelRequestFields": {}}),
    ],
    ids=str,
)  # fmt: skip
def test_what_asks_for_nothing_is_bounded(dialect, body):
    assert limits_of(dialect, **body).unbounded == ""


def test_of_two_spellings_the_larger_counts():
    twins = {"candidateCount": 2, "candidate_count": 8, "max_output_tokens": 5}
    for name in ("generationConfig", "generation_config", "GenerationConfig"):
        found = limits_of(GEMINI, contents=[], **{name: twins})
        assert (found.answers, found.output_tokens) == (8, 5)
    both = limits_of(
        GEMINI, contents=[], generationConfig={"candidateCount": 3}, generation_config=twins
    )
    assert (both.answers, both.output_tokens) == (8, 5)
    assert limits_of(CHAT, MAX_TOKENS=7, maxTokens=9).output_tokens == 9


@pytest.mark.parametrize(
    "text",
    [
        '{"max_tokens": 5000, "max_tokens": 5}',
        '{"n":8,"n":1}',
        '{"model":"a","model":"b"}',
        '{"tools":[{"type":"web_search"}],"tools":[]}',
        '{"tools":[{"type":"web_search_1","max_uses":9,"max_uses":1}]}',
        r'{"max_tokens": 5000, "\u006dax_tokens": 5}',
    ],
)
def test_a_key_that_stands_twice_has_no_bound(text):
    assert "twice" in limits_in(CHAT, text).unbounded


@pytest.mark.parametrize("ttl", ["1h", "12h", "5m", "30m", None])
def test_a_long_lifetime_is_found_wherever_it_stands(ttl):
    """And not in the words of a conversation."""
    is_long = ttl in ("1h", "12h")
    for dialect, body in (
        (MESSAGES, {"cache_control": {"ttl": ttl}}),
        (MESSAGES, {"messages": [{"content": [{"type": "tool_use", "cache_control": {"ttl": ttl}}]}]}),
        (MESSAGES, {"tools": [{"name": "a", "cache_control": {"ttl": ttl}}]}),
        (RESPONSES, {"prompt_cache_options": {"ttl": ttl}}),
        (RESPONSES, {"input": [{"content": [{"prompt_cache_breakpoint": {"TTL": ttl}}]}]}),
    ):  # fmt: skip
        of_openai = dialect is RESPONSES
        if ttl is None or (ttl in ("12h", "30m")) is of_openai:
            found = limits_of(dialect, **body)
            assert (found.is_kept_long, found.unbounded) == (is_long, "")
    assert not limits_of(MESSAGES, messages=[{"content": '"ttl": "1h"'}]).is_kept_long
    spelled = r'{"cache_control":{"\u0074tl":"1\u0068"}}'
    assert limits_in(MESSAGES, spelled).is_kept_long


@pytest.mark.parametrize(
    "part",
    [
        {"type": "file_url", "file_url": {"url": "x"}},
        {"type": "document_url", "documentUrl": "x"},
        {"Type": "Input_File"},
        {"fileUri": "x"},
        {"FILE_IDS": ["x"]},
    ],
    ids=str,
)
def test_a_file_is_seen_in_any_spelling(part):
    assert not limits_of(CHAT, messages=[{"role": "user", "content": [part]}]).is_whole
    assert not limits_of(GEMINI, contents=[], system_instruction={"parts": [part]}).is_whole


@pytest.mark.parametrize(
    ("model", "works"),
    [
        ("sonar-deep-research", True),
        ("perplexity/sonar-deep-research", True),
        ("o3-deep-research-2025-06-26", True),
        ("gpt-4o-search-preview", True),
        ("openai/gpt-4o:online", True),
        ("groq/compound-mini", True),
        ("openrouter/auto", True),
        ("sonar-pro", False),
        ("gpt-5.4", False),
        ("claude-opus-5", False),
    ],
)
def test_models_that_work_by_themselves(model, works):
    assert works_by_itself(model) is works
    assert limits_of_model(model).works_by_itself is works


def test_each_row_of_the_table_has_a_page():
    rows = tomllib.loads(TABLE.read_text(encoding="utf-8")).values()
    assert all(row["page"].startswith("https://") for kind in rows for row in kind)


# Whatever stands at a member that says something of the cost, if it is of another type, the hold is no
# lower than without it.

PRICED = {
    "openai.chat": ("openai", "https://api.openai.com:443", "gpt-4o"),
    "openai.responses": ("openai", "https://api.openai.com:443", "gpt-5.6"),
    "anthropic.messages": ("anthropic", "https://api.anthropic.com:443", "claude-opus-4-6"),
    "gemini.generate_content": (
        *("gcp.gemini", "https://generativelanguage.googleapis.com:443"),
        "gemini-2.5-pro",
    ),
}
HOLDS = Holds(PriceBook.load(None))


def paths_of(dialect: Dialect) -> list[tuple[str, type | tuple[type, ...]]]:
    """Each member that says something of the cost, with the types that it has by right."""
    where = dialect.cost_limits
    assert where is not None
    lifetimes = [f"{name}.ttl" for name in ("cache_control", "prompt_cache_options")]
    return [
        *((path, int) for path in (*where.output, *where.answers, *where.tool_uses)),
        *((path, str) for path in where.kept),
        *((path, (dict, list, bool, str)) for path in table().members),
        *((paths[0], str) for paths in table().fields),
        *((path, str) for path in lifetimes),
        *((path, list) for path in ("tools", "toolConfig.tools")),
        *((path, dict) for path in ("generationConfig", "toolConfig")),
    ]


CASES = [(name, path, right) for name in PRICED for path, right in paths_of(routes.DIALECTS[name])]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 10**30) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5) | st.sampled_from(["8", "1h", "5m", "fast", "off", "auto", "function"]),
    lambda inner: st.lists(inner, max_size=2)
    | st.dictionaries(st.sampled_from(["type", "mode", "ttl", "name", "edits", "a"]), inner, max_size=2),
    max_leaves=3,
)  # fmt: skip


def spelled(path: str, how: int) -> str:
    """A path as it is, in snake case or camel case, or with capital letters."""
    camel = "".join(each.title() if at else each for at, each in enumerate(path.split("_")))
    return (path, camel, path.upper())[how]


def body_with(base: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    first, _, rest = path.partition(".")
    return {**base, first: body_with({}, rest, value) if rest else value}


def most_of(dialect: Dialect, body: dict[str, Any]) -> float:
    provider, origin, model = PRICED[dialect.name]
    data = json.dumps(body).encode()
    exchange = opened(
        "e", at=NOON, provider=provider, origin=origin, dialect=dialect.name, request_model=model
    )
    route = Route(dialect=dialect, path_model=model, path_streamed=None)
    fields = read_request(route, data, parsed=body).billing
    amounts, _ = HOLDS.hold(exchange, read_limits(dialect, body, data), fields, Billing.METERED)
    return float("inf") if amounts.usd is None else amounts.usd


@settings(max_examples=1_500, deadline=None)
@given(st.sampled_from(CASES), VALUES, st.integers(0, 2))
def test_no_value_of_another_type_lowers_the_hold(case, value, how):
    name, path, right = case
    dialect = routes.DIALECTS[name]
    base = {"messages": [], "contents": [], "model": PRICED[name][2]}
    if right is not int or type(value) not in (int, float):
        assert most_of(dialect, body_with(base, spelled(path, how), value)) >= most_of(
            dialect, base
        )


@pytest.mark.parametrize("name", PRICED)
def test_a_plain_request_of_each_is_bounded(name):
    base = {"messages": [], "contents": [], "model": PRICED[name][2]}
    assert most_of(routes.DIALECTS[name], base) < float("inf")


def test_the_property_covers_each_wire_format_with_a_limit():
    """The others have the same members, or those of one of these."""
    named = {
        folded(path)
        for dialect in routes.DIALECTS.values()
        if dialect.cost_limits is not None and dialect.operation in OPERATIONS
        for path in dialect.cost_limits.answers
    }
    assert named <= {
        "n",
        "bestof",
        "generationconfig.candidatecount",
        "numgenerations",
        "numresults",
    }
