"""Merging ledgers: order, repetition and interruption do not matter, whatever the databases. Ledgers of
parts, merged into one: each exchange once, under the start that the target has; and which exchanges a
ledger has settled."""

import shutil
import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from sqlalchemy.engine import Engine

from ledger.maintenance import known
from ledger.maintenance.corrections import add_quotas
from ledger.maintenance.known import KnownExchanges
from ledger.model.errors import LedgerError
from ledger.model.exchange import Outcome, Quota, QuotaKind, State, UsageSource
from ledger.model.usage import COUNT_MAX, Usage
from ledger.parts.sync import bundles, merging
from ledger.store import db, spool
from ledger.store.engines import migration, urls
from ledger.store.engines.sqlite_file import REVISION
from ledger.store.tables import exchanges, pricings, quotas, readings
from tests.ledger.bundled import bundle_of
from tests.ledger.duplicates_rule import Member, link, links_of
from tests.ledger.written import (
    COST,
    NOON,
    alter,
    by_id,
    charge,
    charge_again,
    key_of,
    on,
    on_postgres,
    opened,
    put,
    reading,
    row,
    rows,
    settled,
    totals,
    whole,
)

TABLES = (exchanges, readings, pricings, quotas)


@pytest.fixture
def two(request, new_sqlite):
    """Two empty ledgers, as the parameter says."""

    def make(kind, name):
        if kind == "sqlite":
            return new_sqlite(name)
        return request.getfixturevalue("new_postgres")()

    return make(request.param[0], "source"), make(request.param[1], "target")


every_way = pytest.mark.parametrize(
    "two",
    [
        pytest.param(("sqlite", "sqlite"), id="sqlite to sqlite"),
        pytest.param(("sqlite", "pg"), id="sqlite to postgres", marks=pytest.mark.postgres),
        pytest.param(("pg", "sqlite"), id="postgres to sqlite", marks=pytest.mark.postgres),
        pytest.param(("pg", "pg"), id="postgres to postgres", marks=pytest.mark.postgres),
    ],
    indirect=True,
)


def lost(name, **more):
    """An exchange of a process that died, with the placeholder of its reading."""
    one = replace(settled(name, **more), state=State.LOST, outcome=Outcome.LOST)
    none = {"usage_source": UsageSource.NONE, "usage": Usage(), "usage_json": None}
    return whole(one, (), revision=0, **none)


def contents(url):
    """Every value of every fact, as the code reads it from either database."""
    with on(url) as engine, engine.connect() as connection:
        return [
            sorted(tuple(map(repr, line)) for line in connection.execute(sa.select(table)))
            for table in TABLES
        ]


@every_way
def test_everything_arrives_as_it_was(two):
    source, target = two
    odd = settled(
        "odd",
        at=NOON + timedelta(microseconds=1),
        tags={"k": 'ü"\\'},
        user_agent="a\ufffdb",
        streamed=True,
        usage_asked=False,
        events=2**40,
        outcome=Outcome.ERROR_FRAME,
    )
    usage = Usage(input_tokens=COUNT_MAX, output_tokens=0, tool_units={"x": 1}, is_byok=False)
    put(
        source,
        whole(settled("a", response_id="r", content_digest="x")),
        whole(settled("b", at=NOON + timedelta(1), response_id="r", content_digest="x")),
        whole(settled("c", response_id="r", content_digest="y")),
        (opened("open"), None, ()),
        whole(odd, (), usage=usage, usage_json='{"x": [1.50,  "e"]}'),
    )
    merged = merging.sync(source, target)
    assert (merged.exchanges, merged.refused) == (5, ())
    assert contents(target) == contents(source)
    before = contents(target)
    merging.sync(source, target)
    assert contents(target) == before


@every_way
def test_what_is_added_to_a_known_exchange_is_sent(two):
    """Whatever is only ever appended: a reading, a charge, what an answer stated of limits."""
    source, target = two
    put(source, whole(settled("a")))
    merging.sync(source, target)
    limit = Quota(window="5h", window_name="5h", kind=QuotaKind.PLAN, used_ppm=5)
    adding = (
        lambda: put(source, (opened("a"), reading(settled("a"), revision=2), ())),
        lambda: charge_again(source, "a", 0, 7),
        lambda: add_limits(source, replace(settled("a"), quotas=(limit,))),
    )
    for add in adding:
        add()
        merging.sync(source, target)
        assert contents(target) == contents(source)


def add_limits(url, exchange):
    with on(url) as engine:
        assert add_quotas(engine, [exchange]) == 1


