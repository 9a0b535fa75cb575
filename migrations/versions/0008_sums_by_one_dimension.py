"""Sums of days by one dimension alone.

`daily_by` has a row for each day that is over and each model, session, project, team's tags … of
that day. It answers most questions from a few rows, where `hourly_usage` has one for each group of
requests that are alike in everything. Every day is summed up again, aside, by whoever writes the
ledger next or by `tokentee db upgrade`; until then its requests are added up for each question.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

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
    op.create_table(
        "daily_by",
        sa.Column("day", sa.Date, nullable=False, comment="The UTC day"),
        sa.Column(
            "dimension", sa.Text, nullable=False, comment="A column of requests, or everything"
        ),
        sa.Column("value", sa.Text, comment="What the requests of this row have in that column"),
        sa.Column(
            "key_hint",
            sa.Text,
            comment="At most the last 4 characters of the API key, of rows by key_fingerprint",
        ),
        *_figures(),
        comment="What each day that is over adds up to, by each dimension alone",
    )
    op.create_index("ix_daily_by_dimension_day", "daily_by", ["dimension", "day"])
    for right in _readers() if is_postgresql else []:
        op.execute(f"GRANT {right.privilege_type} ON daily_by TO {right.grantee}")


def downgrade() -> None:
    raise NotImplementedError("drop the database by hand, or go on upwards")


def _figures() -> list[sa.Column[object]]:
    times = "Milliseconds of each request, with spaces between; 12*3: 3 times"
    return [
        *(sa.Column(name, sa.BigInteger, nullable=False, comment="Of requests") for name in COUNTS),
        *(sa.Column(name, sa.BigInteger, comment="Sum over requests") for name in SUMS),
        *(sa.Column(name, sa.Text, comment=times) for name in TIMES),
    ]


def _readers() -> list[sa.Row[tuple[str, str]]]:
    """Who has rights on the sums that are there already."""
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
