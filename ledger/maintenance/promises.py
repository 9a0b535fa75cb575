"""Database. The promises that the rows of a ledger keep, each with the query for its breaches.

Some oddities come from a provider (its parts exceed its totals). They are counted as remarks and
are no breach. Rules of the ledger are written here a second time, and differently from the code
that they check: the views select with NOT EXISTS, the queries here rank.
"""

from dataclasses import dataclass

from ledger.pricing.price_lines import INPUT_LINES, OUTPUT_LINES
from ledger.store.retention import DROPPED_UNTIL


@dataclass(frozen=True, slots=True)
class Promise:
    """A rule, and the query for the rows (id, detail) that break it."""

    name: str
    holds: str
    broken: str
    is_remark: bool = False


CURRENT_READINGS = """(
  SELECT * FROM (
    SELECT readings.*, ROW_NUMBER() OVER (
      PARTITION BY opened_at, exchange_id ORDER BY revision DESC,
        usage_source = 'reported' DESC, usage_source = 'partial' DESC,
        usage_source = 'estimated' DESC, COALESCE(output_tokens, -1) DESC, read_at, id) AS place
    FROM readings WHERE opened_at >= :since) ranked
  WHERE place = 1)"""
CURRENT_CHARGES = "(SELECT * FROM current_charges WHERE opened_at >= :since)"
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
    "requests": "SUM(CASE v.outcome WHEN 'refused' THEN 0 ELSE 1 END)",
    "refused": "SUM(CASE v.outcome WHEN 'refused' THEN 1 ELSE 0 END)",
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


_SAME = " AND ".join(
    f"(o.{name} = e.{name} OR (o.{name} IS NULL AND e.{name} IS NULL))"
    for name in ("key_fingerprint", "request_digest", "upstream_digest")
)
IS_SAME_RESPONSE = f"""o.origin = e.origin AND o.response_id = e.response_id AND o.id <> e.id
  AND CASE WHEN e.source = 'live' THEN o.source = 'live' AND {_SAME}
      AND (e.upstream_digest IS NOT NULL OR o.content_digest = e.content_digest)
    ELSE (e.key_fingerprint IS NULL OR o.key_fingerprint = e.key_fingerprint)
      AND (e.request_digest IS NULL OR o.request_digest = e.request_digest
        OR (o.source = 'live' AND o.request_digest IS NULL))
      AND (o.upstream_digest = e.upstream_digest
        OR (e.upstream_digest IS NULL AND o.content_digest = e.content_digest)) END"""
"""Whether `o` and a later `e` are one billed response, seen again: all that can be compared agrees.
The rule of duplicates in words of its own; `store/schema/links.py` keeps it."""
RANKS_BEFORE = " < ".join(
    f"(CASE WHEN {x}.source = 'live' THEN -1 ELSE (CASE WHEN {x}.key_fingerprint IS NULL THEN 1 "
    f"ELSE 0 END) + (CASE WHEN {x}.request_digest IS NULL THEN 1 ELSE 0 END) + (CASE WHEN "
    f"{x}.upstream_digest IS NULL THEN 1 ELSE 0 END) END, {x}.opened_at, {x}.id)"
    for x in ("o", "e")
)
"""A live row before a recording, the recording that knows more, the earlier, the smaller id."""


def _listed(lines: tuple[str, ...]) -> str:
    return ", ".join(f"'{line}'" for line in lines)