@every_way
def test_what_has_gone_further_stays(two):
    source, target = two
    put(source, whole(settled("a")), lost("b"), (opened("c"), None, ()))
    put(target, (opened("a"), None, ()), whole(settled("b")), (opened("c"), None, ()))
    merging.sync(source, target)
    assert by_id(target, "state") == [("a", "settled"), ("b", "settled"), ("c", "open")]
    assert row(target, "SELECT SUM(input_tokens), SUM(cost_picousd) FROM requests") == (
        200,
        2 * COST,
    )


def test_a_row_that_the_target_refuses_stands_alone(new_sqlite):
    source, target = new_sqlite("source"), new_sqlite("target")
    put(source, *(whole(settled(f"a{number}")) for number in range(9)))
    trigger = "CREATE TRIGGER refuse BEFORE INSERT ON readings WHEN NEW.exchange_id = 'a4'"
    alter(target, f"{trigger} BEGIN SELECT RAISE(ABORT, 'not this one'); END")
    merged = merging.sync(source, target)
    assert [(refused.key[1], refused.error) for refused in merged.refused] == [
        ("a4", "not this one")
    ]
    assert totals(target) == (8, 800, 160, 8 * COST)


@pytest.mark.postgres
def test_text_that_postgres_does_not_take_is_put_right(new_sqlite, new_postgres):
    source, target = new_sqlite(), new_postgres()
    put(source, whole(settled("a", user_agent="x\0y", error_message="\\u0000 is no NUL")))
    assert merging.sync(source, target).refused == ()
    assert row(target, "SELECT user_agent, error_message FROM requests") == (
        "x\N{REPLACEMENT CHARACTER}y",
        "\\u0000 is no NUL",
    )


@pytest.mark.postgres
def test_months_get_their_partitions(new_sqlite, new_postgres):
    source, target = new_sqlite(), new_postgres()
    moments = {"a": NOON - timedelta(days=40), "b": NOON, "ancient": NOON.replace(year=1990)}
    put(source, *(whole(settled(name, at=at)) for name, at in moments.items()))
    merging.sync(source, target)
    assert by_id(target, "tableoid::regclass::text") == [
        ("a", "exchanges_p2026_09"),
        ("ancient", "exchanges_pdefault"),
        ("b", "exchanges_p2026_11"),
    ]


def test_an_interrupted_sync_goes_on(new_sqlite, monkeypatch):
    source, target = new_sqlite("source"), new_sqlite("target")
    monkeypatch.setattr(merging, "BUNDLE_EXCHANGES_MAX", 2)
    put(source, *(whole(settled(f"a{number}")) for number in range(7)))
    seen = []

    def cut(done, total):
        seen.append((done, total))
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        merging.sync(source, target, on_progress=cut)
    assert totals(target)[0] == 4
    merging.sync(source, target, on_progress=lambda *progress: seen.append(progress))
    assert totals(target) == (7, 700, 140, 7 * COST)
    assert seen == [(2, 7), (4, 7), (2, 7), (4, 7), (6, 7), (7, 7)]


@pytest.mark.parametrize("comes_first", ["lost", "settled"])
@pytest.mark.parametrize(
    "two", [pytest.param(("sqlite", "pg"), marks=pytest.mark.postgres)], indirect=True
)
def test_what_was_read_at_a_stop_gives_way_to_the_end(two, comes_first):
    """A proxy that stops books what it has read; the end may be recorded elsewhere."""
    source, target = two
    stopped = replace(settled("a"), state=State.LOST, outcome=Outcome.LOST)
    stopped_row = whole(stopped, (), revision=0, usage=Usage(input_tokens=7))
    for one in (stopped_row, whole(settled("a")))[:: 1 if comes_first == "lost" else -1]:
        put(source, one)
        merging.sync(source, target)
        put(source, one)
    for place in two:
        assert totals(place) == (1, 100, 20, COST)


@every_way
def test_only_what_the_target_lacks_is_sent(two, monkeypatch):
    source, target = two
    read_again = whole(settled("read"), revision=2, usage=Usage(input_tokens=7))
    read_there = whole(settled("read"), (), revision=3, usage=Usage(input_tokens=8))
    first = (
        whole(settled("known")),
        (opened("open"), None, ()),
        lost("lost"),
        whole(settled("read")),
        whole(settled("charged")),
    )
    put(source, *first)
    put(target, *first, read_there)
    sent: list[str] = []
    real = bundles.read

    def note(connection, keys):
        sent.extend(one for _, one in keys)
        return real(connection, keys)

    monkeypatch.setattr(bundles, "read", note)
    assert merging.sync(source, target).exchanges == 5
    assert sent == []
    # Of each kind one fact more.
    put(source, *(whole(settled(name)) for name in ("new", "open", "lost")), read_again)
    for ordinal, unit in enumerate((10, 1, 50)):  # the same prices once more
        charge_again(source, "charged", ordinal, unit)
    assert merging.sync(source, target).exchanges == 6
    assert sorted(sent) == ["charged", "lost", "new", "open", "read"]
    assert totals(target)[0] == 6
    del sent[:]
    merging.sync(source, target)
    assert sent == []
    merging.sync(target, source)
    assert sent == ["read"]
    assert contents(source) == contents(target)


