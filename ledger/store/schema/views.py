"""Database. The views: requests, charges, unpriced, usage_daily, completeness, for both databases.

One text; a `Spelling` holds the few expressions that differ between the databases. Sums have two
parts, so that no amount from an upstream can overflow the sum of a day.

`usage_daily` and `completeness` take days that are over from table `sums`, `unpriced` from
`unpriced_lines`. They read the others (`live_daily`, `live_hourly`, `live_unpriced`) span by span:
stale days, and the days that are not over yet.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ledger.model import usage
from ledger.model.columns import columns_of
from ledger.model.exchange import Exchange, Reading
from ledger.model.usage import Usage
from ledger.store.schema import charged
from ledger.store.schema.charged import (
    FURTHER_PRICING,
    IS_ERROR,
    IS_ESTIMATED,
    IS_REFUSED,
    joined_reading,
    sum_of,
)
from ledger.store.schema.sums import BY_EXCHANGES, COUNT_TERMS, DAILY_DIMENSIONS, SHOWN_SUM_TERMS

VIEWS = (
    *("completeness", "live_hourly", "usage_daily", "live_daily", "unpriced", "live_unpriced"),
    *("requests", "current_charges", "charges"),
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
        # SQLite's own functions round a moment to milliseconds, so that a difference of 46.3 may
        # become 47: whole seconds, and the six digits behind them.
        milliseconds="CAST(ROUND("
        "ROUND((julianday(substr({1}, 1, 19)) - julianday(substr({0}, 1, 19))) * 86400) * 1000"
        " + (substr({1}, 21, 6) - substr({0}, 21, 6)) / 1000.0) AS INTEGER)",
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

IS_COUNTED = "e.state <> 'open' AND e.duplicate_of IS NULL"
MODEL = "COALESCE(NULLIF(e.response_model, ''), e.meant_model, NULLIF(e.request_model, ''))"
UNCACHED = "r.input_tokens - COALESCE(r.cache_read_tokens, 0) - COALESCE(r.cache_write_tokens, 0)"


def _counted(condition: str) -> str:
    """Of the exchanges that count: not of those that are open, and not of duplicates."""
    return f"COUNT(CASE WHEN {IS_COUNTED} AND {condition} THEN 1 END)"


_IS_REFUSED = IS_REFUSED.format("e")
HOURLY = {
    "opened": f"COUNT(CASE WHEN ({_IS_REFUSED}) IS NOT TRUE THEN 1 END)",
    "still_open": "COUNT(CASE WHEN e.state = 'open' THEN 1 END)",
    "settled": f"COUNT(CASE WHEN e.state = 'settled' AND NOT {_IS_REFUSED} THEN 1 END)",
    "lost": "COUNT(CASE WHEN e.state = 'lost' THEN 1 END)",
    "without_usage": _counted(charged.without_usage("e", "r")),
    "estimated": _counted(IS_ESTIMATED.format("r")),
    "errors": _counted(IS_ERROR.format("e")),
    "degraded": _counted("e.degraded IS NOT NULL"),
    "duplicates": "COUNT(e.duplicate_of)",
    "refused": f"COUNT(CASE WHEN {_IS_REFUSED} THEN 1 END)",
}

_SHOWN_COUNTS = (
    *("requests", "errors", "without_usage", "unpriced", "complete_without_usage"),
    *("estimated", "covered", "refused"),
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
    yield from charged.line_views(dialect)
    # A row for each line without a price, and for each reading with usage and no line at all. Not
    # as one LEFT JOIN: SQLite would make a table of all charges for it.
    its = "c.opened_at = e.opened_at AND c.exchange_id = e.id AND c.reading_id = e.reading_id"
    spans = f"{spelling.spans}\n{spelling.of_span.format('requests', 'e')}"
    yield f"""
CREATE VIEW live_unpriced AS
SELECT
  s.day AS stale_day, e.opened_at, e.id AS exchange_id, c.ordinal, e.response_id, e.provider,
  COALESCE(c.model, e.model) AS model, e.service_tier, c.line, c.quantity, c.reason
