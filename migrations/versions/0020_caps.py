"""Caps: requests that one refused, and what it held for those that it passed.

The sums have a count of refused requests. None was refused before, so it is 0.
"""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

OUTCOMES = "'complete', 'client_left', 'upstream_cut', 'error_frame', 'http_error', 'lost'"
HOLDS = ("hold_picousd", "hold_list_value_picousd", "hold_tokens")


def upgrade() -> None:
    if op.get_context().dialect.name == "postgresql":
        op.execute(
            "ALTER TABLE exchanges DROP CONSTRAINT ck_exchanges_outcome, ADD CONSTRAINT "
            f"ck_exchanges_outcome CHECK (outcome IN ({OUTCOMES}, 'refused'))"
        )
    else:
        _allow_on_sqlite()
    for name in HOLDS:
        op.execute(
            f"ALTER TABLE exchanges ADD COLUMN {name} BIGINT "
            f"CONSTRAINT ck_exchanges_{name}_not_negative CHECK ({name} >= 0)"
        )
    op.add_column("sums", sa.Column("refused", sa.BigInteger))
    op.execute("UPDATE sums SET refused = 0")


def _allow_on_sqlite() -> None:
    """Change the text of the constraint alone (https://www.sqlite.org/lang_altertable.html, "other
    kinds of table schema changes"): a copy of the table would take minutes."""
    connection = op.get_bind()
    (version,) = connection.exec_driver_sql("PRAGMA schema_version").one()
    connection.exec_driver_sql("PRAGMA writable_schema = ON")
    connection.execute(
        sa.text("UPDATE sqlite_master SET sql = replace(sql, :old, :new) WHERE name = 'exchanges'"),
        {"old": f"{OUTCOMES})", "new": f"{OUTCOMES}, 'refused')"},
    )
    connection.exec_driver_sql(f"PRAGMA schema_version = {version + 1}")
    connection.exec_driver_sql("PRAGMA writable_schema = OFF")


def downgrade() -> None:
    raise NotImplementedError("refused requests would have no outcome")
