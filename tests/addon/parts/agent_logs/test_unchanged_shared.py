"""A shared ledger knows by a stamp whether what a machine knows of its logs is of it."""

import pytest
import sqlalchemy as sa

from addon.parts.agent_logs.unchanged import KEY, UnchangedLogs
from ledger.maintenance.known import KnownExchanges
from ledger.store import db
from ledger.store.scope import Scope
from tests.addon.parts.agent_logs.importing import run
from tests.addon.parts.agent_logs.logs import write_home
from tests.ledger.conftest import (  # noqa: F401  # fixtures
    administer,
    migrated_database,
    new_database,
    postgres_server,
)


def test_a_shared_ledger_that_was_restored_has_another_stamp(tmp_path):
    own, shared = (db.ensure(f"sqlite:///{tmp_path / name}") for name in ("spool", "shared"))
    ledger = KnownExchanges(f"sqlite:///{tmp_path / 'spool'}")
    ledger.__dict__["engines"] = [own, shared]
    logs = UnchangedLogs(ledger)
    path = tmp_path / "a.jsonl"
    path.write_text("{}\n")

    for _ in range(2):
        logs = UnchangedLogs(ledger)
        found = logs.find("claude-code", path, Scope())
        logs.save(ledger)
    assert found is not None
    with db.writing(shared) as connection:
        connection.execute(sa.text(f"DELETE FROM meta WHERE key LIKE '{KEY} %'"))
    assert UnchangedLogs(ledger).find("claude-code", path, Scope()) is None
    ledger.close()


@pytest.mark.large
def test_logs_of_a_ledger_in_postgresql(home, new_database, migrated_database, monkeypatch):  # noqa: F811
    write_home(home, "claude-code")
    url = new_database(migrated_database)
    assert "1 booked" in run("--ledger", url)
    monkeypatch.setattr("addon.parts.agent_logs.booking.read", lambda *_: pytest.fail("it is read"))
    assert "0 booked, 1 known" in run("--ledger", url)
