"""Batches as one statement: what it writes, and twice."""

import sqlite3
from datetime import timedelta
from typing import Any

import pytest

from ledger.model.exchange import Outcome
from ledger.model.usage import FurtherUsage, Usage
from ledger.store import db
from ledger.store.tables import charges, exchanges
from ledger.store.writing import batch_insert
from tests.ledger.written import COST, NOON, opened, priced, reading, settled


def test_a_row_has_the_columns_of_the_tables():
    columns = {*batch_insert.EXCHANGE_COLUMNS, *batch_insert.DERIVED_COLUMNS}
    assert columns == set(exchanges.c.keys())
    assert {*batch_insert.CHARGE_COLUMNS} < set(charges.c.keys())


@pytest.fixture
def connection(new_sqlite):
    return intake_on(new_sqlite())


def intake_on(url: str) -> sqlite3.Connection:
    pooled = db.open_engine(url).raw_connection()
    found = pooled.driver_connection
    assert isinstance(found, sqlite3.Connection)
    pooled.detach()
    for statement in batch_insert.setup(spooling=True):
        found.execute(statement)
    return found


def settled_row(exchange, read=None, *, node=None):
    read = read or reading(exchange)
    return batch_insert.settled_row(exchange, read, priced(exchange, read), node)


def take(connection, *rows):
    connection.execute(*batch_insert.statement(rows))


def figures(connection):
    return connection.execute(
        "SELECT COUNT(*), SUM(input_tokens), SUM(cost_picousd) FROM requests"
    ).fetchone()


def test_every_column_arrives(connection):
    moments = {
        name: NOON + timedelta(microseconds=number)
        for number, name in enumerate(("first_byte_at", "first_token_at", "settled_at"))
    }
    words = {
        name: f"the {name}"
        for name in batch_insert.EXCHANGE_COLUMNS
        if exchanges.c[name].type.python_type is str
        and name not in ("state", "outcome", "source", "tags", "id")
    }
    counts = {
        name: number
        for number, name in enumerate(
            name for name in batch_insert.EXCHANGE_COLUMNS if name.endswith("_bytes")
        )
    }
    facts = ("streamed", "usage_asked", "usage_injected", "usage_stripped", "resent", "id_unstable")
    each: dict[str, Any] = {**moments, **words, **counts, **dict.fromkeys(facts, True)}
    exchange = settled("a", tags={"k": "ü"}, events=7, http_status=200, **each)
    usage = Usage(
        input_tokens=1000,
        cache_read_tokens=200,
        cache_write_tokens=30,
        cache_write_5m_tokens=10,
        cache_write_1h_tokens=20,
        output_tokens=60,
        reasoning_tokens=6,
        input_audio_tokens=7,
        output_audio_tokens=8,
        tool_units={"web_searches": 2},
        further=(FurtherUsage(kind="compaction", model=None, usage=Usage(input_tokens=5)),),
        remarks=("no count: -1",),
        reported_cost_picousd=11,
        reported_upstream_cost_picousd=12,
        is_byok=True,
    )
    read = reading(exchange, usage=usage, estimated_output_tokens=13, reason="why")
    take(connection, batch_insert.settled_row(exchange, read, priced(exchange, read), None))

    connection.row_factory = sqlite3.Row
    kept = dict(connection.execute("SELECT * FROM exchanges").fetchone())
    for name, value in (words | counts).items():
        assert kept[name] == value, name
    assert all(kept[name] == 1 for name in facts)
    assert kept["first_token_at"] == "2026-11-02 12:00:00.000001Z"
    assert kept["tags"] == '{"k":"ü"}'
    assert (kept["events"], kept["http_status"], kept["state"]) == (7, 200, "settled")
    kept = dict(connection.execute("SELECT * FROM readings").fetchone())
    for name in Usage.__struct_fields__:
        if name.endswith(("_tokens", "_picousd")):
            assert kept[name] == getattr(usage, name), name
    assert kept["tool_units"] == '{"web_searches":2}'
    assert '"kind":"compaction"' in kept["further"]
    assert kept["remarks"] == '["no count: -1"]'
    assert kept["usage_json"] == '{"in": 100,  "out": 20}'
    assert (kept["is_byok"], kept["estimated_output_tokens"], kept["reason"]) == (1, 13, "why")
    assert [
        tuple(line)
        for line in connection.execute(
            "SELECT line, quantity, unit_picousd, amount_picousd, price_source, ordinal, revision "
            "FROM charges ORDER BY ordinal"
        )
    ] == [
        ("uncached_input", 800, 10, 8000, "list 1", 0, 1),
        ("cache_read", 200, 1, 200, "list 1", 1, 1),
        ("output", 60, 50, 3000, "list 1", 2, 1),
    ]


