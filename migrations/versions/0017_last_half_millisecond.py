"""A write to a day that is over makes that day stale, and not the next day, too.

SQLite rounds a moment to milliseconds before it adds a day. So an exchange that was opened in the
last half millisecond of a day made a span of two days, and the views counted the second one twice.
"""

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

TRIGGERS = (
    ("exchanges_added_late", "INSERT ON exchanges", "NEW", ""),
    ("exchanges_changed_late", "UPDATE OF state, duplicate_of ON exchanges", "NEW", ""),
    ("exchanges_dropped", "DELETE ON exchanges", "OLD", ""),
    ("readings_added_late", "INSERT ON readings", "NEW", ""),
    ("charges_added_late", "INSERT ON charges", "NEW", "NEW.revision > 1 AND"),
)


def upgrade() -> None:
    if op.get_context().dialect.name != "sqlite":
        return
    for name, event, row, late in TRIGGERS:
        day = f"substr({row}.opened_at, 1, 10)"
        op.execute(f"DROP TRIGGER {name}")
        op.execute(
            f"CREATE TRIGGER {name} AFTER {event} WHEN {late} {row}.opened_at < "
            "(SELECT value FROM meta WHERE key = 'rolled_until') BEGIN "
            "INSERT INTO stale_days (day, starts_at, ends_at, writes) "
            f"VALUES ({day}, {_begin(day)}, {_begin(f"date({day}, '+1 day')")}, 1) "
            "ON CONFLICT (day) DO UPDATE SET writes = writes + 1; END"
        )
    op.execute(f"UPDATE stale_days SET ends_at = {_begin("date(day, '+1 day')")}")


def _begin(day: str) -> str:
    return f"{day} || ' 00:00:00.000000Z'"


def downgrade() -> None:
    """The triggers of the revision before count the same writes."""
