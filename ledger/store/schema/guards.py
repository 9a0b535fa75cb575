"""Database. The guard of settled facts: a trigger that names every fact of an exchange.

The other guards (readings and charges are append-only, ids do not change) name no columns and come
from migration 0002. A lost exchange may still be settled later: by a spool that comes back or a
saved flow that is replayed.
"""

from ledger.model.columns import columns_of
from ledger.model.exchange import Exchange

_SETTLED = "a settled exchange does not change"
_CHANGES_A_FACT = "OLD.state = 'settled' OR (OLD.state = 'lost' AND NEW.state <> 'settled')"


def statements(dialect: str) -> list[str]:
    """Replace the guard by one for this version's columns."""
    facts = ", ".join(name for name in columns_of(Exchange) if name not in ("id", "opened_at"))
    trigger = f"CREATE TRIGGER exchanges_settled BEFORE UPDATE OF {facts} ON exchanges"
    if dialect == "postgresql":
        return [
            "DROP TRIGGER IF EXISTS exchanges_settled ON exchanges",
            (
                f"{trigger} FOR EACH ROW WHEN ({_CHANGES_A_FACT}) "
                f"EXECUTE FUNCTION tokentee_refuse('{_SETTLED}')"
            ),
        ]
    return [
        "DROP TRIGGER IF EXISTS exchanges_settled",
        f"{trigger} WHEN {_CHANGES_A_FACT} BEGIN SELECT RAISE(ABORT, '{_SETTLED}'); END",
    ]
