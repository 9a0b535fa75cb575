"""A report out of the sums of days is the report out of all requests, whatever was written since."""

import random
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa
from msgspec import structs

from ledger.figures import sum_query
from ledger.figures.queries import report
from ledger.figures.sum_query import SumQuery
from ledger.maintenance import corrections, reprice
from ledger.maintenance.rollup import roll
from ledger.model.exchange import Outcome, Source, State, UsageSource
from ledger.model.usage import FurtherUsage, Usage
from ledger.parts.sync.merging import sync
from ledger.pricing.prices import PriceBook
from ledger.settings.names import WORDS, read
from ledger.store import db, retention
from ledger.store.schema.dimensions import DIMENSIONS
from ledger.store.schema.dimensions import SUMMED as SUM_DIMENSIONS
from ledger.store.schema.sums import SUMS_COLUMNS
from ledger.store.scope import Scope
from ledger.store.tables import (
    charges,
    meta,
    stale_days,
    sums,
    unpriced_lines,
)
from ledger.text.period import DAY, HOUR
from tests.ledger.priced import BOTH, exchange, filled
from tests.ledger.written import alter, charge_again, put, reading, whole
from tests.ledger.written import settled as settled_at

pytestmark = pytest.mark.large

BEGIN = datetime(2026, 10, 27, tzinfo=UTC)
NOW = BEGIN + timedelta(days=11, hours=13)
NAMES, _ = read(
    """
    [[name]]
    key = "aaaaaa"
    name = "CI"
    team = "search"
    until = 2026-11-03
    [[name]]
    key_hint = "1111"
    team = "writers"
    [[name]]
    tag = "team=ads*"
    team = "ads"
    cost_centre = "4711"
    [[name]]
    host = "api.openai.com"
    person = "Ada"
    """
)
SUMMED = [row.word for row in DIMENSIONS if row.is_summed]
EVERY_WORD = [*SUMMED, "hour", "day", "week", "month", "tag:team", *WORDS]
TOGETHER = [
    (),
    ("provider", "model"),
    ("week", "model"),
    ("session", "model", "hour"),
    ("team", "day"),
]


def entries(count=210, seed=7):
    """Requests of all kinds over twelve days; the last day is not over."""
    draw = random.Random(seed)  # the same entries each time
    for number in range(count):
        at = BEGIN + (NOW - BEGIN) * (number / count) + timedelta(microseconds=number)
        provider, model = draw.choice(
            [
                ("openai", "gpt-4.1"),
                ("openai", "gpt-5"),
                ("anthropic", "claude-sonnet-4-5"),
                ("anthropic", "house-model"),
            ]
        )
        outcome = draw.choice([*[Outcome.COMPLETE] * 6, Outcome.HTTP_ERROR, Outcome.CLIENT_LEFT])
        key = draw.choice(["a", "b", None])
        first = draw.choice([None, *range(100, 900, 90)])
        about = structs.replace(
            exchange(model, provider=provider, id=f"e{seed}-{number}", at=at),
            state=State.SETTLED,
            outcome=outcome,
            settled_at=at + timedelta(milliseconds=draw.randrange(1000, 9000)),
            first_token_at=at + timedelta(milliseconds=first) if first else None,
            key_fingerprint=key and key * 32,
            key_hint=draw.choice([None, "1111"]) if key == "b" else None,
            session_id=draw.choice([None, *(f"s{at.day}-{n}" for n in range(4))]),
            project=draw.choice([None, "p1", "p2"]),
            git_branch=draw.choice([None, "main"]),
            agent=draw.choice([None, "codex"]),
            end_user=draw.choice([None, None, "u1"]),
            user_agent=draw.choice(["a/1", "b/2"]),
            service_tier=draw.choice([None, "flex"]),
            source=draw.choice([Source.LIVE, Source.IMPORT]),
            tags=draw.choice([{}, {"team": "ads"}, {"team": "ads-eu", "x": 'q"'}, {"x": "1"}]),
        )
        kind = draw.choice(
            [
                *[UsageSource.REPORTED] * 5,
                UsageSource.PARTIAL,
                UsageSource.ESTIMATED,
                UsageSource.NONE,
            ]
        )
        usage = Usage()
        if kind is not UsageSource.NONE:
            usage = Usage(
                input_tokens=draw.randrange(50, 5000),
                cache_read_tokens=draw.choice([None, 0, 40]),
                output_tokens=draw.choice([None, *range(10, 500, 70)]),
                reported_cost_picousd=draw.choice([None, None, 10**9 + number]),
                further=(
                    (FurtherUsage(kind="compaction", model=None, usage=Usage(input_tokens=9)),)
                    if number % 40 == 0
                    else ()
                ),
            )
        estimate = 12 if kind is UsageSource.PARTIAL else None
        yield (
            about,
            structs.replace(
                reading(settled_at("any")),
                usage_source=kind,
                usage=usage,
                estimated_output_tokens=estimate,
                read_at=at,
            ),
        )


