"""The rule of duplicates: the databases keep it as the Python statement of it says, whatever the
order of arrival."""

import contextlib
from dataclasses import asdict, replace
from datetime import timedelta
from itertools import batched

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.model.exchange import Source
from ledger.parts.sync import bundles
from ledger.store import db
from ledger.store.engines import migration
from ledger.store.keys import Key
from ledger.store.writing import batch_insert
from tests.ledger.bundled import bundle_of
from tests.ledger.duplicates_rule import Link, Member, link, links_of, rank
from tests.ledger.written import NOON, ORIGIN, intake_on, key_of, put, settled, whole
from tests.named import for_each

many_examples = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
FULL = {"key_fingerprint": "k1", "request_digest": "q1", "upstream_digest": "u1"}
LIVE = Member(id="a", opened_at=NOON, origin=ORIGIN, response_id="r", content_digest="c1", **FULL)


def later(member: Member = LIVE, /, **changes) -> Member:
    return replace(member, **{"opened_at": NOON + timedelta(seconds=1), **changes})


def entry(member: Member):
    facts = asdict(member)
    name, at = facts.pop("id"), facts.pop("opened_at")
    return whole(settled(name, at=at, **{**facts, "source": Source(facts["source"])}))


def row_of(member: Member) -> batch_insert.Row:
    exchange, read, _ = entry(member)
    assert read is not None
    return batch_insert.settled_row(exchange, read, (), None)


def empty(engine) -> None:
    with db.writing(engine) as connection:
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql("SET LOCAL tokentee.retention = 'on'")
        else:
            connection.exec_driver_sql("INSERT INTO meta VALUES ('retention', '')")
        for table in ("pricings", "readings", "exchanges"):
            connection.exec_driver_sql(f"DELETE FROM {table}")
        connection.exec_driver_sql("DELETE FROM meta WHERE key = 'retention'")


RECORDED = {"source": "replay"}
FETCHED = RECORDED | {"request_digest": None, "upstream_digest": None}
"""As `metering.settlement.as_fetched` books a result that is fetched."""
SAME = {"a": Link(), "b": Link(duplicate_of="a")}
COLLIDE = {"a": Link(id_collision=True), "b": Link(id_collision=True)}
CASES = [
    pytest.param([LIVE], {"a": Link()}, id="alone"),
    pytest.param([LIVE, later(id="b")], SAME, id="seen again"),
    *(
        pytest.param([LIVE, later(id="b", **{name: value})], COLLIDE, id=f"{name}: {value}")
        for name in FULL
        for value in ("another", None)
    ),
    pytest.param(
        [LIVE, later(id="b", content_digest="c2")],
        SAME,
        id="the same bytes, read otherwise",
    ),
    pytest.param(
        [LIVE, later(id="b", opened_at=NOON - timedelta(1), **RECORDED)],
        SAME,
        id="an earlier recording does not take a live row's place",
    ),
    pytest.param(
        [LIVE, later(id="b", key_fingerprint=None, upstream_digest=None, **RECORDED)],
        SAME,
        id="a recording that knows less",
    ),
    pytest.param(
        [LIVE, later(id="b", **FETCHED), later(id="c", opened_at=NOON + timedelta(1), **FETCHED)],
        SAME | {"c": Link(duplicate_of="a")},
        id="a result that was fetched twice after its request had it",
    ),
    pytest.param(
        [
            replace(LIVE, content_digest="c0"),
            later(id="b", **FETCHED),
            later(id="c", opened_at=NOON + timedelta(1), **FETCHED),
        ],
        COLLIDE | {"c": Link(duplicate_of="b", id_collision=True)},
        id="a result that was ordered without usage, and fetched twice",
    ),
    pytest.param(
        [LIVE, later(id="b", **FETCHED | {"key_fingerprint": "other"})],
        COLLIDE,
        id="a result that another key fetched",
    ),
    pytest.param(
        [LIVE, later(id="b", key_fingerprint="other", **RECORDED)],
        COLLIDE,
        id="a recording of another key",
    ),
    pytest.param(
        [replace(LIVE, request_digest=None), later(id="b", **RECORDED)],
        SAME,
        id="a recording of a row of before the digest of requests",
    ),
    pytest.param(
        [
            replace(LIVE, source="replay", key_fingerprint=None),
            later(id="b", source="import", opened_at=NOON + timedelta(1)),
        ],
        {"a": Link(duplicate_of="b"), "b": Link()},
        id="of two recordings the one that knows more counts",
    ),
    pytest.param(
        [LIVE, later(id="b", response_id="other"), later(id="c", origin="other")],
        {"a": Link(), "b": Link(), "c": Link()},
        id="other groups",
    ),
    pytest.param(
        [
            LIVE,
            later(id="b", key_fingerprint="k2"),
            later(id="c", opened_at=NOON + timedelta(1)),
        ],
        COLLIDE | {"c": Link(duplicate_of="a", id_collision=True)},
        id="a duplicate in a group that collides",
    ),
    pytest.param(
        [
            replace(LIVE, id="b", source="replay", content_digest="c2"),
            replace(LIVE, id="c", source="replay", upstream_digest=None),
            LIVE,
        ],
        SAME | {"c": Link(duplicate_of="a")},
        id="a late original ends the collision of two recordings",
    ),
    pytest.param(
        [replace(LIVE, content_digest=None, upstream_digest=None), later(id="b")],
        {"a": Link(), "b": Link()},
        id="nothing to compare",
    ),
]


