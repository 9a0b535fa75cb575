"""The public views, on both databases, against figures worked out by hand."""

import random
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa

from ledger.maintenance import rollup
from ledger.maintenance.promises import CURRENT_READINGS
from ledger.model.charge import pricing_of
from ledger.model.exchange import ORDERED, Billing, Outcome, Source, State, UsageSource
from ledger.model.money import AMOUNT_MAX
from ledger.model.usage import Usage
from ledger.pricing.price_lines import INPUT_LINES
from ledger.store import db
from ledger.store.schema import descriptions
from ledger.store.scope import REQUEST_COLUMNS
from tests.ledger.written import (
    COST,
    NOON,
    charge,
    charge_again,
    on_postgres,
    opened,
    priced,
    put,
    reading,
    row,
    rows,
    settled,
    whole,
)
from tests.named import for_each


def test_a_request_has_its_reading_its_charges_and_its_times(engine):
    exchange = settled(
        "a",
        seconds=2.5,
        first_token_at=NOON + timedelta(milliseconds=250),
        tags={"team": "search"},
        key_fingerprint="k1",
        usage_injected=True,
    )
    put(engine, whole(exchange))
    found = row(engine, "SELECT * FROM requests")._mapping
    assert found["model"] == "model-1"
    assert (found["first_token_ms"], found["duration_ms"]) == (250, 2500)
    assert (found["input_tokens"], found["uncached_input_tokens"]) == (100, 60)
    assert (found["cache_read_tokens"], found["cache_write_tokens"]) == (40, None)
    assert found["output_tokens"] == 20
    assert (found["extra_input_tokens"], found["extra_output_tokens"]) == (None, None)
    assert found["cost_picousd"] == COST == 1640
    assert Decimal(str(found["cost_usd"])) == Decimal("0.00000000164")
    assert found["cost_state"] == "priced"
    assert found["usage_injected"] in (True, 1)
    assert row(engine, "SELECT tags ->> 'team' FROM requests") == ("search",)


@pytest.mark.parametrize(
    ("answered", "asked", "model"),
    [("m2", "m1", "m2"), ("", "m1", "m1"), (None, "m1", "m1"), (None, None, None), ("", "", None)],
)
def test_the_model_is_the_one_that_answered(engine, answered, asked, model):
    put(engine, whole(settled("a", response_model=answered, request_model=asked)))
    assert row(engine, "SELECT model FROM requests") == (model,)


@pytest.mark.parametrize(
    ("usage", "uncached"),
    [
        pytest.param(Usage(), None, id="nothing reported"),
        pytest.param(Usage(cache_read_tokens=3), None, id="only a part reported"),
        pytest.param(Usage(input_tokens=0), 0, id="zero"),
        pytest.param(Usage(input_tokens=7), 7, id="no cache"),
        pytest.param(
            Usage(input_tokens=7, cache_read_tokens=2, cache_write_tokens=3), 2, id="both"
        ),
        pytest.param(Usage(input_tokens=7, cache_read_tokens=9), 0, id="a part beyond its whole"),
    ],
)
def test_uncached_input(engine, usage, uncached):
    put(engine, whole(settled("a"), usage=usage))
    assert row(engine, "SELECT uncached_input_tokens FROM requests") == (uncached,)


@pytest.mark.parametrize(
    ("source", "lines", "cost", "state"),
    [
        pytest.param("none", [], None, None, id="nothing to price"),
        pytest.param("reported", [], None, "unpriced", id="no line"),
        pytest.param("reported", [charge("output", 5, None)], None, "unpriced", id="no price"),
        pytest.param(
            "reported",
            [charge("output", 5, 2), charge("cache_read", 1, None)],
            10,
            "partial",
            id="some",
        ),
        pytest.param("reported", [charge("output", 5, 0)], 0, "priced", id="free"),
        pytest.param("estimated", [charge("output", 5, 2)], 10, "priced", id="estimated"),
        pytest.param(
            "reported", [charge("total", 1, 7, price_source="provider")], 7, "reported", id="own"
        ),
    ],
)
def test_the_state_of_a_cost(engine, source, lines, cost, state):
    put(engine, whole(settled("a"), lines, usage_source=UsageSource(source)))
    reported, estimated = (None, cost) if source == "estimated" else (cost, None)
    found = row(engine, "SELECT cost_picousd, estimated_cost_picousd, cost_state FROM requests")
    assert found == (reported, estimated, state)


