"""Database. The figures of a group of requests: the one list of counts and sums, and the groupings
of table `sums`.

The table, the view `usage_daily`, reports and pages are made from it. The terms are SQL for both
databases; `e` is a request with the sum of its charges (`ledger.store.adding_up`, or the view
`requests`).

Figures hold only usage that providers reported. Estimates have figures of their own.
"""

from collections.abc import Mapping

from ledger.model import usage
from ledger.store.schema.charged import (
    IS_BILLED,
    IS_COVERED,
    IS_ERROR,
    IS_ESTIMATED,
    IS_REFUSED,
    IS_REPORTED,
    without_usage,
)
from ledger.store.schema.dimensions import SUMMED

BY_HOUR = "hour"
"""The grouping by everything: some rows per session and hour."""
BY_EXCHANGES = "exchanges"
"""A row an hour with the counts of view `completeness`, which counts exchanges."""
DAILY_DIMENSIONS = ("provider", "model", "key_fingerprint")
BY_DAY: Mapping[str, tuple[str, ...]] = {
    "everything": (),
    **{name: (name,) for name in SUMMED},
    "day": DAILY_DIMENSIONS,
}
"""Grouping of a day -> its dimensions, the fewest rows first: queries over months and years read
few rows. `day` is what view `usage_daily` shows."""
GROUPINGS = (BY_HOUR, BY_EXCHANGES, *BY_DAY)

_IS_BILLED = IS_BILLED.format("e")
IS_BYOK = "e.is_byok AND e.reported_upstream_cost_picousd <= 9223372036854775807 - "
IS_BYOK += "COALESCE(e.reported_cost_picousd, 0)"
REPORTED_COST = f"""CASE WHEN {IS_BYOK} THEN COALESCE(e.reported_cost_picousd, 0)
    + e.reported_upstream_cost_picousd ELSE e.reported_cost_picousd END"""
IS_TIMED = "e.output_tokens IS NOT NULL AND e.duration_ms > e.first_token_ms"

COUNT_CONDITIONS: Mapping[str, str] = {
    "requests": f"NOT {IS_REFUSED.format('e')}",
    "refused": IS_REFUSED.format("e"),
    "errors": IS_ERROR.format("e"),
    "without_usage": without_usage("e", "e"),
    "complete_without_usage": f"e.outcome = 'complete' AND {without_usage('e', 'e')}",
    "estimated": IS_ESTIMATED.format("e"),
    "priced": f"e.cost_state = 'priced' AND {_IS_BILLED}",
    "partial": f"e.cost_state = 'partial' AND {_IS_BILLED}",
    "reported": f"e.cost_state = 'reported' AND {_IS_BILLED}",
    "unpriced": f"e.cost_state IN ('unpriced', 'partial') AND {_IS_BILLED}",
    "covered": IS_COVERED.format("e"),
    "unlisted": f"{IS_COVERED.format('e')} AND {IS_REPORTED.format('e')} "
    "AND e.cost_state IN ('unpriced', 'partial')",
}
"""Name of a count -> the requests that it counts. `unpriced` includes `partial`. `covered`: by a
plan, or free; `unlisted` of these have no list value, or one that is a lower bound."""
COUNT_TERMS: Mapping[str, str] = {
    name: f"COUNT(CASE WHEN {condition} THEN 1 END)" for name, condition in COUNT_CONDITIONS.items()
}

_SUMMED_TOKENS = tuple(name for name in usage.TOKENS if "audio" not in name)
"""No report shows audio tokens."""
REQUEST_TOKENS = (_SUMMED_TOKENS[0], "uncached_input_tokens", *_SUMMED_TOKENS[1:])
"""The summed columns of view `requests` for the tokens of the answer itself."""
SHOWN_SUM_TERMS: Mapping[str, str] = {
    name: f"e.{name}"
    for name in (
        *REQUEST_TOKENS,
        *("extra_input_tokens", "extra_output_tokens"),
        *("estimated_input_tokens", "estimated_output_tokens"),
    )
} | {
    "cacheable_input_tokens": "CASE WHEN e.cache_read_tokens IS NOT NULL THEN e.input_tokens END",
    "cost_picousd": "e.cost_picousd",
    "estimated_cost_picousd": "e.estimated_cost_picousd",
    "list_value_picousd": "e.list_value_picousd",
}
"""Name of a sum -> the term that is summed. `usage_daily` is made of these."""
SUM_TERMS: Mapping[str, str] = {
    **SHOWN_SUM_TERMS,
    "covered_value_picousd": f"CASE WHEN {IS_COVERED.format('e')} THEN e.list_value_picousd END",
    "reported_cost_picousd": REPORTED_COST,
    "saved_picousd": f"CASE WHEN {_IS_BILLED} THEN e.saved_picousd END",
    # own_cost_picousd: where every line has a price of ours
    # The cost that a hosted agent's session states is that of its model requests, too.
    "difference_picousd": "CASE WHEN e.operation <> 'agent_session' "
    f"THEN e.own_cost_picousd - ({REPORTED_COST}) END",
    "generation_ms": f"CASE WHEN {IS_TIMED} THEN e.duration_ms - e.first_token_ms END",
    "generated_tokens": f"CASE WHEN {IS_TIMED} THEN e.output_tokens END",
}
"""The same, with the sums that only reports show."""
_THREE_DIGITS = """CASE WHEN {0} < 1000 THEN {0} WHEN {0} < 10000 THEN ({0} + 5) / 10 * 10
    WHEN {0} < 100000 THEN ({0} + 50) / 100 * 100 ELSE ({0} + 500) / 1000 * 1000 END"""
HISTOGRAMS: Mapping[str, str] = {
    "first_token_times": _THREE_DIGITS.format("e.first_token_ms"),
    "duration_times": _THREE_DIGITS.format("e.duration_ms"),
}
"""Percentiles cannot be added up, but histograms can: times in milliseconds, to three digits, each
with how often it occurs, as `1230*7 450`. Rounding keeps their order, so the percentiles are those
of the exact times, rounded; and it bounds a histogram to some thousand terms."""
SUMS_COLUMNS = (*COUNT_TERMS, *SUM_TERMS, *HISTOGRAMS)