@for_each("members, expected", CASES)
def test_the_rule(members, expected):
    assert link(members) == expected


@pytest.mark.parametrize(("members", "expected"), CASES)
@pytest.mark.parametrize("is_reversed", [False, True])
def test_the_databases_keep_the_rule(engine, members, expected, is_reversed):
    put(engine, *(entry(member) for member in (reversed(members) if is_reversed else members)))
    assert links_of(engine) == expected


MEMBERS = st.lists(
    st.builds(
        Member,
        id=st.just(""),
        opened_at=st.integers(0, 3).map(lambda hours: NOON + timedelta(hours=hours)),
        origin=st.sampled_from([ORIGIN, ORIGIN, "https://other:443"]),
        response_id=st.sampled_from(["r", "r", "s", None]),
        source=st.sampled_from(["live", "live", "replay", "import"]),
        key_fingerprint=st.sampled_from([None, "k1", "k2"]),
        request_digest=st.sampled_from([None, "q1", "q2"]),
        upstream_digest=st.sampled_from([None, "u1", "u2"]),
        content_digest=st.sampled_from([None, "c1", "c2"]),
    ),
    max_size=7,
).map(lambda members: [replace(m, id=f"e{place}") for place, m in enumerate(members)])


@pytest.mark.large
@many_examples
@given(members=MEMBERS, data=st.data())
def test_order_and_batches_do_not_matter(engine, members, data):
    expected = link(members)
    empty(engine)
    arriving = data.draw(st.permutations(members))
    cut = data.draw(st.integers(0, len(members)))
    put(engine, *(entry(member) for member in arriving[:cut]))
    # The rest is written first and then linked, as bundles are.
    keys: list[Key] = []
    with db.writing(engine) as connection:
        for member in arriving[cut:]:
            bundles.write(connection, bundle_of(entry(member)))
            keys.append(key_of(entry(member)))
    with db.writing(engine) as connection:
        bundles.link(connection, keys)
    assert links_of(engine) == expected
    with db.writing(engine) as connection:
        migration.relink_all(connection)
    assert links_of(engine) == expected


@many_examples
@given(members=MEMBERS, random=st.randoms(), size=st.integers(1, 8))
def test_the_writer_links_as_merging_does(sqlite_engine, members, random, size):
    random.shuffle(members)
    empty(sqlite_engine)
    with contextlib.closing(intake_on(sqlite_engine)) as driver:
        for batch in batched(members, size):
            rows = [row_of(member) for member in batch]
            driver.execute(*batch_insert.statement(rows))
    assert links_of(sqlite_engine) == link(members)


@given(members=MEMBERS)
def test_what_counted_still_counts_when_recordings_are_added(members):
    live = [member for member in members if member.source == "live"]
    before, after = link(live), link(members)
    assert {m.id for m in live if not before[m.id].duplicate_of} == {
        m.id for m in live if not after[m.id].duplicate_of
    }


@given(members=MEMBERS)
def test_only_a_row_with_the_same_key_and_request_makes_a_live_row_a_duplicate(members):
    named = {member.id: member for member in members}
    for name, found in link(members).items():
        if found.duplicate_of and named[name].source == "live":
            original = named[found.duplicate_of]
            assert rank(original) < rank(named[name])
            assert (original.key_fingerprint, original.request_digest) == (
                named[name].key_fingerprint,
                named[name].request_digest,
            )


@pytest.mark.large
@pytest.mark.parametrize(
    ("names", "counting"),
    [
        (["key_fingerprint"], 2_000),
        (["request_digest"], 2_000),
        (["upstream_digest"], 2_000),
        (["content_digest"], 1),
        (["content_digest", "without bytes"], 2_000),
        (["without bytes"], 1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_large_group_is_linked_in_constant_time_a_row(sqlite_engine, names, counting):
    """A gateway that numbers all responses `1`, which differ by these: SQLite's steps a row must
    not grow."""
    bytes_of = {"upstream_digest": None} if "without bytes" in names else {}
    driver = intake_on(sqlite_engine)
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    costs = []
    for start in range(0, 2_000, 200):
        rows = []
        for number in range(start, start + 200):
            differing = {name: f"v{number}" for name in names if name != "without bytes"}
            member = later(id=f"e{number:05}", **bytes_of, **differing)
            rows.append(row_of(member))
        steps = 0
        driver.set_progress_handler(count, 100)
        for batch in batched(rows, batch_insert.ROWS_MAX):
            driver.execute(*batch_insert.statement(batch))
        driver.set_progress_handler(None, 0)
        costs.append(steps)
    driver.close()
    assert costs[-1] < 2 * costs[1], costs
    found = links_of(sqlite_engine).values()
    assert sum(not link.duplicate_of for link in found) == counting
    assert {link.id_collision for link in found} == {counting > 1}


def test_a_late_original_ends_a_collision(engine):
    """Two recordings collide until the live row comes of which both are duplicates."""
    recordings = [
        replace(LIVE, id="b", source="replay", content_digest="c2"),
        replace(LIVE, id="c", source="replay", upstream_digest=None),
    ]
    for member in recordings:
        put(engine, entry(member))
    colliding = Link(id_collision=True)
    assert links_of(engine) == {"b": colliding, "c": colliding}
    put(engine, entry(LIVE))
    assert links_of(engine) == link([*recordings, LIVE])
    assert links_of(engine) == {
        "a": Link(),
        "b": Link(duplicate_of="a"),
        "c": Link(duplicate_of="a"),
    }
