"""Shipping to PostgreSQL: whatever is wrong with it, late and never lost, once and never twice."""

import re
import threading
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from ledger.commands import db as db_command
from ledger.maintenance import rollup
from ledger.model.errors import LedgerError
from ledger.model.exchange import SESSION_TOTAL
from ledger.parts.budgets.share_rows import ServerRows
from ledger.parts.sync import bundles, merging, shipper
from ledger.parts.sync.shipper import Shipper
from ledger.store import db, retention, secret, spool
from ledger.store.engines import urls
from ledger.store.engines.sqlite_file import REVISION
from ledger.store.processes import nodes, recovery, supervision
from ledger.store.tables import PARTITIONED, outbox, set_aside
from tests.ledger.bundled import bundle_of
from tests.ledger.written import (
    COST,
    NOON,
    alter,
    by_id,
    key_of,
    on_sqlite,
    opened,
    put,
    row,
    rows,
    settled,
    totals,
    wait_until,
    whole,
    writing,
)

pytestmark = [pytest.mark.postgres, pytest.mark.usefixtures("own_data_directory")]


SHIP_AFTER_SECONDS = shipper.SHIP_AFTER_SECONDS
"""Of a proxy: tests do not wait for so long."""


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(shipper, "SHIP_AFTER_SECONDS", 0.01)
    monkeypatch.setattr(shipper, "RECONNECT_SECONDS", 0.02)
    monkeypatch.setattr(shipper, "RECONNECT_SECONDS_MAX", 0.05)
    monkeypatch.setattr(shipper, "SHIPPER_TURN_SECONDS", 0.05)


@pytest.fixture
def target(new_postgres):
    return new_postgres()


@pytest.fixture
def shared(target):
    with db.disposing(db.open_engine(target)) as engine:
        yield engine


class Log:
    """What a shipper says, and a way to wait for it."""

    def __init__(self):
        self.lines = []
        self._said = threading.Condition()

    def __call__(self, level, line):
        with self._said:
            self.lines.append(line)
            self._said.notify_all()

    def wait_for(self, word, times=1):
        with self._said:
            found = self._said.wait_for(
                lambda: sum(word in line for line in self.lines) >= times, 30
            )
        assert found, self.lines


class Running:
    """A spool that is being shipped."""

    def __init__(self, path, target):
        self.path = path
        self.engine = db.ensure(f"sqlite:///{path}")
        self.log = Log()
        self.shipper = Shipper(path, urls.parse_url(target), log=self.log)
        self.shipper.start()

    def put(self, *entries):
        """Row and note in one transaction, as the writer does: what is old and in no outbox
        counts as shipped, and is dropped."""
        for entry in entries:
            with db.writing(self.engine) as connection:
                bundles.write(connection, bundle_of(entry))
                connection.execute(
                    sa.insert(outbox).values(exchange_id=entry[0].id, opened_at=entry[0].opened_at)
                )
            with db.writing(self.engine) as connection:
                bundles.link(connection, [key_of(entry)])
        self.shipper.wake()

    def wait_until_shipped(self):
        """Until the outbox is empty."""
        wait_until(
            lambda: spool.status_of(self.path).waiting == 0,
            lambda: (spool.status_of(self.path), self.log.lines),
        )

    def ship(self, *entries):
        self.put(*entries)
        self.wait_until_shipped()

    def close(self):
        self.shipper.stop(30)
        self.engine.dispose()


@pytest.fixture
def run(tmp_path, migrated_file):
    """Starts shippers, each with a spool of its own."""
    started = []

    def start(target, name="spool"):
        path = tmp_path / f"{name}.sqlite3"
        if not path.exists():
            path.write_bytes(migrated_file.read_bytes())
        started.append(Running(path, target))
        return started[-1]

    yield start
    for running in started:
        running.close()


def some(count, prefix="a"):
    return [whole(settled(f"{prefix}{number}")) for number in range(count)]


def test_what_a_proxy_writes_arrives(target, shared):
    with writing(target) as written:
        written.ledger.open(opened("a"))
        assert written.settle(settled("a")).committed
        written.ledger.open(opened("b"))
        assert written.ledger.shown_url == urls.shown(target)
    assert totals(shared) == (1, 100, 20, COST)
    assert by_id(shared, "state") == [("a", "settled"), ("b", "open")]
    assert written.lines() == []
    (path,) = spool.all_paths()
    status = spool.status_of(path)
    assert (status.waiting, status.trouble, status.refused) == (0, None, ())
    assert status.target == urls.shown(target)
    assert status.shipped_at is not None


