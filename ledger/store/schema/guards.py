"""Database. Guards of facts: triggers that name every fact of a settled exchange, that check the
lines of a pricing, and that keep further pricings and what answers stated of limits.

The other guards (readings are append-only, ids do not change) name no columns and come from
migration 0002. A lost exchange may still be settled later: by a spool that comes back or a saved
flow that is replayed.
"""

from collections.abc import Iterator

from ledger.model.columns import columns_of
from ledger.model.exchange import QUOTA_KEY, Exchange
from ledger.store.schema import charged

_SETTLED = "a settled exchange does not change"
_CHANGES_A_FACT = "OLD.state = 'settled' OR (OLD.state = 'lost' AND NEW.state <> 'settled')"
_WRONG_LINE = "a charge is its quantity times its unit price, or has no price"
_KEPT_TABLES = {
    "quotas": QUOTA_KEY,
    "pricings": ("opened_at", "exchange_id", "reading_id", "revision", "id"),
}
"""Table -> its key; rows are only added."""


def statements(dialect: str) -> list[str]:
    """Replace the guards by those for this version's columns."""
    facts = ", ".join(name for name in columns_of(Exchange) if name not in ("id", "opened_at"))
    trigger = f"CREATE TRIGGER exchanges_settled BEFORE UPDATE OF {facts} ON exchanges"
    if dialect == "postgresql":
        return [
            "DROP TRIGGER IF EXISTS exchanges_settled ON exchanges",
            (
                f"{trigger} FOR EACH ROW WHEN ({_CHANGES_A_FACT}) "
                f"EXECUTE FUNCTION tokentee_refuse('{_SETTLED}')"
            ),
            *_postgresql(),
        ]
    return [
        "DROP TRIGGER IF EXISTS exchanges_settled",
        f"{trigger} WHEN {_CHANGES_A_FACT} BEGIN SELECT RAISE(ABORT, '{_SETTLED}'); END",
        *_sqlite(),
    ]


def _postgresql() -> Iterator[str]:
    wrong = charged.has_wrong_line("postgresql", "NEW.charges")
    yield (
        "CREATE OR REPLACE FUNCTION tokentee_check_charges() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN IF {wrong} THEN RAISE EXCEPTION '{_WRONG_LINE}' "
        "USING ERRCODE = 'integrity_constraint_violation'; END IF; RETURN NEW; END $$"
    )
    for table in ("readings", "pricings"):
        yield f"DROP TRIGGER IF EXISTS {table}_charges ON {table}"
        yield (
            f"CREATE TRIGGER {table}_charges BEFORE INSERT ON {table} FOR EACH ROW "
            "EXECUTE FUNCTION tokentee_check_charges()"
        )
    retention = "current_setting('tokentee.retention', true)"
    for table in _KEPT_TABLES:
        kept = f"{table} are only dropped by retention"
        for name, event, said in (
            ("append_only", f"UPDATE ON {table} FOR EACH ROW", f"{table} are append-only"),
            (
                "kept",
                f"DELETE ON {table} FOR EACH ROW WHEN ({retention} IS DISTINCT FROM 'on')",
                kept,
            ),
            ("not_truncated", f"TRUNCATE ON {table} FOR EACH STATEMENT", kept),
        ):
            yield f"DROP TRIGGER IF EXISTS {table}_{name} ON {table}"
            yield (
                f"CREATE TRIGGER {table}_{name} BEFORE {event} "
                f"EXECUTE FUNCTION tokentee_refuse('{said}')"
            )


def _sqlite() -> Iterator[str]:
    for table in ("readings", "pricings"):
        wrong = charged.has_wrong_line("sqlite", "NEW.charges")
        yield from _sqlite_trigger(
            f"{table}_charges", f"INSERT ON {table} WHEN {wrong}", f"RAISE(ABORT, '{_WRONG_LINE}')"
        )
    for table, key in _KEPT_TABLES.items():
        same = " AND ".join(f'"{name}" = NEW."{name}"' for name in key)
        # INSERT OR REPLACE deletes without asking the trigger against it: what is there stays.
        for name, event, act in (
            ("append_only", f"UPDATE ON {table}", f"RAISE(ABORT, '{table} are append-only')"),
            (
                "kept",
                f"DELETE ON {table} WHEN NOT EXISTS (SELECT 1 FROM meta WHERE key = 'retention')",
                f"RAISE(ABORT, '{table} are only dropped by retention')",
            ),
            (
                "not_replaced",
                f"INSERT ON {table} WHEN EXISTS (SELECT 1 FROM {table} WHERE {same})",
                "RAISE(IGNORE)",
            ),
        ):
            yield from _sqlite_trigger(f"{table}_{name}", event, act)


def _sqlite_trigger(name: str, event: str, act: str) -> Iterator[str]:
    yield f"DROP TRIGGER IF EXISTS {name}"
    yield f"CREATE TRIGGER {name} BEFORE {event} BEGIN SELECT {act}; END"
