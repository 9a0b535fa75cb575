"""Sums by everything that a report can be by, with times and savings.

`hourly_usage` has a row for each hour of a day that is over and each group of its requests that are
alike in everything that a report can be by. `daily` keeps the sums by provider, model and key
alone, which answer for years; it is made anew, since it gets more of them. Every day is therefore
summed up again, aside, by whoever writes the ledger next or by `tokentee db upgrade`; until then
its requests are added up for each question.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

INSTANT = sa.Text().with_variant(postgresql.TIMESTAMP(timezone=True), "postgresql")
DOCUMENT = sa.Text().with_variant(postgresql.JSON(), "postgresql")

DIMENSIONS = (
    "model",
    "key_fingerprint",
    "key_hint",
    "origin",
    "dialect",
    "operation",
    "service_tier",
    "outcome",
    "source",
    "session_id",
    "project",
    "git_branch",
    "agent",
    "end_user",
    "user_agent",
)
COUNTS = (
    "requests",
    "errors",
    "without_usage",
    "complete_without_usage",
    "estimated",
    "priced",
    "partial",
    "reported",
    "unpriced",
)
SUMS = (
    "input_tokens",
    "uncached_input_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_5m_tokens",
    "cache_write_1h_tokens",
    "output_tokens",
    "reasoning_tokens",
    "extra_input_tokens",
    "extra_output_tokens",
    "estimated_input_tokens",
    "estimated_output_tokens",
    "cacheable_input_tokens",
    "cost_picousd",
    "estimated_cost_picousd",
    "reported_cost_picousd",
    "saved_picousd",
    "difference_picousd",
    "generation_ms",
    "generated_tokens",
)
TIMES = ("first_token_times", "duration_times")
VIEWS = ("usage_daily", "live_daily")
"""They read the table that is made anew; all views are derived after the migrations."""


def upgrade() -> None:
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
    for view in VIEWS:
        op.execute(f"DROP VIEW IF EXISTS {view}")
    rights = _readers() if is_postgresql else []
    op.drop_table("daily")
    op.create_table(
        "daily",
        sa.Column("day", sa.Date, nullable=False, comment="The UTC day"),
        sa.Column("provider", sa.Text, nullable=False, comment="Who answers"),
        sa.Column("model", sa.Text, comment="The model that answered, or was asked for"),
        sa.Column("key_fingerprint", sa.Text, comment="Keyed hash of the API key"),
        sa.Column("key_hint", sa.Text, comment="At most the last 4 characters of the API key"),
        *_figures(),
        comment="What each day that is over adds up to, by provider, model and key",
    )
    op.create_index("ix_daily_day", "daily", ["day"])
    op.create_table(
        "hourly_usage",
        sa.Column("hour", INSTANT, nullable=False, comment="The hour's begin, UTC"),
        sa.Column("provider", sa.Text, nullable=False, comment="As in requests"),
        *(sa.Column(name, sa.Text, comment="As in requests") for name in DIMENSIONS),
        sa.Column("tags", DOCUMENT, comment="As in requests"),
        *_figures(),
        comment="What each hour of days that are over adds up to, by everything that a report can "
        "be by: a row per session, model, outcome …",
    )
    op.create_index("ix_hourly_usage_hour", "hourly_usage", ["hour"])
    for right in rights:
        op.execute(f"GRANT {right.privilege_type} ON daily, hourly_usage TO {right.grantee}")


def downgrade() -> None:
    raise NotImplementedError("drop the database by hand, or go on upwards")


def _figures() -> list[sa.Column[object]]:
    times = "Milliseconds of each request, with spaces between"
    return [
        *(sa.Column(name, sa.BigInteger, nullable=False, comment="Of requests") for name in COUNTS),
        *(sa.Column(name, sa.BigInteger, comment="Sum over requests") for name in SUMS),
        *(sa.Column(name, sa.Text, comment=times) for name in TIMES),
    ]


def _readers() -> list[sa.Row[tuple[str, str]]]:
    """Who has rights on the table that is made anew."""
    return list(
        op.get_bind().execute(
            sa.text(
                "SELECT privilege_type, CASE grantee WHEN 'PUBLIC' THEN 'PUBLIC' "
                "ELSE quote_ident(grantee) END AS grantee "
                "FROM information_schema.role_table_grants WHERE table_name = 'daily' "
                "AND table_schema = current_schema() AND grantee <> current_user"
            )
        )
    )
