"""The views of many exchanges, usage_daily and completeness, and the sums they rest on.

Days that are over are summed up once, in `daily` and `hourly`; what the views show of them takes
no longer for five million exchanges than for five. They are a memory, not a second truth: triggers
note every write to such a day in `stale_days`, and the views add up a stale day anew, from
`requests` and `exchanges`, as they do for what is not over (`meta` says since when: rolled_until):
`live_daily` and `live_hourly`, span by span.
A ledger that was never summed up shows the same, only slower.
"""

from typing import NamedTuple

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

INSTANT = sa.Text().with_variant(postgresql.TIMESTAMP(timezone=True), "postgresql")

COUNTS = {
    "requests": "COUNT(*)",
    "errors": "COUNT(CASE WHEN e.outcome IN ('error_frame', 'http_error') THEN 1 END)",
    "without_usage": "COUNT(CASE WHEN COALESCE(e.usage_source, 'none') = 'none' THEN 1 END)",
    "unpriced": "COUNT(CASE WHEN e.cost_state IN ('unpriced', 'partial') THEN 1 END)",
}
# Sums are of what providers reported; what we estimated stands beside, never inside.
SUMS = {
    name: f"SUM(CASE WHEN e.usage_source <> 'estimated' THEN e.{name} END)"
    for name in (
        "input_tokens",
        "uncached_input_tokens",
        "cache_read_tokens",
        "cache_write_tokens",
        "cache_write_5m_tokens",
        "cache_write_1h_tokens",
        "output_tokens",
        "reasoning_tokens",
        "extra_input_tokens",
        "extra_output_tokens",
    )
} | {
    "estimated_input_tokens": "SUM(CASE WHEN e.usage_source = 'estimated' THEN e.input_tokens END)",
    "estimated_output_tokens": "SUM(CASE WHEN e.usage_source = 'estimated' "
    "THEN e.output_tokens ELSE e.estimated_output_tokens END)",
    "cost_picousd": "SUM(e.cost_picousd)",
    "cacheable_input_tokens": "SUM(CASE WHEN e.usage_source <> 'estimated' "
    "AND e.cache_read_tokens IS NOT NULL THEN e.input_tokens END)",
}
HOURLY = {
    "opened": "COUNT(*)",
    "still_open": "COUNT(CASE WHEN e.state = 'open' THEN 1 END)",
    "settled": "COUNT(CASE WHEN e.state = 'settled' THEN 1 END)",
    "lost": "COUNT(CASE WHEN e.state = 'lost' THEN 1 END)",
    "without_usage": "COUNT(CASE WHEN e.state <> 'open' "
    "AND COALESCE(r.usage_source, 'none') = 'none' THEN 1 END)",
    "estimated": "COUNT(CASE WHEN r.usage_source = 'estimated' THEN 1 END)",
    "errors": "COUNT(CASE WHEN e.outcome IN ('error_frame', 'http_error') THEN 1 END)",
    "degraded": "COUNT(e.degraded)",
    "duplicates": "COUNT(e.duplicate_of)",
}
DIMENSIONS = "e.provider, e.model, e.key_fingerprint"


class Spelling(NamedTuple):
    day: str
    hour: str
    usd: str
    ratio: str
    integer: str
    spans: str
    of_span: str
    """Rows of {0} in a span."""
    reading: str


