"""SUM beyond 64 bits, and beside it what SQLite's own gives."""

import sqlalchemy as sa

from ledger.store.adding_up import sum_without_bound
from tests.named import for_each


@for_each(
    "values",
    [[], [None], [1, None, 2], [0], [0.25, 0.5], [1e-9, None], [1, 0.5], [2**62, -(2**62)]],
)
def test_a_sum_is_what_sqlite_gives(values):
    given = " UNION ALL ".join(f"SELECT {'NULL' if x is None else x} AS x" for x in (*values, None))
    query = sa.text(f"SELECT sum(x) FROM ({given})")
    with sa.create_engine("sqlite://").connect() as connection:
        own = connection.execute(query).scalar()
        sum_without_bound(connection)
        ours = connection.execute(query).scalar()
    assert (ours, type(ours)) == (own, type(own))


def test_a_sum_beyond_64_bits_is_whole():
    with sa.create_engine("sqlite://").connect() as connection:
        sum_without_bound(connection)
        beyond = sa.text("SELECT sum(x) FROM (SELECT 9223372036854775807 AS x UNION ALL SELECT 1)")
        assert connection.execute(beyond).scalar() == str(2**63)
