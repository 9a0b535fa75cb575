"""Ledgers of two secrets: one key would have two fingerprints, and sync says so."""

import pytest
import typer
from typer.testing import CliRunner

from ledger.commands import db as commands
from ledger.model.errors import LedgerError
from ledger.store import db, secret
from ledger.sync.merging import sync
from tests.ledger.written import file_of, put, row, settled, whole, writing

pytestmark = pytest.mark.usefixtures("own_data_directory")


@pytest.fixture
def of_machine(tmp_path, monkeypatch):
    """Lets what follows run on a machine with a secret of its own."""

    def be(name):
        monkeypatch.setenv("TOKENTEE_SECRET_FILE", str(tmp_path / f"secret-of-{name}"))
        return secret.of_machine()

    return be


@pytest.fixture
def recorded(new_sqlite):
    def record(name):
        url = new_sqlite(name)
        with writing(url) as written:
            written.settle(settled(name))
        return url

    return record


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def target(request):
    return request.getfixturevalue("new_sqlite" if request.param == "sqlite" else "new_postgres")()


def secret_of(url):
    with db.disposing(db.open_existing(url)) as engine:
        return secret.known(engine)


def fill(url, value):
    """A target that somebody records into with this secret."""
    with db.disposing(db.open_existing(url)) as engine:
        put(engine, whole(settled("theirs")))
        assert secret.store(engine, value)


def test_two_secrets_are_said_in_one_line(of_machine, recorded, target):
    of_machine("laptop")
    source = recorded("ours")
    fill(target, of_machine("team"))
    app = typer.Typer()
    commands.add(app)
    result = CliRunner().invoke(app, ["sync", source, target])
    assert result.exit_code == 0, result.stderr
    (line,) = [line for line in result.stderr.splitlines() if "two fingerprints" in line]
    assert "TOKENTEE_SECRET_FILE" in line
    assert secret_of(target) == of_machine("team")


def test_one_secret_is_nothing_to_say(of_machine, recorded, target):
    of_machine("laptop")
    fill(target, of_machine("laptop"))
    assert not sync(recorded("ours"), target).has_two_secrets


def test_an_empty_target_takes_the_secret(of_machine, recorded, target):
    value = of_machine("laptop")
    source = recorded("ours")
    file_of(source).with_name("ours.sqlite3.secret").write_text(value.hex())
    of_machine("team")
    for _ in range(2):
        assert not sync(source, target, with_secret=True).has_two_secrets
        assert secret_of(target) == value
    assert sync(source, target).has_two_secrets is False


def test_a_target_with_exchanges_keeps_its_secret(of_machine, recorded, target):
    value = of_machine("laptop")
    source = recorded("ours")
    file_of(source).with_name("ours.sqlite3.secret").write_text(value.hex())
    fill(target, of_machine("team"))
    with pytest.raises(LedgerError, match="for an empty target"):
        sync(source, target, with_secret=True)
    assert secret_of(target) == of_machine("team")
    assert row(target, "SELECT COUNT(*) FROM exchanges") == (1,)


def test_a_secret_that_stayed_elsewhere_cannot_be_carried(of_machine, recorded, target):
    of_machine("laptop")
    source = recorded("ours")
    of_machine("team")
    with pytest.raises(LedgerError, match="TOKENTEE_SECRET_FILE"):
        sync(source, target, with_secret=True)


@pytest.mark.postgres
def test_a_shared_ledger_gives_its_secret(of_machine, new_postgres, new_sqlite):
    source, target = new_postgres(), new_sqlite()
    fill(source, of_machine("team"))
    of_machine("laptop")
    assert sync(source, target).has_two_secrets
    other = new_sqlite("other")
    assert not sync(source, other, with_secret=True).has_two_secrets
    assert secret_of(other) == of_machine("team")