def test_many_shippers_agree(target, shared, run):
    """Each has members of the same groups, the earliest anywhere."""
    count = 3
    proxies = [run(target, f"spool{number}") for number in range(count)]
    for number, running in enumerate(proxies):
        entries = []
        for group in range(12):
            at = NOON + timedelta(seconds=(group * 7 + number * 3) % 5)
            name = f"g{group}-{number}"
            same = settled(name, at=at, response_id=f"r{group}", content_digest="x")
            other = settled(f"{name}-o", at=at, response_id="all", content_digest=f"{name}")
            entries += [whole(same), whole(other)]
        running.put(*entries)
    for running in proxies:
        running.wait_until_shipped()
    assert totals(shared) == (12 + 36, 48 * 100, (12 + 36) * 20, 48 * COST)
    assert row(
        shared,
        "SELECT COUNT(*) FROM exchanges e WHERE response_id <> 'all' AND duplicate_of IS DISTINCT "
        "FROM (SELECT NULLIF(f.id, e.id) FROM exchanges f WHERE f.response_id = e.response_id "
        "ORDER BY f.opened_at, f.id LIMIT 1)",
    ) == (0,)
    assert row(
        shared,
        "SELECT COUNT(*), COUNT(*) FILTER (WHERE id_collision) FROM exchanges "
        "WHERE response_id = 'all'",
    ) == (36, 36)


FAILURES = [
    pytest.param("53100", "could not extend file: No space left on device", id="disk full"),
    pytest.param("40P01", "deadlock detected", id="deadlock"),
    pytest.param("57014", "canceling statement due to statement timeout", id="too slow"),
    pytest.param("25006", "cannot execute INSERT in a read-only transaction", id="failed over"),
    pytest.param("57P01", "terminating connection due to administrator command", id="restart"),
]


@pytest.mark.parametrize(("code", "said"), FAILURES)
def test_a_database_in_trouble_is_said_once_and_tried_again(target, shared, run, code, said):
    alter(
        shared,
        (
            "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            f"RAISE EXCEPTION '{said}' USING ERRCODE = '{code}'; END $$"
        ),
        "CREATE TRIGGER fail BEFORE INSERT ON readings FOR EACH ROW EXECUTE FUNCTION fail()",
    )
    running = run(target)
    running.put(*some(10))
    running.log.wait_for(said)
    assert spool.status_of(running.path).waiting == 10
    assert spool.status_of(running.path).trouble == said
    assert totals(shared)[0] == 0
    # The shipper writes in this order, too: in the other one both could wait for each other.
    alter(shared, "LOCK TABLE exchanges", "DROP TRIGGER fail ON readings")
    running.log.wait_for("is written again")
    running.wait_until_shipped()
    assert totals(shared) == (10, 1000, 200, 10 * COST)
    assert spool.status_of(running.path).trouble is None
    assert len(running.log.lines) == 2


