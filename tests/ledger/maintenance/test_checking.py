"""Every promise of a ledger: kept by what we write, and missed by the question when it is broken."""

from datetime import timedelta
from typing import Any

import orjson
import pytest
import sqlalchemy as sa
from msgspec.structs import replace

from ledger.maintenance import reprice, rollup
from ledger.maintenance.checking import FAULTS_SHOWN_MAX, verify
from ledger.maintenance.promises import PROMISES
from ledger.model.exchange import Outcome, State
from ledger.model.usage import Usage
from ledger.pricing.prices import PriceBook
from ledger.store import db, retention
from ledger.store.keys import instant_text
from ledger.store.scope import Scope
from ledger.store.tables import current_charges, pricings
from ledger.store.writing import batch_insert
from tests.ledger.written import (
    COST,
    NOON,
    alter,
    by_id,
    charge,
    file_of,
    on,
    on_sqlite,
    opened,
    put,
    row,
    rows,
    settled,
    whole,
)
from tests.named import named

SENT, HANDED, TAKEN = "a" * 64, "b" * 64, "c" * 64
NEXT_DAY = NOON + timedelta(days=1)

PASSED: dict[str, Any] = {
    "response_bytes": 10,
    "client_bytes": 10,
    "removed_bytes": 0,
    "upstream_digest": SENT,
    "client_digest": SENT,
}
STRIPPED: dict[str, Any] = {
    "response_bytes": 10,
    "client_bytes": 7,
    "removed_bytes": 3,
    "upstream_digest": SENT,
    "client_digest": HANDED,
    "removed_digest": TAKEN,
    "usage_injected": True,
    "usage_stripped": True,
}
CUT_OFF = STRIPPED | {"client_bytes": 5, "outcome": Outcome.CLIENT_LEFT}
"""Two bytes of an event were waiting for its end."""
SAME: dict[str, Any] = {"response_id": "r-1", "content_digest": "d"}


def broken(engine, since=None):
    """promise -> what was found, of every promise that does not hold."""
    return {
        verdict.promise.name: list(verdict.examples)
        for verdict in verify(engine, since)
        if verdict.count
    }


def without_checks(engine):
    """A ledger that something else has written: it takes what ours refuses."""
    if engine.dialect.name == "sqlite":
        alter(engine, "DROP TRIGGER pricings_charges")

    @sa.event.listens_for(engine, "checkout")
    def ignore(connection, *_):
        if engine.dialect.name == "postgresql":
            connection.execute("SET session_replication_role = replica")
            connection.commit()
        else:
            connection.execute("PRAGMA ignore_check_constraints = ON")
            connection.execute("PRAGMA foreign_keys = OFF")


def test_a_ledger_of_everything_holds(engine):
    lost = replace(settled("lost"), state=State.LOST, outcome=Outcome.LOST)
    unreported = settled("unreported", http_status=500, outcome=Outcome.HTTP_ERROR)
    billed = Usage(
        input_tokens=100,
        output_tokens=20,
        tool_units={"billed_input_tokens": 7, "billed_output_tokens": 2},
    )
    put(
        engine,
        whole(settled("passed", **PASSED)),
        whole(settled("stripped", **STRIPPED)),
        whole(settled("cut-off", **CUT_OFF)),
        whole(settled("old", at=NOON - timedelta(days=3), **SAME)),
        whole(settled("again", **SAME)),
        whole(settled("collides", response_id="r-1", content_digest="other")),
        (opened("open"), None, ()),
        whole(lost, (), revision=0, usage=Usage()),
        whole(unreported, (), usage=Usage()),
        whole(
            settled("cohere"),
            (charge("uncached_input", 7, 1), charge("output", 2, 1), charge("searches", 1, 9)),
            usage=billed,
        ),
        whole(settled("priced-whole"), (charge("reported_cost", 1, 77),)),
    )
    assert broken(engine) == {}
    rollup.roll(engine, now=NEXT_DAY)
    assert broken(engine) == {}
    reprice.apply(engine, PriceBook(), Scope(), now=NEXT_DAY, reason="no price any more")
    assert rows(engine, "SELECT 1 FROM charges WHERE revision = 2 LIMIT 1")
    assert broken(engine) == {}


