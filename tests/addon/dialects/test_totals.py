"""Usage whose parts and total disagree, or whose parts are missing: what each of them proves."""

import pytest

from addon.dialects.dialect import UNEXPLAINED, explained
from addon.dialects.facts import Facts
from addon.dialects.openai.usage import usage_of
from addon.dialects.routes import DIALECTS
from tests.named import for_each


def stated(prompt: int, completion: int, total: int, **details: int) -> dict[str, object]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": total,
        "prompt_tokens_details": {
            key: value for key, value in details.items() if key.startswith("cache")
        },
        "completion_tokens_details": {"reasoning_tokens": details.get("reasoning")},
    }


@for_each(
    "usage, figures",
    [
        # A first request through Portkey to Anthropic: nothing is read from the cache yet.
        pytest.param(stated(100, 50, 350, cache_write_tokens=200), (300, 50), id="written-beside"),
        pytest.param(
            stated(40, 5, 125, cached_tokens=60, reasoning=20), (100, 25), id="both-beside"
        ),
        pytest.param(
            stated(100, 5, 125, cached_tokens=60, reasoning=20), (100, 25), id="reasoning-alone"
        ),
        # Azure's grok with reasoning: the total leaves out the cached tokens, too.
        pytest.param(
            stated(7, 1, 206, cached_tokens=163, reasoning=198), (170, 199), id="azure-grok"
        ),
    ],
)
def test_what_a_total_explains(usage, figures):
    found = usage_of(usage, Facts())
    assert (found.input_tokens, found.output_tokens) == figures
    assert any("total_tokens" in remark for remark in found.remarks)
    assert not explained(found, usage).tool_units


@for_each(
    "dialect, usage, figures, units",
    [
        pytest.param(
            "openai.chat", stated(100, 50, 400), (100, 50), {"unexplained_tokens": 250}, id="more"
        ),
        pytest.param("openai.chat", stated(100, 50, 149), (100, 50), {}, id="less"),
        pytest.param(
            "openai.embeddings",
            {"prompt_tokens": 13, "total_tokens": 74},
            (13, None),
            {"unexplained_tokens": 61},
            id="input-alone",
        ),
        pytest.param(
            "bedrock.converse",
            {"inputTokens": 9, "outputTokens": 5, "totalTokens": 20},
            (9, 5),
            {"unexplained_tokens": 6},
            id="bedrock",
        ),
        pytest.param(
            "gemini.generate_content",
            {"promptTokenCount": 18, "candidatesTokenCount": 7, "totalTokenCount": 24},
            (18, 7),
            {},
            id="gemini",
        ),
    ],
)
def test_a_total_that_nothing_explains_is_said(dialect, usage, figures, units):
    found = explained(DIALECTS[dialect].usage_of(usage, Facts()), usage)
    assert (found.input_tokens, found.output_tokens, dict(found.tool_units)) == (*figures, units)
    assert found.remarks[-1].endswith(UNEXPLAINED)


@for_each(
    "usage",
    [
        pytest.param(stated(100, 50, 0), id="no-total"),
        pytest.param(stated(100, 50, 70, cached_tokens=80), id="cached-left-out"),
        pytest.param(stated(100, 50, 130, reasoning=20), id="reasoning-left-out"),
        pytest.param(stated(7, 1, 8, cached_tokens=163), id="azure-grok"),
        pytest.param(stated(100, 50, 157) | {"num_search_queries": 7}, id="units"),
        pytest.param({"total_tokens": 9}, id="alone"),
        pytest.param({"completion_tokens": 9, "total_tokens": 12}, id="no-input"),
    ],
)
def test_what_a_total_leaves_out_or_counts_beside_is_no_dispute(usage):
    found = usage_of(usage, Facts())
    assert explained(found, usage) is found


@for_each(
    "usage",
    [
        pytest.param(
            {
                "prompt_tokens_details": {
                    "cached_tokens": 800,
                    "cached_read_tokens": 600,
                    "cached_write_tokens": 200,
                }
            },
            id="bifrost",
        ),
        pytest.param({"cache_read_tokens": 600, "cache_write_tokens": 200}, id="llmshim"),
        pytest.param({"cache_read_tokens": 600, "cache_creation_tokens": 200}, id="created"),
    ],
)
def test_spellings_of_what_the_cache_gave_and_took(usage):
    usage = {"prompt_tokens": 1_000, "completion_tokens": 50, "total_tokens": 1_050, **usage}
    facts = Facts()
    facts.record_usage(usage, final=True)
    found = DIALECTS["openai.chat"].figures(facts)
    assert (found.cache_read_tokens, found.cache_write_tokens) == (600, 200)
    assert found.input_tokens == 1_000
    assert not found.tool_units


@for_each(
    "usage, output",
    [
        pytest.param({"promptTokenCount": 7, "totalTokenCount": 19}, 12, id="left-out"),
        pytest.param(
            {"promptTokenCount": 7, "thoughtsTokenCount": 5, "totalTokenCount": 12},
            5,
            id="thoughts-alone",
        ),
        pytest.param({"promptTokenCount": 7, "totalTokenCount": 7}, None, id="none-so-far"),
        pytest.param({"promptTokenCount": 7}, None, id="no-total"),
    ],
)
def test_what_gemini_leaves_out_is_in_its_total(usage, output):
    facts = Facts()
    DIALECTS["gemini.generate_content"].read(
        facts, "", {"candidates": [{"content": {"parts": [{"text": "hi"}]}}]}
    )
    assert facts.token_seen
    found = DIALECTS["gemini.generate_content"].usage_of(usage, facts)
    assert (found.input_tokens, found.output_tokens) == (7, output)


def test_an_empty_part_is_no_text():
    facts = Facts()
    DIALECTS["gemini.generate_content"].read(
        facts, "", {"candidates": [{"content": {"parts": [{"text": ""}]}, "finishReason": "STOP"}]}
    )
    assert not facts.token_seen
