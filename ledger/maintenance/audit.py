"""Database. Checks whether the rows of a ledger keep its promises.

Each promise is one query for the rows that break it. Python reads only breaches, and of these only
the first few. A query is written differently from the code that it checks: the views select with
NOT EXISTS, the queries here rank.

Some oddities come from a provider (its parts exceed its totals). They are counted as remarks and
are no breach.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ledger.maintenance.reading_digests import altered
from ledger.pricing.price_lines import INPUT_LINES, OUTPUT_LINES
from ledger.store.dropping import DROPPED_UNTIL
from ledger.store.schema.columns import Instant
from ledger.store.scope import snapshot
from ledger.sync.merging import reason_of

SHOWN_MAX = 20
"""Breaches of one promise that are named; all are counted."""
BEGINNING = datetime(1000, 1, 1, tzinfo=UTC)
"""Before every exchange, and with four digits of a year, so that it sorts as text."""


@dataclass(frozen=True, slots=True)
class Promise:
    """A rule, and the query for the rows (id, detail) that break it."""

    name: str
    holds: str
    broken: str
    is_remark: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many rows break a promise, and the first of them: (id, what was found)."""

    promise: Promise
    count: int
    examples: tuple[tuple[str, str], ...]
    is_checked: bool = True
    """False: it was left out, because it cannot be checked for a period alone."""


def verify(engine: Engine, since: datetime | None = None) -> Iterator[Verdict]:
    """Check each promise in turn, for the exchanges opened from `since` on.

    With `since` the work is that of the period: the file as a whole is not checked.
    """
    if engine.dialect.name == "sqlite":
        if since is None:
            with engine.connect() as connection:
                yield _integrity(connection)
        else:
            yield Verdict(INTEGRITY, 0, (), is_checked=False)
    for promise in PROMISES:
        # Each in a snapshot of its own: a long snapshot would delay the clean-up of a live ledger.
        with snapshot(engine) as connection:
            yield _ask(connection, promise, since)
    with snapshot(engine) as connection:
        yield _digests(connection, since or BEGINNING)


def _ask(connection: Connection, promise: Promise, begin: datetime | None) -> Verdict:
    words = {
        "day": _DAY[connection.dialect.name],
        "of_period": "true" if begin is None else _OF_PERIOD[connection.dialect.name],
    }
    since = begin or BEGINNING
    midnight = since.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    bounds: dict[str, sa.BindParameter[Any]] = {
        "since": sa.bindparam("since", since, Instant()),
        "midnight": sa.bindparam("midnight", midnight, Instant()),
        "day": sa.bindparam("day", midnight.date(), sa.Date()),
    }
    broken = promise.broken
    for word, meant in words.items():
        broken = broken.replace(f"{{{word}}}", meant)
    used = [bound for name, bound in bounds.items() if f":{name}" in broken]
    found = (
        sa.text(broken)
        .bindparams(*used)
        .columns(sa.column("id", sa.Text), sa.column("detail", sa.Text))
        .subquery()
    )
    count = sa.func.count().over()
    try:
        rows = connection.execute(sa.select(found.c.id, found.c.detail, count).limit(SHOWN_MAX))
        examples = rows.all()
    except sa.exc.DBAPIError as error:
        return Verdict(promise, 1, (("", f"cannot be asked: {reason_of(error)}"),))
    return Verdict(
        promise,
        examples[0][2] if examples else 0,
        tuple((row.id, row.detail or "") for row in examples),
    )


def _integrity(connection: Connection) -> Verdict:
    try:
        found = connection.exec_driver_sql(f"PRAGMA integrity_check({SHOWN_MAX})").scalars().all()
    except sa.exc.DBAPIError as error:
        found = [reason_of(error)]
    faults = [] if found == ["ok"] else [("", " ".join(str(line).split())) for line in found]
    return Verdict(INTEGRITY, len(faults), tuple(faults))


def _digests(connection: Connection, since: datetime) -> Verdict:
    count = 0
    examples: list[tuple[str, str]] = []
    try:
        for count, found in enumerate(altered(connection, since), 1):  # noqa: B007
            if len(examples) < SHOWN_MAX:
                examples.append((found.exchange_id, f"reading {found.reading_id} was changed"))
    except (sa.exc.DBAPIError, ValueError, TypeError) as error:
        why = reason_of(error) if isinstance(error, sa.exc.DBAPIError) else type(error).__name__
        return Verdict(DIGESTS, 1, (("", f"cannot be asked: {why}"),))
    return Verdict(DIGESTS, count, tuple(examples))


DIGESTS = Promise(
    "digests", "readings and their charges are what was written, by their digests", ""
)
INTEGRITY = Promise("file", "the SQLite file is sound (PRAGMA integrity_check)", "")

