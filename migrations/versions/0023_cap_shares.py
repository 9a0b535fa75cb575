"""Caps over processes: what they have spent and hold, in place of leases. Nothing is moved: an
account that is not there is added up from the ledger."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

PARTS = {"spent": "Spent", "held": "Held for requests under way"}
AMOUNTS = ("usd", "list_value_usd", "tokens", "requests")


def upgrade() -> None:
    op.drop_table("cap_leases")

    def text(name: str, comment: str) -> sa.Column:
        return sa.Column(name, sa.Text, nullable=False, comment=comment)

    op.create_table(
        "cap_shares",
        text("cap", "The cap's name, and a digest of what it is for; empty: a sign of life"),
        text("account", "Its period's begin, its session, or a minute of a rolling one"),
        text("node", "The process and a number; empty: all of them together"),
        *(
            sa.Column(
                f"{part}_{amount}",
                sa.BigInteger,
                nullable=False,
                server_default="0",
                comment=meaning,
            )
            for part, meaning in PARTS.items()
            for amount in AMOUNTS
        ),
        sa.Column(
            "at", sa.Double, nullable=False, comment="When it was last written, in seconds of 1970"
        ),
        sa.PrimaryKeyConstraint("cap", "account", "node", name=op.f("pk_cap_shares")),
        comment="What processes have spent and hold of caps; on SQLite a file of its own has it",
    )


def downgrade() -> None:
    raise NotImplementedError
