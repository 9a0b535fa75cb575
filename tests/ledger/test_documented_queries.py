"""The queries for PostgreSQL in the documentation run on one."""

import re

import pytest
import sqlalchemy as sa

from ledger.store import db
from tests import reference

TEXT = "\n".join(page.read_text() for page in reference.PAGES)
QUERIES = [
    query
    for block in re.findall(r"^```postgresql\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    for query in filter(str.strip, block.split(";"))
]


@pytest.mark.postgres
def test_every_query_for_postgresql_runs(new_postgres):
    assert len(QUERIES) >= 3
    engine = db.ensure(new_postgres())
    with engine.connect() as connection:
        for query in QUERIES:
            connection.execute(sa.text(query.replace(":", "\\:"))).fetchall()
    engine.dispose()