def test_lines_of_further_iterations_stand_beside(engine):
    lines = [
        charge("uncached_input", 60, 10),
        charge("compaction.uncached_input", 500, 3, model="m2"),
        charge("compaction.cache_read", 50, 1, model="m2"),
        charge("compaction.cache_write_1h", 5, 1, model="m2"),
        charge("advisor_message.output", 70, 9, model="m3"),
        charge("advisor_message.reasoning", 7, 9, model="m3"),
        charge("compaction.requests", 1, 1, model="m2"),
    ]
    put(engine, whole(settled("a"), lines))
    assert row(
        engine,
        "SELECT input_tokens, output_tokens, extra_input_tokens, extra_output_tokens, "
        "cost_picousd FROM requests",
    ) == (100, 20, 555, 77, 600 + 1500 + 50 + 5 + 630 + 63 + 1)


def test_what_does_not_count_is_no_request(engine):
    put(
        engine,
        (opened("open"), None, ()),
        whole(settled("a", response_id="r", content_digest="d")),
        whole(settled("b", at=NOON + timedelta(1), response_id="r", content_digest="d")),
        (settled("lost", state=State.LOST, outcome=Outcome.LOST), None, ()),
    )
    assert rows(engine, "SELECT id, cost_state FROM requests ORDER BY id") == [
        ("a", "priced"),
        ("lost", None),
    ]


def test_the_highest_revision_counts_and_of_equal_ones_the_earliest(engine):
    from tests.ledger import bundled

    exchange = settled("a")
    figures = [(1, 0, 10), (2, 5, 30), (2, 4, 20), (0, 0, 1)]
    for revision, seconds, tokens in figures:
        read = reading(
            exchange,
            revision=revision,
            read_at=NOON + timedelta(seconds=seconds),
            usage=Usage(input_tokens=tokens, output_tokens=0),
        )
        bundled.put(engine, (exchange, read, priced(exchange, read)))
    assert row(engine, "SELECT input_tokens, reading_revision, cost_picousd FROM requests") == (
        20,
        2,
        200,
    )


@for_each("state", ORDERED)
def test_an_order_is_without_usage_until_its_result_is_fetched(engine, state):
    def without_usage() -> tuple[object, ...]:
        mine = "provider = 'orders-" + state + "'"
        counts = row(
            engine,
            f"SELECT SUM(without_usage), SUM(complete_without_usage) FROM usage_daily WHERE {mine}",
        )
        return (*counts, *row(engine, f"SELECT COUNT(*) FROM requests WHERE {mine}"))

    facts: dict[str, Any] = {"response_id": f"p-{state}", "provider": f"orders-{state}"}
    order = settled(f"order-{state}", finish_reason=state, **facts)
    put(engine, (order, reading(order, usage_source=UsageSource.NONE, usage=Usage()), ()))
    assert without_usage() == (1, 1, 1)
    elsewhere = settled(f"else-{state}", finish_reason="stop", **facts, origin="https://o:443")
    put(engine, whole(elsewhere))
    assert without_usage() == (1, 1, 2)
    fetched = settled(f"fetched-{state}", finish_reason="succeeded", **facts)
    put(engine, whole(fetched))
    assert without_usage() == (0, 0, 3)
    rollup.roll(engine, now=NOON + timedelta(days=30))
    assert row(engine, "SELECT COUNT(*) FROM stale_days") == (0,)
    assert without_usage() == (0, 0, 3)


REPORTED, PARTIAL, ESTIMATED, NONE = UsageSource


