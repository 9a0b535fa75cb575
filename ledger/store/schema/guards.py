"""Database. Guards of facts: a trigger that names every fact of a settled exchange, and those that
keep what answers stated of limits.

The other guards (readings and charges are append-only, ids do not change) name no columns and come
from migration 0002. A lost exchange may still be settled later: by a spool that comes back or a
saved flow that is replayed.
"""

from collections.abc import Iterator

from ledger.model.columns import columns_of
from ledger.model.exchange import QUOTA_KEY, Exchange

_SETTLED = "a settled exchange does not change"
_CHANGES_A_FACT = "OLD.state = 'settled' OR (OLD.state = 'lost' AND NEW.state <> 'settled')"
_APPEND_ONLY = "quotas are append-only"
_KEPT = "quotas are only dropped by retention"
_SAME = " AND ".join(f'"{name}" = NEW."{name}"' for name in QUOTA_KEY)


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
            *_quotas_postgresql(),
        ]
    return [
        "DROP TRIGGER IF EXISTS exchanges_settled",
        f"{trigger} WHEN {_CHANGES_A_FACT} BEGIN SELECT RAISE(ABORT, '{_SETTLED}'); END",
        *_quotas_sqlite(),
    ]


def _quotas_postgresql() -> Iterator[str]:
    retention = "current_setting('tokentee.retention', true)"
    for name, event, said in (
        ("append_only", "UPDATE ON quotas FOR EACH ROW", _APPEND_ONLY),
        (
            "kept",
            f"DELETE ON quotas FOR EACH ROW WHEN ({retention} IS DISTINCT FROM 'on')",
            _KEPT,
        ),
        ("not_truncated", "TRUNCATE ON quotas FOR EACH STATEMENT", _KEPT),
    ):
        yield f"DROP TRIGGER IF EXISTS quotas_{name} ON quotas"
        yield (
            f"CREATE TRIGGER quotas_{name} BEFORE {event} "
            f"EXECUTE FUNCTION tokentee_refuse('{said}')"
        )


def _quotas_sqlite() -> Iterator[str]:
    # INSERT OR REPLACE deletes without asking the trigger against it: what is there stays.
    for name, event, act in (
        ("append_only", "UPDATE ON quotas", f"RAISE(ABORT, '{_APPEND_ONLY}')"),
        (
            "kept",
            "DELETE ON quotas WHEN NOT EXISTS (SELECT 1 FROM meta WHERE key = 'retention')",
            f"RAISE(ABORT, '{_KEPT}')",
        ),
        (
            "not_replaced",
            f"INSERT ON quotas WHEN EXISTS (SELECT 1 FROM quotas WHERE {_SAME})",
            "RAISE(IGNORE)",
        ),
    ):
        yield f"DROP TRIGGER IF EXISTS quotas_{name}"
        yield f"CREATE TRIGGER quotas_{name} BEFORE {event} BEGIN SELECT {act}; END"
