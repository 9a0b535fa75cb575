"""Which exchanges a ledger has settled, on either database."""

import sqlite3

import pytest
from sqlalchemy.engine import Engine

from ledger.maintenance import known
from ledger.maintenance.known import KnownExchanges
from ledger.model.errors import LedgerError
from ledger.model.exchange import Outcome, State
from ledger.store import db
from ledger.store.engines import urls
from ledger.store.engines.sqlite_file import REVISION
from ledger.sync import spool
from tests.ledger.written import opened, put, settled, whole

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
    engine = db.ensure(new_sqlite())
    put(engine, whole(settled(ODD, path="/a")))
    engine.dispose()
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


def test_what_is_no_ledger_is_refused_as_by_every_command(tmp_path, path) -> None:
    missing, empty, text = (tmp_path / name for name in ("missing.db", "empty.db", "text.db"))
    sqlite3.connect(empty).close()
    text.write_text("not a database, but long enough to be looked at" * 100)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
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
        engine = db.ensure(place)
        put(engine, whole(settled(name, path=f"/{name}")))
        engine.dispose()
    one = KnownExchanges(url)
    assert one.settled(["merged", "waiting", "b"]) == {"merged": "/merged", "waiting": "/waiting"}
    one.close()
