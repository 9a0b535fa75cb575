"""Alerts of budgets, and sums that reports can be made of.

`alerts` has one row per budget, period and threshold, so that each alert is sent once. The sums of
days that are over get what a report shows; the cost of estimated usage stands beside the cost now,
never inside. Every day is therefore summed up anew.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

INSTANT = sa.Text().with_variant(postgresql.TIMESTAMP(timezone=True), "postgresql")


DAILY = (
    "complete_without_usage",
    "estimated",
    "priced",
    "partial",
    "reported",
    "estimated_cost_picousd",
    "reported_cost_picousd",
    "generation_ms",
    "generated_tokens",
)


def upgrade() -> None:
    for name in DAILY:
        op.add_column("daily", sa.Column(name, sa.BigInteger, comment="As live_daily adds it up"))
    is_postgresql = op.get_context().dialect.name == "postgresql"
    begin = (
        "day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC'"
        if is_postgresql
        else "day || ' 00:00:00.000000Z', date(day, '+1 day') || ' 00:00:00.000000Z'"
    )
    op.execute(
        "INSERT INTO stale_days (day, starts_at, ends_at, writes) "
        f"SELECT DISTINCT day, {begin}, 0 FROM daily WHERE true ON CONFLICT (day) DO NOTHING"
    )
    op.create_table(
        "alerts",
        sa.Column("budget", sa.Text, nullable=False, comment="The budget's name"),
        sa.Column("period_start", INSTANT, nullable=False, comment="When its period began, UTC"),
        sa.Column("threshold", sa.Integer, nullable=False, comment="In per cent of its limit"),
        sa.Column("claimed_at", INSTANT, nullable=False, comment="When a process took it, UTC"),
        sa.Column("attempts", sa.Integer, nullable=False, comment="How often it was taken"),
        sa.Column("sent_at", INSTANT, comment="When a destination took it, UTC; NULL: not yet"),
        sa.PrimaryKeyConstraint("budget", "period_start", "threshold", name=op.f("pk_alerts")),
        comment="Alerts of budgets, each sent once per period and threshold",
    )


def downgrade() -> None:
    op.drop_table("alerts")