def test_an_empty_ledger_holds(engine):
    assert broken(engine) == {}


@pytest.mark.parametrize(
    ("facts", "promise", "detail"),
    named(
        {
            "lost-a-byte": (
                PASSED | {"client_bytes": 9},
                "bytes",
                "upstream sent 10, the client was handed 9, taken out were 0",
            ),
            "lost-a-byte-of-a-whole-answer": (
                STRIPPED | {"client_bytes": 6},
                "bytes",
                "upstream sent 10, the client was handed 6, taken out were 3",
            ),
            "handed-more-than-was-sent": (
                CUT_OFF | {"client_bytes": 8},
                "bytes",
                "upstream sent 10, the client was handed 8, taken out were 3",
            ),
            "other-bytes-than-upstream-sent": (
                PASSED | {"client_digest": HANDED},
                "untouched",
                f"client {HANDED}, upstream {SENT}",
            ),
            "took-out-what-nobody-asked-for": (
                STRIPPED | {"usage_injected": False},
                "removed",
                "we had not asked for usage",
            ),
            "unmarked": (STRIPPED | {"usage_stripped": False}, "removed", "not marked as stripped"),
            "no-digest-of-it": (
                STRIPPED | {"removed_digest": None},
                "removed",
                "no digest of what was taken out",
            ),
            "taken-out-and-yet-the-same": (
                STRIPPED | {"client_digest": SENT},
                "removed",
                "the digests are the same",
            ),
            "digest-of-nothing": (
                PASSED | {"removed_digest": TAKEN},
                "removed",
                "nothing was taken out, and has a digest",
            ),
        }
    ),
)
def test_the_clients_bytes(engine, facts, promise, detail):
    put(engine, whole(settled("a", **facts)), whole(settled("b", **PASSED)))
    assert broken(engine) == {promise: [("a", detail)]}
    assert broken(engine, NEXT_DAY) == {}


def test_an_exchange_without_a_reading(engine):
    stand_in = whole(settled("stand-in"), (), revision=0)
    put(engine, (settled("a"), None, ()), stand_in, whole(settled("b")))
    assert broken(engine) == {
        "readings": [("a", "ended as settled"), ("stand-in", "ended as settled")]
    }


def test_of_an_unreported_total_nothing_is_billed(engine):
    usage = Usage(input_tokens=10)
    for name, unit in (("billed", 1), ("listed", None)):
        lines = (charge("uncached_input", 10, 1), charge("output_audio", 5, unit))
        put(engine, whole(settled(name), lines, usage=usage))
    assert broken(engine) == {"lines": [("billed", "input 10, charged 10; output -1, charged 5")]}


@pytest.mark.parametrize(
    "lines",
    [
        (charge("upstream_cost", 1, None),),
        (charge("reported_cost", 1, 7), charge("upstream_cost", 1, None)),
        (charge("uncached_input", 10, 1), charge("output", 4, 1), charge("citation", 90, 1)),
    ],
)
def test_what_is_billed_beside_the_tokens_breaks_no_promise(engine, lines):
    put(engine, whole(settled("a"), lines, usage=Usage(input_tokens=10, output_tokens=4)))
    assert broken(engine) == {}


@pytest.mark.parametrize(("quantity", "unit"), [(-3, 5), (3, -5), (-3, -5)])
def test_nothing_negative_is_charged(engine, quantity, unit):
    from tests.ledger import bundled

    with pytest.raises(sa.exc.IntegrityError, match="quantity times its unit price"):
        bundled.put(engine, whole(settled("a"), (charge("output", quantity, unit),)))


