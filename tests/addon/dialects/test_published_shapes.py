"""What public SDKs say of the wire: which paths are billed, and what a figure includes."""

import importlib.util
import re
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from addon.dialects import routes
from addon.dialects.facts import Facts
from addon.dialects.vendors import anthropic, gemini
from tests.named import for_each

NO_CALLS = {
    "a run or an order that is changed or cancelled; its figures are read where it is fetched": (
        *("/batches", "/batches/x/cancel", "/chat/completions/x", "/responses/x/cancel"),
        *("/threads/x/runs/x", "/threads/x/runs/x/cancel"),
    ),
}
WITH_USAGE = re.compile(r"^class (\w+)\(.*\n(?:(?:    .*)?\n)*?    usage: ", re.M)
POST = re.compile(r'self\._post\(\s*(?:path_template\()?\s*"([^"?]+)[^"]*".*?cast_to=(\w+)', re.S)


def posted_with_usage() -> set[str]:
    """The paths to which OpenAI's SDK posts, and whose answer has a usage. Its text is read: to
    import all of it takes ten times as long."""
    found = importlib.util.find_spec("openai")
    assert found is not None
    assert found.origin is not None
    sdk = Path(found.origin).parent
    answers = {
        name
        for path in sdk.glob("types/**/*.py")
        for name in WITH_USAGE.findall(path.read_text("utf-8"))
    }
    return {
        re.sub(r"\{\w+\}", "x", posted)
        for path in sdk.glob("resources/**/*.py")
        for posted, answer in POST.findall(path.read_text("utf-8"))
        if answer in answers
    }


def test_what_answers_with_a_usage_is_a_call() -> None:
    found = posted_with_usage()
    assert len(found) > 10
    unread = {p for p in found if routes.match("POST", "api.openai.com", f"/v1{p}") is None}
    assert unread == {path for paths in NO_CALLS.values() for path in paths}


def test_turns_of_a_model_that_gave_up_have_its_one_category() -> None:
    turn = {"type": "message", "model": "m-0", "input_tokens": 5, "output_tokens": 0}
    answered = {"type": "fallback_message", "model": "m-1", "input_tokens": 7, "output_tokens": 3}
    facts = Facts()
    facts.rare.beside["declined"] = "cyber:bio"
    usage = anthropic.usage_of(
        {"input_tokens": 7, "output_tokens": 3, "iterations": [turn, turn, answered]}, facts
    )
    assert [(one.kind, one.usage.input_tokens) for one in usage.further] == [
        ("refusal_cyber", 5)
    ] * 2


COUNTS = st.fixed_dictionaries({key: st.integers(0, 9) for key in anthropic._TOP_LEVEL})
HOPS = st.lists(st.lists(COUNTS, min_size=1, max_size=4), min_size=1, max_size=4)
EXTRAS = st.lists(st.tuples(st.sampled_from(["compaction", "advisor_message"]), COUNTS), max_size=3)


@given(HOPS, EXTRAS)
def test_each_iteration_is_billed_once(hops: Any, extras: Any) -> None:
    """The figures are those of the last hop, in all of its turns (`BetaIterationsUsage` and
    `BetaFallbackMessageIterationUsage` of Anthropic's SDK)."""
    turns = [
        {"type": "message", "model": f"m-{number}", **turn}
        for number, hop in enumerate(hops)
        for turn in hop
    ]
    if len(hops) > 1:
        turns[-1]["type"] = "fallback_message"
    beside = [{"type": kind, "model": "e", **counts} for kind, counts in extras]
    top = {key: sum(turn[key] for turn in hops[-1]) for key in anthropic._TOP_LEVEL}
    usage = anthropic.usage_of({**top, "iterations": [*beside, *turns]}, Facts())
    billed = [usage, *(one.usage for one in usage.further)]
    every = [*turns, *beside]
    assert sum(one.input_tokens or 0 for one in billed) == sum(
        one[key] for one in every for key in anthropic._INPUT
    )
    assert sum(one.output_tokens or 0 for one in billed) == sum(
        one["output_tokens"] for one in every
    )
    assert sum(one.kind in ("compaction", "advisor_message") for one in usage.further) == len(
        extras
    )


@given(st.lists(st.sampled_from(["", "a", "b", "c d"])))
def test_a_query_is_billed_once_and_an_empty_one_never(queries: list[str]) -> None:
    facts = Facts(is_document=True)
    grounding = {"webSearchQueries": queries, "imageSearchQueries": queries}
    gemini.read(facts, "", {"candidates": [{"groundingMetadata": grounding}]})
    count = len(set(queries) - {""})
    assert facts.rare.units == ({"web_searches": count, "image_searches": count} if count else {})


@for_each("queries", [None, 5, {"a": 1}, [["a"], {"b": 2}, None]])
def test_queries_of_any_type_are_read(queries: Any) -> None:
    facts = Facts(is_document=True)
    gemini.read(facts, "", {"candidates": [{"groundingMetadata": {"webSearchQueries": queries}}]})
    assert facts.rare.units == ({"web_searches": 2} if isinstance(queries, list) else {})
