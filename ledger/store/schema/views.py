"""Database. The views: requests, unpriced, usage_daily, completeness, for both databases.

One text; a `Spelling` holds the few expressions that differ between the databases. Sums have two
parts, so that no amount from an upstream can overflow the sum of a day.

`usage_daily`, `completeness` and `unpriced` take days that are over from `daily`, `hourly` and
`unpriced_lines`. They read the others (`live_daily`, `live_hourly`, `live_unpriced`) span by span:
stale days, and the days that are not over yet.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ledger.model import usage
from ledger.store.current import is_current_charge, joined_reading
from ledger.store.schema import charged
from ledger.store.schema.charged import (
    IS_ERROR,
    IS_ESTIMATED,
    NO_USAGE,
    TERMS,
    cost_state,
    sum_of,
)
from ledger.store.schema.sums import COUNTS, DAILY_DIMENSIONS, SHOWN

VIEWS = (
    "completeness",
    "live_hourly",
    "usage_daily",
    "live_daily",
    "unpriced",
    "live_unpriced",
    "requests",
)
"""In an order in which they can be dropped."""


class Spelling(NamedTuple):
    """The expressions that SQLite and PostgreSQL write differently."""

    milliseconds: str
    usd: str
    integer: str
    day: str
    hour: str
    ratio: str
    spans: str
    of_span: str
    """Rows of {0}, as {1}, in a span."""


SPELLINGS = {
    "sqlite": Spelling(
        milliseconds="CAST(ROUND((julianday({1}) - julianday({0})) * 86400000) AS INTEGER)",
        usd="ROUND(({0}) / 1e12, 12)",
        integer="CAST(({0}) AS INTEGER)",
        day="date(e.opened_at)",
        hour="strftime('%Y-%m-%d %H:00:00.000000Z', e.opened_at)",
        ratio="CAST({0} AS REAL) / NULLIF({1}, 0)",
        spans="""(
    SELECT day, starts_at, ends_at FROM stale_days UNION ALL
    SELECT NULL, COALESCE((SELECT value FROM meta WHERE key = 'rolled_until'), ''), '9999') s""",
        # SQLite keeps the order of a CROSS JOIN.
        of_span="CROSS JOIN {0} {1} ON {1}.opened_at >= s.starts_at AND {1}.opened_at < s.ends_at",
    ),
    "postgresql": Spelling(
        milliseconds="round(extract(epoch FROM {1} - {0}) * 1000)::bigint",
        usd="round(({0}) / 1e12, 12)",
        integer="({0})::bigint",
        day="(e.opened_at AT TIME ZONE 'UTC')::date",
        hour="date_trunc('hour', e.opened_at, 'UTC')",
        ratio="{0}::double precision / NULLIF({1}, 0)",
        spans="""(
    SELECT day, starts_at, ends_at FROM stale_days UNION ALL
    SELECT NULL::date, COALESCE((SELECT value::timestamptz FROM meta WHERE key = 'rolled_until'),
      '-infinity'), 'infinity') s""",
        # OFFSET 0 stops the planner from reordering this join: it reads span by span, each from its
        # own partitions and index range (0.9 s a day instead of 8).
        of_span="""JOIN LATERAL (
    SELECT * FROM {0} o WHERE o.opened_at >= s.starts_at AND o.opened_at < s.ends_at OFFSET 0) {1}
  ON true""",
    ),
}

CHARGES = f"""FROM charges c
    WHERE c.opened_at = e.opened_at AND c.exchange_id = e.id AND c.reading_id = r.id
      AND {is_current_charge("c")}"""
IS_COUNTED = "e.state <> 'open' AND e.duplicate_of IS NULL"
MODEL = "COALESCE(NULLIF(e.response_model, ''), NULLIF(e.request_model, ''))"
UNCACHED = "r.input_tokens - COALESCE(r.cache_read_tokens, 0) - COALESCE(r.cache_write_tokens, 0)"


def _counted(condition: str) -> str:
    """Of the exchanges that count: not of those that are open, and not of duplicates."""
    return f"COUNT(CASE WHEN {IS_COUNTED} AND {condition} THEN 1 END)"


HOURLY = {
    "opened": "COUNT(*)",
    "still_open": "COUNT(CASE WHEN e.state = 'open' THEN 1 END)",
    "settled": "COUNT(CASE WHEN e.state = 'settled' THEN 1 END)",
    "lost": "COUNT(CASE WHEN e.state = 'lost' THEN 1 END)",
    "without_usage": _counted(charged.without_usage("e", "r")),
    "estimated": _counted(IS_ESTIMATED.format("r")),
    "errors": _counted(IS_ERROR.format("e")),
    "degraded": _counted("e.degraded IS NOT NULL"),
    "duplicates": "COUNT(e.duplicate_of)",
}


_SHOWN_COUNTS = (
    "requests",
    "errors",
    "without_usage",
    "unpriced",
    "complete_without_usage",
    "estimated",
    "covered",
)
_SHOWN_ELSEWHERE = (
    "cacheable_input_tokens",
    "cost_picousd",
    "estimated_cost_picousd",
    "list_value_picousd",
)
"""Sums that `usage_daily` shows in another place, or only as a part of a ratio."""


def statements(dialect: str) -> Iterator[str]:
    """Replace the views by those of this version."""
    spelling = SPELLINGS[dialect]
    yield from (f"DROP VIEW IF EXISTS {view}" for view in VIEWS)
    yield requests(dialect)
    yield from _unpriced(dialect, spelling)
    yield from _sums(dialect, spelling)


def requests(dialect: str) -> str:
    """One row per exchange that counts, its current reading and the sum of its charges."""
    spelling = SPELLINGS[dialect]

    def of_charges(term: str, index: str = "") -> str:
        return f"(SELECT {TERMS[term]} {CHARGES}{index})"

    tokens = ", ".join(f"{charged.reported(name, 'r')} AS {name}" for name in usage.TOKENS)
    estimated_usage = charged.IS_ESTIMATED.format("r")
    amount = of_charges("amount_picousd")
    cost, estimated = charged.cost(amount, "r"), charged.estimated_cost(amount, "r")
    value = charged.list_value(of_charges("list_value_picousd"), "r")
    state = cost_state(
        TERMS["lines"], TERMS["priced_lines"], TERMS["provider_lines"], NO_USAGE.format("r")
    )
    # Few lines are of further iterations, and an index has them.
    further = " AND c.line LIKE '%.%'"
    extra_input = of_charges("extra_input_tokens", further)
    extra_output = of_charges("extra_output_tokens", further)
    return f"""
