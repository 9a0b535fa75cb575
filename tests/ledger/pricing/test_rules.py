"""Billing rules, held against amounts that were worked out by hand.

`billed.csv` has a request in each row. `work` is its cost in millionths of a USD: quantity times the
price per million, for each line. `page` is where the provider publishes the rule. The price without
the rule is that of the list of October 2026, so a row proves the rule and how rules stack, and not
the list.
"""

import csv
import re
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from ledger.maintenance import reprice
from ledger.model.provider_table import TABLE, provider_of
from ledger.model.usage import (
    BILLING_FIELDS,
    BILLING_VALUE_LENGTH_MAX,
    REFUSED,
    TOKENS,
    FurtherUsage,
    Usage,
    billing_fields,
)
from ledger.pricing import prices, published, rules
from ledger.pricing.charges import NO_SOURCE
from ledger.pricing.overrides import check
from ledger.pricing.price_lines import BILLED_WHERE_PRICED, CONTAINED_UNITS, TOKEN_LINES
from ledger.pricing.price_lists import PriceQuestion, candidates
from ledger.pricing.prices import PriceBook
from ledger.pricing.published import PRICE_KEYS
from ledger.pricing.rules import Rules
from ledger.store.scope import Scope
from tests.ledger.priced import exchange, fill, reading, settled
from tests.ledger.written import rows
from tests.named import for_each

LATER = datetime(2026, 12, 1, tzinfo=UTC)
TABLE_FILE = Path(__file__).with_name("billed.csv")
ROWS = list(csv.DictReader(TABLE_FILE.read_text(encoding="utf-8").splitlines()))
PUBLISHED = rules.published()
COLUMNS = {
    "in": "input_tokens",
    "read": "cache_read_tokens",
    "w": "cache_write_tokens",
    "w5": "cache_write_5m_tokens",
    "w1": "cache_write_1h_tokens",
    "out": "output_tokens",
    "reasoning": "reasoning_tokens",
    "audio_in": "input_audio_tokens",
    "audio_out": "output_audio_tokens",
}
COSTS = {"reported": "reported_cost_picousd", "upstream": "reported_upstream_cost_picousd"}


def exchange_of(row):
    at = datetime.fromisoformat(row["at"]).replace(tzinfo=UTC)
    return exchange(
        row["model"],
        origin=f"https://{row['host']}:443",
        provider=provider_of(row["host"], ""),
        at=at,
        request_model=row["request_model"] or row["model"],
        service_tier=row["tier"] or None,
    )


def reading_of(row):
    usage: dict[str, Any] = {}
    for each in row["usage"].split():
        name, _, figure = each.partition("=")
        if name in COSTS:
            usage[COSTS[name]] = int(Decimal(figure) * 10**12)
        elif name == "byok":
            usage["is_byok"] = True
        elif name in COLUMNS:
            usage[COLUMNS[name]] = int(figure)
        else:
            usage.setdefault("tool_units", {})[name] = int(figure)
    if "cache_write_5m_tokens" in usage:
        usage["cache_write_tokens"] = (
            usage["cache_write_5m_tokens"] + usage["cache_write_1h_tokens"]
        )
    fields = dict(each.split("=") for each in row["fields"].split())
    return replace(reading(**usage), usage_json=msgspec.json.encode(fields).decode())


def worked_out(row):
    """The amount in pico-USD."""
    terms = [term.split("*") for term in row["work"].split(" + ")]
    micro = sum(
        (Decimal(factors[0]) * (Decimal(factors[1]) if factors[1:] else 1) for factors in terms),
        Decimal(0),
    )
    return micro * 10**6


def state_of(charges):
    """The cost state, as the view `requests` has it."""
    priced = [each for each in charges if each.amount_picousd is not None]
    if not priced:
        return "unpriced"
    if len(priced) < len(charges):
        return "partial"
    return "reported" if {each.price_source for each in charges} == {"provider"} else "priced"


def charged(row, book):
    return book.price(exchange_of(row), reading_of(row))