PROMISES = (
    Promise(
        "bytes",
        "what upstream sent was handed to the client or taken out, to the byte",
        # An event that was cut off is neither: it was waiting for its end, and none came. Only
        # where usage is to be taken out does anything wait.
        """
SELECT id, 'upstream sent ' || response_bytes || ', the client was handed ' || client_bytes
  || ', taken out were ' || removed_bytes AS detail
FROM exchanges
WHERE opened_at >= :since AND (client_bytes + removed_bytes > response_bytes
  OR (client_bytes + removed_bytes < response_bytes
      AND (NOT usage_injected OR outcome = 'complete')))""",
    ),
    Promise(
        "untouched",
        "where nothing was taken out, the client's digest is upstream's",
        """
SELECT id, 'client ' || client_digest || ', upstream ' || upstream_digest AS detail
FROM exchanges
WHERE opened_at >= :since AND client_bytes = response_bytes AND client_digest <> upstream_digest""",
    ),
    Promise(
        "removed",
        "what was taken out is usage that we asked for, changed the digest, and has one itself",
        """
SELECT id, CASE WHEN NOT usage_injected THEN 'we had not asked for usage'
    WHEN NOT usage_stripped THEN 'not marked as stripped'
    WHEN removed_digest IS NULL THEN 'no digest of what was taken out'
    ELSE 'the digests are the same' END AS detail
FROM exchanges
WHERE opened_at >= :since AND removed_bytes > 0 AND (NOT usage_injected OR NOT usage_stripped
  OR removed_digest IS NULL OR client_digest = upstream_digest)
UNION ALL
SELECT id, 'nothing was taken out, and has a digest' FROM exchanges
WHERE opened_at >= :since AND removed_bytes = 0
  AND (removed_digest IS NOT NULL OR usage_stripped)""",
    ),
    Promise(
        "readings",
        "every exchange that ended has a reading",
        """
SELECT e.id, 'ended as ' || e.state AS detail FROM exchanges e
WHERE e.opened_at >= :since AND e.state <> 'open' AND NOT EXISTS (
  SELECT 1 FROM readings r WHERE r.opened_at >= :since AND r.opened_at = e.opened_at
    AND r.exchange_id = e.id AND (r.revision >= 1 OR e.state = 'lost'))""",
    ),
    Promise(
        "belonging",
        "every reading is of an exchange, and every pricing of a reading",
        """
SELECT r.exchange_id AS id, 'reading ' || r.id AS detail FROM readings r
WHERE r.opened_at >= :since AND NOT EXISTS (
  SELECT 1 FROM exchanges e
  WHERE e.opened_at >= :since AND e.opened_at = r.opened_at AND e.id = r.exchange_id)
UNION ALL
SELECT p.exchange_id, 'pricing ' || p.id FROM pricings p
WHERE p.opened_at >= :since AND NOT EXISTS (
  SELECT 1 FROM readings r
  WHERE r.opened_at >= :since AND r.opened_at = p.opened_at AND r.exchange_id = p.exchange_id
    AND r.id = p.reading_id)""",
    ),
    Promise(
        "lines",
        "the token lines of a reading add up to its totals, so no token is billed twice",
        # Cohere bills other totals than the model counted. Where a provider priced the whole, no
        # token is charged; pricing again left lines of none. Without lines it is in `unpriced`.
        # Citations are billed beside the output tokens.
        f"""
SELECT exchange_id AS id, 'input ' || input || ', charged ' || charged_input || '; output '
  || output || ', charged ' || charged_output AS detail
FROM (
  SELECT r.exchange_id,
    COALESCE(c.whole, CAST(r.tool_units ->> 'billed_input_tokens' AS BIGINT), r.input_tokens, -1)
      AS input,
    COALESCE(c.whole, CAST(r.tool_units ->> 'billed_output_tokens' AS BIGINT), r.output_tokens, -1)
      AS output,
    c.charged_input, c.charged_output, c.priced_output
  FROM {CURRENT_READINGS} r JOIN (
    SELECT opened_at, exchange_id, reading_id,
      MAX(CASE WHEN line IN ('reported_cost', 'upstream_cost') THEN 0 END) AS whole,
      COALESCE(SUM(CASE WHEN line IN ({_listed(INPUT_LINES)}) THEN quantity END), 0)
        AS charged_input,
      COALESCE(SUM(CASE WHEN line IN ({_listed(OUTPUT_LINES)}) THEN quantity END), 0)
        AS charged_output,
      COALESCE(SUM(CASE WHEN line IN ({_listed(OUTPUT_LINES)}) AND amount_picousd IS NOT NULL
        THEN quantity END), 0) AS priced_output
    FROM {CURRENT_CHARGES} current_charges GROUP BY opened_at, exchange_id, reading_id) c
  ON {CHARGE_OF_READING}) sums
WHERE (input <> -1 AND input <> charged_input) OR (output <> -1 AND output <> charged_output)
  -- Of a total that was not reported no token can be billed; a line without a price is not billed.
  OR (output = -1 AND priced_output <> 0)""",
    ),
    Promise(
        "amounts",
        "every charge is its quantity times its unit price, or has no price",
        """
SELECT exchange_id AS id, line || ': ' || quantity || ' x ' || COALESCE(unit_picousd, -1)
  || ' is not ' || COALESCE(amount_picousd, -1) AS detail
FROM charges
WHERE opened_at >= :since AND (
  CAST(quantity AS NUMERIC) * unit_picousd <> amount_picousd
  OR (unit_picousd IS NULL) <> (amount_picousd IS NULL) OR quantity < 0 OR unit_picousd < 0)""",
    ),
    Promise(
        "requests",
        "the view requests has every exchange that counts, once",
        f"""
SELECT 'requests' AS id, 'it has ' || shown || ', the ledger ' || there AS detail FROM (
  SELECT (SELECT COUNT(*) FROM requests WHERE opened_at >= :since) AS shown,
    (SELECT COUNT(*) FROM exchanges WHERE opened_at >= :since AND {COUNTS}) AS there) counted
WHERE shown <> there""",
    ),
    Promise(
        "cost",
        "the cost of a request is the sum of its charges that none supersedes, unless a plan "
        "covers it; so is its list value, without the provider's own figures",
        f"""
SELECT id, 'requests says ' || shown || ', its charges ' || charged || '; list value '
  || listed || ', its charges ' || charged_listed AS detail FROM (
  SELECT v.id, COALESCE(v.cost_picousd, v.estimated_cost_picousd, -1) AS shown,
    COALESCE(s.charged, -1) AS charged,
    COALESCE(v.list_value_picousd, -1) AS listed, COALESCE(s.listed, -1) AS charged_listed
  FROM requests v LEFT JOIN (
    SELECT r.opened_at, r.exchange_id,
      SUM(CASE WHEN COALESCE(r.billing, 'metered') = 'metered' THEN c.amount_picousd END)
        AS charged,
      SUM(CASE WHEN r.usage_source = 'estimated' OR c.price_source = 'provider' THEN NULL
        ELSE c.amount_picousd END) AS listed
    FROM {CURRENT_READINGS} r JOIN {CURRENT_CHARGES} c ON {CHARGE_OF_READING}
    GROUP BY r.opened_at, r.exchange_id) s
  ON s.opened_at = v.opened_at AND s.exchange_id = v.id
  WHERE v.opened_at >= :since) costs
WHERE shown <> charged OR listed <> charged_listed""",
    ),
    Promise(
        "duplicates",
        "a duplicate is of an earlier exchange with the same origin, response id, key, request "
        "and answer, or imported of a recorded one",
        # Where old rows were dropped, the original may have been among them.
        f"""
SELECT e.id, 'duplicate of ' || e.duplicate_of AS detail FROM exchanges e
WHERE e.opened_at >= :since AND e.duplicate_of IS NOT NULL
  AND NOT EXISTS (
    SELECT 1 FROM exchanges o
    WHERE o.id = e.duplicate_of AND ({IS_SAME_RESPONSE}) AND ({RANKS_BEFORE})
      AND (o.duplicate_of IS NULL OR e.upstream_digest IS NULL))
  AND NOT (e.source = 'import' AND EXISTS (
    SELECT 1 FROM exchanges o WHERE o.id = e.duplicate_of AND o.source <> 'import'))
  AND (EXISTS (SELECT 1 FROM exchanges o WHERE o.id = e.duplicate_of)
    OR NOT EXISTS (SELECT 1 FROM meta WHERE key = '{DROPPED_UNTIL}'))""",
    ),
    Promise(
        "twice",
        "no billed response counts twice",
        f"""
SELECT MIN(id) AS id, COUNT(*) || ' exchanges of ' || origin || ' answered with ' || response_id
  || ', with the same key, request and answer' AS detail
FROM exchanges
WHERE response_id IS NOT NULL AND {{of_period}} AND {COUNTS} AND source = 'live'
  AND (upstream_digest IS NOT NULL OR content_digest IS NOT NULL)
GROUP BY origin, response_id, key_fingerprint, request_digest, upstream_digest,
  CASE WHEN upstream_digest IS NULL THEN content_digest END
HAVING COUNT(*) > 1 AND MAX(opened_at) >= :since
UNION ALL
SELECT e.id, 'a recording of ' || MIN(o.id) FROM exchanges e
JOIN exchanges o ON {IS_SAME_RESPONSE} AND {RANKS_BEFORE}
WHERE e.opened_at >= :since AND e.source <> 'live' AND e.duplicate_of IS NULL
  AND e.state <> 'open'
GROUP BY e.opened_at, e.id""",
    ),
    Promise(
        "collisions",
        "id_collision is set exactly where several exchanges count with one response id",
        f"""
SELECT MIN(id) AS id, COUNT(CASE WHEN duplicate_of IS NULL THEN 1 END) || ' exchanges of '
  || origin || ' count with ' || response_id AS detail
FROM exchanges
WHERE response_id IS NOT NULL AND {{of_period}}
  AND (upstream_digest IS NOT NULL OR content_digest IS NOT NULL)
GROUP BY origin, response_id
HAVING MAX(opened_at) >= :since
  AND (COUNT(CASE WHEN id_collision THEN 1 END) NOT IN (0, COUNT(*))
    OR (COUNT(CASE WHEN duplicate_of IS NULL THEN 1 END) > 1)
      <> (COUNT(CASE WHEN id_collision THEN 1 END) > 0))
  AND NOT EXISTS (SELECT 1 FROM meta WHERE key = '{DROPPED_UNTIL}')""",
    ),
    Promise(
        "daily",
        "usage_daily adds up to requests: day, provider, model and key",
        daily_differences(),
    ),
    Promise(
        "parts",
        "what a provider reports as parts does not exceed its totals (it is cut when billed)",
        f"""
SELECT exchange_id AS id, detail FROM (
  SELECT r.exchange_id, CASE {PARTS_BEYOND_TOTALS} END AS detail FROM {CURRENT_READINGS} r) beyond
WHERE detail IS NOT NULL""",
        is_remark=True,
    ),
)
