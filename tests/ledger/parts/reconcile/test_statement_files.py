"""What providers export, read by its content."""

import json
from datetime import date

import pytest

from ledger.model.errors import LedgerError
from ledger.parts.reconcile.statement_files import read
from tests.named import for_each, named

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


def tokens(**figures):
    return {"object": "organization.usage.completions.result", **figures}


def costs(value, line_item="x", currency="usd", **more):
    amount = {"value": value, "currency": currency}
    return {"object": "organization.costs.result", "amount": amount, "line_item": line_item} | more


HAIKU = "claude-haiku-4-5-20251001"
OF_HAIKU = {
    "input_tokens": 4123,
    "cache_read_tokens": 4000,
    "cache_write_tokens": 23,
    "output_tokens": 7,
}
"""Of 100 tokens that were not cached, 20 and 3 that were written, 4 000 that were read."""
ANTHROPIC_USAGE = {
    "uncached_input_tokens": 100,
    "cache_creation": {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 3},
    "cache_read_input_tokens": 4000,
    "output_tokens": 7,
    "server_tool_use": {"web_search_requests": 1},
    "model": HAIKU,
}
OPENAI_USAGE = tokens(
    input_tokens=1000,
    output_tokens=50,
    input_cached_tokens=800,
    input_cache_write_tokens=None,
    num_model_requests=5,
    model="gpt-5-2025-08-07",
    project_id=None,
)
OPENROUTER_ACTIVITY = {
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


@for_each(
    "text, kind, provider, model, figures",
    [
        (
            page(
                openai(OPENAI_USAGE),
                {"object": "bucket", "start_time": EPOCH + 86400, "end_time": 0, "results": []},
            ),
            "OpenAI usage",
            "openai",
            "gpt-5-2025-08-07",
            {"requests": 5, "input_tokens": 1000, "cache_read_tokens": 800, "output_tokens": 50},
        ),
        (page(anthropic(ANTHROPIC_USAGE)), "Anthropic usage", "anthropic", HAIKU, OF_HAIKU),
        (
            json.dumps({"data": [OPENROUTER_ACTIVITY]}),
            "OpenRouter activity",
            "openrouter",
            "openai/gpt-4.1",
            {
                "requests": 5,
                "input_tokens": 50,
                "output_tokens": 125,
                "cost_picousd": 27_000_000_000,
            },
        ),
    ],
    ids=["openai", "anthropic", "openrouter"],
)
def test_usage_in_json(text, kind, provider, model, figures):
    """Anthropic's input is what is not cached; ours is all of it."""
    statement = read("file", text)
    assert (statement.kind, statement.provider, statement.warnings) == (kind, provider, ())
    assert lines(text) == [(DAY, model, figures)]


@for_each(
    "line_item, model",
    [
        ("gpt-5-2025-08-07, cached input", "gpt-5-2025-08-07"),
        (None, None),
        ("web search tool calls", None),
        ("", None),
    ],
)
def test_openai_costs(line_item, model):
    text = page(openai(costs(0.06, line_item), start=EPOCH + 86399))
    assert read("file", text).kind == "OpenAI costs"
    assert lines(text) == [(DAY, model, {"cost_picousd": 60_000_000_000})]


def test_an_amount_that_is_not_given():
    text = page(openai(costs(0) | {"amount": {"value": None}}))
    assert lines(text) == [(DAY, None, {})]


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


def analytics(ends="2026-11-03T00:00:00Z", starts="2026-11-02T00:00:00Z", group=None, **more):
    """A row of `/v1/organizations/analytics/usage` or `/cost`."""
    return {"starting_at": starts, "ending_at": ends, "group": group or {}, **more}


ANALYTICS_USAGE = {
    **{key: value for key, value in ANTHROPIC_USAGE.items() if key != "model"},
    "requests": 3,
    "total_tokens": 4130,
}
OF_A_SESSION = {"model": HAIKU, "session_id": "sesn_1", "workspace_id": "w", "api_key_id": "k"}


def rows(*items):
    return json.dumps({"data": list(items), "has_more": False, "next_page": None})


def test_anthropics_analytics_of_usage():
    text = rows(analytics(group=OF_A_SESSION, usage=ANALYTICS_USAGE), analytics(usage={}))
    statement = read("file", text)
    assert (statement.kind, statement.provider) == ("Anthropic usage", "anthropic")
    line, empty = statement.lines
    assert (line.day, line.model, line.through) == (DAY, HAIKU, None)
    assert (line.session, line.project, line.key) == ("sesn_1", "w", "k")
    assert line.figures == OF_HAIKU | {"requests": 3}
    assert (empty.model, empty.session, empty.figures) == (None, None, {})


@for_each(
    "cost_type, item",
    [(None, None), ("tokens", None), ("web_search", "web_search"), ("session_usage",) * 2],
)
def test_anthropics_analytics_of_cost(cost_type, item):
    """Cents with fractions, before and after the discount; requests are those of the usage."""
    cost = {"amount": "123.4567", "list_amount": "137.174", "currency": "USD", "requests": 3}
    (line,) = read(
        "f", rows(analytics(group={"model": "m", "cost_type": cost_type}, cost=cost))
    ).lines
    assert (line.model, line.item) == ("m", item)
    assert line.figures == {"cost_picousd": 1_234_567_000_000, "list_picousd": 1_371_740_000_000}


def test_the_report_of_costs_before_it_has_a_discount_too():
    text = page(anthropic({"amount": "90", "list_amount": "100", "currency": "USD"}))
    assert lines(text) == [(DAY, None, {"cost_picousd": 9 * 10**11, "list_picousd": 10**12})]


@for_each(
    "starts, ends, through",
    [
        ("2026-11-02T00:00:00Z", "2026-12-01T00:00:00Z", date(2026, 11, 30)),
        ("2026-11-02T05:00:00Z", "2026-11-02T06:00:00Z", None),
        ("2026-11-02T23:00:00Z", "2026-11-03T00:00:00Z", None),
    ],
)
def test_a_row_of_a_range_or_of_a_bucket(starts, ends, through):
    (line,) = read("f", rows(analytics(ends, starts, usage=ANALYTICS_USAGE))).lines
    assert (line.day, line.through) == (DAY, through)


@for_each(
    "row, problem",
    [
        (
            analytics("2026-11-04T07:00:00Z", usage={}),
            "a row from 2026-11-02T00:00:00Z to 2026-11-04T07:00:00Z has parts of days; "
            "ask with time_bucket_width=1d",
        ),
        (
            analytics("2029-01-01T00:00:00Z", usage={}),
            "the row from 2026-11-02T00:00:00Z to 2029-01-01T00:00:00Z is too long",
        ),
        (
            analytics(group={"rbac_group_id": "rbac_group_1"}, usage={}),
            "rows by rbac_group_id overl",
        ),
        (analytics(cost={"amount": "1", "currency": "EUR"}), "an amount that is not in USD: EUR"),
        (analytics(ends=None, usage={}), "a row without a day; ask for the report by day"),
        (
            analytics("2026-01-01T00:00:00Z", usage={}),
            "a row from 2026-11-02T00:00:00Z to 2026-01-01T00:00:00Z ends before it starts",
        ),
        (analytics(group="m", usage={}), "group.rbac_group_id: 'm' is not an object"),
        (analytics(usage=[3]), "usage.requests: '[3]' is not an object"),
        (
            analytics(usage={**ANALYTICS_USAGE, "cache_creation": 9}),
            "usage.cache_creation.ephemeral_5m_input_tokens: '9' is not an object",
        ),
        (analytics(group={"model": 5}, usage={}), "'5' is not a text"),
        *(
            ({"starting_at": "2026-11-02T00:00:00Z", "results": [result]}, "rows by rbac_group_id")
            for result in (
                {"amount": "1", "currency": "USD", "rbac_group_id": "rbac_group_1"},
                {**ANTHROPIC_USAGE, "rbac_group_id": "rbac_group_1"},
            )
        ),
    ],
)
def test_rows_of_analytics_that_are_refused(row, problem):
    with pytest.raises(LedgerError) as error:
        read("file", rows(row))
    assert str(error.value).startswith(f"file: {problem}")


def test_pages_in_a_list_or_line_by_line_are_one_statement():
    one = page(openai(tokens(input_tokens=1)))
    assert len(lines(f"[{one},{one}]")) == 2
    assert len(lines(f"{one}\n{one}\n")) == 2


def test_a_report_that_goes_on_says_so():
    text = page(openai(tokens(input_tokens=1)), has_more=True)
    assert read("file", text).warnings == (
        "has_more is true in its last page: the report continues in another",
    )


def test_a_report_of_nothing():
    assert read("file", page()).lines == ()


CUR = (
    "line_item_product_code,line_item_usage_type,line_item_usage_start_date,line_item_usage_amount,"
    "line_item_unblended_cost,line_item_currency_code,pricing_unit,line_item_usage_account_id\n"
)
NOVA = "AmazonBedrock,USE1-Nova-Pro-output-tokens,2026-11-02T10:00:00Z,-1,0,USD,Tokens,1"
AZURE_ROW = "Date,MeterCategory,CostInBillingCurrency,BillingCurrency\n11/02/2026,OpenAI,1,"
CSV = named(
    {
        "anthropic-usage": (
            "usage_date_utc,model_version,api_key,usage_type,usage_input_tokens_no_cache,"
            "usage_input_tokens_cache_write_5m,usage_input_tokens_cache_write_1h,"
            "usage_input_tokens_cache_read,usage_output_tokens,web_search_count",
            "2026-11-02,claude-haiku-4-5-20251001,key,standard,100,20,3,4000,7,0",
            "Anthropic usage CSV",
            (DAY, HAIKU, OF_HAIKU),
        ),
        "anthropic-cost": (
            "usage_date_utc,model,workspace,token_type,cost_usd,list_price_usd,cost_type",
            "2026-11-02,Claude Haiku 4.5,Default,output,1.50,1.50,token",
            "Anthropic cost CSV",
            (DAY, "Claude Haiku 4.5", {"cost_picousd": 1_500_000_000_000}),
        ),
        "openrouter-generations": (
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
        ),
        "openrouter-days": (
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
        ),
        "any": (
            "day,model,output_tokens,cost_usd",
            "2026-11-02,mistral-large,,0.5",
            "CSV",
            (DAY, "mistral-large", {"cost_picousd": 500_000_000_000}),
        ),
    }
)


@for_each("header, row, kind, expected", CSV)
def test_csv(header, row, kind, expected):
    text = f"\ufeff{header}\n{row}\n"
    assert read("file", text).kind == kind
    assert lines(text) == [expected]


def test_a_day_with_an_offset_is_the_day_in_utc():
    assert lines("day,model,requests\n2026-11-03T00:30:00+02:00,m,1\n")[0][0] == DAY


@for_each(
    "text, problem",
    [
        ("", "not a known statement"),
        ("a,b\n1,2\n", "not a known statement: OpenAI usage"),
        (
            "model,cost_usd\nm,1\n",
            "not a known statement; to be CSV it lacks the column day",
        ),
        (
            "day,input_tokens,output_tokens\n2026-11-02,1,1\n",
            "not a known statement; to be CSV it lacks the column model",
        ),
        ("day,model\n2026-11-02,m\n", "CSV lacks a column of figures; use one of requests, input"),
        (
            "Date,CostInBillingCurrency,MeterName\n11/02/2026,1,x\n",
            "not a known statement; to be Azure cost details it lacks the column metercategory",
        ),
        (
            f"{CUR}{NOVA}\n".replace("line_item_unblended_cost", "cost"),
            "not a known statement; to be AWS Cost and Usage Report it lacks the column "
            "line_item_unblended_cost",
        ),
        (
            "usage_date_utc,model_version,usage_output_tokens\n2026-11-02,m,1\n",
            "Anthropic usage CSV lacks the columns usage_input_tokens_cache_read, "
            "usage_input_tokens_cache_write_1h, usage_input_tokens_cache_write_5m, "
            "usage_input_tokens_no_cache",
        ),
        (
            "date,model,usage,prompt_tokens\n2026-11-02,m,1,1\n",
            "OpenRouter activity CSV lacks the column completion_tokens",
        ),
        (
            "generation_id,created_at,cost_total,tokens_prompt\ng,2026-11-02,1,1\n",
            "OpenRouter activity CSV lacks the columns model_permaslug, tokens_completion",
        ),
        ("{", "not JSON"),
        ("[1]", "not a known statement"),
        ('{"data": 1}', "not a known statement"),
        ('{"data": [{"results": [{"what": 1}]}]}', "not a known statement"),
        ("day,model,input_tokens\n2026-11-02,m,-1\n", "line 2: input_tokens: '-1' is not a count"),
        ("day,model,input_tokens\nsoon,m,1\n", "line 2: 'soon' is not a day"),
        ("day,model,cost_usd\n2026-11-02,m,much\n", "line 2: 'much' is not an amount"),
        ("day,model,cost_usd\n2026-11-02,m,NaN\n", "line 2: 'NaN' is not an amount"),
        (
            page(openai(tokens(input_tokens=1.5))),
            "input_tokens: '1.5' is not a count",
        ),
        (
            page({"start_time": "x", "results": [tokens()]}),
            "start_time: 'x' is not a time",
        ),
        (
            page(openai(costs(1, currency="eur"))),
            "an amount that is not in USD: eur",
        ),
        (
            page(openai(costs(1) | {"amount": 1})),
            "a cost without an amount",
        ),
        (
            page(anthropic({"amount": "1", "currency": "EUR"})),
            "an amount that is not in USD: EUR",
        ),
        (f"{AZURE_ROW}EUR\n", "line 2: an amount that is not in USD: EUR"),
        (f"{CUR}{NOVA}\n", "line 2: line_item_usage_amount: '-1' is not a count"),
        (
            f"{CUR}{NOVA}\n".replace("line_item_usage_start_date,", "").replace(
                "2026-11-02T10:00:00Z,", ""
            ),
            "AWS Cost and Usage Report lacks the column line_item_usage_start_date",
        ),
        (
            "day,model,requests\n2026-11-02," + "x" * 200_000 + "\n",
            "line 2: field larger than field limit",
        ),
    ],
)
def test_what_is_no_statement(text, problem):
    with pytest.raises(LedgerError) as error:
        read("file", text)
    assert str(error.value).startswith(f"file: {problem}")


def test_keys_projects_and_items_are_kept():
    item = costs("0.5", "web search tool calls", project_id="proj_1", api_key_id="key_1")
    (line,) = read("file", page(openai(item))).lines
    found = (line.model, line.item, line.project, line.key)
    assert found == (None, "web search tool calls", "proj_1", "key_1")


@for_each("amount", ["1e200000", "1e999999", "9" * 65, "Infinity"])
def test_an_amount_without_bound_is_refused_at_once(amount):
    """Arithmetic on such an exponent takes minutes (measured: 107 s for 1e999980)."""
    with pytest.raises(LedgerError, match="is not an amount"):
        read("file", f"day,model,cost_usd\n2026-11-02,m,{amount}\n")
    with pytest.raises(LedgerError, match=r"not JSON|is not an amount"):
        read("file", page(openai(costs("VALUE"))).replace('"VALUE"', "1e99999"))


@for_each("amount", ["1e-999999999", "-1e-40", "5E-324", "0e99"])
def test_an_amount_of_less_than_any_unit_is_zero(amount):
    (line,) = read("file", f"day,model,cost_usd\n2026-11-02,m,{amount}\n").lines
    assert line.figures == {"cost_picousd": 0}


@for_each(
    "text",
    [
        f"{AZURE_ROW}U\t\x1b[2J\n",
        page(openai(costs(0) | {"amount": {"currency": "\x1b[2J"}})),
    ],
    ids=["azure", "openai"],
)
def test_a_strange_currency_is_shown_in_printable_characters(text):
    with pytest.raises(LedgerError, match="not in USD") as refusal:
        read("file", text)
    assert str(refusal.value).isprintable()
