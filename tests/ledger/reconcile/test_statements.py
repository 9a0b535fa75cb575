"""What providers export, read by its content."""

import json
from datetime import date

import pytest

from ledger.model.errors import LedgerError
from ledger.reconcile.statements import read

DAY = date(2026, 11, 2)
EPOCH = 1793577600  # 2026-11-02T00:00:00Z


def lines(text):
    return [(line.day, line.model, dict(line.figures)) for line in read("file", text).lines]


def page(*buckets, **more):
    return json.dumps({"object": "page", "data": list(buckets), "has_more": False, **more})


def openai(result, start=EPOCH):
    return {"object": "bucket", "start_time": start, "end_time": start + 86400, "results": [result]}


def anthropic(*results):
    return {
        "starting_at": "2026-11-02T00:00:00Z",
        "ending_at": "2026-11-03T00:00:00Z",
        "results": list(results),
    }


def test_openai_usage():
    text = page(
        openai(
            {
                "object": "organization.usage.completions.result",
                "input_tokens": 1000,
                "output_tokens": 50,
                "input_cached_tokens": 800,
                "input_cache_write_tokens": None,
                "num_model_requests": 5,
                "model": "gpt-5-2025-08-07",
                "project_id": None,
            }
        ),
        {"object": "bucket", "start_time": EPOCH + 86400, "end_time": 0, "results": []},
    )
    statement = read("file", text)
    assert (statement.kind, statement.provider, statement.warnings) == (
        "OpenAI usage",
        "openai",
        (),
    )
    assert lines(text) == [
        (
            DAY,
            "gpt-5-2025-08-07",
            {"requests": 5, "input_tokens": 1000, "cache_read_tokens": 800, "output_tokens": 50},
        )
    ]


@pytest.mark.parametrize(
    ("line_item", "model"),
    [
        ("gpt-5-2025-08-07, cached input", "gpt-5-2025-08-07"),
        (None, None),
        ("web search tool calls", None),
        ("", None),
    ],
)
def test_openai_costs(line_item, model):
    text = page(
        openai(
            {
                "object": "organization.costs.result",
                "amount": {"value": 0.06, "currency": "usd"},
                "line_item": line_item,
            },
            start=EPOCH + 86399,
        )
    )
    assert read("file", text).kind == "OpenAI costs"
    assert lines(text) == [(DAY, model, {"cost_picousd": 60_000_000_000})]


def test_an_amount_that_is_not_given():
    text = page(
        openai({"object": "organization.costs.result", "amount": {"value": None}, "line_item": "x"})
    )
    assert lines(text) == [(DAY, None, {})]


def test_anthropic_usage():
    """Their input is what is not cached; ours is all of it."""
    text = page(
        anthropic(
            {
                "uncached_input_tokens": 100,
                "cache_creation": {
                    "ephemeral_5m_input_tokens": 20,
                    "ephemeral_1h_input_tokens": 3,
                },
                "cache_read_input_tokens": 4000,
                "output_tokens": 7,
                "server_tool_use": {"web_search_requests": 1},
                "model": "claude-haiku-4-5-20251001",
            }
        )
    )
    statement = read("file", text)
    assert (statement.kind, statement.provider) == ("Anthropic usage", "anthropic")
    assert lines(text) == [
        (
            DAY,
            "claude-haiku-4-5-20251001",
            {
                "input_tokens": 4123,
                "cache_read_tokens": 4000,
                "cache_write_tokens": 23,
                "output_tokens": 7,
            },
        )
    ]


def test_anthropic_cost_is_in_cents():
    """platform.claude.com, Get Cost Report: "123.45" in "USD" represents $1.23."""
    text = page(
        anthropic(
            {"currency": "USD", "amount": "123.45", "model": "claude-haiku-4-5", "cost_type": "t"},
            {"currency": "USD", "amount": "-10", "model": None, "cost_type": "web_search"},
        )
    )
    assert read("file", text).kind == "Anthropic cost"
    assert lines(text) == [
        (DAY, "claude-haiku-4-5", {"cost_picousd": 1_234_500_000_000}),
        (DAY, None, {"cost_picousd": -100_000_000_000}),
    ]


def test_openrouter_activity():
    text = json.dumps(
        {
            "data": [
                {
                    "date": "2026-11-02",
                    "model": "openai/gpt-4.1",
                    "provider_name": "OpenAI",
                    "usage": 0.015,
                    "byok_usage_inference": 0.012,
                    "requests": 5,
                    "prompt_tokens": 50,
                    "completion_tokens": 125,
                    "reasoning_tokens": 25,
                }
            ]
        }
    )
    statement = read("file", text)
    assert (statement.kind, statement.provider) == ("OpenRouter activity", "openrouter")
    assert lines(text) == [
        (
            DAY,
            "openai/gpt-4.1",
            {
                "requests": 5,
                "input_tokens": 50,
                "output_tokens": 125,
                "cost_picousd": 27_000_000_000,
            },
        )
    ]


