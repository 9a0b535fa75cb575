"""One table of sums, by groupings; histograms instead of the texts of all times.

`sums` replaces `daily`, `daily_by`, `hourly` and `hourly_usage`. Every day is summed up again,
aside, by whoever writes the ledger next or by `tokentee db upgrade`; until then its requests are
added up for each question.
"""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

VIEWS = (
    "completeness",
    "live_hourly",
    "usage_daily",
    "live_daily",
    "unpriced",
    "live_unpriced",
    "requests",
)
VIEWS_ON_POSTGRESQL = """
SELECT c.relname, string_agg('NULL::' || format_type(a.atttypid, a.atttypmod) || ' AS '
  || quote_ident(a.attname), ', ' ORDER BY a.attnum)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
WHERE c.relkind = 'v' AND c.relname IN ('usage_daily', 'completeness', 'unpriced')
  AND c.relnamespace = current_schema()::regnamespace GROUP BY c.relname"""
# One string each: a list literal would have a line for each of 53 names.
DIMENSIONS = """
    model provider key_fingerprint session_id project git_branch agent purpose billing tags
    request_model origin dialect operation service_tier outcome end_user user_agent source key_hint
    """.split()  # noqa: SIM905
COUNTS = """
    requests errors without_usage complete_without_usage estimated priced partial reported unpriced
    covered unlisted
    """.split()  # noqa: SIM905
SUMS = """
    input_tokens uncached_input_tokens cache_read_tokens cache_write_tokens cache_write_5m_tokens
    cache_write_1h_tokens output_tokens reasoning_tokens extra_input_tokens extra_output_tokens
    estimated_input_tokens estimated_output_tokens cacheable_input_tokens cost_picousd
    estimated_cost_picousd list_value_picousd covered_value_picousd reported_cost_picousd
    saved_picousd difference_picousd generation_ms generated_tokens
    """.split()  # noqa: SIM905
HISTOGRAMS = ("first_token_times", "duration_times")
OF_EXCHANGES = ("opened", "still_open", "settled", "lost", "degraded", "duplicates")


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
    rights = _rights() if is_postgresql else []
    # All views are made anew after the migrations, on PostgreSQL with the rights that they have
    # now. Until then they must not need the tables.
    if is_postgresql:
        for view, columns in op.get_bind().exec_driver_sql(VIEWS_ON_POSTGRESQL).all():
            op.execute(f"CREATE OR REPLACE VIEW {view} AS SELECT {columns}")
    else:
        for view in VIEWS:
            op.execute(f"DROP VIEW IF EXISTS {view}")
    for table in ("daily", "daily_by", "hourly", "hourly_usage"):
        op.drop_table(table)
    op.execute("DELETE FROM unpriced_lines")
    op.drop_column("unpriced_lines", "day")
    instant = sa.TIMESTAMP(timezone=True) if is_postgresql else sa.Text()
    document = sa.JSON() if is_postgresql else sa.Text()
    op.create_table(
        "sums",
        sa.Column("summed_by", sa.Text, nullable=False),
        sa.Column("opened_at", instant, nullable=False),
        *(sa.Column(name, document if name == "tags" else sa.Text) for name in DIMENSIONS),
        *(sa.Column(name, sa.BigInteger) for name in (*COUNTS, *SUMS)),
        *(sa.Column(name, sa.Text) for name in HISTOGRAMS),
        *(sa.Column(name, sa.BigInteger) for name in OF_EXCHANGES),
    )
    op.create_index("ix_sums_summed_by_opened_at", "sums", ["summed_by", "opened_at"])
    for right in rights:
        op.execute(f"GRANT {right.privilege_type} ON sums TO {right.grantee}")


def downgrade() -> None:
    raise NotImplementedError("drop the database by hand, or go on upwards")


def _rights() -> list[sa.Row[tuple[str, str]]]:
    """The rights on one of the tables that go."""
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
