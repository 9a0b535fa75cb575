"""Database. What a charged request is: the one definition of its current reading and pricing, its
cost and its lines, as SQL for both databases.

    reading   the highest revision; of equal ones, which merged ledgers have, the fuller: what is
              reported goes before what is partial, estimated or unknown, and then the greater
              output, because counts rise while an answer runs; of equal ones the earliest, of those
              the smallest id
    pricing   the reading's own, or of its further ones (`pricings`) the highest revision, of equal
              ones the smallest id

A pricing is one value: its lines, as JSON, and what they add up to (`ledger.model.charge.Pricing`).
The view `charges` has all lines that were ever booked, `current_charges` those of the pricing of
each reading that counts. `tokentee verify` states the rules a second time, on purpose, to compare.

`e` is an exchange, `r` its current reading, `p` the further pricing of it that counts, if any.
"""

from collections.abc import Iterator

from ledger.model.exchange import COVERED, ORDERED

_SOURCE = """CASE {0}.usage_source WHEN 'reported' THEN 3 WHEN 'partial' THEN 2
      WHEN 'estimated' THEN 1 ELSE 0 END"""
_OUTPUT = "COALESCE({0}.output_tokens, -1)"
READING_ORDER = f"{{0}}.revision DESC, {_SOURCE} DESC, {_OUTPUT} DESC, {{0}}.read_at, {{0}}.id"
"""Readings of one exchange in the order in which they count; {0} names the table."""

_JOINED_READING = {
    # Most exchanges have one reading, which the first comparison leaves out.
    "sqlite": f"""JOIN readings r
  ON r.opened_at = e.opened_at AND r.exchange_id = e.id AND true
  AND NOT EXISTS (
    SELECT 1 FROM readings n
    WHERE n.opened_at = r.opened_at AND n.exchange_id = r.exchange_id AND n.id <> r.id
      AND (n.revision, {_SOURCE.format("n")}, {_OUTPUT.format("n")}, r.read_at, r.id)
        > (r.revision, {_SOURCE.format("r")}, {_OUTPUT.format("r")}, n.read_at, n.id))""",
    # One lookup in one partition per exchange. The planner does not infer that equal moments lie in
    # the same period, so a join over a period would read all of `readings`.
    "postgresql": """JOIN LATERAL (
    SELECT * FROM readings n
    WHERE n.opened_at = e.opened_at AND n.exchange_id = e.id
    ORDER BY """
    + READING_ORDER.format("n")
    + """ LIMIT 1) r ON true""",
}

PART = 10**9
"""A sum is the sum of its upper and lower part, so that no amount from an upstream overflows."""
PARTS_MAX = 9 * 10**9
"""Beyond 9.0e18, which 64 bits just hold, a sum is NULL: unknown."""

NO_USAGE = "COALESCE({0}.usage_source, 'none') = 'none'"
"""Neither reported nor estimated; {0} names what has the column."""
IS_ERROR = "{0}.outcome IN ('error_frame', 'http_error')"
IS_REFUSED = "{0}.outcome = 'refused'"
"""By a cap: it is no answer, and counts in `refused` alone."""
_ORDERED = ", ".join(f"'{each}'" for each in ORDERED)
IS_FETCHED = f"""(COALESCE({{0}}.finish_reason, '') IN ({_ORDERED}) AND EXISTS (
    SELECT 1 FROM exchanges f WHERE f.response_id = {{0}}.response_id AND f.origin = {{0}}.origin
      AND f.outcome = 'complete' AND COALESCE(f.finish_reason, '') NOT IN ({_ORDERED})))"""
"""It took an order, whose result was fetched and has a row of its own with the usage."""
IS_ESTIMATED = "{0}.usage_source = 'estimated'"
BILLING = "COALESCE({0}.billing, 'unknown')"
_COVERED = ", ".join(f"'{each.value}'" for each in COVERED)
IS_COVERED = f"{{0}}.billing IN ({_COVERED})"
IS_REPORTED = "{0}.usage_source <> 'estimated'"
IS_BILLED = f"{IS_REPORTED} AND {{0}}.billing NOT IN ({_COVERED})"
"""Its charges are part of its cost: its usage was reported, and is billed by tokens."""

FURTHER_PRICING = """LEFT JOIN pricings p
  ON p.opened_at = r.opened_at AND p.exchange_id = r.exchange_id AND p.reading_id = r.id
  AND NOT EXISTS (
    SELECT 1 FROM pricings n
    WHERE n.opened_at = p.opened_at AND n.exchange_id = p.exchange_id
      AND n.reading_id = p.reading_id
      AND (n.revision > p.revision OR (n.revision = p.revision AND n.id < p.id)))"""
"""A join of a reading `r` with its further pricing that counts."""

LINE = (
    ("line", "text"),
    ("model", "text"),
    ("quantity", "bigint"),
    ("unit_picousd", "bigint"),
    ("amount_picousd", "bigint"),
    ("price_source", "text"),
    ("priced_at", "instant"),
    ("reason", "text"),
    ("id", "text"),
    ("ordinal", "integer"),
    ("revision", "integer"),
    ("supersedes", "text"),
    ("place", "text"),
)
"""Name and type of each value of a line's array. A reading's own lines end with the reason: their
ids are made of the reading's and their ordinals. `place`: `kept` of a line of an earlier
pricing that still counts, `past` of one that does not count any more (version 0.2 priced single
lines again); NULL: it is of this pricing, and counts."""
OWN, KEPT, PAST = None, "kept", "past"


