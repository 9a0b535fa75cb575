"""Many equal exchanges that end in any order are linked with work that is linear in their number."""

import sqlite3
from contextlib import closing
from datetime import timedelta

import pytest

from tests.ledger.written import NOON, reading, settled, writing

COUNT = 512
COUNTING = """
CREATE TABLE links_written (one INTEGER);
CREATE TRIGGER count_links AFTER UPDATE OF duplicate_of ON exchanges
BEGIN INSERT INTO links_written VALUES (1); END;
"""


@pytest.mark.parametrize("order", ["as opened", "reverse"])
def test_equal_exchanges_are_linked_in_linear_work(new_sqlite, order: str):
    url = new_sqlite()
    path = url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(COUNTING)
    numbers = range(COUNT) if order == "as opened" else reversed(range(COUNT))
    with writing(url) as written, closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")  # so that they wait, and come in whole batches
        for number in numbers:
            exchange = settled(
                f"e{number:04}",
                at=NOON + timedelta(seconds=number),
                response_id="r",
                upstream_digest="d",
                request_digest="q",
                content_digest="c",
            )
            written.ledger.settle(exchange, reading(exchange))
        other.execute("COMMIT")
    with closing(sqlite3.connect(path)) as connection:
        (links,) = connection.execute("SELECT COUNT(*) FROM links_written").fetchone()
        counting = connection.execute(
            "SELECT id FROM exchanges WHERE duplicate_of IS NULL"
        ).fetchall()
        pointing = connection.execute("SELECT DISTINCT duplicate_of FROM exchanges").fetchall()
    assert counting == [("e0000",)]
    assert sorted(pointing, key=str) == [("e0000",), (None,)]
    assert links <= 10 * COUNT