FROM {spans}
JOIN current_charges c ON {its}
WHERE e.cost_state IN ('unpriced', 'partial') AND c.amount_picousd IS NULL
UNION ALL
SELECT
  s.day, e.opened_at, e.id, -1, e.response_id, e.provider, e.model, e.service_tier, NULL, NULL,
  'no line was charged'
FROM {spans}
WHERE e.cost_state = 'unpriced' AND NOT EXISTS (SELECT 1 FROM current_charges c WHERE {its})
"""
    yield f"""
CREATE VIEW unpriced AS
SELECT {_UNPRICED} FROM unpriced_lines d WHERE {_FRESH}
UNION ALL
SELECT {_UNPRICED} FROM live_unpriced
"""
    yield from _sums(dialect, spelling)


_OF_RECORDS = {
    name: alias
    for alias, record in (("r", Usage), ("r", Reading), ("e", Exchange))
    for name in columns_of(record)
}
"""Column of a record -> the table that has it; of both, the exchange's."""
_IN_ORDER = """
    id response_id opened_at state outcome source origin provider dialect operation path
    model request_model response_model streamed http_status finish_reason
    error_type error_code error_message service_tier
    first_byte_at first_token_at settled_at first_token_ms duration_ms
    usage_source input_tokens cache_read_tokens cache_write_tokens
    cache_write_5m_tokens cache_write_1h_tokens output_tokens reasoning_tokens
    input_audio_tokens output_audio_tokens
    uncached_input_tokens estimated_input_tokens estimated_output_tokens tool_units
    extra_input_tokens extra_output_tokens
    cost_picousd cost_usd estimated_cost_picousd estimated_cost_usd cost_state billing
    list_value_picousd list_value_usd reported_cost_picousd reported_cost_usd
    reported_upstream_cost_picousd is_byok
    usage_json remarks reading_id reading_revision meter_version
    key_fingerprint key_hint user_agent end_user session_id tags
    usage_asked usage_injected usage_stripped resent degraded
    request_bytes response_bytes client_bytes removed_bytes events
    id_unstable id_collision node capture
    project git_branch agent parent_session_id tool_calls request_digest
    purpose cache_diagnosis account retry_after_ms saved_picousd
    """.split()  # noqa: SIM905  # a list literal would have a line for each of 85 names
_NOT_SHOWN = """
    upstream_digest client_digest removed_digest content_digest exchange_id revision read_at reason
    further
    """.split()  # noqa: SIM905
REQUESTS_VIEW_COLUMNS = tuple(
    dict.fromkeys((*_IN_ORDER, *(name for name in _OF_RECORDS if name not in _NOT_SHOWN)))
)
"""The columns of `requests`: those of 0.2 in their order, then every new one of a record."""