def test_charges_that_do_not_add_up(engine):
    lines = {
        "a": (charge("uncached_input", 100, 1), charge("cache_read", 40, 1)),
        "b": (charge("input_audio", 100, 1), charge("output", 21, None)),
        "further": (
            charge("uncached_input", 60, 1),
            charge("cache_read", 40, 1),
            charge("output", 20, 1),
            charge("compaction.output", 500, 1),
        ),
    }
    put(engine, *(whole(settled(name), lines[name]) for name in lines))
    assert broken(engine) == {
        "lines": [
            ("a", "input 100, charged 140; output 20, charged 0"),
            ("b", "input 100, charged 100; output 20, charged 21"),
        ]
    }


def pricing(engine, *lines, kept_unit=None, without=None, **more):
    """Append a pricing that has these lines (amount, id, ordinal, revision, what it supersedes, and
    its place), and keeps those of a reading at other places: the first of them at another price, and not the one at `without`."""
    c = current_charges.c
    with db.writing(engine) as connection:
        booked = connection.execute(sa.select(current_charges).order_by(c.ordinal)).all()
        documents = [
            [getattr(old, name) for name in batch_insert.CHARGE_COLUMNS]
            + [old.id, old.ordinal, 1, None, "kept"]
            for old in booked
            if old.ordinal not in {without, *(line[2] for line in lines if line[5] != "past")}
        ]
        if kept_unit is not None:
            documents[0][3:5] = [kept_unit, documents[0][2] * kept_unit]
        at = instant_text(NOON)
        documents += [["x", None, 3, 5, amount, "s", at, None, *place] for amount, *place in lines]
        facts = {
            "id": "x",
            "exchange_id": booked[0].exchange_id,
            "opened_at": booked[0].opened_at,
            "reading_id": booked[0].reading_id,
            "revision": 2,
            "cost_state": "priced",
            "amount_picousd": COST,
            "list_value_picousd": COST,
            "charges": orjson.dumps(
                documents, default=instant_text, option=orjson.OPT_PASSTHROUGH_DATETIME
            ).decode(),
        }
        connection.execute(sa.insert(pricings).values({**facts, **more}))


WRONG_LINES = {
    "p": (16, "p", 3, 1, None, "past"),
    "q": (None, "q", 4, 1, None, None),
    "negative": (-15, "n", 4, 1, None, None),
}


@pytest.mark.parametrize("line", WRONG_LINES.values(), ids=WRONG_LINES)
def test_a_line_that_does_not_add_up_is_refused(engine, line):
    put(engine, whole(settled("a")))
    with pytest.raises(sa.exc.IntegrityError, match="quantity times its unit price"):
        pricing(engine, line)
    with pytest.raises(sa.exc.DBAPIError, match=r"quantity times its unit price|JSON|json"):
        pricing(engine, charges='[[1], 2, "x"]')


@pytest.mark.parametrize(
    ("ordinal", "revision", "supersedes", "is_right"),
    [
        pytest.param(3, 2, "3", True, id="a first line"),
        pytest.param(3, 2, "7", False, id="a line that is not there"),
        pytest.param(3, 2, None, False, id="nothing"),
        pytest.param(3, 2, "0", False, id="a line of another place"),
        pytest.param(3, 2, "itself", False, id="itself"),
        pytest.param(3, 1, "3", False, id="a line of its own revision"),
        pytest.param(4, 1, None, True, id="a new line"),
        pytest.param(4, 1, "0", False, id="a new line that replaces one"),
        pytest.param(5, 1, None, False, id="a new line behind a gap"),
    ],
)
def test_a_line_that_was_priced_again_replaces_one_that_is_there(
    engine, ordinal, revision, supersedes, is_right
):
    reading = with_searches(engine)
    name = f"{ordinal}.{revision}.{reprice.line_digest(charge('x', 3, 5, price_source='s'))}"
    old = supersedes and f"{reading}.{name if supersedes == 'itself' else supersedes}"
    cost = COST + 15 + (7 if ordinal > 3 else 0)
    pricing(engine, (15, f"{reading}.{name}", ordinal, revision, old, None), **sums(name, cost))
    assert broken(engine) == (
        {} if is_right else {"digests": [("a", f"reading {reading} was changed")]}
    )