def amount(charges):
    return sum(each.amount_picousd or 0 for each in charges)


@pytest.fixture(scope="module")
def book():
    return PriceBook()


@for_each("row", ROWS, ids=lambda row: row["name"])
def test_a_request_costs_what_the_page_says(row, book):
    charges = charged(row, book)
    assert (amount(charges), state_of(charges)) == (worked_out(row), row["state"])
    for each in charges:
        assert each.amount_picousd is None or each.price_source not in ("", NO_SOURCE)
        assert each.amount_picousd is None or each.amount_picousd == (
            each.quantity * each.unit_picousd
        )


def test_there_are_many_rows_and_each_has_a_page_and_a_name_of_its_own():
    assert len(ROWS) >= 100
    assert all(row["page"].startswith("https://") for row in ROWS)
    assert max(Counter(row["name"] for row in ROWS).values()) == 1


def test_each_rule_has_a_page_and_a_name_of_its_own():
    assert all(rule.table.page.startswith("https://") for rule in PUBLISHED.rules)
    assert max(Counter(rule.table.name for rule in PUBLISHED.rules).values()) == 1


def test_the_page_of_failures_names_the_rules_for_them():
    """Each rule that it names exists, and each rule by which something costs nothing is named."""
    page = (Path(__file__).parents[3] / "docs" / "failures.md").read_text(encoding="utf-8")
    lines = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")][2:]
    assert all(
        len(cells) == 5 and ("https://" in cells[3] or "not published" in cells[2])
        for cells in lines
    )
    known = {rule.table.name for rule in PUBLISHED.rules}
    listed = {name for cells in lines for name in re.findall(r"`([a-z.-]+)`", cells[4])}
    assert listed - known <= {"partial", "unpriced", "billing", "free"}
    free = {rule.table.name for rule in PUBLISHED.rules if rule.table.free}
    assert free - listed == {"google-gemma"}  # a price, not a failure


def outcome(row, book):
    charges = charged(row, book)
    return amount(charges), state_of(charges)


@pytest.fixture(scope="module")
def outcomes(book):
    """Of each row, with all rules."""
    return {row["name"]: outcome(row, book) for row in ROWS}


@pytest.fixture(scope="module")
def sources(book):
    """Of each row, where its prices come from: most rules are named there."""
    return {row["name"]: " ".join(each.price_source for each in charged(row, book)) for row in ROWS}


@pytest.mark.large
@pytest.mark.parametrize("rule", PUBLISHED.rules, ids=lambda rule: rule.table.name)
def test_no_rule_states_what_the_list_knows(rule, monkeypatch, outcomes, sources):
    """Without the rule, a request of the table costs something else, or has another state."""
    likely_first = sorted(ROWS, key=lambda row: rule.table.name not in sources[row["name"]])
    others = tuple(each for each in PUBLISHED.rules if each is not rule)
    monkeypatch.setattr(rules, "published", lambda: Rules(rules=others, known=PUBLISHED.known))
    without = PriceBook()
    assert any(outcome(row, without) != outcomes[row["name"]] for row in likely_first)


@given(
    row=st.sampled_from(ROWS),
    tier=st.sampled_from([None, "flex", "priority", "batch", "fast", "ultrafast", "new"]),
    geo=st.sampled_from([None, "us", "global", "new"]),
    count=st.integers(0, 600_000),
)
def test_no_unknown_value_is_priced(row, tier, geo, count):
    """Of any tier and region: either a rule or the list knows it, or the request is partial."""
    read = reading(input_tokens=count, output_tokens=1)
    fields = {} if geo is None else {"inference_geo": geo}
    read = replace(read, usage_json=msgspec.json.encode(fields).decode())
    charges = BOOK.price(replace(exchange_of(row), service_tier=tier), read)
    assert amount(charges) == sum(each.quantity * (each.unit_picousd or 0) for each in charges)
    if tier == "new" or geo == "new":
        known = {each.line for each in charges if each.price_source != NO_SOURCE}
        free = all("free" in (each.reason or "") for each in charges)
        assert state_of(charges) != "priced" or free or not known
        reasons = " ".join(each.reason or "" for each in charges)
        assert "'new'" in reasons or state_of(charges) in ("unpriced", "reported")