def test_pages_in_a_list_or_line_by_line_are_one_statement():
    one = page(openai({"object": "organization.usage.completions.result", "input_tokens": 1}))
    assert len(lines(f"[{one},{one}]")) == 2
    assert len(lines(f"{one}\n{one}\n")) == 2


def test_a_report_that_goes_on_says_so():
    text = page(
        openai({"object": "organization.usage.completions.result", "input_tokens": 1}),
        has_more=True,
    )
    assert read("file", text).warnings == (
        "has_more is true in its last page: the report goes on in another",
    )


def test_a_report_of_nothing():
    assert read("file", page()).lines == ()


@pytest.mark.parametrize(
    ("header", "row", "kind", "expected"),
    [
        pytest.param(
            "usage_date_utc,model_version,api_key,usage_type,usage_input_tokens_no_cache,"
            "usage_input_tokens_cache_write_5m,usage_input_tokens_cache_write_1h,"
            "usage_input_tokens_cache_read,usage_output_tokens,web_search_count",
            "2026-11-02,claude-haiku-4-5-20251001,key,standard,100,20,3,4000,7,0",
            "Anthropic usage CSV",
            (
                DAY,
                "claude-haiku-4-5-20251001",
                {
                    "input_tokens": 4123,
                    "cache_read_tokens": 4000,
                    "cache_write_tokens": 23,
                    "output_tokens": 7,
                },
            ),
            id="anthropic-usage",
        ),
        pytest.param(
            "usage_date_utc,model,workspace,token_type,cost_usd,list_price_usd,cost_type",
            "2026-11-02,Claude Haiku 4.5,Default,output,1.50,1.50,token",
            "Anthropic cost CSV",
            (DAY, "Claude Haiku 4.5", {"cost_picousd": 1_500_000_000_000}),
            id="anthropic-cost",
        ),
        pytest.param(
            "generation_id,created_at,cost_total,byok_usage_inference,tokens_prompt,"
            "tokens_completion,tokens_reasoning,tokens_cached,model_permaslug",
            "gen-1,2026-11-02 23:59:59.999,0.0000005,,64,98,10,0,moonshotai/kimi-k2",
            "OpenRouter activity CSV",
            (
                DAY,
                "moonshotai/kimi-k2",
                {
                    "requests": 1,
                    "input_tokens": 64,
                    "cache_read_tokens": 0,
                    "output_tokens": 98,
                    "cost_picousd": 500_000,
                },
            ),
            id="openrouter-generations",
        ),
        pytest.param(
            "date,model,requests,usage,prompt_tokens,completion_tokens",
            '2026-11-02,openai/gpt-4.1,5,"$1,000.25","1,234",2.0',
            "OpenRouter activity CSV",
            (
                DAY,
                "openai/gpt-4.1",
                {
                    "requests": 5,
                    "input_tokens": 1234,
                    "output_tokens": 2,
                    "cost_picousd": 1_000_250_000_000_000,
                },
            ),
            id="openrouter-days",
        ),
        pytest.param(
            "day,model,output_tokens,cost_usd",
            "2026-11-02,mistral-large,,0.5",
            "CSV",
            (DAY, "mistral-large", {"cost_picousd": 500_000_000_000}),
            id="any",
        ),
    ],
)
def test_csv(header, row, kind, expected):
    text = f"\ufeff{header}\n{row}\n"
    assert read("file", text).kind == kind
    assert lines(text) == [expected]


def test_a_day_with_an_offset_is_the_day_in_utc():
    assert lines("day,model,requests\n2026-11-03T00:30:00+02:00,m,1\n")[0][0] == DAY


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not a statement that is known"),
        ("a,b\n1,2\n", "not a statement that is known"),
        ("{", "not JSON"),
        ("[1]", "not a statement that is known"),
        ('{"data": 1}', "not a statement that is known"),
        ('{"data": [{"results": [{"what": 1}]}]}', "not a statement that is known"),
        ("day,model,input_tokens\n2026-11-02,m,-1\n", "line 2: input_tokens: '-1' is not a count"),
        ("day,model,input_tokens\nsoon,m,1\n", "line 2: 'soon' is not a day"),
        ("day,model,cost_usd\n2026-11-02,m,much\n", "line 2: 'much' is not an amount"),
        ("day,model,cost_usd\n2026-11-02,m,NaN\n", "line 2: 'NaN' is not an amount"),
        (
            page(openai({"object": "organization.usage.completions.result", "input_tokens": 1.5})),
            "input_tokens: '1.5' is not a count",
        ),
        (
            page(
                {
                    "start_time": "x",
                    "results": [{"object": "organization.usage.completions.result"}],
                }
            ),
            "start_time: 'x' is not a time",
        ),
        (
            page(
                openai(
                    {
                        "object": "organization.costs.result",
                        "amount": {"value": 1, "currency": "eur"},
                    }
                )
            ),
            "an amount that is not in USD",
        ),
        (
            page(anthropic({"amount": "1", "currency": "EUR"})),
            "an amount that is not in USD: EUR",
        ),
    ],
)
def test_what_is_no_statement(text, problem):
    with pytest.raises(LedgerError) as error:
        read("file", text)
    assert str(error.value).startswith(f"file: {problem}")