@pytest.mark.parametrize(("unit", "cost"), [(10, 600), (0, 0), (1_000_000, 60_000_000)])
def test_a_line_that_a_pricing_keeps_is_as_it_was_booked(engine, unit, cost):
    reading = with_searches(engine)
    name = f"3.2.{reprice.line_digest(charge('x', 3, 5, price_source='s'))}"
    found = sums(name, COST - 600 + cost + 15) | {"saved_picousd": 40 * (unit - 1)}
    line = (15, f"{reading}.{name}", 3, 2, f"{reading}.3", None)
    pricing(engine, line, kept_unit=unit, **found)
    assert broken(engine) == (
        {} if unit == 10 else {"digests": [("a", f"reading {reading} was changed")]}
    )


def test_no_line_vanishes_in_a_pricing(engine):
    reading = with_searches(engine)
    name = f"2.2.{reprice.line_digest(charge('x', 3, 5, price_source='s'))}"
    line = (15, f"{reading}.{name}", 2, 2, f"{reading}.2", None)
    pricing(engine, line, without=3, **sums(name, COST - 20 * 50 + 15))
    assert broken(engine)["digests"] == [("a", f"reading {reading} was changed")]


def with_searches(engine):
    """A booked exchange whose fourth line is of no tokens; the id of its reading."""
    entry = whole(settled("a"))
    put(engine, (*entry[:2], (*entry[2], charge("searches", 1, 7))))
    return rows(engine, "SELECT id FROM readings")[0][0]


def sums(name, cost):
    """The id and figures of a pricing with this one line of its own."""
    return {
        "id": f"2:{name}",
        "cost_state": "priced",
        "saved_picousd": 40 * (10 - 1),
        "amount_picousd": cost,
        "list_value_picousd": cost,
    }


def test_amounts_are_quantities_times_prices(engine):
    put(engine, whole(settled("a")))
    without_checks(engine)
    pricing(engine, WRONG_LINES["p"], WRONG_LINES["q"])
    found = broken(engine)
    assert sorted(found.pop("amounts")) == [
        ("a", "x: 3 x 5 is not -1"),
        ("a", "x: 3 x 5 is not 16"),
    ]
    assert [name for name, _ in found.pop("digests")] == ["a"]
    assert found == {}


def test_what_belongs_to_nothing(engine):
    put(engine, whole(settled("a")))
    without_checks(engine)
    alter(
        engine,
        "INSERT INTO readings (id, exchange_id, opened_at, revision, meter_version, usage_source, "
        "tool_units, further, remarks, read_at) SELECT 'stray', 'gone', opened_at, 1, '1', 'none', "
        "tool_units, further, remarks, read_at FROM readings",
    )
    pricing(engine, reading_id="no reading")
    assert broken(engine) == {"belonging": [("a", "pricing x"), ("gone", "reading stray")]}


def test_duplicates(engine):
    early = NOON - timedelta(hours=1)
    put(
        engine,
        whole(settled("first", at=early, **SAME)),
        whole(settled("second", **SAME)),
        whole(settled("third", **SAME)),
        whole(settled("other", response_id="r-2", content_digest="d")),
    )
    linked = by_id(engine, "duplicate_of")
    assert linked == [("first", None), ("other", None), ("second", "first"), ("third", "first")]
    alter(
        engine,
        "UPDATE exchanges SET duplicate_of = 'other' WHERE id = 'second'",
        "UPDATE exchanges SET duplicate_of = NULL WHERE id = 'third'",
    )
    assert broken(engine) == {
        "collisions": [("first", "2 exchanges of https://api.example.com:443 count with r-1")],
        "duplicates": [("second", "duplicate of other")],
        "twice": [
            (
                "first",
                "2 exchanges of https://api.example.com:443 answered with r-1, with the same "
                "key, request and answer",
            )
        ],
    }
    alter(
        engine,
        "UPDATE exchanges SET duplicate_of = 'third' WHERE id = 'second'",
        "UPDATE exchanges SET duplicate_of = 'first' WHERE id = 'third'",
    )
    assert broken(engine) == {"duplicates": [("second", "duplicate of third")]}


