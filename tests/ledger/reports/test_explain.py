"""One exchange, found by its id, its response's id, or how either begins, and explained line by line;
prices, and the changes of repricing, as tables."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from msgspec.structs import replace

from ledger.maintenance.reprice import RepriceChange
from ledger.model.errors import LedgerError
from ledger.pricing.price_lines import Rate, Sheet, is_token_line
from ledger.reports.explain import (
    ExplainedExchange,
    amounts,
    charge_table,
    charge_title,
    difference,
    document,
    facts,
    reading_facts,
    sheet_table,
    sheet_title,
)
from ledger.reports.layout import Amount, unique_beginning
from ledger.reports.lookup import AmbiguousError, candidates, find
from ledger.store.tables import exchanges, readings
from tests.ledger import priced
from tests.named import for_each

AT = datetime(2026, 11, 2, 12, 0, 0, 123456, tzinfo=UTC)
NOTHING = dict.fromkeys(exchanges.c.keys())


def exchange(**known):
    return {
        **NOTHING,
        "id": "flow-1",
        "opened_at": AT,
        "state": "settled",
        "outcome": "complete",
        "http_status": 200,
        "provider": "openai",
        "origin": "https://api.openai.com:443",
        "path": "/v1/chat/completions",
        "dialect": "openai.chat",
        "streamed": True,
        "tags": "{}",
        "id_unstable": False,
        "id_collision": False,
        "usage_injected": False,
        "resent": False,
        **known,
    }


def line(name, quantity, unit, **more):
    return {
        "line": name,
        "model": None,
        "quantity": quantity,
        "unit_picousd": unit,
        "amount_picousd": None if unit is None else quantity * unit,
        "price_source": "list 1 openai/gpt",
        "reason": None,
        **more,
    }


def found(*, charges=(), duplicates=(), **known):
    about = exchange(**known)
    return ExplainedExchange(
        exchange=about, readings=(), charges=charges, past_charges=(), duplicates=duplicates
    )


def told(**known):
    return dict(facts(found(**known)))


def test_only_what_is_known_is_told():
    assert list(told()) == ["Exchange", "Opened", "Outcome", "Upstream", "Wire", "Client got"]


@for_each(
    "known, heading, text",
    [
        ({}, "Opened", "2026-11-02 12:00:00.123 UTC"),
        ({}, "Outcome", "complete, HTTP 200"),
        ({"outcome": None, "state": "open", "http_status": None}, "Outcome", "open, no answer"),
        ({"response_id": "c1", "id_unstable": True}, "Response id", "c1 (it changed)"),
        ({"duplicate_of": "flow-0"}, "Seen again of", "flow-0 (in no total)"),
        ({"duplicates": ("flow-2", "flow-3")}, "Also seen in", "flow-2, flow-3"),
        ({}, "Upstream", "openai https://api.openai.com/v1/chat/completions"),
        (
            {"origin": "http://localhost:11434", "path": "/api/chat"},
            "Upstream",
            "openai http://localhost:11434/api/chat",
        ),
        (
            {"id_collision": True},
            "Id collision",
            "another response of this origin has the same id; both count",
        ),
        (
            {"error_type": "server_error", "error_code": "504", "error_message": "late"},
            "Error",
            "server_error 504 late",
        ),
        (
            {"response_model": "gpt-5-2025", "request_model": "gpt-5"},
            "Model",
            "gpt-5-2025 (asked for gpt-5)",
        ),
        ({"response_model": "gpt-5", "request_model": "gpt-5"}, "Model", "gpt-5"),
        ({"request_model": "gpt-5"}, "Model", "gpt-5 (as asked for; the answer names none)"),
        (
            {"request_model": "gpt-5", "meant_model": "gpt-5-2025"},
            "Model",
            "gpt-5-2025 (asked for gpt-5, which it answered last; the answer names none)",
        ),
        ({"key_fingerprint": "f00", "key_hint": "wxyz"}, "Key", "…wxyz (f00)"),
        ({"tags": '{"team":"a","env":"b"}'}, "Tags", "team=a, env=b"),
        (
            {
                "first_byte_at": AT + timedelta(milliseconds=90, microseconds=900),
                "settled_at": AT + timedelta(seconds=2),
            },
            "Times",
            "first byte after 90 ms, end after 2,000 ms",
        ),
        (
            {"request_bytes": 10, "response_bytes": 2000, "client_bytes": 1900, "events": 12},
            "Bytes",
            "request 10, response 2,000, to the client 1,900, 12 frames",
        ),
        ({}, "Client got", "not recorded"),
        (
            {"upstream_digest": "a" * 64, "client_digest": "a" * 64, "usage_asked": True},
            "Client got",
            "what upstream sent, to the byte (SHA-256 aaaaaaaaaaaa…); it asked for usage",
        ),
        (
            {"upstream_digest": "a", "client_digest": "b", "usage_asked": False},
            "Client got",
            "part of what upstream sent; it asked for no usage",
        ),
        (
            {"removed_bytes": 1500, "usage_injected": True},
            "Client got",
            (
                "what upstream sent, less 1,500 bytes of the usage that we asked for; we asked for "
                "usage"
            ),
        ),
        (
            {"usage_injected": True, "resent": True},
            "Client got",
            "not recorded; we asked for usage, upstream refused that and was asked again without",
        ),
    ],
)
def test_what_is_told(known, heading, text):
    assert told(**known)[heading] == text


def test_a_reading_keeps_zero_and_nothing_apart():
    reading = {
        **dict.fromkeys(readings.c.keys()),
        "revision": 2,
        "meter_version": "3",
        "usage_source": "reported",
        "read_at": AT,
        "input_tokens": 1234,
        "cache_read_tokens": 0,
        "output_tokens": 5,
        "tool_units": '{"web_searches":2}',
        "remarks": '["x was negative"]',
        "is_byok": True,
        "reported_cost_picousd": 12_500_000_000,
        "usage_json": '{"prompt_tokens":1234}',
        "reason": "meter 3",
    }
    assert list(reading_facts(reading)) == [
        ("Reading", "reported; revision 2, meter 3, 2026-11-02 12:00:00.123 UTC"),
        ("  input", "1,234"),
        ("  cache read", "0"),
        ("  output", "5"),
        ("  web searches", "2"),
        ("  reported cost", "$0.0125 (the caller's own upstream key)"),
        ("  remark", "x was negative"),
        ("  why again", "meter 3"),
        ("  usage, verbatim", '{"prompt_tokens":1234}'),
    ]


def test_every_line_shows_quantity_unit_amount_and_source():
    table = charge_table(
        (
            line("output", 50, 8_000_000),
            line("advisor.output", 2, 25_000_000, model="opus"),
            line("web_searches", 3, 10_000_000_000, reason="declared"),
            line("code_executions", 1, None, reason="not in the list"),
        )
    )
    assert table.rows == (
        ("output", 50, Decimal(8), "1M tokens", Decimal("0.0004"), ""),
        ("advisor.output (opus)", 2, Decimal(25), "1M tokens", Decimal("0.00005"), ""),
        ("web_searches", 3, Decimal("0.01"), "1", Decimal("0.03"), "declared"),
        ("code_executions", 1, "unpriced", None, None, "not in the list"),
    )
    assert table.total is not None
    assert table.total[4] == Decimal("0.03045")


def test_the_one_source_of_all_prices_stands_once_above():
    lines = (line("output", 50, 8_000_000), line("uncached_input", 2, 1_000_000))
    assert charge_title(lines) == "Prices from list 1 openai/gpt"
    assert [column.heading for column in charge_table(lines).columns][-1] == "Amount, USD"
    other = {**lines[1], "price_source": "override sha256:1"}
    assert charge_title((lines[0], other)) == ""
    assert [row[-1] for row in charge_table((lines[0], other)).rows] == [
        "list 1 openai/gpt",
        "override sha256:1",
    ]


def test_no_price_at_all_has_no_total():
    total = charge_table((line("output", 1, None),)).total
    assert total is not None
    assert total[4] is None
    assert amounts(found(charges=(line("output", 1, None),))).cost_picousd is None
    assert amounts(found(charges=(line("output", 1, 0),))).cost_picousd == 0


@for_each(
    "name, expected",
    [("output", True), ("compaction.cache_read", True), ("web_searches", False), ("", False)],
)
def test_lines_priced_per_million(name, expected):
    assert is_token_line(name) is expected


def test_the_same_for_machines():
    whole = document(found(charges=(line("output", 50, 8_000_000),), tags='{"a":"b"}'))
    assert whole["exchange"]["opened_at"] == "2026-11-02T12:00:00.123456+00:00"
    assert whole["exchange"]["tags"] == {"a": "b"}
    assert whole["exchange"]["response_model"] is None
    assert whole["cost_usd"] == Decimal("0.0004")
    assert whole["charges"][0]["unit_usd"] == Decimal("0.000008")


def usd(amount):
    return Amount(picousd=int(Decimal(amount) * 10**12))


def test_each_line_with_its_price_and_source():
    table = sheet_table(
        Sheet(
            {
                "output": Rate(15_000_000, "list", above=((200_000, 22_500_000),)),
                "web_searches": Rate(10_000_000_000, "list", note="a note"),
            },
            "",
        )
    )
    assert table.rows == (
        ("output", Decimal(15), "1M tokens", "above 200,000 tokens 22.5", ""),
        ("web_searches", Decimal("0.01"), "1", "", "a note"),
    )


def test_what_is_free_to_the_last_line():
    table = sheet_table(Sheet({}, "", rest=Rate(0, "override", note="declared free")))
    assert table.rows == (("every other line", Decimal(0), "1", "declared free"),)


def test_the_one_source_stands_above_and_two_in_each_line():
    at = datetime(2026, 11, 2, 12, tzinfo=UTC)
    one = Sheet({"output": Rate(15_000_000, "list")}, "")
    assert sheet_title(one, "m", at) == "Prices of m at 2026-11-02 12:00 UTC, from list"
    assert sheet_table(one).rows == (("output", Decimal(15), "1M tokens"),)
    two = Sheet({"output": Rate(1, "list"), "cache_read": Rate(1, "own", note="x")}, "")
    assert sheet_title(two, "m\x1b", at) == "Prices of m\\x1b at 2026-11-02 12:00 UTC"
    assert [row[-1] for row in sheet_table(two).rows] == ["list", "own; x"]


def test_the_difference_by_model_largest_first():
    table = difference(
        {
            None: RepriceChange(requests=1, lines=2),
            "a": RepriceChange(
                requests=1, lines=1, before_picousd=10**12, after_picousd=2 * 10**12
            ),
            "b": RepriceChange(
                requests=3, lines=3, before_picousd=5 * 10**12, after_picousd=10**12
            ),
            "c": RepriceChange(requests=1, lines=1, after_picousd=10**11),
        }
    )
    assert table.rows == (
        ("b", 3, 3, usd(5), usd(1), usd(-4)),
        ("a", 1, 1, usd(1), usd(2), usd(1)),
        ("c", 1, 1, "unpriced", usd("0.1"), usd("0.1")),
        ("(none)", 1, 2, "unpriced", "unpriced", None),
    )
    assert table.total == ("Total", 6, 7, usd(6), usd("3.1"), usd("-2.9"))


READ = priced.reading(input_tokens=10, output_tokens=5)


def entries():
    def one(name, response_id, **more):
        return priced.settled(
            replace(priced.exchange(), id=name, response_id=response_id, **more)
        ), READ

    yield one("flow-1", "chatcmpl-abcdef")
    yield one("flow-2", "chatcmpl-abcxyz", content_digest="d1")
    yield one(
        "flow-3",
        "chatcmpl-abcxyz",
        content_digest="d1",
        opened_at=priced.NOVEMBER + timedelta(seconds=1),
    )
    yield one("same-1", "chatcmpl-1", content_digest="d1")
    yield one("same-2", "chatcmpl-1", content_digest="d2")
    yield one("Upper", "100%_sure")


@pytest.fixture(scope="module", params=priced.BOTH)
def engine(request, tmp_path_factory):
    yield from priced.filled(request, tmp_path_factory, entries())


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("flow-1", "flow-1"),
        ("chatcmpl-abcdef", "flow-1"),
        ("chatcmpl-abcd", "flow-1"),
        ("same-2", "same-2"),
        ("chatcmpl-abcxyz", "flow-2"),
        ("chatcmpl-abcx", "flow-2"),
        ("flow-3", "flow-3"),
        ("100%", "Upper"),
    ],
)
def test_what_is_found(engine, word, expected):
    assert find(engine, word).exchange["id"] == expected


def test_a_response_seen_again_is_named_with_the_one_that_counts(engine):
    assert find(engine, "flow-2").duplicates == ("flow-3",)
    assert find(engine, "flow-3").exchange["duplicate_of"] == "flow-2"


@pytest.mark.parametrize("word", ["nope", "chat%", "flo", "upper", "", "____"])
def test_what_is_not_found(engine, word):
    with pytest.raises(LedgerError, match="no exchange has an id or response id"):
        find(engine, word)


def test_ids_that_collide_have_to_be_told_apart(engine):
    """BerriAI/litellm#28376: `chatcmpl-1` is sequential at some providers; both count."""
    with pytest.raises(AmbiguousError, match="2 exchanges are called 'chatcmpl-1'") as error:
        find(engine, "chatcmpl-1")
    table = candidates(engine, error.value)
    assert [row[0] for row in table.rows] == ["same-1", "same-2"]
    assert [column.name for column in table.columns][1:5] == [
        "opened_at",
        "model",
        "input_tokens",
        "output_tokens",
    ]
    assert {row[6] for row in table.rows} == {"chatcmpl-1"}


def test_ids_are_shown_as_short_as_they_are_unique():
    ids = ["0123456789-a", "0123456789-b", "f" * 36, "short"]
    assert [unique_beginning(each, ids) for each in ids] == [*ids[:2], "f" * 8, "short"]


def test_a_beginning_that_several_share(engine):
    with pytest.raises(AmbiguousError) as error:
        find(engine, "flow-")
    rows = candidates(engine, error.value).rows
    assert [row[0] for row in rows] == ["flow-1", "flow-2", "flow-3"]


def test_readings_and_charges_come_with_it(engine):
    found = find(engine, "flow-1")
    assert [row["revision"] for row in found.readings] == [1]
    assert [(row["line"], row["quantity"]) for row in found.charges] == [
        ("uncached_input", 10),
        ("output", 5),
    ]
    assert found.past_charges == ()