@every_way
def test_rows_that_an_interrupted_sync_did_not_link_are_linked(two, monkeypatch):
    source, target = two
    late = NOON + timedelta(hours=1)
    first, second = (
        whole(settled(name, at=at, response_id="r", content_digest="x"))
        for name, at in (("a", NOON), ("b", late))
    )
    put(source, first, second)
    put(target, second)

    def fail(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(bundles, "link", fail)
        with pytest.raises(KeyboardInterrupt):
            merging.sync(source, target)
    merging.sync(source, target)
    assert by_id(target, "duplicate_of") == [("a", None), ("b", "a")]


def test_an_older_source_is_read_from_a_migrated_copy(new_sqlite, tmp_path):
    """The file itself is not migrated. What it holds comes as an upgrade would leave it."""
    target = new_sqlite("target")
    source = f"sqlite:///{tmp_path / 'older.sqlite3'}"
    with db.disposing(db.create(source)) as engine:
        with migration.migrating(engine) as connection:
            migration.run_alembic("upgrade", connection, "0017")
        filled = (Path(__file__).parents[2] / "filled" / "0001.sql").read_text()
        alter(engine, *(line for line in filled.splitlines() if line[:6] == "INSERT"))
        for _ in range(2):
            assert merging.sync(source, target).refused == ()
            assert totals(target) == (2, 100, 20, 725)
        assert migration.revision_of(engine) == "0017"
        names = [column["name"] for column in sa.inspect(engine).get_columns("charges")]
        of_charges = f"SELECT {', '.join(names)} FROM charges ORDER BY id"
        assert rows(target, of_charges) == rows(engine, of_charges)
    assert [file.name for file in tmp_path.glob("older*") if "before" in file.name] == []


@on_postgres
def test_an_older_shared_source_is_named(ledger_url, engine, new_sqlite):
    alter(engine, "UPDATE alembic_version SET version_num = '0017'")
    with pytest.raises(LedgerError, match=r"has the schema 0017.*run `tokentee db upgrade`"):
        merging.sync(ledger_url, new_sqlite())


def test_what_is_no_source(new_sqlite, tmp_path):
    target = new_sqlite()
    with pytest.raises(LedgerError, match="there is no ledger"):
        merging.sync(f"sqlite:///{tmp_path / 'none.sqlite3'}", target)
    with pytest.raises(LedgerError, match="the same ledger"):
        merging.sync(target, target)
    assert not (tmp_path / "none.sqlite3").exists()


# The laws. An entry may be in several ledgers, as one that was recorded, replayed, corrected.

IDS = st.sampled_from("abcde")
MOMENTS = {name: NOON + timedelta(hours=number) for number, name in enumerate("abcde")}


@st.composite
def entries(draw):
    name = draw(IDS)
    kind = draw(st.sampled_from(["open", "lost", "settled", "settled", "settled"]))
    at = MOMENTS[name]
    if kind == "open":
        return opened(name, at=at), None, ()
    if kind == "lost":
        return lost(name, at=at)
    # What is settled is the same wherever it was recorded; what was read of it may differ.
    facts = {
        "a": ("r", "x"),
        "b": ("r", "x"),
        "c": ("r", "y"),
        "d": (None, None),
        "e": ("s", "x"),
    }[name]
    return whole(
        settled(name, at=at, response_id=facts[0], content_digest=facts[1]),
        revision=draw(st.integers(1, 2)),
        read_at=NOON + timedelta(seconds=draw(st.integers(0, 2))),
        usage=Usage(input_tokens=draw(st.integers(0, 9)), output_tokens=draw(st.integers(0, 9))),
    )


LEDGER = st.lists(entries(), max_size=5)


@pytest.fixture(scope="module")
def empty(migrated_file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("laws")
    count = 0

    def make(*contents):
        nonlocal count
        count += 1
        path = folder / f"{count}.sqlite3"
        shutil.copy(migrated_file, path)
        url = f"sqlite:///{path}"
        put(url, *contents)
        return url

    return make


@pytest.mark.large
@settings(max_examples=8, deadline=None)
@given(LEDGER, LEDGER, LEDGER)
def test_merging_is_idempotent_commutative_and_associative(empty, one, two, three):
    a, b, c = empty(*one), empty(*two), empty(*three)
    left = empty()
    for source in (a, b, c):
        merging.sync(source, left)
    right = empty()
    for source in (c, b, a, b, c):
        merging.sync(source, right)
    # (b + c) first, then a: the other way of bracketing.
    inner = empty()
    for source in (b, c):
        merging.sync(source, inner)
    nested = empty(*one)
    merging.sync(inner, nested)
    assert totals(left) == totals(right) == totals(nested)
    query = "SELECT id, opened_at, origin, response_id, content_digest FROM exchanges"
    members = [Member(**each._mapping) for each in rows(left, query)]
    assert links_of(left) == link(members)


@every_way
def test_links_move_to_the_earliest_member_of_both(two):
    source, target = two
    late = NOON + timedelta(hours=1)
    put(source, whole(settled("early", response_id="r", content_digest="x")))
    put(
        target,
        whole(settled("late", at=late, response_id="r", content_digest="x")),
        whole(settled("later", at=late + late.resolution, response_id="r", content_digest="x")),
    )
    assert totals(target)[0] == 1
    merging.sync(source, target)
    linked = by_id(target, "duplicate_of")
    assert linked == [("early", None), ("late", "early"), ("later", "early")]


@every_way
def test_two_bookings_of_one_exchange_count_once(two):
    """Recorded here, replayed there, priced from two lists: the earlier booking stands."""
    source, target = two
    put(source, whole(settled("a")))
    put(target, whole(settled("a"), [charge("output", 20, 999)], read_at=NOON + timedelta(days=9)))
    merging.sync(source, target)
    assert totals(target) == (1, 100, 20, COST)


@on_postgres
def test_two_that_link_at_once_agree(engine):
    """Both have committed their facts, neither has linked yet: whoever comes later sees both."""
    one = settled("a", response_id="r", content_digest="x")
    other = settled("b", at=NOON + timedelta(1), response_id="r", content_digest="x")
    sent = (whole(other), whole(one))
    for entry in sent:
        with db.writing(engine) as connection:
            bundles.write(connection, bundle_of(entry))
    for entry in sent:
        with db.writing(engine) as connection:
            bundles.link(connection, [key_of(entry)])
    assert by_id(engine, "duplicate_of") == [("a", None), ("b", "a")]


ODD = "an 'odd' \"id\" \\ [1], 语"


def test_settled_exchanges_are_found_by_their_ids(engine: Engine) -> None:
    lost = settled("lost", state=State.LOST, outcome=Outcome.LOST)
    put(engine, whole(settled(ODD, path="/a")), whole(settled("b")), whole(lost))
    put(engine, (opened("open"), None, ()))
    many = [f"unknown {number}" for number in range(2_000)]
    found = known._settled(engine, [ODD, *many, "b", "open", "lost"])
    assert found == {ODD: "/a", "b": "/v1/chat/completions"}
    assert known._settled(engine, []) == {}


@pytest.fixture
def path(new_sqlite):
    """A SQLite ledger with one exchange."""
    with db.disposing(db.ensure(new_sqlite())) as engine:
        put(engine, whole(settled(ODD, path="/a")))
    return engine.url.database


def test_a_sqlite_file_is_read_with_the_driver_alone(path, monkeypatch) -> None:
    monkeypatch.setattr(db, "open_existing", None)
    one = KnownExchanges(f"sqlite:///{path}")
    assert one.settled([ODD, "b"]) == {ODD: "/a"}
    one.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        one.settled([ODD])


def test_engines_are_opened_when_they_are_asked_for(path) -> None:
    one = KnownExchanges(f"sqlite:///{path}")
    assert [known._settled(engine, [ODD]) for engine in one.engines] == [{ODD: "/a"}]
    one.close()


@pytest.mark.parametrize(
    ("table", "column", "exchange"),
    [("exchanges", "user_agent", "id"), ("readings", "reason", "exchange_id")],
)
def test_bytes_in_a_row_of_the_source_cost_this_row_alone(new_sqlite, table, column, exchange):
    """SQLite takes bytes in any column, and JSON holds none: the other exchanges arrive."""
    source, target = new_sqlite("source"), new_sqlite("target")
    put(source, *(whole(settled(name)) for name in "abcde"))
    with sqlite3.connect(source.removeprefix("sqlite:///")) as connection:
        for (trigger,) in connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall():
            connection.execute(f"DROP TRIGGER {trigger}")
        connection.execute(f"UPDATE {table} SET {column} = x'00ff' WHERE {exchange} = 'c'")
    merged = merging.sync(source, target)
    assert [refused.key[1] for refused in merged.refused] == ["c"]
    assert "BLOB" in merged.refused[0].error
    with on(target) as engine:
        assert [row.id for row in rows(engine, "SELECT id FROM exchanges ORDER BY id")] == [*"abde"]


@pytest.mark.parametrize("table", [each.name for each in bundles.SENT])
@pytest.mark.timeout(20)
def test_a_view_without_an_end_in_place_of_a_table_is_no_ledger(new_sqlite, table):
    source, target = new_sqlite("source"), new_sqlite("target")
    put(source, whole(settled("a")))
    with sqlite3.connect(source.removeprefix("sqlite:///")) as connection:
        names = [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]
        columns = ", ".join(f'n AS "{name}"' for name in names)
        connection.execute(f"DROP TABLE {table}")
        connection.execute(
            f"CREATE VIEW {table} AS WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 "
            f"FROM c) SELECT {columns} FROM c"
        )
    with pytest.raises(LedgerError, match=r"source.* is not a ledger"):
        merging.sync(source, target)


def test_a_column_that_is_made_as_it_is_read_is_of_no_ledger(new_sqlite):
    source, target = new_sqlite("source"), new_sqlite("target")
    with sqlite3.connect(source.removeprefix("sqlite:///")) as connection:
        connection.execute("ALTER TABLE quotas ADD COLUMN x AS (hex(zeroblob(400000000)))")
    with pytest.raises(LedgerError, match=r"source.* is not a ledger"):
        merging.sync(source, target)


def test_what_is_no_ledger_is_refused_as_by_every_command(tmp_path, path) -> None:
    missing, empty, text = (tmp_path / name for name in ("missing.db", "empty.db", "text.db"))
    sqlite3.connect(empty).close()
    text.write_text("not a database, but long enough to be looked at" * 100)
    alter(f"sqlite:///{path}", "UPDATE alembic_version SET version_num = '9999'")
    for one in (missing, empty, text, path):
        found = []
        for open_one in (KnownExchanges, db.open_existing):
            with pytest.raises(LedgerError) as caught:
                open_one(f"sqlite:///{one}")
            found.append(str(caught.value))
        assert found[0] == found[1]
    assert not missing.exists()
    assert REVISION < "9999"


@pytest.mark.postgres
@pytest.mark.usefixtures("own_data_directory")
def test_a_shared_ledger_is_asked_after_its_spool(new_postgres) -> None:
    url = new_postgres()
    file = spool.path_for(urls.parse_url(url))
    file.parent.mkdir(parents=True, exist_ok=True)
    for place, name in ((url, "merged"), (f"sqlite:///{file}", "waiting")):
        with db.disposing(db.ensure(place)) as engine:
            put(engine, whole(settled(name, path=f"/{name}")))
    one = KnownExchanges(url)
    assert one.settled(["merged", "waiting", "b"]) == {"merged": "/merged", "waiting": "/waiting"}
    one.close()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("exchanges.first_byte_at", "no time"),
        ("exchanges.settled_at", "2026-02-30 00:00:00.000000Z"),
        ("exchanges.tags", "[]x"),
        ("exchanges.tags", '["a"]'),
        ("exchanges.error_type", "the text of a prompt"),
        ("exchanges.events", 2**62),
        ("readings.tool_units", '{"x": "y"}'),
        ("readings.usage_json", '{"x": "the text of an answer"}'),
        ("readings.input_tokens", 2**62),
    ],
)
def test_a_row_that_no_recorder_writes_is_named_and_the_others_arrive(new_sqlite, column, value):
    source, target = new_sqlite("source"), new_sqlite("target")
    put(source, *(whole(settled(name)) for name in "abc"))
    table, _, name = column.partition(".")
    with sqlite3.connect(source.removeprefix("sqlite:///")) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        for (trigger,) in connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall():
            connection.execute(f"DROP TRIGGER {trigger}")
        which = "id" if table == "exchanges" else "exchange_id"
        connection.execute(f"UPDATE {table} SET {name} = ? WHERE {which} = 'b'", (value,))
    merged = merging.sync(source, target)
    assert [one.key[1] for one in merged.refused] == ["b"]
    assert merged.refused[0].error.startswith(column)
    assert totals(target)[0] == 2