def test_the_one_that_counted_may_have_been_dropped(engine):
    put(
        engine,
        whole(settled("first", at=NOON - timedelta(days=2), **SAME)),
        whole(settled("again", **SAME)),
    )
    assert retention.drop_before(engine, NOON - timedelta(days=1)) == 1
    assert by_id(engine, "duplicate_of") == [("again", "first")]
    assert broken(engine) == {}
    alter(engine, "DELETE FROM meta WHERE key = 'dropped_until'")
    assert broken(engine) == {"duplicates": [("again", "duplicate of first")]}


def test_sums_of_days_that_are_over(engine):
    put(engine, whole(settled("a")), whole(settled("b", at=NEXT_DAY)))
    rollup.roll(engine, now=NOON + timedelta(days=5))
    assert broken(engine) == {}
    alter(
        engine,
        "UPDATE sums SET input_tokens = input_tokens + 5 WHERE summed_by = 'day' "
        "AND opened_at = '2026-11-02 00:00:00.000000Z'",
    )
    ((day, detail),) = broken(engine)["daily"]
    assert day == "2026-11-02"
    assert "input_tokens 5," in detail
    assert "requests 0," in detail
    assert broken(engine, NEXT_DAY) == {}
    alter(engine, "DELETE FROM sums")
    assert len(broken(engine)["daily"]) == 2


@pytest.mark.parametrize(
    ("written", "instead", "promise", "detail"),
    named(
        {
            "cost": (
                "THEN r.amount_picousd ELSE",
                "THEN r.amount_picousd + 1 ELSE",
                "cost",
                (
                    "a",
                    f"requests says {COST + 1}, its charges {COST}; "
                    f"list value {COST}, its charges {COST}",
                ),
            ),
            "counts": (
                "AND e.duplicate_of IS NULL",
                "",
                "requests",
                ("requests", "it has 2, the ledger 1"),
            ),
        }
    ),
)
@on_sqlite
def test_a_view_that_says_otherwise(engine, written, instead, promise, detail):
    put(engine, whole(settled("a", **SAME)), whole(settled("b", **SAME)))
    ((view,),) = rows(engine, "SELECT sql FROM sqlite_master WHERE name = 'requests'")
    assert written in view
    alter(engine, "DROP VIEW requests")
    alter(engine, view.replace(written, instead))
    assert broken(engine)[promise] == [detail]


def test_parts_beyond_their_totals_are_the_providers_doing(engine):
    usage = Usage(input_tokens=10, cache_read_tokens=6, cache_write_tokens=6, output_tokens=1)
    put(engine, whole(settled("odd"), (), usage=usage))
    (verdict,) = [verdict for verdict in verify(engine) if verdict.count]
    assert verdict.promise.is_remark
    assert verdict.examples == (("odd", "cache tokens 12 > 10"),)


def test_only_the_first_are_named_and_all_are_counted(engine):
    put(engine, *((settled(f"e{number}"), None, ()) for number in range(FAULTS_SHOWN_MAX + 3)))
    (verdict,) = [verdict for verdict in verify(engine) if verdict.count]
    assert (verdict.count, len(verdict.examples)) == (FAULTS_SHOWN_MAX + 3, FAULTS_SHOWN_MAX)


@on_sqlite
def test_a_question_that_cannot_be_asked_is_a_breach(engine):
    alter(engine, "DROP VIEW usage_daily")
    assert broken(engine) == {"daily": [("", "cannot be asked: no such table: usage_daily")]}


def test_a_file_that_is_damaged(url):
    put(url, *(whole(settled(f"e{number}")) for number in range(5)))
    root, size = row(
        url,
        "SELECT rootpage, (SELECT page_size FROM pragma_page_size) FROM sqlite_master "
        "WHERE name = 'ix_exchanges_id'",
    )
    rows(url, "PRAGMA wal_checkpoint(TRUNCATE)")
    path = file_of(url)
    with path.open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\0" * size)
    with on(url) as engine:
        assert "file" in broken(engine)


def test_names_are_not_given_twice():
    names = [promise.name for promise in PROMISES]
    assert len(set(names)) == len(names)
