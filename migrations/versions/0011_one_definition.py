"""The cost of a request is that of reported usage, in the view `requests` as in every report.

Views are made anew at each upgrade. Sums of further tokens were bounded in stored days and
not in others, so every day is summed up again.
"""

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    is_postgresql = op.get_context().dialect.name == "postgresql"
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
    """The views of the revision before are made by its own release."""
