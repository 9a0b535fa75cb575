"""What Anthropic says broke the prompt cache."""

import pytest

from addon.dialects.facts import Facts
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
