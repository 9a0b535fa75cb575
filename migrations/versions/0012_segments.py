"""The parts of chat requests, as sizes and keyed hashes, beside the exchanges."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

INSTANT = sa.Text().with_variant(postgresql.TIMESTAMP(timezone=True), "postgresql")


def upgrade() -> None:
    op.create_table(
        "segments",
        sa.Column("opened_at", INSTANT, nullable=False, comment="The exchange's opened_at"),
        sa.Column("exchange_id", sa.Text, nullable=False, comment="The exchange"),
        sa.Column(
            "packed",
            sa.Text,
            nullable=False,
            comment="Kinds, names, sizes and keyed hashes of its parts, packed",
        ),
        sa.PrimaryKeyConstraint("opened_at", "exchange_id", name=op.f("pk_segments")),
        comment="The parts of a chat request, without their text",
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("segments")