def test_nothing_stays_null_and_zero_stays_zero(connection):
    exchange = settled("a", tags={})
    read = reading(exchange, usage=Usage(input_tokens=0), usage_json=None)
    take(connection, batch_insert.settled_row(exchange, read, (), None))
    assert connection.execute(
        "SELECT input_tokens, output_tokens, usage_json, tool_units, further, remarks FROM readings"
    ).fetchone() == (0, None, None, "{}", "[]", "[]")
    assert connection.execute("SELECT tags, events FROM exchanges").fetchone() == ("{}", None)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ('{"a": NaN}', '"{\\"a\\": NaN}"'),
        ("", '""'),
        ("{'a'}", "\"{'a'}\""),
        ('{"a": 1}', '{"a": 1}'),
    ],
)
def test_usage_that_is_no_json_is_kept_as_a_text(connection, text, kept):
    exchange = settled("a")
    take(connection, settled_row(exchange, reading(exchange, usage_json=text)))
    assert connection.execute("SELECT usage_json FROM readings").fetchone() == (kept,)


def test_opened_and_then_settled(connection):
    take(connection, batch_insert.open_row(opened("a"), "host/9/9"))
    assert connection.execute("SELECT state, node FROM exchanges").fetchone() == (
        "open",
        "host/9/9",
    )
    take(connection, settled_row(settled("a")))
    assert figures(connection) == (1, 100, COST)
    take(connection, batch_insert.open_row(opened("a"), "host/9/9"))
    assert figures(connection) == (1, 100, COST)


def test_settled_twice_is_settled_once(connection):
    take(connection, settled_row(settled("a")))
    other = settled("a", provider="other", outcome=Outcome.CLIENT_LEFT)
    read = reading(other, usage=Usage(input_tokens=7, output_tokens=7))
    take(connection, settled_row(other, read), settled_row(other, read))
    assert figures(connection) == (1, 100, COST)
    assert connection.execute("SELECT provider, outcome FROM exchanges").fetchone() == (
        "example",
        "complete",
    )
    assert connection.execute("SELECT COUNT(*) FROM readings").fetchone() == (1,)
    assert connection.execute("SELECT COUNT(*) FROM charges").fetchone() == (3,)


def test_settling_again_as_something_else_links_nothing(connection):
    take(connection, settled_row(settled("a", response_id="r", content_digest="x")))
    take(connection, settled_row(settled("b", response_id="s", content_digest="y")))
    take(connection, settled_row(settled("b", response_id="r", content_digest="x")))
    take(connection, settled_row(settled("b", response_id="r", content_digest="z")))
    assert connection.execute(
        "SELECT id, response_id, duplicate_of, id_collision FROM exchanges ORDER BY id"
    ).fetchall() == [("a", "r", None, 0), ("b", "s", None, 0)]


def test_a_batch_is_all_or_nothing(connection):
    bad = settled_row(settled("b", events=-1))
    with pytest.raises(sqlite3.IntegrityError, match="events_not_negative"):
        take(connection, settled_row(settled("a")), bad, settled_row(settled("c")))
    assert figures(connection)[0] == 0


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 9, batch_insert.ROWS_MAX])
def test_batches_of_any_size(connection, count):
    take(connection, *(settled_row(settled(f"a{number}")) for number in range(count)))
    assert figures(connection) == (count, 100 * count, COST * count)
    assert connection.execute("SELECT COUNT(DISTINCT exchange_id) FROM outbox").fetchone() == (
        count,
    )


def test_what_can_be_cleaned_is_cleaned(connection):
    row = settled_row(settled("a", user_agent="\ud800", path="ok"))
    with pytest.raises(UnicodeEncodeError):
        take(connection, row)
    take(connection, batch_insert.cleaned(row))
    assert connection.execute("SELECT user_agent, path FROM exchanges").fetchone() == ("?", "ok")


def test_a_reading_has_one_id_wherever_it_is_written():
    exchange = settled("a")
    read = reading(exchange)
    lines = priced(exchange, read)
    assert batch_insert.reading_id(read, lines) == batch_insert.reading_id(read, lines)
    others = [
        (reading(exchange, revision=2), lines),
        (reading(exchange, read_at=NOON + timedelta(1)), lines),
        (reading(exchange, usage=Usage(input_tokens=0)), lines),
        (reading(settled("b")), lines),
        (read, lines[:2]),
        (read, ()),
    ]
    assert len({batch_insert.reading_id(*other) for other in [(read, lines), *others]}) == 7