_DAY = {
    "sqlite": "date(v.opened_at)",
    "postgresql": "CAST(v.opened_at AT TIME ZONE 'UTC' AS date)",
}

_IDS = "SELECT p.response_id FROM exchanges p WHERE p.opened_at >= :since"
_OF_PERIOD = {
    "sqlite": f"response_id IN ({_IDS})",
    # As an array, since PostgreSQL would rather read all exchanges than join these to them.
    "postgresql": f"response_id = ANY (ARRAY({_IDS}))",
}
"""What an answer of the period is compared with may be older, and is found by its id."""

_CURRENT_READINGS = """(
  SELECT * FROM (
    SELECT readings.*, ROW_NUMBER() OVER (
      PARTITION BY opened_at, exchange_id ORDER BY revision DESC, read_at, id) AS place
    FROM readings WHERE opened_at >= :since) ranked
  WHERE place = 1)"""
_CURRENT_CHARGES = """(
  SELECT * FROM (
    SELECT charges.*, ROW_NUMBER() OVER (
      PARTITION BY opened_at, exchange_id, reading_id, ordinal ORDER BY revision DESC, id) AS place
    FROM charges WHERE opened_at >= :since) ranked
  WHERE place = 1)"""
_CHARGE_OF_READING = (
    "c.opened_at = r.opened_at AND c.exchange_id = r.exchange_id AND c.reading_id = r.id"
)
_COUNTS = "state <> 'open' AND duplicate_of IS NULL"


def _listed(lines: tuple[str, ...]) -> str:
    return ", ".join(f"'{line}'" for line in lines)


def _exceeds(parts: str, total: str, text: str) -> str:
    return f"WHEN {parts} > {total} THEN '{text} ' || ({parts}) || ' > ' || {total}"