@for_each(
    "poorer, fuller",
    [
        ((PARTIAL, 7), (REPORTED, 2500)),
        ((PARTIAL, 7), (PARTIAL, 8)),
        ((PARTIAL, None), (PARTIAL, 0)),
        ((ESTIMATED, 9), (PARTIAL, 7)),
        ((ESTIMATED, 9), (REPORTED, 7)),
        ((NONE, None), (ESTIMATED, 7)),
        ((NONE, None), (REPORTED, None)),
        ((REPORTED, 7), (REPORTED, 2500)),
    ],
)
def test_of_equal_revisions_the_fuller_counts_whichever_came_first(engine, poorer, fuller):
    from tests.ledger import bundled

    for number in range(2):
        exchange = settled(f"{poorer}{fuller}{number}")
        for (source, output), second in ((poorer, number), (fuller, 1 - number)):
            read = reading(
                exchange,
                usage_source=source,
                read_at=NOON + timedelta(seconds=second),
                usage=Usage(output_tokens=output),
            )
            bundled.put(engine, (exchange, read, ()))
        found = f"FROM requests WHERE id = '{exchange.id.replace("'", "''")}'"
        output = "COALESCE(estimated_output_tokens, output_tokens)"
        assert row(engine, f"SELECT usage_source, {output} {found}") == fuller
    ranked = CURRENT_READINGS.replace(":since", "'1970-01-01 00:00:00.000000Z'")
    assert rows(engine, f"SELECT exchange_id, id FROM {ranked} ORDER BY exchange_id") == rows(
        engine, "SELECT id, reading_id FROM requests ORDER BY id"
    )


def test_what_was_lost_has_no_duration(engine):
    lost = settled("lost", state=State.LOST, outcome=Outcome.LOST)
    put(engine, (lost, None, ()), whole(settled("a")))
    assert rows(engine, "SELECT id, duration_ms IS NULL FROM requests ORDER BY id") == [
        ("a", False),
        ("lost", True),
    ]


def test_superseding_charges_take_the_place_of_theirs(engine):
    put(engine, whole(settled("a"), [charge("output", 20, 5), charge("x", 1, 1)]))
    charge_again(engine, "a", 0, 7, name="z")
    assert row(engine, "SELECT cost_picousd FROM requests") == (141,)
    # Another ledger priced it again as well, and the two were merged: one of them counts.
    charge_again(engine, "a", 0, 6, name="y")
    assert row(engine, "SELECT cost_picousd FROM requests") == (121,)
    charge_again(engine, "a", 0, None, name="w", revision=3)
    assert row(engine, "SELECT cost_picousd, cost_state FROM requests") == (1, "partial")
    assert rows(engine, "SELECT line, quantity FROM unpriced") == [("output", 20)]


def fill_days(engine):
    """Two days: what is worked out in the tests below."""
    late = NOON + timedelta(days=1)
    put(
        engine,
        whole(settled("a", key_fingerprint="k1", key_hint="abcd")),
        whole(settled("b", key_fingerprint="k1", key_hint="abcd")),
        whole(settled("c", key_fingerprint="k2", response_model="model-2")),
        whole(
            settled("d", at=late, outcome=Outcome.CLIENT_LEFT),
            usage_source=UsageSource.ESTIMATED,
            usage=Usage(input_tokens=8, output_tokens=9),
        ),
        whole(
            settled("e", at=late, outcome=Outcome.UPSTREAM_CUT),
            usage_source=UsageSource.PARTIAL,
            usage=Usage(input_tokens=30, output_tokens=1),
            estimated_output_tokens=12,
        ),
        whole(
            settled("f", at=late, outcome=Outcome.HTTP_ERROR),
            usage_source=UsageSource.NONE,
            usage=Usage(),
        ),
        (opened("g", at=late), None, ()),
        whole(settled("h", at=late, response_id="r", content_digest="x", degraded="why")),
        whole(settled("i", at=late, seconds=9, response_id="r", content_digest="x")),
    )


def test_usage_by_day(engine):
    fill_days(engine)
    found = rows(
        engine,
        "SELECT day, model, key_fingerprint, key_hint, requests, errors, without_usage, "
        "input_tokens, uncached_input_tokens, cache_read_tokens, cache_write_tokens, "
        "output_tokens, estimated_input_tokens, estimated_output_tokens, cost_picousd, unpriced "
        "FROM usage_daily ORDER BY day, key_fingerprint",
    )
    # e: 30 in, 1 out; h: as the others; f: an error; i: a duplicate of h; d: estimated, in no total
    costs = 30 * 10 + 1 * 50 + COST
    first, second = ("2026-11-02", "2026-11-03")
    expected = [
        (first, "model-1", "k1", "abcd", 2, 0, 0, 200, 120, 80, None, 40, None, None, 2 * COST, 0),
        (first, "model-2", "k2", None, 1, 0, 0, 100, 60, 40, None, 20, None, None, COST, 0),
        (second, "model-1", None, None, 4, 1, 0, 130, 90, 40, None, 21, 8, 21, costs, 0),
    ]
    assert [(str(day), *line) for day, *line in found] == expected


