"""Comments on tables and columns are derived.

From this schema on, `ledger.store.schema.derived` writes the comments of all tables and views after
each migration, as it does views and guards. So this migration changes nothing itself.
"""

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    pass


def downgrade() -> None:
    pass
