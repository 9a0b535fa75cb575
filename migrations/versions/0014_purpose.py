"""What a request was for, and what the provider says that broke its prompt cache.

Sums of days are by purpose and by the requested model too, so every day is summed up again.
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

COLUMNS = {
    "purpose": "What the client's request was for: turn, title, compaction, …; NULL: not known",
    "cache_diagnosis": "What the provider says that broke the prompt cache; NULL: it says nothing",
}


def upgrade() -> None:
    is_postgresql = op.get_context().dialect.name == "postgresql"
    for name, comment in COLUMNS.items():
        op.add_column("exchanges", sa.Column(name, sa.Text, comment=comment))
    for name in ("request_model", "purpose"):
        op.add_column("hourly_usage", sa.Column(name, sa.Text, comment="As in requests"))
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
    raise NotImplementedError("what requests were for would be forgotten")
