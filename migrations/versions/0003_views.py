"""The views: requests, usage_daily, unpriced, completeness.

One text for both databases; a `Spelling` holds the few expressions that they write differently.
"""

from typing import NamedTuple

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


class Spelling(NamedTuple):
    day: str
    hour: str
    milliseconds: str
    usd: str
    ratio: str
    integer: str


SPELLINGS = {
    "sqlite": Spelling(
        day="date({0})",
        hour="strftime('%Y-%m-%d %H:00:00Z', {0})",
        milliseconds="CAST(ROUND((julianday({1}) - julianday({0})) * 86400000) AS INTEGER)",
        usd="ROUND(({0}) / 1e12, 12)",
        ratio="CAST(({0}) AS REAL) / NULLIF(({1}), 0)",
        integer="CAST(({0}) AS INTEGER)",
    ),
    "postgresql": Spelling(
        day="({0} AT TIME ZONE 'UTC')::date",
        hour="date_trunc('hour', {0}, 'UTC')",
        milliseconds="round(extract(epoch FROM {1} - {0}) * 1000)::bigint",
        usd="round(({0}) / 1e12, 12)",
        ratio="({0})::double precision / NULLIF(({1}), 0)",
        integer="({0})::bigint",
    ),
}

IS_CURRENT_READING = """NOT EXISTS (
    SELECT 1 FROM readings n
    WHERE n.opened_at = r.opened_at AND n.exchange_id = r.exchange_id
      AND (n.revision > r.revision OR (n.revision = r.revision
           AND (n.read_at < r.read_at OR (n.read_at = r.read_at AND n.id < r.id)))))"""

READING = f"""r.opened_at = e.opened_at AND r.exchange_id = e.id
  AND {IS_CURRENT_READING}"""

IS_CURRENT_CHARGE = """NOT EXISTS (
    SELECT 1 FROM charges n
    WHERE n.opened_at = c.opened_at AND n.exchange_id = c.exchange_id
      AND n.reading_id = c.reading_id AND n.ordinal = c.ordinal
      AND (n.revision > c.revision OR (n.revision = c.revision AND n.id < c.id)))"""

CHARGES = f"""FROM charges c
    WHERE c.opened_at = e.opened_at AND c.exchange_id = e.id AND c.reading_id = r.id
      AND {IS_CURRENT_CHARGE}"""

COUNTS = "e.state <> 'open' AND e.duplicate_of IS NULL"
MODEL = "COALESCE(NULLIF(e.response_model, ''), NULLIF(e.request_model, ''))"
UNCACHED = "r.input_tokens - COALESCE(r.cache_read_tokens, 0) - COALESCE(r.cache_write_tokens, 0)"
NO_USAGE = "COALESCE({0}.usage_source, 'none') = 'none'"

# Lines of a further iteration: its kind, a dot, the line.
FURTHER_INPUT = (
    "(c.line LIKE '%.uncached_input' OR c.line LIKE '%.cache_%' OR c.line LIKE '%.input_%')"
)
FURTHER_OUTPUT = (
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
LEFT JOIN readings r ON {READING}
WHERE {COUNTS}
"""


def usage_daily(spelling: Spelling) -> str:
    """Sums are of what providers reported; what we estimated stands beside, never inside."""
    sums = ",\n  ".join(
        spelling.integer.format(f"SUM(CASE WHEN e.usage_source <> 'estimated' THEN e.{name} END)")
        + f" AS {name}"
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
    )
    estimated_input = "SUM(CASE WHEN e.usage_source = 'estimated' THEN e.input_tokens END)"
    estimated_output = (
        "SUM(CASE WHEN e.usage_source = 'estimated' THEN e.output_tokens "
        "ELSE e.estimated_output_tokens END)"
    )
    hit_rate = spelling.ratio.format(
        "SUM(e.cache_read_tokens)",
        "SUM(CASE WHEN e.cache_read_tokens IS NOT NULL THEN e.input_tokens END)",
    )
    return f"""
CREATE VIEW usage_daily AS
SELECT
  {spelling.day.format("e.opened_at")} AS day,
  e.provider, e.model, e.key_fingerprint, MAX(e.key_hint) AS key_hint,
  COUNT(*) AS requests,
  COUNT(CASE WHEN e.outcome IN ('error_frame', 'http_error') THEN 1 END) AS errors,
  COUNT(CASE WHEN {NO_USAGE.format("e")} THEN 1 END) AS without_usage,
  {sums},
  {spelling.integer.format(estimated_input)} AS estimated_input_tokens,
  {spelling.integer.format(estimated_output)} AS estimated_output_tokens,
  {hit_rate} AS cache_hit_rate,
  {spelling.integer.format("SUM(e.cost_picousd)")} AS cost_picousd,
  {spelling.usd.format("SUM(e.cost_picousd)")} AS cost_usd,
  COUNT(CASE WHEN e.cost_state IN ('unpriced', 'partial') THEN 1 END) AS unpriced
FROM requests e
GROUP BY {spelling.day.format("e.opened_at")}, e.provider, e.model, e.key_fingerprint
"""


def unpriced(_: Spelling) -> str:
    """One row per line without a price, and per reading with usage and no line at all."""
    return f"""
CREATE VIEW unpriced AS
SELECT
  e.opened_at, e.id AS exchange_id, e.response_id, e.provider,
  COALESCE(c.model, {MODEL}) AS model, e.service_tier, c.line, c.quantity, c.reason
FROM charges c
JOIN exchanges e ON e.opened_at = c.opened_at AND e.id = c.exchange_id
JOIN readings r ON r.id = c.reading_id AND {READING}
WHERE c.amount_picousd IS NULL AND {IS_CURRENT_CHARGE} AND {COUNTS}
UNION ALL
SELECT
  e.opened_at, e.id, e.response_id, e.provider, {MODEL}, e.service_tier, NULL, NULL,
  'no line was charged'
FROM exchanges e
JOIN readings r ON {READING}
WHERE r.usage_source <> 'none' AND {COUNTS}
  AND NOT EXISTS (
    SELECT 1 FROM charges c
    WHERE c.opened_at = e.opened_at AND c.exchange_id = e.id AND c.reading_id = r.id)
"""


def completeness(spelling: Spelling) -> str:
    """Per hour: what was opened, and what became of it."""
    return f"""
CREATE VIEW completeness AS
SELECT
  {spelling.hour.format("e.opened_at")} AS hour,
  COUNT(*) AS opened,
  COUNT(CASE WHEN e.state = 'open' THEN 1 END) AS still_open,
  COUNT(CASE WHEN e.state = 'settled' THEN 1 END) AS settled,
  COUNT(CASE WHEN e.state = 'lost' THEN 1 END) AS lost,
  COUNT(CASE WHEN e.state <> 'open' AND {NO_USAGE.format("r")} THEN 1 END) AS without_usage,
  COUNT(CASE WHEN r.usage_source = 'estimated' THEN 1 END) AS estimated,
  COUNT(CASE WHEN e.outcome IN ('error_frame', 'http_error') THEN 1 END) AS errors,
  COUNT(e.degraded) AS degraded,
  COUNT(e.duplicate_of) AS duplicates
FROM exchanges e
LEFT JOIN readings r ON {READING}
GROUP BY {spelling.hour.format("e.opened_at")}
"""


def upgrade() -> None:
    spelling = SPELLINGS[op.get_context().dialect.name]
    for view in (requests, usage_daily, unpriced, completeness):
        op.execute(view(spelling))


def downgrade() -> None:
    for view in ("completeness", "unpriced", "usage_daily", "requests"):
        op.execute(f"DROP VIEW {view}")
