"""Further readings: appended where the figures differ, and counted."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from ledger.maintenance.corrections import add_reading, add_readings, differences, find
from ledger.model.errors import LedgerError
from ledger.model.exchange import NO_METER, Outcome, State, UsageSource
from ledger.model.usage import FurtherUsage, Usage
from ledger.store import db
from tests.ledger.written import (
    COST,
    NOON,
    alter,
    charge,
    opened,
    priced,
    put,
    reading,
    row,
    rows,
    settled,
    whole,
)

LATER = NOON + timedelta(days=30)


def correct(engine, exchange, *, lines=None, **more):
    read = reading(
        exchange, **{"read_at": LATER, "reason": "meter 2", "meter_version": "2", **more}
    )
    with db.writing(engine) as connection:
        return add_reading(connection, read, priced(exchange, read) if lines is None else lines)


def test_a_reading_with_other_figures_counts_from_now_on(engine):
    exchange = settled("a")
    put(engine, whole(exchange))
    added = correct(engine, exchange, usage=Usage(input_tokens=7, output_tokens=3))
    assert added.revision == 2
    assert row(
        engine,
        "SELECT input_tokens, output_tokens, cost_picousd, meter_version, reading_revision "
        "FROM requests",
    ) == (7, 3, 7 * 10 + 3 * 50, "2", 2)
    again = correct(engine, exchange, usage=Usage(input_tokens=8, output_tokens=3))
    assert again.revision == 3
    assert rows(engine, "SELECT revision, reason FROM readings ORDER BY revision") == [
        (1, None),
        (2, "meter 2"),
        (3, "meter 2"),
    ]


def test_the_same_figures_add_nothing(engine):
    exchange = settled("a")
    usage = Usage(
        input_tokens=1,
        tool_units={"web_searches": 1},
        is_byok=True,
        remarks=("odd",),
        further=(FurtherUsage(kind="advisor", model="m", usage=Usage(output_tokens=1)),),
    )
    put(engine, whole(exchange, usage=usage))
    assert correct(engine, exchange, usage=usage) is None
    assert row(engine, "SELECT COUNT(*) FROM readings") == (1,)


@pytest.mark.parametrize(
    "more",
    [
        {"usage": Usage(input_tokens=100, cache_read_tokens=40, output_tokens=None)},
        {"usage_source": UsageSource.PARTIAL},
        {"usage_json": '{"in":100,"out":20}'},
        {"estimated_output_tokens": 5},
    ],
)
def test_what_counts_as_another_figure(engine, more):
    exchange = settled("a")
    put(engine, whole(exchange))
    assert correct(engine, exchange, lines=(), **more).revision == 2


def test_charges_come_with_it(engine):
    exchange = settled("a")
    put(engine, whole(exchange))
    lines = [charge("output", 3, None, reason="unknown"), charge("x.output", 2, 5, model="m")]
    correct(engine, exchange, lines=lines, usage=Usage(output_tokens=3))
    assert row(engine, "SELECT cost_picousd, cost_state, extra_output_tokens FROM requests") == (
        10,
        "partial",
        2,
    )
    assert row(engine, "SELECT SUM(amount_picousd) FROM charges") == (COST + 10,)


def test_two_ledgers_corrected_alike_hold_one_reading(new_sqlite):
    from ledger.parts.sync import merging

    exchange = settled("a")
    urls = [new_sqlite("one"), new_sqlite("two")]
    for url in urls:
        with db.disposing(db.open_engine(url)) as engine:
            put(engine, whole(exchange))
            correct(engine, exchange, usage=Usage(input_tokens=7, output_tokens=3))
    merging.sync(*urls)
    assert row(urls[1], "SELECT COUNT(*) FROM readings") == (2,)


def test_a_correction_says_why_and_has_something_to_correct(engine):
    put(engine, whole(settled("a")))
    with pytest.raises(AssertionError, match="says why"):
        correct(engine, settled("a"), reason=None)
    with pytest.raises(AssertionError, match="never settled"):
        correct(engine, settled("b"))


def test_what_is_booked(engine):
    """All that was written comes back."""
    exchange = settled("a", response_id="r", tags={"team": "x"}, service_tier="flex")
    inner = Usage(input_tokens=3, tool_units={"web_searches": 1})
    usage = Usage(
        input_tokens=100,
        cache_read_tokens=0,
        output_tokens=20,
        tool_units={"web_searches": 2},
        reported_cost_picousd=5,
        is_byok=True,
        remarks=("odd",),
        further=(FurtherUsage(kind="compaction", model="claude", usage=inner),),
    )
    read = {"usage_source": UsageSource.PARTIAL, "estimated_output_tokens": 7}
    more: dict[str, Any] = {"usage": usage, **read}
    put(engine, whole(exchange, **more))
    found = find(engine, ["a"])["a"]
    assert found.exchange == exchange
    assert found.reading == reading(exchange, **more)
    assert found.cost_picousd == 100 * 10 + 20 * 50
    correct(engine, exchange, usage=Usage(input_tokens=7, output_tokens=3))
    found = find(engine, ["a"])["a"]
    assert (found.reading.revision, found.reading.usage.input_tokens) == (2, 7)
    assert found.cost_picousd == 7 * 10 + 3 * 50
    assert find(engine, ["b"]).get("b") is None


def test_nothing_is_booked_before_the_end_is_known(engine):
    lost = settled("lost", state=State.LOST, outcome=Outcome.LOST)
    put(engine, (opened("open"), None, ()), whole(lost, (), revision=0, meter_version=NO_METER))
    assert find(engine, ["open"]).get("open") is None
    assert find(engine, ["lost"]).get("lost") is None
    put(engine, whole(settled("free"), (charge("output", 20, None),)))
    assert find(engine, ["free"])["free"].cost_picousd is None


def test_differences_are_of_figures_as_the_ledger_keeps_them():
    exchange = settled("a")
    odd = reading(exchange, usage_json='{"a":"\ud800"}')
    kept = reading(exchange, usage_json='{"a":"?"}')
    assert differences(kept, odd) == {}
    later = reading(exchange, read_at=LATER, meter_version="2", reason="why", revision=3)
    assert differences(reading(exchange), later) == {}
    other = reading(exchange, usage=Usage(output_tokens=20))
    assert differences(reading(exchange), other) == {
        "input_tokens": (100, None),
        "cache_read_tokens": (40, None),
    }


def test_a_batch_without_what_is_refused(engine):
    good, bad = settled("good"), settled("bad")
    put(engine, whole(good), whole(bad))

    def further(exchange):
        return reading(exchange, reason="x", usage=Usage(output_tokens=1))

    line = charge("output", 1, 5)
    batch = [
        (further(bad), (replace(line, quantity=-1),)),
        (further(good), (line,)),
        (further(good), (line,)),
    ]
    added, (refused,) = add_readings(engine, batch)
    assert added == 1
    assert refused.startswith("bad: ")
    assert rows(engine, "SELECT exchange_id FROM readings WHERE revision = 2") == [("good",)]


def test_a_ledger_that_cannot_be_written_now(engine):
    exchange = settled("a")
    put(engine, whole(exchange))
    alter(
        engine,
        (
            "DROP TABLE readings CASCADE"
            if engine.dialect.name == "postgresql"
            else "DROP TABLE readings"
        ),
    )
    read = reading(exchange, reason="x", usage=Usage(output_tokens=1))
    with pytest.raises(LedgerError, match="cannot write the ledger"):
        add_readings(engine, [(read, (charge("output", 1, 5),))])
