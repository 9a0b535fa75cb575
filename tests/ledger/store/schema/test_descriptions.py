"""Every public column is described, in PostgreSQL's catalogue and on the command line."""

import pytest

from ledger.store.schema import descriptions
from tests.ledger.written import on_postgres, rows


def test_every_column_of_every_table_and_view_is_described(engine):
    with engine.connect() as connection:
        columns = descriptions.describe(connection)
    assert {column.relation for column in columns} == {
        *descriptions.VIEWS,
        *descriptions.PUBLIC_TABLES,
    }
    assert [column for column in columns if len(column.text) < 5] == []


def test_nothing_is_described_that_is_not_there(engine):
    with engine.connect() as connection:
        there = {(column.relation, column.column) for column in descriptions.describe(connection)}
    for relation, texts in descriptions._DERIVED.items():
        assert {(relation, name) for name in texts} <= there


def test_what_is_not_described_is_a_mistake_of_ours():
    with pytest.raises(LookupError, match=r"requests\.surprise"):
        descriptions.description_of("requests", "surprise")


@on_postgres
def test_postgres_shows_the_same_words(engine):
    found = rows(
        engine,
        "SELECT c.relname, a.attname, col_description(c.oid, a.attnum) FROM pg_class c "
        "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 "
        f"WHERE c.relname IN {(*descriptions.VIEWS, *descriptions.PUBLIC_TABLES)}",
    )
    assert len(found) > 200
    for relation, column, comment in found:
        assert comment == descriptions.description_of(relation, column), (relation, column)
