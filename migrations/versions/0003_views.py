"""The views of single exchanges: requests, unpriced.

One text for both databases; a `Spelling` holds the few expressions that they write differently.
"""

from typing import NamedTuple

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


class Spelling(NamedTuple):
    milliseconds: str
    usd: str
    integer: str
    reading: str
    """A join with the reading `r` that counts of an exchange `e`, if {0}."""


IS_CURRENT_READING = """NOT EXISTS (
    SELECT 1 FROM readings n
    WHERE n.opened_at = r.opened_at AND n.exchange_id = r.exchange_id
      AND (n.revision > r.revision OR (n.revision = r.revision
           AND (n.read_at < r.read_at OR (n.read_at = r.read_at AND n.id < r.id)))))"""

SPELLINGS = {
    "sqlite": Spelling(
        milliseconds="CAST(ROUND((julianday({1}) - julianday({0})) * 86400000) AS INTEGER)",
        usd="ROUND(({0}) / 1e12, 12)",
        integer="CAST(({0}) AS INTEGER)",
        reading=f"""JOIN readings r
  ON r.opened_at = e.opened_at AND r.exchange_id = e.id AND {{0}}
  AND {IS_CURRENT_READING}""",
    ),
    "postgresql": Spelling(
        milliseconds="round(extract(epoch FROM {1} - {0}) * 1000)::bigint",
        usd="round(({0}) / 1e12, 12)",
        integer="({0})::bigint",
        # One look into one partition per exchange. A join over a period would read all of
        # `readings`: that equal moments lie in the same period does not occur to the planner.
        reading="""JOIN LATERAL (
    SELECT * FROM readings n
    WHERE n.opened_at = e.opened_at AND n.exchange_id = e.id
    ORDER BY n.revision DESC, n.read_at, n.id LIMIT 1) r ON {0}""",
    ),
}

# A first revision has no equal: its id is its reading's digest, which covers its charges.
IS_CURRENT_CHARGE = """NOT EXISTS (
    SELECT 1 FROM charges n
    WHERE n.opened_at = c.opened_at AND n.exchange_id = c.exchange_id
      AND n.reading_id = c.reading_id AND n.ordinal = c.ordinal AND n.revision > 1
      AND (n.revision > c.revision OR (n.revision = c.revision AND n.id < c.id)))"""

CHARGES = f"""FROM charges c
    WHERE c.opened_at = e.opened_at AND c.exchange_id = e.id AND c.reading_id = r.id
      AND {IS_CURRENT_CHARGE}"""

COUNTS = "e.state <> 'open' AND e.duplicate_of IS NULL"
MODEL = "COALESCE(NULLIF(e.response_model, ''), NULLIF(e.request_model, ''))"
UNCACHED = "r.input_tokens - COALESCE(r.cache_read_tokens, 0) - COALESCE(r.cache_write_tokens, 0)"
NO_USAGE = "COALESCE({0}.usage_source, 'none') = 'none'"

# Lines of a further iteration: its kind, a dot, the line. The first condition is an index's.
FURTHER_INPUT = (
    "c.line LIKE '%.%' AND "
    "(c.line LIKE '%.uncached_input' OR c.line LIKE '%.cache_%' OR c.line LIKE '%.input_%')"
)
FURTHER_OUTPUT = (
    "c.line LIKE '%.%' AND "
    "(c.line LIKE '%.output%' OR c.line LIKE '%.reasoning' OR c.line LIKE '%.citation')"
)


