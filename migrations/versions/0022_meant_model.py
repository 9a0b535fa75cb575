"""The model that was meant by a request which none answered."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "exchanges",
        sa.Column(
            "meant_model",
            sa.Text,
            comment="Where no model answered: the one that had answered this request_model last; "
            "NULL: a model answered, or none is known",
        ),
    )


def downgrade() -> None:
    raise NotImplementedError("which models were meant would be forgotten")