BOOK = PriceBook()
DOUBLED = '[[rule]]\nname = "x"\npage = "p"\nfactor = 2\n'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[[rule]]\nname = "x"', "line 1: rule 1: page: missing"),
        ('[[rule]]\nname = "x"\npage = "p"', "line 1: rule 1: factor: the rule has no effect"),
        ('[[rule]]\nname = ""\npage = "p"\nfree = true', "line 2: rule 1: name: empty"),
        ('[[rule]]\nname = "x"\npage = "p"\nfactor = -1', "line 4: rule 1: factor: -1 is not"),
        ('[[rule]]\nname = "x"\npage = "p"\nfactor = inf', "line 4: rule 1: factor: Infinity"),
        ('[[rule]]\nname = "x"\npage = "p"\nfactr = 2', "line 4: rule 1: factr: unknown"),
        (DOUBLED + 'hours = ["1-4"]', "line 5: rule 1: hours: '1-4' is not like"),
        (
            DOUBLED + 'hours = ["04:00-04:00"]',
            "line 5: rule 1: hours: '04:00-04:00' has no time in it",
        ),
        (DOUBLED + 'days = ["sunday"]', "line 5: rule 1: days: 'sunday' is not"),
        (
            DOUBLED + 'lines = ["web_searches"]',
            "line 5: rule 1: lines: 'web_searches' is not a line of tokens",
        ),
        (
            DOUBLED + "from = 2026-02-01\nuntil = 2026-01-01",
            "line 6: rule 1: until: it is not after from",
        ),
        ('[[field]]\nname = "x"', "line 1: field 1: page: missing"),
    ],
)
def test_a_broken_rule_is_one_line_with_its_place(text_file, text, problem):
    _, (found, *rest) = check(str(text_file("prices.toml", text)))
    assert found.startswith(problem)
    assert not rest


def test_rules_of_a_price_file_come_after_the_published_ones(book_of):
    own = book_of(
        '[[rule]]\nname = "discount"\npage = "the contract"\nhosts = ["EU.api.OpenAI.com"]\n'
        "factor = 0.5\n"
    )
    row = next(row for row in ROWS if row["name"] == "gpt-5.4-eu")
    charges = charged(row, own)
    assert amount(charges) == worked_out(row) / 2
    assert all(each.price_source.endswith("x0.5 rule discount") for each in charges)


def test_a_price_of_the_operators_own_is_not_multiplied(book_of):
    own = book_of(
        '[[price]]\nhost = "eu.api.openai.com"\nmodel = "gpt-5.4*"\n'
        "usd_per_mtok = { uncached_input = 2, output = 3 }\n"
    )
    row = next(row for row in ROWS if row["name"] == "gpt-5.4-eu")
    assert amount(charged(row, own)) == (1000 * 2 + 300 * 3) * 10**6