def test_the_cache_hit_rate_leaves_out_what_reports_no_cache(engine):
    put(
        engine,
        whole(settled("a"), usage=Usage(input_tokens=100, cache_read_tokens=25, output_tokens=0)),
        whole(settled("b"), usage=Usage(input_tokens=900, output_tokens=0)),
    )
    assert row(engine, "SELECT cache_hit_rate FROM usage_daily") == (0.25,)


def test_completeness(engine):
    fill_days(engine)
    names = "opened, still_open, settled, lost, without_usage, estimated, errors, degraded"
    found = rows(engine, f"SELECT {names}, duplicates FROM completeness ORDER BY hour")
    assert found == [(3, 0, 3, 0, 0, 0, 0, 0, 0), (6, 1, 5, 0, 0, 1, 1, 1, 1)]


def test_what_is_unpriced(engine):
    lines = [charge("output", 20, None, reason="unknown model"), charge("cache_read", 40, 1)]
    put(
        engine,
        whole(settled("a", service_tier="flex"), lines),
        whole(settled("b"), ()),
        whole(settled("c")),
    )
    assert rows(
        engine,
        "SELECT exchange_id, model, service_tier, line, quantity, reason FROM unpriced "
        "ORDER BY exchange_id",
    ) == [
        ("a", "model-1", "flex", "output", 20, "unknown model"),
        ("b", "model-1", None, None, None, "no line was charged"),
    ]


@on_postgres
def test_hours_and_days_are_utc_whatever_the_session_says(engine):
    put(engine, whole(settled("a", at=NOON.replace(hour=23, minute=59))))
    with engine.connect() as connection:
        connection.exec_driver_sql("SET TIME ZONE 'Asia/Tokyo'")
        assert connection.scalar(sa.text("SELECT day::text FROM usage_daily")) == "2026-11-02"
        assert (
            connection.scalar(sa.text("SELECT (hour AT TIME ZONE 'UTC')::text FROM completeness"))
            == "2026-11-02 23:00:00"
        )


def test_amounts_up_to_the_bound_of_money(engine):
    most = 2**63 - 1
    lines = [charge("x", AMOUNT_MAX, 1)]
    put(engine, whole(settled("a"), lines, usage=Usage(input_tokens=most)))
    assert row(engine, "SELECT input_tokens, cost_picousd FROM requests") == (most, AMOUNT_MAX)


def test_amounts_that_overflow_a_sum_break_no_day(engine):
    """Rows of before amounts were bounded: their own day has no sum, and every other day has."""
    huge = 5 * 10**18
    for name, at in (("a", NOON), ("b", NOON), ("c", NOON + timedelta(1))):
        size = huge if at == NOON else 7
        lines = [charge("x", size, 1)]
        put(engine, whole(settled(name, at=at), lines, usage=Usage(input_tokens=size)))
    found = rows(
        engine, "SELECT requests, input_tokens, cost_picousd FROM usage_daily ORDER BY day"
    )
    assert [tuple(each) for each in found] == [(2, None, None), (1, 7, 7)]