SPELLINGS = {
    "sqlite": Spelling(
        day="date(e.opened_at)",
        hour="strftime('%Y-%m-%d %H:00:00.000000Z', e.opened_at)",
        usd="ROUND({0} / 1e12, 12)",
        ratio="CAST({0} AS REAL) / NULLIF({1}, 0)",
        integer="CAST({0} AS INTEGER)",
        spans="""(
    SELECT day, starts_at, ends_at FROM stale_days UNION ALL
    SELECT NULL, COALESCE((SELECT value FROM meta WHERE key = 'rolled_until'), ''), '9999') s""",
        # SQLite keeps the order of a CROSS JOIN.
        of_span="CROSS JOIN {0} e ON e.opened_at >= s.starts_at AND e.opened_at < s.ends_at",
        reading="""JOIN readings r ON r.opened_at = e.opened_at AND r.exchange_id = e.id
  AND NOT EXISTS (
    SELECT 1 FROM readings n
    WHERE n.opened_at = r.opened_at AND n.exchange_id = r.exchange_id
      AND (n.revision > r.revision OR (n.revision = r.revision
           AND (n.read_at < r.read_at OR (n.read_at = r.read_at AND n.id < r.id)))))""",
    ),
    "postgresql": Spelling(
        day="(e.opened_at AT TIME ZONE 'UTC')::date",
        hour="date_trunc('hour', e.opened_at, 'UTC')",
        usd="round({0} / 1e12, 12)",
        ratio="{0}::double precision / NULLIF({1}, 0)",
        integer="({0})::bigint",
        spans="""(
    SELECT day, starts_at, ends_at FROM stale_days UNION ALL
    SELECT NULL::date, COALESCE((SELECT value::timestamptz FROM meta WHERE key = 'rolled_until'),
      '-infinity'), 'infinity') s""",
        # OFFSET 0 keeps the planner from turning this around: span by span, each from the
        # partitions and the end of the index where it lies (0.9 s a day instead of 8).
        of_span="""JOIN LATERAL (
    SELECT * FROM {0} o WHERE o.opened_at >= s.starts_at AND o.opened_at < s.ends_at OFFSET 0) e
  ON true""",
        reading="""JOIN LATERAL (
    SELECT * FROM readings n
    WHERE n.opened_at = e.opened_at AND n.exchange_id = e.id
    ORDER BY n.revision DESC, n.read_at, n.id LIMIT 1) r ON true""",
    ),
}


def upgrade() -> None:
    dialect = op.get_context().dialect.name
    spelling = SPELLINGS[dialect]
    _create_tables()
    for statement in _views(spelling):
        op.execute(statement)
    for statement in _POSTGRESQL_TRIGGERS if dialect == "postgresql" else _sqlite_triggers():
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("drop the database by hand, or go on upwards")


def _create_tables() -> None:
    op.create_table(
        "daily",
        sa.Column("day", sa.Date, nullable=False, comment="The UTC day"),
        sa.Column("provider", sa.Text, nullable=False, comment="Who answers"),
        sa.Column("model", sa.Text, comment="The model that answered, or was asked for"),
        sa.Column("key_fingerprint", sa.Text, comment="Keyed hash of the API key"),
        sa.Column("key_hint", sa.Text, comment="At most the last 4 characters of the API key"),
        *(
            sa.Column(name, sa.BigInteger, nullable=False, comment="As in usage_daily")
            for name in COUNTS
        ),
        *(
            sa.Column(name, sa.BigInteger, comment="As in usage_daily")
            for name in SUMS
            if name != "cacheable_input_tokens"
        ),
        sa.Column(
            "cacheable_input_tokens",
            sa.BigInteger,
            comment="input_tokens where cache reads are reported",
        ),
        comment="usage_daily of the days that are over",
    )
    op.create_index("ix_daily_day", "daily", ["day"])
    op.create_table(
        "hourly",
        sa.Column("day", sa.Date, nullable=False, comment="The UTC day"),
        sa.Column("hour", INSTANT, nullable=False, comment="The hour's begin, UTC"),
        *(
            sa.Column(name, sa.BigInteger, nullable=False, comment="As in completeness")
            for name in HOURLY
        ),
        sa.PrimaryKeyConstraint("hour", name=op.f("pk_hourly")),
        comment="completeness of the hours of days that are over",
    )
    op.create_index("ix_hourly_day", "hourly", ["day"])
    op.create_table(
        "stale_days",
        sa.Column("day", sa.Date, nullable=False, comment="The UTC day"),
        sa.Column("starts_at", INSTANT, nullable=False, comment="Its begin"),
        sa.Column("ends_at", INSTANT, nullable=False, comment="The next day's begin"),
        sa.Column(
            "writes",
            sa.BigInteger,
            nullable=False,
            comment="How often something of it was written since it was over",
        ),
        sa.PrimaryKeyConstraint("day", name=op.f("pk_stale_days")),
        comment="Days that are over and changed since they were summed up: the views add them "
        "up anew",
    )