CREATE VIEW requests AS
SELECT
  e.id, e.response_id, e.opened_at, e.state, e.outcome, e.source,
  e.origin, e.provider, e.dialect, e.operation, e.path,
  {MODEL} AS model, e.request_model, e.response_model, e.streamed,
  e.http_status, e.finish_reason, e.error_type, e.error_code, e.error_message, e.service_tier,
  e.first_byte_at, e.first_token_at, e.settled_at,
  {_duration(spelling, "e.first_token_at")} AS first_token_ms,
  {_duration(spelling, "e.settled_at", "e.settled_at > e.opened_at OR e.source = 'live'")}
    AS duration_ms,
  r.usage_source,
  {tokens},
  CASE WHEN {estimated_usage} THEN NULL WHEN {UNCACHED} < 0 THEN 0 ELSE {UNCACHED} END
    AS uncached_input_tokens,
  CASE WHEN {estimated_usage} THEN r.input_tokens END AS estimated_input_tokens,
  CASE WHEN {estimated_usage} THEN r.output_tokens ELSE r.estimated_output_tokens END
    AS estimated_output_tokens,
  r.tool_units,
  {spelling.integer.format(extra_input)} AS extra_input_tokens,
  {spelling.integer.format(extra_output)} AS extra_output_tokens,
  {spelling.integer.format(cost)} AS cost_picousd,
  {spelling.usd.format(cost)} AS cost_usd,
  {spelling.integer.format(estimated)} AS estimated_cost_picousd,
  {spelling.usd.format(estimated)} AS estimated_cost_usd,
  (SELECT {state} {CHARGES}) AS cost_state,
  {charged.BILLING.format("r")} AS billing,
  {spelling.integer.format(value)} AS list_value_picousd,
  {spelling.usd.format(value)} AS list_value_usd,
  r.reported_cost_picousd, {spelling.usd.format("r.reported_cost_picousd")} AS reported_cost_usd,
  r.reported_upstream_cost_picousd, r.is_byok,
  r.usage_json, r.remarks, r.id AS reading_id, r.revision AS reading_revision, r.meter_version,
  e.key_fingerprint, e.key_hint, e.user_agent, e.end_user, e.session_id, e.tags,
  e.usage_asked, e.usage_injected, e.usage_stripped, e.resent, e.degraded,
  e.request_bytes, e.response_bytes, e.client_bytes, e.removed_bytes, e.events,
  e.id_unstable, e.id_collision, e.node, e.capture,
  e.project, e.git_branch, e.agent, e.parent_session_id, e.tool_calls, e.request_digest,
  e.purpose, e.cache_diagnosis, e.account, e.retry_after_ms
