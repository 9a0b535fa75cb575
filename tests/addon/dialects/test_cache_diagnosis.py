"""What Anthropic and OpenAI say broke the prompt cache."""

import pytest

from addon.dialects.facts import Facts
from addon.dialects.openai import responses
from addon.dialects.vendors.anthropic import read


@pytest.mark.parametrize(
    ("diagnostics", "word"),
    [
        ({"cache_miss_reason": {"type": "tools_changed", "cache_missed_input_tokens": 9}}, "tools"),
        ({"cache_miss_reason": {"type": "unavailable"}}, "unavailable"),
        ({"cache_miss_reason": None}, None),
        ({"cache_miss_reason": {"type": 3}}, None),
        ({"cache_miss_reason": "tools_changed"}, None),
        (None, None),
    ],
)
def test_the_cause_of_a_cache_miss(diagnostics, word):
    message = {"id": "msg_1", "type": "message", "diagnostics": diagnostics, "usage": {}}
    for event in (message, {"type": "message_start", "message": message}):
        facts = Facts()
        read(facts, "", event)
        assert (facts.cache_diagnosis or "").startswith(word or "")
        assert (facts.cache_diagnosis is None) is (word is None)


@pytest.mark.parametrize(
    ("diagnostics", "word"),
    [
        (
            {"type": "cache_miss", "reason": "tools_changed", "cache_missed_tokens": 9},
            "tools_changed",
        ),
        ({"type": "cache_hit"}, None),
        ({"type": "cache_miss", "reason": ["x"]}, None),
        (None, None),
    ],
)
def test_the_cause_of_a_cache_miss_in_a_response(diagnostics, word):
    facts = Facts()
    responses.read_response(facts, {"id": "resp_1", "prompt_cache_diagnostics": diagnostics})
    assert facts.cache_diagnosis == word
