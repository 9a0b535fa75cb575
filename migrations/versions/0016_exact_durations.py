"""Durations in SQLite are those of PostgreSQL, to the millisecond.

Views are made anew at each upgrade. SQLite's were up to a millisecond off, and stored days
with them, so there every day is summed up again.
"""

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    if op.get_context().dialect.name == "sqlite":
        begin = "day || ' 00:00:00.000000Z', date(day, '+1 day') || ' 00:00:00.000000Z'"
        op.execute(
            "INSERT INTO stale_days (day, starts_at, ends_at, writes) "
            f"SELECT DISTINCT day, {begin}, 0 FROM hourly WHERE true ON CONFLICT (day) DO NOTHING"
        )


def downgrade() -> None:
    """The views of the revision before are made by its own release."""
