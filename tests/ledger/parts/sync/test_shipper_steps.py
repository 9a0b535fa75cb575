"""The steps of a shipper that is not started."""

from types import SimpleNamespace

import pytest

from ledger.parts.sync import shipper
from ledger.parts.sync.shipper import Shipper
from ledger.store import db, spool
from ledger.store.engines import urls
from ledger.store.processes import recovery
from tests.ledger.written import NOON, file_of, row


@pytest.fixture
def alone(sqlite_engine):
    """A shipper of a spool that is not started, to a server that is not there."""
    path = file_of(str(sqlite_engine.url))
    one = Shipper(path, urls.parse_url("postgresql+psycopg://h/d"), log=lambda *_: None)
    yield one
    one._spool.dispose()


def test_living_nodes_are_reported_once_a_minute(alone, sqlite_engine, monkeypatch):
    clock = [100.0]
    reported = []
    monkeypatch.setattr(shipper, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(recovery, "record_heartbeats", lambda *_: reported.append(clock[0]))
    monkeypatch.setattr(alone, "_connected", lambda: sqlite_engine)
    alone._due = {"heartbeat": 0.0, "housekeeping": float("inf"), "giving up": float("inf")}
    for now in (100.0, 101.0, 159.0, 160.0, 219.0, 220.0):
        clock[0] = now
        alone._keep_house()
    assert reported == [100.0, 160.0, 220.0]


def test_refused_exchanges_are_retried_once_a_start(alone, sqlite_engine, monkeypatch):
    """Not after each reconnect: a database that comes and goes would get them again and again."""
    engine = sqlite_engine
    monkeypatch.setattr(shipper, "_meet", lambda *_, **__: None)
    monkeypatch.setattr(db, "ensure", lambda *_, **__: engine)

    def refuse():
        refused = spool.RefusedExchange(("2026-11-02 12:00:00.000000Z", "a"), "no")
        with db.writing(engine) as connection:
            shipper.settle_outbox(connection, 100, [refused], now=NOON)

    def counts():
        return row(engine, "SELECT (SELECT COUNT(*) FROM outbox), (SELECT COUNT(*) FROM set_aside)")

    refuse()
    alone._connected()
    alone._disconnect()
    assert counts() == (1, 0)
    refuse()
    alone._connected()
    alone._disconnect()
    assert counts() == (0, 1)
