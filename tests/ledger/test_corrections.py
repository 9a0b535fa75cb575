"""Further readings: appended where the figures differ, and counted."""

from datetime import timedelta

import pytest

from ledger import db
from ledger.corrections import add_reading
from ledger.records import UsageSource
from ledger.usage import FurtherUsage, Usage
from tests.ledger.written import COST, NOON, charge, priced, put, reading, row, rows, settled, whole

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
    from ledger import sync

    exchange = settled("a")
    urls = [new_sqlite("one"), new_sqlite("two")]
    for url in urls:
        engine = db.open_engine(url)
        put(engine, whole(exchange))
        correct(engine, exchange, usage=Usage(input_tokens=7, output_tokens=3))
        engine.dispose()
    sync.sync(*urls)
    engine = db.open_engine(urls[1])
    assert row(engine, "SELECT COUNT(*) FROM readings") == (2,)
    engine.dispose()


def test_a_correction_says_why_and_has_something_to_correct(engine):
    put(engine, whole(settled("a")))
    with pytest.raises(AssertionError, match="says why"):
        correct(engine, settled("a"), reason=None)
    with pytest.raises(AssertionError, match="never settled"):
        correct(engine, settled("b"))