def test_hours_may_go_over_midnight(tmp_path):
    """Each moment is of its own day: on Sundays from ten in the evening, and till two at night."""
    path = tmp_path / "prices.toml"
    path.write_text(DOUBLED + 'hours = ["22:00-02:00"]\ndays = ["sun"]')
    own = PriceBook.load(str(path))
    row = next(row for row in ROWS if row["name"] == "opus-5.5")
    once = amount(charged(row, PriceBook()))
    times = ["01T01:59", "01T02:00", "01T21:59", "01T22:00", "01T23:59", "02T00:00"]
    paid = [amount(charged({**row, "at": f"2026-11-{at}"}, own)) for at in times]
    assert [amount // once for amount in paid] == [2, 1, 1, 2, 2, 1]


def test_a_sheet_is_remembered_no_longer_than_its_rules_hold(book, monkeypatch):
    """DeepSeek's hours: the remembered price of 03:59 is not that of 04:00."""
    monkeypatch.setattr(prices, "SHEETS_MAX", 10)
    row = next(row for row in ROWS if row["name"] == "deepseek-monday-peak")
    moments = ["2026-11-01T23:59", "2026-11-02T00:59", "2026-11-02T01:00", "2026-11-02T03:59"]
    moments += ["2026-11-02T04:00", "2026-11-02T06:00", "2026-11-07T06:00", "2026-11-09T06:00"]
    fresh = [amount(charged({**row, "at": at}, PriceBook())) for at in moments]
    assert [amount(charged({**row, "at": at}, book)) for at in moments] == fresh
    assert len(set(fresh)) == 2


@for_each(
    "text, fields",
    [
        (None, {}),
        ('{"input_tokens": 1}', {}),
        ('{"speed": "slow", "inference_geo": 7}', {"speed": "slow", "inference_geo": "7"}),
        ('{"speed": null, "inference_geo": ["us"]}', {"inference_geo": '["us"]'}),
        ('{"speed": ', {}),
        ('["speed"]', {}),
        ('{"service_tier": "priority", "SERVICE_TIER": "flex"}', {}),  # the exchange's own
        ('{"service_tier": "fast", "inference_geo": "us"}', {"inference_geo": "us"}),
        ('{"cache_speed": 12, "of": {"speed": 3}}', {}),  # tokens a second
        (
            '{"speed": "", "of": [{"regionMode": "moon"}]}',
            {"speed": "", "of.region_mode": "moon"},
        ),
        ('{"speed": "slow", "of": {"speed": "slow"}}', {"speed": "slow"}),
        ('{"speed": "slow", "of": {"speed": "warp"}}', {"speed": "slow", "of.speed": "warp"}),
        (
            '{"beside:speed": "slow", "a": {"a": {"a": {"a": {"a": {"speed": 1}}}}}}',
            {"speed": "slow"},
        ),
        ('{"speed": "' + "x" * 100 + '"}', {"speed": "x" * BILLING_VALUE_LENGTH_MAX}),
        ('"speed"', {}),
    ],
)
def test_billing_fields_and_their_values(text, fields):
    assert PUBLISHED.fields_of(text) == fields


ENDINGS = (
    "service_tier",
    "tier",
    "Geo",
    "REGION",
    "zone",
    "speed",
    "mode",
    "latency",
    "priority",
    "resolution",
)


@given(
    st.sampled_from([*BILLING_FIELDS, *PUBLISHED.known, *ENDINGS]),
    st.sampled_from(["", "beside:", "new_", "inference_"]),
    st.booleans(),
)
def test_no_name_of_a_billing_field_is_passed_over(name: str, before: str, is_inside: bool):
    """What says that a usage object has none may not hide one that a look at each would find."""
    usage: dict[str, Any] = {f"{before}{name}": "elsewhere"}
    usage = {"details": [usage]} if is_inside else usage
    text = msgspec.json.encode(usage).decode()
    assert PUBLISHED.fields_of(text) == billing_fields(usage, PUBLISHED.known)


@pytest.mark.parametrize("multiple", ["2", "two output", "-1 output", "2 images", "99999 output"])
def test_a_multiple_names_a_line_of_tokens(text_file, multiple):
    text = f'[[rule]]\nname = "x"\npage = "p"\ntimes = {{ cache_read = "{multiple}" }}\n'
    _, (problem,) = check(str(text_file("prices.toml", text)))
    assert problem.startswith("line 4: rule 1: times: ")


def test_rules_that_multiply_what_has_no_price_do_nothing(book_of):
    """Neither a multiple of a price that the list has not, nor what is billed once, or as at least
    so many, without one."""
    own = book_of(
        '[[rule]]\nname = "r"\npage = "p"\nmodels = ["nobody-*"]\n'
        'times = { cache_write_12h = "2 uncached_input" }\nonce = ["web_searches"]\n'
        "at_least = { web_searches = 9 }\n"
    )
    read = reading(input_tokens=5, tool_units={"web_searches": 2})
    assert state_of(own.price(exchange("nobody-1"), read)) == "unpriced"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=80),
    lambda each: (
        st.lists(each, max_size=2) | st.dictionaries(st.text(max_size=4), each, max_size=2)
    ),
    max_leaves=4,
)
SOME = [row for row in ROWS if row["state"] == "priced"][::7]