@pytest.fixture(scope="module", params=BOTH)
def engine(request, tmp_path_factory):
    """A ledger whose days were summed up, and written again in every way."""
    for engine in filled(request, tmp_path_factory, entries()):
        # The writer's keeper made sums as of another today.
        tables = (sums, unpriced_lines, stale_days)
        alter(engine, *(f"DELETE FROM {table.name}" for table in tables))
        alter(engine, "DELETE FROM meta WHERE key = 'rolled_until'")
        roll(engine, now=NOW)
        with engine.connect() as connection:
            assert sum_query.stale_count(connection) == 0
        put(engine, whole(settled_at("late", at=BEGIN + timedelta(days=1, hours=5))))
        correct(engine)
        price_again(engine)
        see_again(engine)
        merge(engine, request, tmp_path_factory)
        with engine.connect() as connection:
            assert sum_query.stale_count(connection) > 3
            kept = sum_query.spans(connection, SCOPES[2].since, SCOPES[2].until, step=DAY)
        assert {span.has_sums for span in kept} == {True, False}
        yield engine


def correct(engine):
    found = corrections.find(engine, ["e7-150"])["e7-150"]
    again = structs.replace(
        found.reading, usage=Usage(input_tokens=77, output_tokens=3), reason="test"
    )
    with db.writing(engine) as connection:
        assert corrections.add_reading(connection, again, ())


def price_again(engine):
    book = PriceBook()
    day = BEGIN + timedelta(days=5)
    with engine.connect() as connection:
        name, ordinal = connection.execute(
            sa.select(charges.c.exchange_id, charges.c.ordinal)
            .where(charges.c.opened_at >= day, charges.c.unit_picousd > 0)
            .order_by(charges.c.opened_at)
            .limit(1)
        ).one()
    charge_again(engine, name, ordinal, 1)
    scope = Scope(since=day, until=day + timedelta(days=1))
    assert reprice.apply(engine, book, scope, now=NOW, reason="test") == 1


def see_again(engine):
    """Two recordings of one response, of which the later comes second."""
    at = BEGIN + timedelta(days=8)
    about: dict[str, Any] = {"response_id": "r", "content_digest": "d", "upstream_digest": "u"}
    put(engine, whole(settled_at("one", at=at, **about)))
    put(engine, whole(settled_at("two", at=at + timedelta(hours=30), **about)))


def merge(engine, request, tmp_path_factory):
    """Another ledger, of the first of these days: the others keep their sums."""
    request.param = "sqlite"
    first = [one for one in entries(60, seed=11) if one[0].opened_at < BEGIN + timedelta(days=5)]
    for other in filled(request, tmp_path_factory, first):
        sync(str(other.url), engine.url.render_as_string(hide_password=False))
    request.param = engine.dialect.name


SCOPES = [
    Scope(),
    Scope(since=BEGIN + timedelta(days=2)),
    Scope(since=BEGIN + timedelta(days=2), until=BEGIN + timedelta(days=9)),
    Scope(since=BEGIN + timedelta(days=2, hours=7, minutes=20), until=NOW - timedelta(hours=31)),
    Scope(since=NOW - timedelta(hours=3)),
    Scope(until=BEGIN + timedelta(days=1, minutes=1)),
    Scope(only=(("model", "gpt*"), ("model", "claude-9"), ("provider", "openai"))),
    Scope(only=(("key", "…1111"),)),
    Scope(only=(("key", "a" * 32),)),
    Scope(only=(("key", "aaaaaa"), ("week", "2026-11-02"))),
    Scope(only=(("key", "CI"),)),
    Scope(only=(("team", "search"),)),
    Scope(only=(("team", "(none)"), ("outcome", "complete"))),
    Scope(only=(("tag:team", "ads*"), ("project", "p1"))),
    Scope(only=(("model", "none-such"),)),
    Scope(zone=ZoneInfo("America/New_York")),
    Scope(since=BEGIN + timedelta(days=1, hours=4), zone=ZoneInfo("America/New_York")),
    Scope(only=(("day", "2026-11-01"),), zone=ZoneInfo("America/New_York")),
    Scope(zone=ZoneInfo("Asia/Kathmandu")),
    Scope(only=(("week", "2026-11-02"),), zone=ZoneInfo("Asia/Kathmandu")),
]


def comparable(found):
    return {row.key: (row.figures, row.times, row.hint, row.name) for row in found.rows}


