"""Every line of cached text counts in what the cache saved, also lines that are added later."""

import sqlite3

import pytest

from ledger.pricing.price_lines import INPUT_LINES
from ledger.store.schema.charged import TERMS

CACHED_TEXT = [
    line for line in INPUT_LINES if line == "cache_read" or line.startswith("cache_write")
]


@pytest.mark.parametrize("line", CACHED_TEXT)
def test_a_cached_line_saves_what_it_costs_less_than_uncached_input(line):
    with sqlite3.connect(":memory:") as connection:
        connection.execute("CREATE TABLE c (line, quantity, unit_picousd, amount_picousd)")
        connection.executemany(
            "INSERT INTO c VALUES (?, ?, ?, ?)",
            [("uncached_input", 5, 100, 500), (line, 10, 40, 400), ("output", 7, 9, 63)],
        )
        (saved,) = connection.execute(f"SELECT {TERMS['saved_picousd']} FROM c").fetchone()
    assert saved == 10 * (100 - 40)