@given(row=st.sampled_from(SOME), name=st.sampled_from(sorted(PUBLISHED.known)), value=VALUES)
@example(row=SOME[0], name="speed", value="")
@example(row=SOME[0], name=REFUSED, value="")
def test_no_value_of_a_billing_field_that_no_rule_knows_is_priced(row, name, value):
    of_rules = {
        rule.table.fields[name] for rule in PUBLISHED.rules if name in rule.table.fields
    } | PUBLISHED.known[name]
    read = reading_of(row)
    if name == REFUSED:
        read = replace(read, usage=replace(read.usage, output_tokens=0))
    fields = msgspec.json.decode(read.usage_json or "{}") | {name: value}
    charges = BOOK.price(
        exchange_of(row), replace(read, usage_json=msgspec.json.encode(fields).decode())
    )
    if value is None or (name == REFUSED and value == ""):
        assert state_of(charges) == "priced" or name in row["fields"]
    elif str(value).lower() not in of_rules:
        assert state_of(charges) in ("partial", "reported")
        assert state_of(charges) == "reported" or any(
            (each.reason or "").startswith(f"usage.{name} ") for each in charges
        )


EVERY = [
    (f"https://{row.hosts[0].replace('*', 'x')}:443", row.name, model.id)
    for row in TABLE.rows
    if row.hosts and (listed := published.installed().providers.get(row.prices)) is not None
    for model in listed.models
]


@given(
    asked=st.sampled_from(EVERY),
    tier=st.sampled_from([None, "batch", "flex", "priority"]),
    counts=st.fixed_dictionaries({}, optional={name: st.integers(0, 10**6) for name in TOKENS}),
    units=st.dictionaries(
        st.sampled_from([*PRICE_KEYS, *CONTAINED_UNITS, "storage_hours", "requests"]),
        st.integers(0, 1000),
        max_size=3,
    ),
    at=st.datetimes(datetime(2025, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC)),
)
def test_every_amount_has_a_quantity_a_price_and_a_source(asked, tier, counts, units, at):
    """Of any listed model: the cost is the sum of its lines, and no line is without a source."""
    origin, provider, model = asked
    about = exchange(model, origin=origin, provider=provider, at=at, service_tier=tier)
    charges = BOOK.price(about, reading(**counts, tool_units=units))
    for each in charges:
        if each.amount_picousd is None:
            assert each.reason
            assert each.unit_picousd is None
        else:
            assert each.amount_picousd == each.quantity * (each.unit_picousd or 0)
            assert each.price_source.startswith(("genai-prices ", "rule "))
    billed = {each.line for each in charges}
    for unit, count in units.items():
        is_inside = unit in CONTAINED_UNITS or unit in BILLED_WHERE_PRICED or unit in TOKEN_LINES
        assert not count or is_inside or unit in billed


