"""How an exchange is billed, and what its tokens cost at list prices.

A reading says whether its tokens are billed one by one, covered by a plan, or free. What was read
before stays unknown, and is read again by `tokentee rebuild`. The sums have the list value beside
the cost, so every day is summed up again.
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

BILLING = "metered (billed by tokens), plan (covered by a flat price) or free; NULL: unknown"
COUNTS = ("covered", "unlisted")
SUMS = ("list_value_picousd", "covered_value_picousd")


def upgrade() -> None:
    is_postgresql = op.get_context().dialect.name == "postgresql"
    op.execute(
        "ALTER TABLE readings ADD COLUMN billing TEXT "
        "CONSTRAINT ck_readings_billing CHECK (billing IN ('metered', 'plan', 'free'))"
    )
    if is_postgresql:
        op.execute(f"COMMENT ON COLUMN readings.billing IS '{BILLING}'")
    op.add_column("hourly_usage", sa.Column("billing", sa.Text, comment="As in requests"))
    for table in ("daily", "daily_by", "hourly_usage"):
        for name in COUNTS:
            # Every day is summed up again: the default is for the rows until then.
            op.execute(f"ALTER TABLE {table} ADD COLUMN {name} BIGINT NOT NULL DEFAULT 0")
            if is_postgresql:
                op.execute(f"ALTER TABLE {table} ALTER COLUMN {name} DROP DEFAULT")
                op.execute(f"COMMENT ON COLUMN {table}.{name} IS 'Of requests'")
        for name in SUMS:
            op.add_column(table, sa.Column(name, sa.BigInteger, comment="Sum over requests"))
    begin = (
        "day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC'"
        if is_postgresql
        else "day || ' 00:00:00.000000Z', date(day, '+1 day') || ' 00:00:00.000000Z'"
    )
    op.execute(
        "INSERT INTO stale_days (day, starts_at, ends_at, writes) "
        f"SELECT DISTINCT day, {begin}, 0 FROM hourly WHERE true ON CONFLICT (day) DO NOTHING"
    )


def downgrade() -> None:
    raise NotImplementedError("how exchanges are billed would be forgotten")
