"""What a PostgreSQL database or role prefers for a session decides nothing that is written or read."""

from datetime import timedelta

import pytest
import sqlalchemy as sa

from ledger.figures.queries import report
from ledger.maintenance import rollup
from ledger.parts.sync import merging
from ledger.store.scope import Scope
from tests.ledger.parts.sync.test_merging import contents
from tests.ledger.written import NOON, on, put, settled, whole

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize(
    "setting",
    [
        "DateStyle = 'German'",
        "DateStyle = 'SQL, DMY'",
        "DateStyle = 'Postgres'",
        "client_encoding = 'LATIN1'",
        "TimeZone = 'America/St_Johns'",
        "IntervalStyle = 'iso_8601'",
        "extra_float_digits = -5",
        "standard_conforming_strings = off",
        "bytea_output = 'escape'",
        "default_transaction_isolation = 'serializable'",
    ],
)
def test_what_a_database_prefers_changes_nothing(new_sqlite, new_postgres, administer, setting):
    source, target = new_sqlite(), new_postgres()
    administer(f"ALTER DATABASE {sa.make_url(target).database} SET {setting}")
    put(source, whole(settled("a", session_id="\N{GRINNING FACE} \\'")))
    assert merging.sync(source, target).refused == ()
    assert contents(target) == contents(source)
    with on(source) as one, on(target) as other:
        now = NOON + timedelta(days=1)
        assert rollup.roll(one, now=now) == rollup.roll(other, now=now) == 1
        found = [report(each, ("day", "session"), Scope(), now=now) for each in (one, other)]
        assert found[0] == found[1]
    assert merging.sync(target, source).refused == ()


def test_a_database_without_an_encoding_keeps_every_text(new_sqlite, postgres_server, administer):
    encoding = "ENCODING 'SQL_ASCII' LOCALE_PROVIDER libc LC_COLLATE 'C' LC_CTYPE 'C'"
    administer(f"CREATE DATABASE plain TEMPLATE template0 {encoding}")
    source, target = new_sqlite(), postgres_server("plain")
    put(source, whole(settled("a", session_id="\N{GRINNING FACE}")))
    assert merging.sync(source, target).refused == ()
    assert contents(target) == contents(source)
    administer("DROP DATABASE plain WITH (FORCE)")