ALONE: dict[str, Usage] = {
    "uncached_input": Usage(input_tokens=9),
    "output": Usage(output_tokens=9),
    "cache_read": Usage(input_tokens=9, cache_read_tokens=9),
    "cache_write": Usage(input_tokens=9, cache_write_tokens=9),
    "cache_write_5m": Usage(input_tokens=9, cache_write_5m_tokens=9),
    "cache_write_1h": Usage(input_tokens=9, cache_write_1h_tokens=9),
    "cache_write_12h": Usage(input_tokens=9, tool_units={"cache_write_12h_tokens": 9}),
    "input_audio": Usage(input_tokens=9, input_audio_tokens=9),
    "cache_read_audio": Usage(
        input_tokens=9, cache_read_tokens=9, tool_units={"cache_read_audio_tokens": 9}
    ),
    "cache_read_image": Usage(
        input_tokens=9, cache_read_tokens=9, tool_units={"cache_read_image_tokens": 9}
    ),
    "output_audio": Usage(output_tokens=9, output_audio_tokens=9),
    **{
        line: Usage(input_tokens=9, tool_units={f"{line}_tokens": 9})
        for line in ("input_image", "input_video", "input_search")
    },
    **{
        line: Usage(output_tokens=9, tool_units={f"{line}_tokens": 9})
        for line in ("output_image", "output_video", "output_decision")
    },
    **{
        unit: Usage(input_tokens=9, tool_units={unit: 9})
        for unit in ("web_searches", "x_searches", "file_searches", "code_executions", "tool_x")
    },
}
"""Line -> a usage of nine units of it."""


@pytest.mark.large
def test_every_line_of_every_listed_model_has_its_own_price_a_rule_or_none():
    """BerriAI/litellm#17410, anomalyco/models.dev#5235: a line that is priced as another one. The
    nine units are one line; its price is the list's for this line, or a rule's."""
    assert ALONE.keys() >= set(TOKEN_LINES) - {"reasoning", "citation"}
    for origin, provider, model in EVERY:
        question = PriceQuestion(origin=origin, provider=provider, response_model=model)
        names = candidates(question)
        listed = next(
            filter(None, (published.installed().find(n.list_id, n.model) for n in names)), None
        )
        has_tiers = listed is not None and listed.model.price_variants
        every = product((None, "flex", "priority", "batch", "new") if has_tiers else (None,), ALONE)
        for tier, line in every:
            about = exchange(model, origin=origin, provider=provider, service_tier=tier)
            period = listed and published.prices(listed, tier=tier, at=about.opened_at, source="")
            own = period.rates if period else {}
            charges = BOOK.price(about, replace(reading(), usage=ALONE[line]))
            (found,) = (each for each in charges if each.line == line)
            assert found.quantity == 9 or "billed once" in (found.reason or ""), (model, line)
            if found.amount_picousd is None:
                assert found.reason
                assert state_of(charges) in ("partial", "unpriced"), (model, line)
            else:
                rate = own.get(line) or own.get("cache_write" if line == "cache_write_5m" else "")
                is_own = rate is not None and rate.picousd == found.unit_picousd
                assert is_own or "rule " in found.price_source, (provider, model, tier, line)
                if tier == "new":
                    assert state_of(charges) == "partial" or not found.amount_picousd


@pytest.mark.large
def test_what_a_rule_needs_is_kept_so_that_a_price_is_the_same_later(sqlite_engine):
    """Host, tier and billing fields are columns: repricing every row of the table changes none."""
    fill(
        sqlite_engine,
        [(settled(replace(exchange_of(row), id=row["name"])), reading_of(row)) for row in ROWS],
    )
    booked = rows(sqlite_engine, "SELECT id, cost_picousd, cost_state FROM requests")
    assert {name: (cost or 0, status) for name, cost, status in booked} == {
        row["name"]: (worked_out(row), row["state"]) for row in ROWS
    }
    assert reprice.changes(sqlite_engine, PriceBook(), Scope(), now=LATER) == {}


def test_what_no_rule_knows_of_a_further_model_makes_the_request_partial(book):
    """An iteration by a model of before the rule for regions, beside an answer of after it."""
    usage = Usage(input_tokens=1000, output_tokens=10)
    for model, state in (("claude-opus-4-6", "priced"), ("claude-3-5-haiku-20241022", "partial")):
        further = FurtherUsage(kind="advisor_message", model=model, usage=usage)
        read = replace(
            reading(input_tokens=1000, output_tokens=10, further=(further,)),
            usage_json='{"inference_geo": "us"}',
        )
        charges = book.price(exchange("claude-sonnet-4-6", provider="anthropic"), read)
        assert state_of(charges) == state
        assert len([each for each in charges if each.line == "billing_field"]) == (
            state == "partial"
        )