def test_times_are_exact_to_the_millisecond(engine):
    """Whatever stands behind the milliseconds of either moment; a half is rounded up."""
    chance = random.Random(11)
    spans = [(534_439, 46_262), (499_600, 400), (999_999, 1), (999_500, 500), (0, 86_400_000_001)]
    spans += [(chance.randrange(10**6), chance.randrange(10**7)) for _ in range(40)]
    for number, (begin, lasts) in enumerate(spans):
        at = NOON.replace(microsecond=begin)
        end = at + timedelta(microseconds=lasts)
        exchange = settled(f"{number:02}", at=at, settled_at=end, first_token_at=end)
        put(engine, whole(exchange))
    found = rows(engine, "SELECT first_token_ms, duration_ms FROM requests ORDER BY id")
    assert found == [((lasts + 500) // 1000,) * 2 for _, lasts in spans]


def test_a_log_without_a_time_of_the_end_has_no_duration(engine):
    put(
        engine,
        whole(settled("live", seconds=0)),
        whole(settled("log", seconds=0, source=Source.IMPORT)),
        whole(settled("recording", seconds=2, source=Source.REPLAY)),
    )
    query = "SELECT id, duration_ms FROM requests ORDER BY id"
    assert rows(engine, query) == [("live", 0), ("log", None), ("recording", 2000)]


@pytest.mark.postgres
def test_queries_know_the_type_of_every_column_of_the_view(new_postgres):
    """But of those in USD, which are for reading."""
    kinds = {sa.Boolean: "boolean", sa.Integer: "integer", sa.TIMESTAMP: "instant"}
    with db.disposing(db.open_engine(new_postgres())) as engine:
        columns = sa.inspect(engine).get_columns("requests")
    found = {
        each["name"]: next((w for t, w in kinds.items() if isinstance(each["type"], t)), "text")
        for each in columns
        if not each["name"].endswith("_usd")
    }
    assert found == REQUEST_COLUMNS


@for_each(
    "line", [line for line in INPUT_LINES if line == "cache_read" or line.startswith("cache_write")]
)
def test_a_cached_line_saves_what_it_costs_less_than_uncached_input(line):
    lines = (charge("uncached_input", 5, 100), charge(line, 10, 40), charge("output", 7, 9))
    assert pricing_of(lines, UsageSource.REPORTED).saved_picousd == 10 * (100 - 40)


def test_every_column_of_every_table_and_view_is_described_and_no_other(engine):
    with engine.connect() as connection:
        columns = descriptions.describe(connection)
    assert {column.relation for column in columns} == {
        *descriptions.PUBLIC_VIEWS,
        *descriptions.PUBLIC_TABLES,
    }
    assert [column for column in columns if len(column.text) < 5] == []
    there = {(column.relation, column.column) for column in columns}
    for relation, texts in descriptions._DERIVED.items():
        assert {(relation, name) for name in texts} <= there


def test_what_is_not_described_is_a_mistake_of_ours():
    with pytest.raises(LookupError, match=r"requests\.surprise"):
        descriptions.description_of("requests", "surprise")


@on_postgres
def test_postgres_shows_the_same_words(engine):
    found = rows(
        engine,
        "SELECT c.relname, a.attname, col_description(c.oid, a.attnum) FROM pg_class c "
        "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 "
        f"WHERE c.relname IN {(*descriptions.PUBLIC_VIEWS, *descriptions.PUBLIC_TABLES)}",
    )
    assert len(found) > 200
    for relation, column, comment in found:
        assert comment == descriptions.description_of(relation, column), (relation, column)


def test_a_cost_that_is_the_providers_own(engine):
    own = charge("total", 1, 7, price_source="provider")
    put(engine, whole(settled("a"), [own]))
    assert row(engine, "SELECT cost_picousd, cost_state FROM requests") == (7, "reported")


def test_what_a_plan_covers_has_a_list_value_and_no_cost(engine):
    """And is in the same columns of a day, before it is summed up and after."""
    put(
        engine,
        whole(settled("unknown")),
        whole(settled("metered"), billing=Billing.METERED),
        whole(settled("plan"), billing=Billing.PLAN),
        whole(settled("free"), billing=Billing.FREE),
        whole(settled("guess"), billing=Billing.PLAN, usage_source=UsageSource.ESTIMATED),
        whole(settled("own figure"), [charge("reported_cost", 1, 7, price_source="provider")]),
    )
    query = "SELECT id, billing, cost_picousd, list_value_picousd, estimated_cost_picousd"
    assert {each[0]: tuple(each[1:]) for each in rows(engine, f"{query} FROM requests")} == {
        "unknown": ("unknown", COST, COST, None),
        "metered": ("metered", COST, COST, None),
        "plan": ("plan", None, COST, None),
        "free": ("free", None, COST, None),
        "guess": ("plan", None, None, None),
        "own figure": ("unknown", 7, None, None),
    }
    of_day = "SELECT requests, covered, unpriced, cost_picousd, list_value_picousd FROM usage_daily"
    before = tuple(row(engine, of_day))
    assert before == (6, 3, 0, 2 * COST + 7, 4 * COST)
    rollup.roll(engine, now=NOON + timedelta(2))
    assert tuple(row(engine, of_day)) == before
