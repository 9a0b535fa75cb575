"""What tells two billed responses apart, who asked for them, and room for both.

The digest of the request's body belongs to the rule of duplicates. Views, the guard of settled
facts and the links are derived: `ledger.store.schema.derived` makes them anew after the migrations.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

COLUMNS = {
    "request_digest": "First 128 bits of the SHA-256 of the request's body, hex; NULL: not known",
    "project": "The project that the request was made for: a folder or repository name",
    "git_branch": "The git branch that was checked out",
    "agent": "The agent that made the request: claude-code, codex, …",
    "parent_session_id": "The session that started this one",
}


# Whoever may read the ledger could test guesses of a key with the secret. A schema of its own is
# not reached by `GRANT SELECT ON ALL TABLES IN SCHEMA public`. Who writes the ledger may use it.
SECRET = (
    "CREATE SCHEMA IF NOT EXISTS tokentee_private",
    (
        "CREATE TABLE IF NOT EXISTS tokentee_private.secret "
        "(place integer PRIMARY KEY CHECK (place = 1), value text NOT NULL)"
    ),
    "REVOKE ALL ON SCHEMA tokentee_private FROM PUBLIC",
    (
        "INSERT INTO tokentee_private.secret (place, value) "
        "SELECT 1, value FROM meta WHERE key = 'secret' ON CONFLICT DO NOTHING"
    ),
    "DELETE FROM meta WHERE key = 'secret'",
    """
DO $$ DECLARE writer text; BEGIN
  FOR writer IN SELECT DISTINCT quote_ident(grantee) FROM information_schema.role_table_grants
    WHERE table_schema = current_schema() AND table_name = 'exchanges'
      AND privilege_type = 'INSERT' AND grantee NOT IN ('PUBLIC', current_user)
  LOOP
    EXECUTE 'GRANT USAGE ON SCHEMA tokentee_private TO ' || writer;
    EXECUTE 'GRANT SELECT, INSERT ON tokentee_private.secret TO ' || writer;
  END LOOP;
END $$
""",
)


def upgrade() -> None:
    for name, comment in COLUMNS.items():
        op.add_column("exchanges", sa.Column(name, sa.Text, comment=comment))
    op.execute(
        "ALTER TABLE exchanges ADD COLUMN tool_calls BIGINT "
        "CONSTRAINT ck_exchanges_tool_calls_not_negative CHECK (tool_calls >= 0)"
    )
    if op.get_context().dialect.name == "postgresql":
        op.execute(
            "COMMENT ON COLUMN exchanges.tool_calls IS "
            "'Tools that the answer calls; NULL: not read'"
        )
    op.drop_index("ix_exchanges_response_id", "exchanges")
    op.create_index(
        "ix_exchanges_response",
        "exchanges",
        [
            "response_id",
            "origin",
            "duplicate_of",
            "id_collision",
            "upstream_digest",
            "request_digest",
            "key_fingerprint",
            "content_digest",
        ],
        sqlite_where=sa.text("response_id IS NOT NULL"),
        postgresql_where=sa.text("response_id IS NOT NULL"),
    )
    op.create_index(
        "ix_exchanges_recorded",
        "exchanges",
        ["response_id", "origin", "upstream_digest", "content_digest"],
        sqlite_where=sa.text("response_id IS NOT NULL AND source <> 'live'"),
        postgresql_where=sa.text("response_id IS NOT NULL AND source <> 'live'"),
    )

    if op.get_context().dialect.name == "postgresql":
        for statement in SECRET:
            op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("facts of exchanges would be deleted")