def joined_reading(dialect: str) -> str:
    """A join of an exchange `e` with its current reading `r`."""
    return _JOINED_READING[dialect]


def pricing(name: str) -> str:
    """A figure of the pricing that counts, of a reading `r` and `p`."""
    return f"CASE WHEN p.id IS NULL THEN r.{name} ELSE p.{name} END"


def _line(dialect: str, name: str) -> str:
    """A field of a line `l`."""
    at, kind = next((at, kind) for at, (each, kind) in enumerate(LINE) if each == name)
    if dialect == "sqlite" or kind == "text":
        return f"(l.value ->> {at})"
    return f"(l.value ->> {at})::{'timestamptz' if kind == 'instant' else kind}"


def _lines_of(dialect: str, charges: str) -> tuple[str, str]:
    """The rows `l` of a pricing's lines, and the place of each, from 0."""
    if dialect == "sqlite":
        return f"json_each({charges}) l", "l.key"
    return (
        f"json_array_elements({charges}) WITH ORDINALITY l(value, number)",
        "l.number::integer - 1",
    )


def has_wrong_line(dialect: str, charges: str) -> str:
    """The condition that one of these lines is not a quantity times a unit price."""
    line, quantity, unit, amount, source, at = (
        _line(dialect, LINE[number][0]) for number in (0, 2, 3, 4, 5, 6)
    )
    most = 2**63 - 1  # a text sorts behind it
    kind = "l.type" if dialect == "sqlite" else "json_typeof(l.value)"
    rows, _ = _lines_of(dialect, charges)
    return f"""EXISTS (SELECT 1 FROM {rows} WHERE CASE WHEN {kind} = 'array'
    THEN {quantity} BETWEEN 0 AND {most} AND {line} IS NOT NULL AND {source} IS NOT NULL
      AND {at} IS NOT NULL AND CASE WHEN {unit} IS NULL THEN {amount} IS NULL
        ELSE {unit} BETWEEN 0 AND {most} AND {amount} = {quantity} * {unit} END
    END IS NOT TRUE)"""


def line_views(dialect: str) -> Iterator[str]:
    """The views `charges` and `current_charges`."""
    own, place = _lines_of(dialect, "r.charges")
    further, _ = _lines_of(dialect, "p.charges")
    current, _ = _lines_of(dialect, "COALESCE(p.charges, r.charges)")
    names = [name for name, _ in LINE[:7]]
    facts = ", ".join(f"{_line(dialect, name)} AS {name}" for name in names)
    key = "r.exchange_id, r.opened_at, r.id AS reading_id"
    of, reason = {name: _line(dialect, name) for name, _ in LINE}, _line(dialect, "reason")
    yield f"""
CREATE VIEW charges AS
SELECT r.id || '.' || ({place}) AS id, {key}, {place} AS ordinal, 1 AS revision,
  {facts}, NULL AS supersedes, {reason} AS reason
FROM readings r CROSS JOIN {own}
UNION ALL
SELECT {of["id"]}, p.exchange_id, p.opened_at, p.reading_id, {of["ordinal"]}, {of["revision"]},
  {facts}, {of["supersedes"]}, {reason}
FROM pricings p CROSS JOIN {further}
WHERE COALESCE({of["place"]}, '') <> '{KEPT}'
"""
    yield f"""
CREATE VIEW current_charges AS
SELECT COALESCE({of["id"]}, r.id || '.' || ({place})) AS id, {key},
  COALESCE({of["ordinal"]}, {place}) AS ordinal, COALESCE({of["revision"]}, 1) AS revision,
  {facts}, {of["supersedes"]} AS supersedes, {reason} AS reason
FROM readings r {FURTHER_PRICING}
CROSS JOIN {current}
WHERE COALESCE({of["place"]}, '') <> '{PAST}'
"""


def sum_of(term: str) -> str:
    """The sum of a term, which cannot overflow."""
    high, low = f"SUM({term} / {PART})", f"SUM({term} % {PART})"
    return f"CASE WHEN {high} < {PARTS_MAX} THEN {high} * {PART} + {low} END"


def without_usage(exchange: str, reading: str) -> str:
    """An answer whose usage is unknown. Of an error none is expected: it counts as an error; of an
    order neither, once its result was fetched."""
    others = " OR ".join(each.format(exchange) for each in (IS_ERROR, IS_REFUSED, IS_FETCHED))
    return f"{NO_USAGE.format(reading)} AND NOT ({others})"


def reported(figure: str, name: str) -> str:
    """A figure of reported usage; NULL of an estimate, which has columns of its own. So is the list
    value of a request: what its tokens cost at list prices, whoever pays them, beside the cost."""
    return f"CASE WHEN {IS_ESTIMATED.format(name)} THEN NULL ELSE {figure} END"


def cost(amount: str, name: str) -> str:
    """The cost of a request: of reported usage that is billed by tokens. An estimate is part of no
    total, and neither is what a plan covers."""
    not_billed = f"{IS_ESTIMATED.format(name)} OR {IS_COVERED.format(name)}"
    return f"CASE WHEN {not_billed} THEN NULL ELSE {amount} END"


def estimated_cost(amount: str, name: str) -> str:
    """The cost of a request whose usage is our estimate."""
    is_billed = f"({IS_COVERED.format(name)}) IS NOT TRUE"
    return f"CASE WHEN {IS_ESTIMATED.format(name)} AND {is_billed} THEN {amount} END"
