"""When to ask, and what first streams teach."""

from datetime import UTC, datetime, timedelta

import pytest

from addon.usage_opt_in.policy import LEARNED_FOR, UsageHabit, asks_of, is_known, lesson
from ledger.model.learned import Learned

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def learned(verdict: UsageHabit, *, left: timedelta) -> Learned:
    return Learned(
        origin="https://llm.example",
        path="/v1/chat/completions",
        verdict=str(verdict),
        learned_at=NOW - timedelta(days=1),
        expires_at=NOW + left,
    )


@pytest.mark.parametrize(
    ("provider", "what", "expected"),
    [
        pytest.param("openai", None, True, id="known-opt-in"),
        pytest.param("sansa", None, False, id="known-automatic"),
        pytest.param("llm.example", None, False, id="unknown-is-watched-first"),
        pytest.param("llm.example", UsageHabit.OPT_IN, True, id="learned-opt-in"),
        pytest.param("llm.example", UsageHabit.AUTOMATIC, False, id="learned-automatic"),
        pytest.param("openai", UsageHabit.REFUSES, False, id="a-refusal-outranks-the-table"),
    ],
)
def test_auto_asks_where_it_is_known_or_learned(provider, what, expected):
    known = learned(what, left=timedelta(days=1)) if what else None
    assert asks_of(provider, known, now=NOW) is expected


def test_what_was_learned_expires():
    assert not asks_of("llm.example", learned(UsageHabit.OPT_IN, left=timedelta(0)), now=NOW)
    assert asks_of("openai", learned(UsageHabit.REFUSES, left=timedelta(0)), now=NOW)


def test_a_fresh_lesson_is_not_written_again():
    where = ("https://llm.example", "/v1/chat/completions")
    first = lesson(*where, UsageHabit.OPT_IN, now=NOW, known={})
    assert first is not None
    assert first.expires_at == NOW + LEARNED_FOR[UsageHabit.OPT_IN]
    assert lesson(*where, UsageHabit.OPT_IN, now=NOW, known={where: first}) is None
    assert lesson(*where, UsageHabit.REFUSES, now=NOW, known={where: first}) is not None
    later = NOW + timedelta(days=6)
    assert lesson(*where, UsageHabit.OPT_IN, now=later, known={where: first}) is not None


def test_nothing_is_to_be_learned_of_known_providers():
    assert is_known("openai")
    assert is_known("openrouter")
    assert not is_known("llm.example")