def requests(spelling: Spelling) -> str:
    """One row per exchange that counts, its current reading and the sum of its charges."""
    cost = f"SELECT SUM(c.amount_picousd) {CHARGES}"
    extra = f"SELECT SUM(c.quantity) {CHARGES} AND "
    return f"""
CREATE VIEW requests AS
SELECT
  e.id, e.response_id, e.opened_at, e.state, e.outcome, e.source,
  e.origin, e.provider, e.dialect, e.operation, e.path,
  {MODEL} AS model, e.request_model, e.response_model, e.streamed,
  e.http_status, e.finish_reason, e.error_type, e.error_code, e.error_message, e.service_tier,
  e.first_byte_at, e.first_token_at, e.settled_at,
  {spelling.milliseconds.format("e.opened_at", "e.first_token_at")} AS first_token_ms,
  {spelling.milliseconds.format("e.opened_at", "e.settled_at")} AS duration_ms,
  r.usage_source, r.input_tokens,
  CASE WHEN {UNCACHED} < 0 THEN 0 ELSE {UNCACHED} END AS uncached_input_tokens,
  r.cache_read_tokens, r.cache_write_tokens, r.cache_write_5m_tokens, r.cache_write_1h_tokens,
  r.output_tokens, r.reasoning_tokens, r.input_audio_tokens, r.output_audio_tokens,
  r.estimated_output_tokens, r.tool_units,
  {spelling.integer.format(extra + FURTHER_INPUT)} AS extra_input_tokens,
  {spelling.integer.format(extra + FURTHER_OUTPUT)} AS extra_output_tokens,
  {spelling.integer.format(cost)} AS cost_picousd,
  {spelling.usd.format(cost)} AS cost_usd,
  (SELECT CASE
     WHEN COUNT(*) = 0 THEN CASE WHEN {NO_USAGE.format("r")} THEN NULL ELSE 'unpriced' END
     WHEN COUNT(c.amount_picousd) = 0 THEN 'unpriced'
     WHEN COUNT(c.amount_picousd) < COUNT(*) THEN 'partial'
     WHEN MIN(c.price_source) = 'provider' AND MAX(c.price_source) = 'provider' THEN 'reported'
     ELSE 'priced' END
   {CHARGES}) AS cost_state,
  r.reported_cost_picousd, {spelling.usd.format("r.reported_cost_picousd")} AS reported_cost_usd,
  r.reported_upstream_cost_picousd, r.is_byok,
  r.usage_json, r.remarks, r.id AS reading_id, r.revision AS reading_revision, r.meter_version,
  e.key_fingerprint, e.key_hint, e.user_agent, e.end_user, e.session_id, e.tags,
  e.usage_asked, e.usage_injected, e.usage_stripped, e.resent, e.degraded,
  e.request_bytes, e.response_bytes, e.client_bytes, e.removed_bytes, e.events,
  e.id_unstable, e.id_collision, e.node, e.capture
FROM exchanges e
LEFT {spelling.reading.format("true")}
WHERE {COUNTS}
"""


def unpriced(spelling: Spelling) -> str:
    """One row per line without a price, and per reading with usage and no line at all.

    Of a period, the lines are found first: hence the moment is theirs.
    """
    return f"""
CREATE VIEW unpriced AS
SELECT
  c.opened_at, c.exchange_id, e.response_id, e.provider,
  COALESCE(c.model, {MODEL}) AS model, e.service_tier, c.line, c.quantity, c.reason
FROM charges c
JOIN exchanges e ON e.opened_at = c.opened_at AND e.id = c.exchange_id
{spelling.reading.format("r.id = c.reading_id")}
WHERE c.amount_picousd IS NULL AND {IS_CURRENT_CHARGE} AND {COUNTS}
UNION ALL
SELECT
  e.opened_at, e.id, e.response_id, e.provider, {MODEL}, e.service_tier, NULL, NULL,
  'no line was charged'
FROM exchanges e
{spelling.reading.format("true")}
WHERE r.usage_source <> 'none' AND {COUNTS}
  AND NOT EXISTS (
    SELECT 1 FROM charges c
    WHERE c.opened_at = e.opened_at AND c.exchange_id = e.id AND c.reading_id = r.id)
"""


def upgrade() -> None:
    spelling = SPELLINGS[op.get_context().dialect.name]
    for view in (requests, unpriced):
        op.execute(view(spelling))


def downgrade() -> None:
    for view in ("unpriced", "requests"):
        op.execute(f"DROP VIEW {view}")
