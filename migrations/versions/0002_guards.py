"""What the database itself refuses: changing settled facts, readings and charges.

Retention drops whole exchanges. On SQLite it says so in `meta` inside its own transaction; on
PostgreSQL with `SET LOCAL tokentee.retention = 'on'`, or by dropping a month's partitions.
"""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

SETTLED = "a settled exchange does not change"
IDENTITY = "id and opened_at of an exchange do not change"
APPEND_ONLY = "{table} are append-only"
KEPT = "{table} are only dropped by retention"

# All but the derived ones: duplicate_of and id_collision move when a merge brings an earlier
# member of a response's group.
FACTS = """
    state, outcome, source, origin, provider, dialect, operation, path, request_model,
    response_model, response_id, id_unstable, content_digest, streamed, http_status,
    finish_reason, error_type, error_code, error_message, service_tier, first_byte_at,
    first_token_at, settled_at, request_bytes, response_bytes, client_bytes, removed_bytes,
    upstream_digest, client_digest, removed_digest, events, usage_asked, usage_injected,
    usage_stripped, resent, degraded, key_fingerprint, key_hint, user_agent, end_user,
    session_id, tags, node, capture
"""
# What was given up as lost may still turn out to have been settled: a spool that comes back, a
# saved flow that is replayed.
CHANGES_A_FACT = "OLD.state = 'settled' OR (OLD.state = 'lost' AND NEW.state <> 'settled')"

KEYS = {
    "exchanges": ("opened_at", "id"),
    "readings": ("opened_at", "exchange_id", "id"),
    "charges": ("opened_at", "exchange_id", "reading_id", "ordinal", "revision", "id"),
}


def upgrade() -> None:
    if op.get_context().dialect.name == "postgresql":
        _guard_postgresql()
    else:
        _guard_sqlite()


def downgrade() -> None:
    raise NotImplementedError("facts would no longer be guarded")


def _guard_sqlite() -> None:
    op.execute(
        f"CREATE TRIGGER exchanges_settled BEFORE UPDATE OF {FACTS} ON exchanges "
        f"WHEN {CHANGES_A_FACT} BEGIN SELECT RAISE(ABORT, '{SETTLED}'); END"
    )
    op.execute(
        "CREATE TRIGGER exchanges_identity BEFORE UPDATE OF id, opened_at ON exchanges "
        f"BEGIN SELECT RAISE(ABORT, '{IDENTITY}'); END"
    )
    for table in ("readings", "charges"):
        op.execute(
            f"CREATE TRIGGER {table}_append_only BEFORE UPDATE ON {table} "
            f"BEGIN SELECT RAISE(ABORT, '{APPEND_ONLY.format(table=table)}'); END"
        )
    for table, key in KEYS.items():
        op.execute(
            f"CREATE TRIGGER {table}_kept BEFORE DELETE ON {table} "
            "WHEN NOT EXISTS (SELECT 1 FROM meta WHERE key = 'retention') "
            f"BEGIN SELECT RAISE(ABORT, '{KEPT.format(table=table)}'); END"
        )
        # INSERT OR REPLACE deletes without asking the trigger above. What is there stays.
        same = " AND ".join(f"{column} = NEW.{column}" for column in key)
        final = " AND state = 'settled'" if table == "exchanges" else ""
        op.execute(
            f"CREATE TRIGGER {table}_not_replaced BEFORE INSERT ON {table} "
            f"WHEN EXISTS (SELECT 1 FROM {table} WHERE {same}{final}) "
            "BEGIN SELECT RAISE(IGNORE); END"
        )


def _guard_postgresql() -> None:
    op.execute(
        "CREATE FUNCTION tokentee_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ "
        "BEGIN RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'integrity_constraint_violation'; "
        "END $$"
    )
    op.execute(
        f"CREATE TRIGGER exchanges_settled BEFORE UPDATE OF {FACTS} ON exchanges FOR EACH ROW "
        f"WHEN ({CHANGES_A_FACT}) EXECUTE FUNCTION tokentee_refuse('{SETTLED}')"
    )
    op.execute(
        "CREATE TRIGGER exchanges_identity BEFORE UPDATE OF id, opened_at ON exchanges "
        f"FOR EACH ROW EXECUTE FUNCTION tokentee_refuse('{IDENTITY}')"
    )
    for table in ("readings", "charges"):
        op.execute(
            f"CREATE TRIGGER {table}_append_only BEFORE UPDATE ON {table} FOR EACH ROW "
            f"EXECUTE FUNCTION tokentee_refuse('{APPEND_ONLY.format(table=table)}')"
        )
    for table in KEYS:
        refuse = f"EXECUTE FUNCTION tokentee_refuse('{KEPT.format(table=table)}')"
        op.execute(
            f"CREATE TRIGGER {table}_kept BEFORE DELETE ON {table} FOR EACH ROW "
            "WHEN (current_setting('tokentee.retention', true) IS DISTINCT FROM 'on') "
            f"{refuse}"
        )
        op.execute(
            f"CREATE TRIGGER {table}_not_truncated BEFORE TRUNCATE ON {table} "
            f"FOR EACH STATEMENT {refuse}"
        )
