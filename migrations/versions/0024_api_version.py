"""The version of the provider's API that a client asked for; and views of a newer rule.

Views are made anew at each upgrade. They take the fuller one of two readings with equal revisions,
which merged ledgers have, and state no duration of an exchange whose process died; so the days that
have such are summed up again.
"""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

COMMENT = "The version of the provider's API that the client asked for, a token; NULL: none"


def upgrade() -> None:
    op.add_column("exchanges", sa.Column("api_version", sa.Text, comment=COMMENT))
    is_postgresql = op.get_context().dialect.name == "postgresql"
    if is_postgresql:
        day = "(opened_at AT TIME ZONE 'UTC')::date"
        begin = "day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC'"
        until = "value::timestamptz"
    else:
        day = "date(substr(opened_at, 1, 10))"
        begin = "day || ' 00:00:00.000000Z', date(day, '+1 day') || ' 00:00:00.000000Z'"
        until = "value"
    is_summed = f"opened_at < (SELECT {until} FROM meta WHERE key = 'rolled_until')"
    op.execute(
        "INSERT INTO stale_days (day, starts_at, ends_at, writes) "
        f"SELECT DISTINCT day, {begin}, 0 FROM ("
        f"SELECT {day} AS day FROM exchanges WHERE state = 'lost' AND {is_summed} UNION "
        f"SELECT {day} AS day FROM readings WHERE {is_summed} GROUP BY opened_at, exchange_id "
        "HAVING COUNT(*) > COUNT(DISTINCT revision)) changed "
        "WHERE true ON CONFLICT (day) DO NOTHING"
    )


def downgrade() -> None:
    raise NotImplementedError("which versions were asked for would be forgotten")
