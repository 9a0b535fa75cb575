"""Caps over processes: what each uses and took of a cap that all share."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

PARTS = {
    "spent": "Spent",
    "used": "Spent, and held for requests under way",
    "taken": "Used, and the slice that the process may use without asking",
}
AMOUNTS = ("picousd", "list_value_picousd", "tokens", "requests")


def upgrade() -> None:
    is_postgresql = op.get_context().dialect.name == "postgresql"
    instant = sa.TIMESTAMP(timezone=True) if is_postgresql else sa.Text()

    def text(name: str, comment: str, *, nullable: bool = False) -> sa.Column:
        return sa.Column(name, sa.Text, nullable=nullable, comment=comment)

    op.create_table(
        "cap_leases",
        text("cap", "The cap's name, and a digest of what it is for"),
        text("account", "Its period's begin, or session; empty: the lease itself"),
        text("node", "The process; empty: what no lease covers"),
        text(
            "state",
            "live; silent (what it used counts); left (the ledger has all of it)",
            nullable=True,
        ),
        sa.Column(
            "began_at", instant, comment="Of a lease: what was settled earlier is not part of it"
        ),
        *(
            sa.Column(f"{part}_{amount}", sa.BigInteger, nullable=False, comment=meaning)
            for part, meaning in PARTS.items()
            for amount in AMOUNTS
        ),
        sa.Column(
            "is_short",
            sa.Boolean,
            nullable=False,
            comment="A request waits for what others took",
        ),
        sa.Column("ends_at", instant, nullable=False, comment="When the row may be dropped, UTC"),
        sa.PrimaryKeyConstraint("cap", "account", "node", name=op.f("pk_cap_leases")),
        comment="What each recording process uses and took of the caps of periods",
    )


def downgrade() -> None:
    op.drop_table("cap_leases")