FROM exchanges e
LEFT {joined_reading(dialect)}
WHERE {IS_COUNTED}
"""


def _duration(spelling: Spelling, until: str, is_known: str = "true") -> str:
    """Milliseconds since the request was seen; NULL where the clock was set back meanwhile, or a
    recording or log has no time of the end: then it is written as the begin."""
    milliseconds = spelling.milliseconds.format("e.opened_at", until)
    return f"CASE WHEN {until} >= e.opened_at AND ({is_known}) THEN {milliseconds} END"


_UNPRICED = (
    "opened_at, exchange_id, response_id, provider, model, service_tier, line, quantity, reason"
)
_FRESH = "NOT EXISTS (SELECT 1 FROM stale_days s WHERE s.day = d.day)"


def _unpriced(dialect: str, spelling: Spelling) -> list[str]:
    """One row per line without a price, and per reading with usage and no line at all.

    For a period the database finds the lines first, so the moment is that of the lines. Lines are
    looked up for each reading: of NOT EXISTS, PostgreSQL without statistics would make a walk
    through all charges.
    """
    charges, exchanges = (
        f"FROM {spelling.spans}\n{spelling.of_span.format(table, alias)}"
        for table, alias in (("charges", "c"), ("exchanges", "e"))
    )
    return [
        f"""
CREATE VIEW live_unpriced AS
SELECT
  s.day AS stale_day, c.opened_at, c.exchange_id, c.ordinal, e.response_id, e.provider,
  COALESCE(c.model, {MODEL}) AS model, e.service_tier, c.line, c.quantity, c.reason
{charges}
JOIN exchanges e ON e.opened_at = c.opened_at AND e.id = c.exchange_id
{joined_reading(dialect, "r.id = c.reading_id")}
WHERE c.amount_picousd IS NULL AND {is_current_charge("c")} AND {IS_COUNTED}
UNION ALL
SELECT
  s.day, e.opened_at, e.id, -1, e.response_id, e.provider, {MODEL}, e.service_tier, NULL, NULL,
  'no line was charged'
{exchanges}
{joined_reading(dialect)}
WHERE r.usage_source <> 'none' AND {IS_COUNTED}
  AND (SELECT 1 FROM charges c
    WHERE c.opened_at = e.opened_at AND c.exchange_id = e.id AND c.reading_id = r.id LIMIT 1)
  IS NULL
""",
        f"""
CREATE VIEW unpriced AS
SELECT {_UNPRICED} FROM unpriced_lines d WHERE {_FRESH}
UNION ALL
SELECT {_UNPRICED} FROM live_unpriced
""",
    ]


def _sums(dialect: str, spelling: Spelling) -> list[str]:
    dimensions = ", ".join(f"e.{name}" for name in DAILY_DIMENSIONS)
    sums = ",\n  ".join(
        f"{spelling.integer.format(sum_of(term))} AS {name}" for name, term in SHOWN.items()
    )
    counts = ",\n  ".join(f"{COUNTS[name]} AS {name}" for name in _SHOWN_COUNTS)
    hourly = ",\n  ".join(f"{term} AS {name}" for name, term in HOURLY.items())
    columns = ", ".join((*DAILY_DIMENSIONS, "key_hint", *_SHOWN_COUNTS, *SHOWN))
    shown = ", ".join(name for name in SHOWN if name not in _SHOWN_ELSEWHERE)
    return [
        f"""
CREATE VIEW live_daily AS
SELECT s.day AS stale_day, {spelling.day} AS day, {dimensions}, MAX(e.key_hint) AS key_hint,
  {counts},
  {sums}
FROM {spelling.spans}
{spelling.of_span.format("requests", "e")}
GROUP BY s.day, {spelling.day}, {dimensions}
""",
        f"""
CREATE VIEW usage_daily AS
SELECT day, provider, model, key_fingerprint, key_hint, requests, errors, without_usage,
  {shown},
  {spelling.ratio.format("cache_read_tokens", "cacheable_input_tokens")} AS cache_hit_rate,
  cost_picousd, {spelling.usd.format("cost_picousd")} AS cost_usd, unpriced,
  complete_without_usage, estimated,
  estimated_cost_picousd, {spelling.usd.format("estimated_cost_picousd")} AS estimated_cost_usd,
  covered, list_value_picousd, {spelling.usd.format("list_value_picousd")} AS list_value_usd
FROM (
SELECT d.day, {columns} FROM daily d WHERE {_FRESH}
UNION ALL
SELECT day, {columns} FROM live_daily) u
""",
        f"""
CREATE VIEW live_hourly AS
SELECT s.day AS stale_day, {spelling.hour} AS hour,
  {hourly}
FROM {spelling.spans}
{spelling.of_span.format("exchanges", "e")}
LEFT {joined_reading(dialect)}
GROUP BY s.day, {spelling.hour}
""",
        f"""
CREATE VIEW completeness AS
SELECT d.hour, {", ".join(HOURLY)} FROM hourly d WHERE {_FRESH}
UNION ALL
SELECT hour, {", ".join(HOURLY)} FROM live_hourly
""",
    ]
