"""What answers state of limits, the account that has them, and the wait that an error asks for."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

INSTANT = sa.Text().with_variant(postgresql.TIMESTAMP(timezone=True), "postgresql")
ACCOUNT = "Keyed hash of the account or organization that the wire names; NULL: none"
WAIT = "Wait that an error answer asked for, milliseconds; NULL: none"


def upgrade() -> None:
    op.add_column("exchanges", sa.Column("account", sa.Text, comment=ACCOUNT))
    op.execute(
        "ALTER TABLE exchanges ADD COLUMN retry_after_ms BIGINT "
        "CONSTRAINT ck_exchanges_retry_after_ms_not_negative CHECK (retry_after_ms >= 0)"
    )
    if op.get_context().dialect.name == "postgresql":
        op.execute(f"COMMENT ON COLUMN exchanges.retry_after_ms IS '{WAIT}'")

    def text(name: str, comment: str, *, nullable: bool = True) -> sa.Column[str]:
        return sa.Column(name, sa.Text, nullable=nullable, comment=comment)

    def count(name: str, comment: str) -> sa.Column[int]:
        return sa.Column(name, sa.BigInteger, comment=comment)

    op.create_table(
        "quotas",
        sa.Column("opened_at", INSTANT, nullable=False, comment="The exchange's opened_at"),
        text("exchange_id", "The exchange whose answer stated it", nullable=False),
        text("kind", "plan (what a flat plan covers) or rate (what a key may use)", nullable=False),
        text(
            "window", "5h, 7d, where its length is known; else the provider's name", nullable=False
        ),
        text("window_name", "The provider's name", nullable=False),
        count("window_minutes", "Its length; NULL: unknown"),
        text("provider", "As in exchanges", nullable=False),
        text("key_fingerprint", "As in exchanges"),
        text("account", "Keyed hash of the account or organization; NULL: the wire names none"),
        text("holder", "Whose it is: the account, else the key, else empty", nullable=False),
        count("limit_value", "The limit; NULL: not stated"),
        count("remaining", "What is left of it; NULL: not stated"),
        count("used_ppm", "Used share in millionths; NULL: not stated"),
        text("status", "The provider's word: allowed, rejected, …"),
        sa.Column("resets_at", INSTANT, comment="When it begins anew; NULL: not stated"),
        sa.Column("observed_at", INSTANT, nullable=False, comment="When the answer arrived"),
        sa.PrimaryKeyConstraint(
            "opened_at", "exchange_id", "kind", "window", name=op.f("pk_quotas")
        ),
        sa.CheckConstraint("kind IN ('plan', 'rate')", name=op.f("ck_quotas_kind")),
        comment="What answers stated of limits; a row where a figure changed; append-only",
        sqlite_with_rowid=False,
    )
    op.create_index(
        "ix_quotas_holder",
        "quotas",
        ["kind", "provider", "holder", "window", "observed_at"],
    )


def downgrade() -> None:
    raise NotImplementedError("the quotas that answers stated would be forgotten")
