"""Lines without a price of days that are over.

The view `unpriced` read every reading to find those without a line, 15 s of CPU over two million
exchanges. `unpriced_lines` has its rows of the days that have sums. Every day is summed up again,
by the process that writes the ledger next or by `tokentee db upgrade`; until then the view reads
its exchanges.
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
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
    instant = sa.TIMESTAMP(timezone=True) if is_postgresql else sa.Text()
    op.create_table(
        "unpriced_lines",
        sa.Column("day", sa.Date, nullable=False),
        sa.Column("opened_at", instant, nullable=False),
        sa.Column("exchange_id", sa.Text, nullable=False),
        sa.Column("ordinal", sa.Integer, nullable=False),
        sa.Column("response_id", sa.Text),
        sa.Column("provider", sa.Text, nullable=False),
        sa.Column("model", sa.Text),
        sa.Column("service_tier", sa.Text),
        sa.Column("line", sa.Text),
        sa.Column("quantity", sa.BigInteger),
        sa.Column("reason", sa.Text),
        sa.PrimaryKeyConstraint("opened_at", "exchange_id", "ordinal", name="pk_unpriced_lines"),
        sqlite_with_rowid=False,
    )
    for right in _readers() if is_postgresql else []:
        op.execute(f"GRANT {right.privilege_type} ON unpriced_lines TO {right.grantee}")


def downgrade() -> None:
    raise NotImplementedError("drop the database by hand, or go on upwards")


def _readers() -> list[sa.Row[tuple[str, str]]]:
    """The rights on the sums that are there already."""
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