@pytest.mark.parametrize(
    "scope", SCOPES, ids=lambda scope: f"{scope.only or scope.since} {scope.zone or ''}"
)
@pytest.mark.parametrize("half", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_both_ways_give_equal_reports(engine, scope, half):
    """By default every second way to group, and the others in the next period."""
    # Two periods by everything, the others by some.
    words = [(word,) for word in EVERY_WORD] if scope in (SCOPES[0], SCOPES[3]) else []
    first = (SCOPES.index(scope) + half) % 2
    scope = replace(scope, names=NAMES)
    for by in [*words, *TOGETHER][first::2]:
        quick, exact = (report(engine, by, scope, is_exact=exact) for exact in (False, True))
        assert comparable(quick) == comparable(exact), by
        assert quick.total == exact.total


def test_what_is_asked_of_days_that_are_over_reads_no_request(engine, noted):
    asked = noted(sum_query, "charged_requests")
    stale = BEGIN + timedelta(days=1)
    roll(engine, now=NOW)
    today = NOW.replace(hour=0)
    for by in (*((word,) for word in EVERY_WORD), *TOGETHER):
        report(engine, by, Scope(since=stale, until=today, names=NAMES))
        assert asked == []
        report(engine, by, Scope(names=NAMES))
        assert [(scope.since, scope.until) for scope, *_ in asked] == [(today, None)]
        asked.clear()
    for name, are_summed in (("America/New_York", True), ("Asia/Kathmandu", False)):
        report(engine, ("day",), Scope(since=stale, until=today, zone=ZoneInfo(name)))
        assert (asked == []) is are_summed  # an hour of Kathmandu is in two of UTC


def test_dropped_days_are_in_no_report(engine):
    roll(engine, now=NOW)
    middle = BEGIN + timedelta(days=6, hours=9, minutes=30)
    retention.drop_before(engine, middle)
    for by in (("model",), ("session",)):
        quick, exact = (report(engine, by, Scope(), is_exact=exact) for exact in (False, True))
        assert comparable(quick) == comparable(exact)
        assert quick.total.figures.requests > 0
    assert report(engine, ("model",), Scope(until=middle)).rows == ()


def test_sums_beyond_64_bits_are_exact(sqlite_engine):
    """An upstream may name any cost; nobody's report may fail for it."""
    huge = 2**62 // 5
    for day in range(4):
        for number in range(4):
            about, read_, lines = whole(
                settled_at(str(uuid.uuid4()), at=BEGIN + timedelta(days=day, hours=number))
            )
            lines = (structs.replace(lines[0], quantity=huge, unit_picousd=1, amount_picousd=huge),)
            put(sqlite_engine, (about, read_, lines))
    for _ in range(2):
        for by in (("model",), ("session",)):
            (row,) = report(sqlite_engine, by, Scope()).rows
            assert row.figures.cost_picousd == 16 * huge
        roll(sqlite_engine, now=NOW)


def test_without_sums_requests_are_asked(sqlite_engine):
    put(sqlite_engine, whole(settled_at("a", at=BEGIN)))
    with sqlite_engine.connect() as connection:
        assert (
            connection.scalar(sa.select(meta.c.value).where(meta.c.key == "rolled_until")) is None
        )
        found = sum_query.spans(connection, None, NOW, step=HOUR)
    assert found == [sum_query.SumSpan(since=None, until=NOW, has_sums=False)]
    assert report(sqlite_engine, ("model",), Scope()).total.figures.requests == 1


def test_the_sums_have_a_column_for_all_that_is_asked_of_them():
    assert {*SUMS_COLUMNS, *SUM_DIMENSIONS, "key_hint"} <= {*sums.c.keys()}


@pytest.mark.parametrize(
    ("words", "scope", "grouping"),
    [
        ((), Scope(since=BEGIN), "everything"),
        (("day",), Scope(), "everything"),
        (("week", "model"), Scope(), "model"),
        (("session",), Scope(since=BEGIN), "session_id"),
        (("tag:team", "tag:x"), Scope(since=BEGIN), "tags"),
        (("cost_centre",), Scope(names=NAMES), "tags"),
        (("model", "key", "day"), Scope(), "day"),
        (("model", "key"), Scope(only=(("key", "a" * 32), ("key", "(none)"))), "day"),
        (("team",), Scope(), "tags"),
        (("person",), Scope(names=NAMES), "hour"),  # by origin and tag
        (("model", "key"), Scope(only=(("key", "1111"),)), "hour"),
        (("hour",), Scope(), "hour"),
        (("session", "model"), Scope(), "hour"),
        (("model",), Scope(since=BEGIN + timedelta(hours=1)), "hour"),
        (("model",), Scope(only=(("project", "p"),)), "hour"),
        (("team",), Scope(names=NAMES), "hour"),  # by key, key_hint and tag
        (("origin",), Scope(since=BEGIN), "origin"),
        (("day",), Scope(zone=ZoneInfo("America/New_York")), "hour"),
        (("day",), Scope(zone=ZoneInfo("Asia/Kathmandu")), None),
        (("http_status",), Scope(), None),
        (("model",), Scope(only=(("usage_source", "none"),)), None),
    ],
)
def test_the_smallest_sums_that_have_what_a_query_needs(words, scope, grouping):
    query = SumQuery(by=lambda _: [], words=words, figures=(), scope=scope)
    assert query.grouping() == grouping
    assert replace(query, is_exact=True).grouping() is None
