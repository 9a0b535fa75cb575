"""Orders whose result was fetched are not without usage, in views from now on. Days that have such
are summed up again."""

from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    if op.get_context().dialect.name == "postgresql":
        day = "(opened_at AT TIME ZONE 'UTC')::date"
        begin = "day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC'"
        until = "value::timestamptz"
    else:
        day = "date(substr(opened_at, 1, 10))"
        begin = "day || ' 00:00:00.000000Z', date(day, '+1 day') || ' 00:00:00.000000Z'"
        until = "value"
    op.execute(
        "INSERT INTO stale_days (day, starts_at, ends_at, writes) "
        f"SELECT DISTINCT day, {begin}, 0 FROM (SELECT {day} AS day FROM exchanges WHERE "
        "finish_reason IN ('in_progress', 'processing', 'queued', 'starting') AND "
        f"opened_at < (SELECT {until} FROM meta WHERE key = 'rolled_until')) orders "
        "WHERE true ON CONFLICT (day) DO NOTHING"
    )


def downgrade() -> None:
    """The views of the revision before are made by its own release."""
