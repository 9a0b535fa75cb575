"""A PostgreSQL that goes silent without closing anything: the proxy starts, records and ends, and
what it recorded arrives when the database answers again."""

import re
import threading
import time

import pytest
import sqlalchemy as sa

from ledger.parts.sync import merging, shipper
from ledger.store import db, spool
from ledger.store.processes import recovery
from tests.ledger.written import alter, rows, settled, wait_until, writing
from tests.proxy.relaying import Line

pytestmark = pytest.mark.postgres


@pytest.fixture
def forwarded(new_postgres, own_data_directory, monkeypatch):
    """A shared ledger behind a forwarder: the forwarder, its URL, and an engine beside it."""
    monkeypatch.setattr(shipper, "ANSWER_SECONDS_MAX", 0.5)
    monkeypatch.setattr(shipper, "SHIP_AFTER_SECONDS", 0.01)
    monkeypatch.setattr(shipper, "SHIPPER_IDLE_SECONDS", 0.05)
    monkeypatch.setattr(shipper, "RECONNECT_SECONDS", 0.02)
    monkeypatch.setattr(shipper, "RECONNECT_SECONDS_MAX", 0.05)
    direct = sa.make_url(new_postgres())
    folder = direct.host or direct.query["host"]
    forwarder = Line(f"{folder}/.s.PGSQL.{direct.port or direct.query.get('port') or 5432}")
    forwarder.mend()
    url = direct.difference_update_query(["host", "port"]).set(
        host="127.0.0.1", port=forwarder.port
    )
    with db.disposing(db.open_engine(direct)) as engine:
        yield forwarder, url.render_as_string(hide_password=False), engine
    forwarder.cut()


def wait_for(engine, count: int) -> None:
    wait_until(lambda: rows(engine, "SELECT COUNT(*) FROM exchanges") == [(count,)])


def test_shipping_goes_on_when_a_silent_database_answers_again(forwarded):
    forwarder, url, engine = forwarded
    with writing(url) as written:
        written.settle(settled("a"))
        wait_for(engine, 1)
        forwarder.is_silent = True
        assert written.settle(settled("b")).committed
        # Whichever was under way when it went silent: a statement, or connecting.
        silence = ("did not answer", "connection timeout expired")
        wait_until(
            lambda: any(word in line for line in written.lines() for word in silence),
            written.lines,
        )
        assert written.ledger.health().threads[0].is_working
        forwarder.is_silent = False
        wait_for(engine, 2)


def test_a_proxy_starts_on_its_spool_while_the_database_is_silent(forwarded, monkeypatch):
    forwarder, url, engine = forwarded
    monkeypatch.setattr(shipper, "MEETING_SECONDS", 0.1)
    forwarder.is_silent = True
    monkeypatch.setattr(db, "SERVER_CONNECT_SECONDS_MAX", 2)
    with writing(url) as written:
        (passed,) = re.findall(r"is not ready after ([\d.]+ m?s)", "\n".join(written.lines()))
        assert passed.endswith(" s") or int(passed.removesuffix(" ms")) >= 100
        assert any("other fingerprints" in line for line in written.lines())
        assert written.settle(settled("a")).committed
        forwarder.is_silent = False
        wait_for(engine, 1)


def test_a_proxy_meets_its_database_over_a_slow_line(forwarded, monkeypatch):
    """60 ms each way and back: the meeting takes longer than what a silent database is given."""
    forwarder, url, _ = forwarded
    monkeypatch.setattr(shipper, "ANSWER_SECONDS_MAX", 20)
    forwarder.delay_seconds = 0.03
    with writing(url) as written:
        assert not any("is not ready" in line for line in written.lines())
        (path,) = spool.all_paths()
        assert rows(f"sqlite:///{path}", "SELECT value FROM meta WHERE key = 'met'") == [("yes",)]
        forwarder.delay_seconds = 0.0


