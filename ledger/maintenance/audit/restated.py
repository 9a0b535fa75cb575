"""Pure. Rules of the ledger, written a second time for the audit.

They are written differently from the code that they check: the views select with NOT EXISTS, the
queries here rank.
"""

CURRENT_READINGS = """(
  SELECT * FROM (
    SELECT readings.*, ROW_NUMBER() OVER (
      PARTITION BY opened_at, exchange_id ORDER BY revision DESC, read_at, id) AS place
    FROM readings WHERE opened_at >= :since) ranked
  WHERE place = 1)"""
CURRENT_CHARGES = """(
  SELECT * FROM (
    SELECT charges.*, ROW_NUMBER() OVER (
      PARTITION BY opened_at, exchange_id, reading_id, ordinal ORDER BY revision DESC, id) AS place
    FROM charges WHERE opened_at >= :since) ranked
  WHERE place = 1)"""
CHARGE_OF_READING = (
    "c.opened_at = r.opened_at AND c.exchange_id = r.exchange_id AND c.reading_id = r.id"
)
"""A charge `c` belongs to a reading `r`."""
COUNTS = "state <> 'open' AND duplicate_of IS NULL"
"""An exchange counts."""


def _exceeds(parts: str, total: str, text: str) -> str:
    return f"WHEN {parts} > {total} THEN '{text} ' || ({parts}) || ' > ' || {total}"


PARTS_BEYOND_TOTALS = " ".join(
    (
        _exceeds("r.cache_read_tokens", "r.input_tokens", "cache_read_tokens"),
        _exceeds("r.cache_write_tokens", "r.input_tokens", "cache_write_tokens"),
        _exceeds("r.cache_read_tokens + r.cache_write_tokens", "r.input_tokens", "cache tokens"),
        _exceeds("r.cache_write_5m_tokens", "r.cache_write_tokens", "cache_write_5m_tokens"),
        _exceeds("r.cache_write_1h_tokens", "r.cache_write_tokens", "cache_write_1h_tokens"),
        _exceeds("r.input_audio_tokens", "r.input_tokens", "input_audio_tokens"),
        _exceeds("r.reasoning_tokens", "r.output_tokens", "reasoning_tokens"),
        _exceeds("r.output_audio_tokens", "r.output_tokens", "output_audio_tokens"),
    )
)
"""Of a reading `r`: the branches of a CASE, each with a text for a part that exceeds its total."""

_DAILY = {
    "requests": "COUNT(*)",
    "errors": "COUNT(CASE WHEN v.outcome IN ('error_frame', 'http_error') THEN 1 END)",
    "unpriced": "COUNT(CASE WHEN v.cost_state IN ('unpriced', 'partial') "
    "AND v.usage_source <> 'estimated' AND v.billing IN ('metered', 'unknown') THEN 1 END)",
    "covered": "SUM(CASE v.billing WHEN 'plan' THEN 1 WHEN 'free' THEN 1 ELSE 0 END)",
    "list_value_picousd": "SUM(v.list_value_picousd)",
    "cost_picousd": "SUM(v.cost_picousd)",
} | {
    name: f"SUM(v.{name})"
    for name in (
        "input_tokens",
        "cache_read_tokens",
        "cache_write_tokens",
        "output_tokens",
        "reasoning_tokens",
    )
}


def daily_differences() -> str:
    """The query for days on which `usage_daily` and `requests` differ: it adds the sums of both,
    one of them negative."""
    names = ", ".join(_DAILY)
    of = "provider, model, key_fingerprint"
    mine = ", ".join(f"-({term})" for term in _DAILY.values())
    left = {name: f"COALESCE(SUM(u.{name}), 0)" for name in _DAILY}
    detail = " || ".join(
        f"'{', ' if at else ''}{n} ' || {t}" for at, (n, t) in enumerate(left.items())
    )
    return f"""
SELECT CAST(u.day AS TEXT) AS id, COALESCE(u.provider, '') || ' ' || COALESCE(u.model, '')
  || ': usage_daily has more (or less) by ' || {detail} AS detail
FROM (
  SELECT day, {of}, {names} FROM usage_daily WHERE day >= :day
  UNION ALL
  SELECT {{day}}, {of}, {mine} FROM requests v WHERE v.opened_at >= :midnight
  GROUP BY {{day}}, {of}) u
GROUP BY u.day, u.provider, u.model, u.key_fingerprint
HAVING {" OR ".join(f"{term} <> 0" for term in left.values())}"""


def is_same_response(original: str, later: str) -> str:
    """Whether two rows are one billed response, seen again: all that can be compared agrees.

    The rule of duplicates in words of its own; `store/schema/links.py` keeps it.
    """
    o, e = original, later
    same = " AND ".join(
        f"({o}.{name} = {e}.{name} OR ({o}.{name} IS NULL AND {e}.{name} IS NULL))"
        for name in ("key_fingerprint", "request_digest", "upstream_digest")
    )
    return f"""{o}.origin = {e}.origin AND {o}.response_id = {e}.response_id AND {o}.id <> {e}.id
  AND CASE WHEN {e}.source = 'live' THEN {o}.source = 'live' AND {same}
      AND ({e}.upstream_digest IS NOT NULL OR {o}.content_digest = {e}.content_digest)
    ELSE ({e}.key_fingerprint IS NULL OR {o}.key_fingerprint = {e}.key_fingerprint)
      AND ({e}.request_digest IS NULL OR {o}.request_digest = {e}.request_digest
        OR ({o}.source = 'live' AND {o}.request_digest IS NULL))
      AND ({o}.upstream_digest = {e}.upstream_digest
        OR ({e}.upstream_digest IS NULL AND {o}.content_digest = {e}.content_digest)) END"""


def ranks_before(first: str, second: str) -> str:
    """A live row before a recording, the recording that knows more, the earlier, the smaller id."""
    left, right = (
        f"CASE WHEN {x}.source = 'live' THEN -1 ELSE (CASE WHEN {x}.key_fingerprint IS NULL THEN 1 "
        f"ELSE 0 END) + (CASE WHEN {x}.request_digest IS NULL THEN 1 ELSE 0 END) + (CASE WHEN "
        f"{x}.upstream_digest IS NULL THEN 1 ELSE 0 END) END, {x}.opened_at, {x}.id"
        for x in (first, second)
    )
    return f"({left}) < ({right})"