_BEYOND = " ".join(
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

_REPORTED = "CASE WHEN v.usage_source <> 'estimated' THEN v.{0} END"
_DAILY = {
    "requests": "COUNT(*)",
    "errors": "COUNT(CASE WHEN v.outcome IN ('error_frame', 'http_error') THEN 1 END)",
    "unpriced": "COUNT(CASE WHEN v.cost_state IN ('unpriced', 'partial') "
    "AND v.usage_source <> 'estimated' THEN 1 END)",
    "cost_picousd": f"SUM({_REPORTED.format('cost_picousd')})",
} | {
    name: f"SUM({_REPORTED.format(name)})"
    for name in (
        "input_tokens",
        "cache_read_tokens",
        "cache_write_tokens",
        "output_tokens",
        "reasoning_tokens",
    )
}


def _daily() -> str:
    """The sums of both sides, one of them negative: what is left differs."""
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


def _is_same_response(original: str, later: str) -> str:
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


def _ranks_before(first: str, second: str) -> str:
    """A live row before a recording, the recording that knows more, the earlier, the smaller id."""
    left, right = (
        f"CASE WHEN {x}.source = 'live' THEN -1 ELSE (CASE WHEN {x}.key_fingerprint IS NULL THEN 1 "
        f"ELSE 0 END) + (CASE WHEN {x}.request_digest IS NULL THEN 1 ELSE 0 END) + (CASE WHEN "
        f"{x}.upstream_digest IS NULL THEN 1 ELSE 0 END) END, {x}.opened_at, {x}.id"
        for x in (first, second)
    )
    return f"({left}) < ({right})"


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
        "every reading is of an exchange, and every charge of a reading",
        """
SELECT r.exchange_id AS id, 'reading ' || r.id AS detail FROM readings r
WHERE r.opened_at >= :since AND NOT EXISTS (
  SELECT 1 FROM exchanges e
  WHERE e.opened_at >= :since AND e.opened_at = r.opened_at AND e.id = r.exchange_id)
UNION ALL
SELECT c.exchange_id, 'charge ' || c.id FROM charges c
WHERE c.opened_at >= :since AND NOT EXISTS (
  SELECT 1 FROM readings r
  WHERE r.opened_at >= :since AND r.opened_at = c.opened_at AND r.exchange_id = c.exchange_id
    AND r.id = c.reading_id)""",
    ),
    Promise(
        "lines",
        "the token lines of a reading add up to its totals, so no token is billed twice",
        # Cohere bills other totals than the model counted. What a provider priced as a whole has
        # one line; a reading without lines is in `unpriced`.
        f"""
SELECT exchange_id AS id, 'input ' || input || ', charged ' || charged_input || '; output '
  || output || ', charged ' || charged_output AS detail
FROM (
  SELECT r.exchange_id,
    COALESCE(CAST(r.tool_units ->> 'billed_input_tokens' AS BIGINT), r.input_tokens, -1) AS input,
    COALESCE(CAST(r.tool_units ->> 'billed_output_tokens' AS BIGINT), r.output_tokens, -1)
      AS output,
    c.charged_input, c.charged_output
  FROM {_CURRENT_READINGS} r JOIN (
    SELECT opened_at, exchange_id, reading_id, COUNT(CASE WHEN line <> 'reported_cost' THEN 1 END)
        AS lines,
      COALESCE(SUM(CASE WHEN line IN ({_listed(INPUT_LINES)}) THEN quantity END), 0)
        AS charged_input,
      COALESCE(SUM(CASE WHEN line IN ({_listed(OUTPUT_LINES)}) THEN quantity END), 0)
        AS charged_output
    FROM {_CURRENT_CHARGES} current_charges GROUP BY opened_at, exchange_id, reading_id) c
  ON {_CHARGE_OF_READING} AND c.lines > 0) sums
WHERE (input <> -1 AND input <> charged_input) OR (output <> -1 AND output <> charged_output)
  -- Of a total that was not reported no token can be billed.
  OR (output = -1 AND charged_output <> 0)""",
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
        "supersedes",
        "a charge of a later revision replaces one of an earlier, of the same line's place",
        """
SELECT c.exchange_id AS id, c.line || ' replaces ' || COALESCE(c.supersedes, 'nothing') AS detail
FROM charges c
WHERE c.opened_at >= :since AND c.revision > 1 AND NOT EXISTS (
  SELECT 1 FROM charges o
  WHERE o.opened_at = c.opened_at AND o.exchange_id = c.exchange_id
    AND o.reading_id = c.reading_id AND o.ordinal = c.ordinal AND o.revision < c.revision
    AND o.id = c.supersedes)
  AND c.supersedes IS NOT NULL
UNION ALL
SELECT exchange_id, line || ' of revision ' || revision || ' replaces nothing' FROM charges
WHERE opened_at >= :since AND revision > 1 AND supersedes IS NULL""",
    ),
    Promise(
        "requests",
        "the view requests has every exchange that counts, once",
        f"""
SELECT 'requests' AS id, 'it has ' || shown || ', the ledger ' || there AS detail FROM (
  SELECT (SELECT COUNT(*) FROM requests WHERE opened_at >= :since) AS shown,
    (SELECT COUNT(*) FROM exchanges WHERE opened_at >= :since AND {_COUNTS}) AS there) counted
WHERE shown <> there""",
    ),
    Promise(
        "cost",
        "the cost of a request is the sum of its charges that none supersedes",
        f"""
SELECT id, 'requests says ' || shown || ', its charges ' || charged AS detail FROM (
  SELECT v.id, COALESCE(v.cost_picousd, -1) AS shown, COALESCE(s.charged, -1) AS charged
  FROM requests v LEFT JOIN (
    SELECT r.opened_at, r.exchange_id, SUM(c.amount_picousd) AS charged
    FROM {_CURRENT_READINGS} r JOIN {_CURRENT_CHARGES} c ON {_CHARGE_OF_READING}
    GROUP BY r.opened_at, r.exchange_id) s
  ON s.opened_at = v.opened_at AND s.exchange_id = v.id
  WHERE v.opened_at >= :since) costs
WHERE shown <> charged""",
    ),
    Promise(
        "duplicates",
        "a duplicate is of an earlier exchange with the same origin, response id, key, request "
        "and answer",
        # Where old rows were dropped, the original may have been among them.
        f"""
SELECT e.id, 'duplicate of ' || e.duplicate_of AS detail FROM exchanges e
WHERE e.opened_at >= :since AND e.duplicate_of IS NOT NULL
  AND NOT EXISTS (
    SELECT 1 FROM exchanges o
    WHERE o.id = e.duplicate_of AND ({_is_same_response("o", "e")}) AND ({_ranks_before("o", "e")})
      AND (o.duplicate_of IS NULL OR e.upstream_digest IS NULL))
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
WHERE response_id IS NOT NULL AND {{of_period}} AND {_COUNTS} AND source = 'live'
  AND (upstream_digest IS NOT NULL OR content_digest IS NOT NULL)
GROUP BY origin, response_id, key_fingerprint, request_digest, upstream_digest,
  CASE WHEN upstream_digest IS NULL THEN content_digest END
HAVING COUNT(*) > 1 AND MAX(opened_at) >= :since
UNION ALL
SELECT e.id, 'a recording of ' || MIN(o.id) FROM exchanges e
JOIN exchanges o ON {_is_same_response("o", "e")} AND {_ranks_before("o", "e")}
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
    Promise("daily", "usage_daily adds up to requests: day, provider, model and key", _daily()),
    Promise(
        "parts",
        "what a provider reports as parts does not exceed its totals (it is cut when billed)",
        f"""
SELECT exchange_id AS id, detail FROM (
  SELECT r.exchange_id, CASE {_BEYOND} END AS detail FROM {_CURRENT_READINGS} r) beyond
WHERE detail IS NOT NULL""",
        is_remark=True,
    ),
)
