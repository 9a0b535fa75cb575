"""A driver's error becomes one line that says what to do."""

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from ledger.store.engines import urls

POSTGRESQL = sa.make_url("postgresql+psycopg://u:hunter2@127.0.0.1:1/d")
SQLITE = sa.make_url("sqlite:////x/ledger.sqlite3")


def failed(text: str) -> OperationalError:
    return OperationalError("SELECT 1", {}, Exception(text))


@pytest.mark.parametrize(
    ("url", "said", "line"),
    [
        pytest.param(
            POSTGRESQL,
            "connection failed: Connection refused\n\tIs the server running there?\n",
            "cannot open the ledger postgresql+psycopg://u:***@127.0.0.1:1/d: connection failed: "
            "Connection refused. Is the server running there?; check that the server runs and the "
            "URL is right",
            id="two lines of libpq",
        ),
        pytest.param(
            POSTGRESQL,
            'password "hunter2" is wrong',
            'cannot open the ledger postgresql+psycopg://u:***@127.0.0.1:1/d: password "***" is '
            "wrong; check that the server runs and the URL is right",
            id="the password is cut out",
        ),
        pytest.param(
            SQLITE,
            "file is not a database",
            "cannot open the ledger sqlite:////x/ledger.sqlite3: file is not a database; move the "
            "file away and start again, or put a copy in its place",
            id="another file",
        ),
        pytest.param(
            SQLITE,
            "attempt to write a readonly database",
            "cannot open the ledger sqlite:////x/ledger.sqlite3: attempt to write a readonly "
            "database; name a file you can write to (ledger_url, TOKENTEE_LEDGER)",
            id="read-only",
        ),
        pytest.param(
            SQLITE,
            "database is locked",
            "cannot open the ledger sqlite:////x/ledger.sqlite3: database is locked; check that no "
            "process holds the file and that its disk has room",
            id="locked",
        ),
    ],
)
def test_the_line_names_the_ledger_the_cause_and_the_remedy(url: sa.URL, said: str, line: str):
    assert urls.not_opened(url, failed(said)) == line


@pytest.mark.parametrize(
    ("said", "is_trouble"),
    [("database is locked", True), ("no such table: x", False), ('near "SELEC": syntax', False)],
)
def test_a_wrong_statement_is_no_trouble_of_the_database(said: str, is_trouble: bool):
    assert urls.is_trouble(failed(said)) is is_trouble