def _views(spelling: Spelling) -> list[str]:
    figures = ",\n  ".join(
        f"{spelling.integer.format(term)} AS {name}" for name, term in SUMS.items()
    )
    counts = ",\n  ".join(f"{term} AS {name}" for name, term in COUNTS.items())
    hourly = ",\n  ".join(f"{term} AS {name}" for name, term in HOURLY.items())
    daily_columns = ", ".join(["provider, model, key_fingerprint, key_hint", *COUNTS, *SUMS])
    shown = ", ".join(
        name for name in SUMS if name not in ("cacheable_input_tokens", "cost_picousd")
    )
    fresh = "NOT EXISTS (SELECT 1 FROM stale_days s WHERE s.day = d.day)"
    return [
        f"""
CREATE VIEW live_daily AS
SELECT s.day AS stale_day, {spelling.day} AS day, {DIMENSIONS}, MAX(e.key_hint) AS key_hint,
  {counts},
  {figures}
FROM {spelling.spans}
{spelling.of_span.format("requests")}
GROUP BY s.day, {spelling.day}, {DIMENSIONS}
""",
        f"""
CREATE VIEW usage_daily AS
SELECT day, provider, model, key_fingerprint, key_hint, requests, errors, without_usage,
  {shown},
  {spelling.ratio.format("cache_read_tokens", "cacheable_input_tokens")} AS cache_hit_rate,
  cost_picousd, {spelling.usd.format("cost_picousd")} AS cost_usd, unpriced
FROM (
SELECT d.day, {daily_columns} FROM daily d WHERE {fresh}
UNION ALL
SELECT day, {daily_columns} FROM live_daily) u
""",
        f"""
CREATE VIEW live_hourly AS
SELECT s.day AS stale_day, {spelling.hour} AS hour,
  {hourly}
FROM {spelling.spans}
{spelling.of_span.format("exchanges")}
LEFT {spelling.reading}
GROUP BY s.day, {spelling.hour}
""",
        f"""
CREATE VIEW completeness AS
SELECT d.hour, {", ".join(HOURLY)} FROM hourly d WHERE {fresh}
UNION ALL
SELECT hour, {", ".join(HOURLY)} FROM live_hourly
""",
    ]


def _sqlite_triggers() -> list[str]:
    def note(row: str) -> str:
        return f"""
  INSERT INTO stale_days (day, starts_at, ends_at, writes)
  VALUES (date({row}.opened_at), strftime('%Y-%m-%d 00:00:00.000000Z', {row}.opened_at),
          strftime('%Y-%m-%d 00:00:00.000000Z', {row}.opened_at, '+1 day'), 1)
  ON CONFLICT (day) DO UPDATE SET writes = writes + 1;"""

    return [
        f"CREATE TRIGGER {name} AFTER {event} WHEN {late} {row}.opened_at < "
        f"(SELECT value FROM meta WHERE key = 'rolled_until') BEGIN {note(row)} END"
        for name, event, row, late in (
            ("exchanges_added_late", "INSERT ON exchanges", "NEW", ""),
            ("exchanges_changed_late", "UPDATE OF state, duplicate_of ON exchanges", "NEW", ""),
            ("exchanges_dropped", "DELETE ON exchanges", "OLD", ""),
            ("readings_added_late", "INSERT ON readings", "NEW", ""),
            # First charges come with their reading.
            ("charges_added_late", "INSERT ON charges", "NEW", "NEW.revision > 1 AND"),
        )
    ]


_POSTGRESQL_TRIGGERS = [
    """
CREATE FUNCTION tokentee_note_stale_days() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO stale_days (day, starts_at, ends_at, writes)
  SELECT d.day, d.day::timestamp AT TIME ZONE 'UTC',
         (d.day + 1)::timestamp AT TIME ZONE 'UTC', 1
  FROM (SELECT DISTINCT (opened_at AT TIME ZONE 'UTC')::date AS day FROM written
        WHERE opened_at < (SELECT value::timestamptz FROM meta WHERE key = 'rolled_until')) d
  ORDER BY d.day
  ON CONFLICT (day) DO UPDATE SET writes = stale_days.writes + 1;
  RETURN NULL;
END $$
""",
    *(
        f"CREATE TRIGGER {name} AFTER {event} REFERENCING {row} TABLE AS written "
        "FOR EACH STATEMENT EXECUTE FUNCTION tokentee_note_stale_days()"
        for name, event, row in (
            ("exchanges_added_late", "INSERT ON exchanges", "NEW"),
            ("exchanges_changed_late", "UPDATE ON exchanges", "NEW"),
            ("exchanges_dropped", "DELETE ON exchanges", "OLD"),
            ("readings_added_late", "INSERT ON readings", "NEW"),
            ("charges_added_late", "INSERT ON charges", "NEW"),
        )
    ),
]