def test_a_proxy_waits_for_its_first_meeting_on_a_busy_machine(forwarded, monkeypatch):
    """Without it, its keys have other fingerprints than at other proxies."""
    monkeypatch.setattr(shipper, "ANSWER_SECONDS_MAX", 20)
    _, url, _ = forwarded
    opening = db.open_engine

    def slowly(*arguments, **options):
        time.sleep(1.5)
        return opening(*arguments, **options)

    monkeypatch.setattr(db, "open_engine", slowly)
    with writing(url) as written:
        assert written.lines() == []


def test_a_locked_meta_keeps_no_proxy_from_starting(forwarded, monkeypatch):
    _, url, engine = forwarded
    monkeypatch.setattr(shipper, "MEETING_SECONDS", 0.1)
    with engine.connect() as connection:
        connection.exec_driver_sql("LOCK TABLE meta, tokentee_private.secret")
        with writing(url) as written:
            assert written.settle(settled("a")).committed
            (path,) = spool.all_paths()
            assert spool.status_of(path).waiting == 1
            connection.rollback()  # before the end, which would wait as long as it may
    with writing(url):
        wait_for(engine, 1)


REFUSALS = {
    "a trigger": "RAISE EXCEPTION 'no'",
    "a limit of the server": "RAISE EXCEPTION 'no' USING ERRCODE = 'program_limit_exceeded'",
    "a check": "RAISE EXCEPTION 'no' USING ERRCODE = 'check_violation'",
    "a value": "RAISE EXCEPTION 'no' USING ERRCODE = 'invalid_text_representation'",
    "a view's check": "RAISE EXCEPTION 'no' USING ERRCODE = 'with_check_option_violation'",
}


@pytest.mark.parametrize("code", REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_of_any_class_sets_one_row_aside(new_sqlite, new_postgres, code):
    source, target = new_sqlite(), new_postgres()
    alter(
        target,
        f"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {code}; END $$",
        "CREATE TRIGGER refusing BEFORE INSERT ON exchanges FOR EACH ROW "
        "WHEN (NEW.id = 'b') EXECUTE FUNCTION refuse()",
    )
    with writing(source) as written:
        for name in "abc":
            written.settle(settled(name))
    merged = merging.sync(source, target)
    assert [(each.key[1], each.error) for each in merged.refused] == [("b", "no")]
    assert rows(target, "SELECT id FROM exchanges ORDER BY id") == [("a",), ("c",)]


def test_a_row_of_the_year_one_is_set_aside_or_late_and_ships_the_others(new_sqlite, new_postgres):
    source, target = new_sqlite(), new_postgres()
    with writing(source) as written:
        for name in "ab":
            written.settle(settled(name))
    alter(
        source,
        "INSERT INTO exchanges (id, opened_at, state, source, origin, provider, dialect, "
        "operation, path, tags) VALUES ('old', '0001-01-01 00:00:00.000000Z', 'open', "
        "'live', 'o', 'p', 'd', 'chat', '/', '{}')",
    )
    merging.sync(source, target)
    assert {name for (name,) in rows(target, "SELECT id FROM exchanges")} >= {"a", "b"}


def test_a_turn_of_shipping_ends_under_load(new_postgres, own_data_directory, monkeypatch):
    """Changes come faster than they are shipped; heartbeats go on all the same."""
    monkeypatch.setattr(shipper, "TURN_BUNDLES_MAX", 2)
    monkeypatch.setattr(shipper, "BUNDLE_EXCHANGES_MAX", 2)
    monkeypatch.setattr(shipper, "HEARTBEAT_SECONDS", 0.0)
    monkeypatch.setattr(shipper, "SHIP_AFTER_SECONDS", 0.0)
    url = new_postgres()
    with db.disposing(db.open_engine(url)) as engine:
        beats = threading.Semaphore(0)
        real = recovery.record_heartbeats

        def noting(*arguments):
            beats.release()
            real(*arguments)

        monkeypatch.setattr(recovery, "record_heartbeats", noting)
        with writing(url) as written:
            for number in range(40):
                written.hand_over(settled(f"a{number}"))
            for _ in range(5):
                assert beats.acquire(timeout=60)
            wait_for(engine, 40)