def requests(dialect: str) -> str:
    """One row per exchange that counts, with its current reading and what its charges add up to."""
    spelling = SPELLINGS[dialect]
    is_estimate = IS_ESTIMATED.format("r")
    amount, value = charged.pricing("amount_picousd"), charged.pricing("list_value_picousd")
    amounts = {
        "cost": charged.cost(amount, "r"),
        "estimated_cost": charged.estimated_cost(amount, "r"),
        "list_value": charged.reported(value, "r"),
    }
    integers = {f"{name}_picousd": term for name, term in amounts.items()}
    amounts["reported_cost"] = "r.reported_cost_picousd"
    # The columns that are no column of an exchange or a reading.
    computed = {
        "model": MODEL,
        "first_token_ms": _duration(spelling, "e.first_token_at"),
        "duration_ms": _duration(
            spelling,
            "e.settled_at",
            "(e.settled_at > e.opened_at OR e.source = 'live') AND e.state <> 'lost' "
            f"AND NOT {_IS_REFUSED}",
        ),
        **{name: charged.reported(f"r.{name}", "r") for name in usage.TOKENS},
        "uncached_input_tokens": f"CASE WHEN {is_estimate} THEN NULL WHEN {UNCACHED} < 0 THEN 0 "
        f"ELSE {UNCACHED} END",
        "estimated_input_tokens": f"CASE WHEN {is_estimate} THEN r.input_tokens END",
        "estimated_output_tokens": f"CASE WHEN {is_estimate} THEN r.output_tokens "
        "ELSE r.estimated_output_tokens END",
        **integers,
        **{f"{name}_usd": spelling.usd.format(term) for name, term in amounts.items()},
        **{
            name: charged.pricing(name)
            for name in ("cost_state", "saved_picousd", "extra_input_tokens", "extra_output_tokens")
        },
        "billing": charged.BILLING.format("r"),
        "reading_id": "r.id",
        "reading_revision": "r.revision",
    }
    columns = ",\n  ".join(
        f"{computed.get(name) or f'{_OF_RECORDS.get(name, "e")}.{name}'} AS {name}"
        for name in REQUESTS_VIEW_COLUMNS
    )
    return f"""
CREATE VIEW requests AS
SELECT
  {columns}
FROM exchanges e
LEFT {joined_reading(dialect)}
{FURTHER_PRICING}
WHERE {IS_COUNTED}
"""


def _duration(spelling: Spelling, until: str, is_known: str = "true") -> str:
    """Milliseconds since the request was seen; NULL where the clock was set back meanwhile, the
    process died before the end, or a recording or log has no time of the end: then it is written as
    the begin."""
    milliseconds = spelling.milliseconds.format("e.opened_at", until)
    return f"CASE WHEN {until} >= e.opened_at AND ({is_known}) THEN {milliseconds} END"


UNPRICED = ("response_id", "provider", "model", "service_tier", "line", "quantity", "reason")
"""The columns of `unpriced` behind the key of the exchange."""
_UNPRICED = ", ".join(("opened_at", "exchange_id", *UNPRICED))
_FRESH = """NOT EXISTS (
    SELECT 1 FROM stale_days s WHERE d.opened_at >= s.starts_at AND d.opened_at < s.ends_at)"""


def _sums(dialect: str, spelling: Spelling) -> list[str]:
    dimensions = ", ".join(f"e.{name}" for name in DAILY_DIMENSIONS)
    sums = ",\n  ".join(
        f"{spelling.integer.format(sum_of(term))} AS {name}"
        for name, term in SHOWN_SUM_TERMS.items()
    )
    counts = ",\n  ".join(f"{COUNT_TERMS[name]} AS {name}" for name in _SHOWN_COUNTS)
    hourly = ",\n  ".join(f"{term} AS {name}" for name, term in HOURLY.items())
    columns = ", ".join((*DAILY_DIMENSIONS, "key_hint", *_SHOWN_COUNTS, *SHOWN_SUM_TERMS))
    shown = ", ".join(name for name in SHOWN_SUM_TERMS if name not in _SHOWN_ELSEWHERE)
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
  covered, list_value_picousd, {spelling.usd.format("list_value_picousd")} AS list_value_usd,
  refused
FROM (
SELECT {spelling.day.replace("e.", "d.")} AS day, {columns} FROM sums d
  WHERE d.summed_by = 'day' AND {_FRESH}
UNION ALL
SELECT day, {columns} FROM live_daily) u
""",
        f"""
CREATE VIEW live_hourly AS
SELECT s.day AS stale_day, {spelling.hour} AS opened_at,
  {hourly}
FROM {spelling.spans}
{spelling.of_span.format("exchanges", "e")}
LEFT {joined_reading(dialect)}
GROUP BY s.day, {spelling.hour}
""",
        f"""
CREATE VIEW completeness AS
SELECT d.opened_at AS hour, {", ".join(HOURLY)} FROM sums d
  WHERE d.summed_by = '{BY_EXCHANGES}' AND {_FRESH}
UNION ALL
SELECT opened_at, {", ".join(HOURLY)} FROM live_hourly
""",
    ]