def test_a_database_that_goes_away_and_comes_back(target, shared, run, administer):
    running = run(target)
    running.ship(*some(5))
    name = sa.make_url(target).database
    shared.dispose()
    administer(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    administer(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
    running.put(*some(5, "b"))
    running.log.wait_for("not currently accepting connections")
    administer(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    running.log.wait_for("is written again")
    running.wait_until_shipped()
    assert totals(shared) == (10, 1000, 200, 10 * COST)


def test_a_table_that_somebody_holds_makes_rows_late(target, shared, run, monkeypatch):
    monkeypatch.setattr(merging, "LOCK_MS_MAX", 50)
    monkeypatch.setattr(retention, "LOCK_MS_MAX", 50)
    running = run(target)
    running.ship(*some(1))
    with shared.connect() as holder:
        holder.exec_driver_sql("LOCK TABLE readings IN ACCESS EXCLUSIVE MODE")
        running.put(*some(3, "b"))
        running.log.wait_for("lock timeout")
        holder.rollback()
    running.log.wait_for("is written again")
    running.wait_until_shipped()
    assert totals(shared) == (4, 400, 80, 4 * COST)


@pytest.mark.parametrize(
    ("revision", "said"),
    [("0003", "run `tokentee db upgrade`"), ("9999", "written by a newer tokentee")],
)
def test_a_schema_that_is_not_ours_is_waited_for(target, shared, run, revision, said):
    def set_revision(value):
        alter(shared, f"UPDATE alembic_version SET version_num = '{value}'")

    set_revision(revision)
    running = run(target)
    running.put(*some(3))
    running.log.wait_for(said)
    set_revision(REVISION)
    running.wait_until_shipped()
    assert totals(shared)[0] == 3


def test_a_poisoned_row_is_set_aside_alone(target, shared, run):
    alter(
        shared, "ALTER TABLE exchanges ADD CONSTRAINT ck_no_poison CHECK (user_agent <> 'poison')"
    )
    running = run(target)
    running.ship(*some(6), whole(settled("bad", user_agent="poison")), *some(6, "b"))
    assert totals(shared) == (12, 1200, 240, 12 * COST)
    (refused,) = spool.status_of(running.path).refused
    assert refused.key[1] == "bad"
    assert "ck_no_poison" in refused.error
    assert "poison," not in refused.error
    assert any("refuses exchange bad" in line for line in running.log.lines)
    running.close()

    alter(shared, "ALTER TABLE exchanges DROP CONSTRAINT ck_no_poison")
    again = run(target)
    again.wait_until_shipped()
    wait_until(lambda: totals(shared)[0] == 13)
    assert spool.status_of(again.path).refused == ()


def test_of_those_that_share_a_spool_one_ships_and_the_next_takes_over(target, shared, run):
    first, second = run(target), run(target)
    first.ship(*some(3))
    shippers = [running.shipper for running in (first, second)]
    assert sum(one._turn is not None for one in shippers) == 1
    holder, other = (first, second) if first.shipper._turn else (second, first)
    holder.close()
    other.ship(*some(3, "b"))
    assert totals(shared)[0] == 6


def test_rows_of_the_last_moment_are_shipped_by_whoever_ends_last(target, shared, run, monkeypatch):
    """By one that never had the turn, and by one that gives it back just before."""
    monkeypatch.setattr(shipper, "SHIPPER_TURN_SECONDS", 60.0)
    first, second = run(target), run(target)
    first.ship(whole(settled("a")))
    holder, other = (first, second) if first.shipper._turn else (second, first)
    holder.close()
    other.put(whole(settled("b")))
    other.close()
    assert totals(shared)[0] == 2

    last = run(target)
    last.ship(whole(settled("c")))
    give_back = Shipper._give_turn_back

    def put_and_give_back(self):
        monkeypatch.setattr(Shipper, "_give_turn_back", give_back)
        last.put(whole(settled("d")))
        give_back(self)

    monkeypatch.setattr(Shipper, "_give_turn_back", put_and_give_back)
    last.close()
    assert totals(shared)[0] == 4


def test_a_proxy_starts_without_its_database(own_data_directory):
    url = "postgresql+psycopg://u:secret@127.0.0.1:1/ledger"
    with writing(url) as written:
        assert written.settle(settled("a")).committed
    (path,) = spool.all_paths()
    assert spool.status_of(path).waiting == 1
    assert any("exchanges wait in" in line for line in written.lines())
    assert not any("secret" in line for line in written.lines())
    assert path.is_relative_to(own_data_directory)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_database_that_never_was_ends_the_start(postgres_server):
    with pytest.raises(LedgerError, match="does not exist"), writing(postgres_server("nowhere")):
        pass


def test_a_spool_goes_on_where_its_database_was_lost(new_database, administer, migrated_database):
    url = new_database(migrated_database)
    with writing(url) as written:
        written.settle(settled("a"))
    name = sa.make_url(url).database
    administer(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    with writing(url) as written:
        assert written.settle(settled("b")).committed
    administer(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    with writing(url):
        pass
    assert totals(url)[0] == 2


def test_all_proxies_of_a_database_hash_keys_alike(target, shared, monkeypatch, tmp_path):
    secrets = []
    for machine in ("one", "two"):
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / machine))
        monkeypatch.setenv("TOKENTEE_SECRET_FILE", str(tmp_path / machine / "secret"))
        with writing(target) as written:
            secrets.append(written.ledger.secret)
    assert (
        secrets[0]
        == secrets[1]
        == bytes.fromhex(row(shared, "SELECT value FROM tokentee_private.secret")[0])
    )


def test_a_proxy_that_began_alone_takes_over_the_secret(target, shared, own_data_directory):
    path = spool.path_for(urls.parse_url(target))
    with db.disposing(db.ensure(f"sqlite:///{path}")) as engine:
        own = secret.of_ledger(engine)
        put(engine, whole(settled("a")))
    theirs = b"another secret, of 32 bytes or so"
    alter(shared, f"INSERT INTO tokentee_private.secret VALUES (1, '{theirs.hex()}')")
    assert own != theirs
    with writing(target) as written:
        assert written.ledger.secret == theirs
    assert any("have other fingerprints" in line for line in written.lines())


def test_a_password_makes_no_other_spool():
    one, other = (
        spool.path_for(urls.parse_url(f"postgresql+psycopg://u:{password}@h/d"))
        for password in ("a", "b")
    )
    assert one == other
    assert spool.path_for(urls.parse_url("postgresql+psycopg://u@h/e")) != one


@on_sqlite
def test_what_is_shipped_is_dropped_in_time(engine):
    now = datetime.now(UTC)
    old = now - timedelta(days=shipper.KEPT_DAYS, minutes=1)
    put(
        engine,
        *(whole(settled(name, at=old)) for name in ("shipped", "waits", "refused")),
        whole(settled("new", at=now)),
        whole(settled("of a session", at=old, operation=SESSION_TOTAL)),
        (opened("open", at=old), None, ()),
    )
    with db.writing(engine) as connection:
        for name, table in (("waits", outbox), ("refused", set_aside)):
            more = {"error": "e", "refused_at": now} if table is set_aside else {}
            connection.execute(sa.insert(table).values(exchange_id=name, opened_at=old, **more))
    assert shipper.drop_shipped(engine, now=now) == 1
    assert shipper.drop_shipped(engine, now=now) == 0
    kept = rows(engine, "SELECT id FROM exchanges ORDER BY id")
    assert kept == [("new",), ("of a session",), ("open",), ("refused",), ("waits",)]


def test_coming_months_are_made_ahead(target, shared, run):
    running = run(target)
    running.ship(*some(1))
    running.close()
    names = {name for (name,) in rows(shared, "SELECT relname FROM pg_class")}
    today = datetime.now(UTC).date()
    months = {today.replace(day=1), (today.replace(day=1) + timedelta(days=40)).replace(day=1)}
    for month in months:
        for table in PARTITIONED:
            assert f"{table}_p{month:%Y_%m}" in names


def test_a_role_that_may_not_make_partitions_is_said_so_once(
    target, shared, run, administer, new_sqlite
):
    role = f"writer_{(sa.make_url(target).database or '')[:20]}"
    administer(f"CREATE ROLE {role} LOGIN")
    alter(shared, f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}")
    url = sa.make_url(target).set(username=role).render_as_string(hide_password=False)
    running = run(url)
    running.ship(*some(3))
    running.log.wait_for("no partition for")
    running.close()
    assert rows(shared, "SELECT DISTINCT tableoid::regclass::text FROM exchanges") == [
        ("exchanges_pdefault",)
    ]
    alter(shared, f"DROP OWNED BY {role}")
    administer(f"DROP ROLE {role}")


def test_the_rights_that_operations_lists_are_all_that_a_proxy_needs(
    target, shared, run, administer
):
    db_command.upgrade(ledger=target)  # makes the partitions
    text = Path("docs/operations.md").read_text()
    (listed,) = re.findall(r"```postgresql\n(GRANT .*?)```", text, re.DOTALL)
    names = {name: f"{name}_{uuid.uuid4().hex}" for name in ("proxy", "analyst")}
    for role in names.values():
        administer(f"CREATE ROLE {role} LOGIN")
    alter(shared, *re.sub(r"TO (\w+)", lambda to: f"TO {names[to[1]]}", listed).split(";\n")[:-1])
    url = sa.make_url(target).set(username=names["proxy"]).render_as_string(hide_password=False)
    running = run(url)
    running.ship(*some(3))
    with db.disposing(db.ensure(url)) as engine:
        rollup.roll(engine, now=NOON + timedelta(days=3))
        table = ServerRows(engine)
        table.sign("a")
        table.leave("a")
        table.prune()
        table.close(is_broken=False)
    running.close()
    assert running.log.lines == []
    assert rows(shared, "SELECT 1 FROM sums")
    assert secret.known(shared) == secret.of_machine()
    for role in names.values():
        alter(shared, f"DROP OWNED BY {role}")
        administer(f"DROP ROLE {role}")


def test_nodes_with_something_under_way_are_spoken_for(target, shared, monkeypatch):
    # The shipper may send its first heartbeats before the first row is in the spool.
    monkeypatch.setattr(shipper, "HEARTBEAT_SECONDS", 0.0)
    with writing(target, node="host/7/7") as written:
        written.ledger.open(opened("a"))
        written.settle(settled("b"))
        wait_until(lambda: rows(shared, "SELECT node FROM nodes"))
        assert rows(shared, "SELECT node FROM nodes") == [("host/7/7",)]


def test_a_bundle_is_bounded(target, shared, run, monkeypatch, noted):
    monkeypatch.setattr(shipper, "BUNDLE_EXCHANGES_MAX", 4)
    delivered = noted(shipper, "deliver")
    running = run(target)
    running.ship(*some(10))
    sizes = [len(keys) for _, _, keys, *_ in delivered]
    assert max(sizes) <= 4
    assert totals(shared)[0] == 10


def test_rows_of_another_process_are_shipped_within_a_second(target, shared, run, monkeypatch):
    """It does not wake the shipper, which would sleep until the test has failed: it looks."""
    assert shipper.WATCH_SECONDS + SHIP_AFTER_SECONDS <= 1
    monkeypatch.setattr(shipper, "SHIPPER_IDLE_SECONDS", 600)
    running = run(target)
    running.ship(whole(settled("a")))
    time.sleep(2 * shipper.WATCH_SECONDS)  # the shipper has slept since
    monkeypatch.setattr(running.shipper, "wake", lambda: None)
    for name in "bc":
        running.put(whole(settled(name)))
        running.wait_until_shipped()
    assert totals(shared)[0] == 3


STEPS = {
    "_ship": Shipper,
    "_connected": Shipper,
    "_keep_house": Shipper,
    "make_partitions": retention,
    "_begin_trouble": Shipper,
    "note": db,
    "deliver": shipper,
    "_meet": shipper,
    "take_turn": nodes,
    "pending": shipper,
    "settle_outbox": shipper,
    "retry_refused": shipper,
    "drop_shipped": shipper,
    "live_nodes": recovery,
    "record_heartbeats": recovery,
    "mark_lost_of_silent_nodes": recovery,
}


@pytest.mark.parametrize("step", STEPS)
def test_whatever_a_step_raises_the_shipper_goes_on(
    target, shared, run, monkeypatch, failing_twice, step
):
    monkeypatch.setattr(supervision, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(shipper, "SETTLING_SECONDS", 0.0)
    monkeypatch.setattr(shipper, "SHIPPER_IDLE_SECONDS", 0.02)
    failed = threading.Event()
    failing_twice(STEPS[step], step, (RuntimeError, LedgerError), failed)
    if step == "_begin_trouble":
        trouble = [LedgerError("trouble"), LedgerError("trouble"), LedgerError("trouble")]
        ship = Shipper._ship
        monkeypatch.setattr(
            Shipper, "_ship", lambda self: ship(self) if not trouble else _raise(trouble.pop())
        )
    running = run(target)
    running.put(whole(settled("a")))
    assert failed.wait(30), running.log.lines
    running.wait_until_shipped()
    running.ship(whole(settled("b")))
    # Also what was shipped again, because the cut came between its commit and clearing the outbox.
    assert totals(shared) == (2, 200, 40, 2 * COST)
    assert running.shipper.health().is_working


def _raise(error):
    raise error


def test_shipping_again_adds_nothing(target, shared, run):
    running = run(target)
    entries = some(20)
    running.ship(*entries)
    running.ship(*entries)
    assert totals(shared) == (20, 2000, 400, 20 * COST)


def test_a_cut_between_commit_and_clearing_ships_again_to_no_effect(
    target, shared, run, monkeypatch
):
    real = shipper.settle_outbox
    cut = threading.Event()

    def settle_outbox(*arguments, **more):
        if not cut.is_set():
            cut.set()
            raise OSError("the power went out")
        real(*arguments, **more)

    monkeypatch.setattr(shipper, "settle_outbox", settle_outbox)
    running = run(target)
    running.ship(*some(10))
    assert cut.is_set()
    assert totals(shared) == (10, 1000, 200, 10 * COST)
