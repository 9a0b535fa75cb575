"""A ledger of millions of exchanges, made inside the database: the same rows on either of them.

90 days of a company: seven models of five providers, 60 keys, 25 projects, eight teams by tag, four
agents in sessions of some twenty requests, services without sessions, errors, cached tokens,
requests without usage, estimated and without a price, and recordings that were seen again.
Every value is a function of the row's number, so equal sizes are equal ledgers. The ids of readings
are no digests, which `verify` reports.
"""

import time
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from ledger.model.usage import Usage
from ledger.pricing.charges import charge
from ledger.pricing.prices import PriceBook
from ledger.store import db, retention
from tests.ledger.written import opened, reading

DAYS = 90
END = datetime(2026, 11, 18, 15, 30, tzinfo=UTC)
"""Now: half of the last day lies behind."""
BEGIN = END - timedelta(days=DAYS)
SLICE = 100_000

MODELS = (
    ("openai", "https://api.openai.com:443", "openai.chat", "gpt-5"),
    ("openai", "https://api.openai.com:443", "openai.chat", "gpt-5-mini"),
    ("openai", "https://api.openai.com:443", "openai.responses", "gpt-4.1"),
    ("anthropic", "https://api.anthropic.com:443", "anthropic.messages", "claude-sonnet-4-5"),
    ("anthropic", "https://api.anthropic.com:443", "anthropic.messages", "claude-haiku-4-5"),
    (
        "google",
        "https://generativelanguage.googleapis.com:443",
        "google.generate_content",
        "gemini-2.5-pro",
    ),
    ("aivene", "https://api.aivene.com:443", "openai.chat", "house-model"),
)
"""Provider, origin, dialect, model. The last one has no price."""

SPELLINGS = {
    "sqlite": {
        "numbers": "WITH RECURSIVE numbers(n) AS "
        "(SELECT :first UNION ALL SELECT n + 1 FROM numbers WHERE n < :last)",
        "moment": "strftime('%Y-%m-%d %H:%M:%f', julianday(:begin) + n * :step / 86400.0, "
        "'+' || ({0} / 1000.0) || ' seconds') || '000Z'",
        "hex": "printf('%016x', {0})",
        "text": "{0}",
        "json": "TEXT",
        "true": "1",
        "false": "0",
    },
    "postgresql": {
        "numbers": "WITH numbers AS (SELECT generate_series(CAST(:first AS bigint), :last) AS n)",
        "moment": "date_trunc('milliseconds', CAST(:begin AS timestamptz) "
        "+ (n * :step + {0} / 1000.0) * interval '1 second')",
        "hex": "lpad(to_hex({0}), 16, '0')",
        "text": "to_char({0} AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US\"Z\"')",
        "json": "JSON",
        "true": "true",
        "false": "false",
    },
}

# m: the exchange that the row is of; w: who asked, a session or a service; h, g: chances.
DRAWN = """{numbers}, seen AS (
  SELECT n, CASE WHEN n % 1009 = 1000 THEN n - 500 ELSE n END AS m FROM numbers),
asked AS (
  SELECT n, m, m * 2654435761 % 1000003 AS h, m * 40503 % 99991 AS g,
    CASE WHEN m % 5 < 2 THEN NULL ELSE m / 500 * 16 + m % 16 END AS session FROM seen),
drawn AS (
  SELECT n, m, h, g, session,
    COALESCE(session * 7919 % 100003, 900000 + h % 24) AS w,
    CASE WHEN h % 100 < 3 THEN 'http_error' WHEN h % 100 < 4 THEN 'error_frame'
      WHEN h % 100 < 6 THEN 'client_left' ELSE 'complete' END AS outcome,
    CASE WHEN h % 100 < 4 OR h % 211 = 7 THEN 'none' WHEN h % 100 < 5 THEN 'estimated'
      WHEN h % 100 < 6 THEN 'partial' ELSE 'reported' END AS usage_source,
    CASE WHEN session IS NULL THEN h % 7 ELSE (session % 5 + CASE WHEN g % 10 = 0 THEN 1 ELSE 0 END)
      END AS model,
    200 + g % 1800 AS first_ms, 900 + g % 1800 + h % 20000 AS whole_ms,
    500 + h % 9000 AS input_tokens, (500 + h % 9000) * (g % 80) / 100 AS cached,
    20 + g % 1400 AS output_tokens
  FROM asked)
"""
EXCHANGES = """
INSERT INTO exchanges (id, opened_at, state, outcome, settled_at, first_byte_at, first_token_at,
  source, origin, provider, dialect, operation, path, request_model, response_model, response_id,
  content_digest, request_digest, streamed, http_status, finish_reason, request_bytes,
  response_bytes, client_bytes, removed_bytes, upstream_digest, client_digest, events,
  key_fingerprint, key_hint, user_agent, end_user, session_id, project, git_branch, agent,
  service_tier, tags, node, duplicate_of)
{drawn}
SELECT 'e' || n, {opened}, 'settled', outcome, {settled},
  CASE WHEN outcome <> 'http_error' THEN {first} END,
  CASE WHEN outcome <> 'http_error' THEN {first} END,
  CASE WHEN m = n THEN 'live' ELSE 'replay' END, {origin}, {provider}, {dialect}, 'chat', '/v1/chat',
  {model}, CASE WHEN outcome <> 'http_error' THEN {model} END,
  CASE WHEN outcome <> 'http_error' THEN 'chatcmpl-' || {hex_m} END,
  CASE WHEN outcome <> 'http_error' THEN {hex_m} || {hex_m} END, {hex_m} || {hex_m}, {true},
  CASE WHEN outcome = 'http_error' THEN 429 ELSE 200 END,
  CASE WHEN outcome = 'complete' THEN 'stop' END, 1200 + h % 40000, 4000 + g, 4000 + g, 0,
  {hex_m} || {hex_m} || {hex_m} || {hex_m}, {hex_m} || {hex_m} || {hex_m} || {hex_m}, 40 + g % 300,
  {hex_key} || {hex_key}, substr({hex_key}, 13),
  CASE WHEN session IS NULL THEN 'OpenAI/Python 2.' || (w % 3) || '.0'
    ELSE 'claude-cli/2.0.' || (w % 5) END,
  CASE WHEN session IS NULL AND h % 10 = 0 THEN 'user-' || (g % 5000) END,
  'session-' || {hex_session},
  CASE WHEN session IS NOT NULL THEN 'project-' || (w % 25) END,
  CASE WHEN session IS NOT NULL THEN 'branch-' || (w % 7) END,
  CASE WHEN session IS NOT NULL THEN
    CASE w % 4 WHEN 0 THEN 'claude-code' WHEN 1 THEN 'codex' WHEN 2 THEN 'aider' ELSE 'goose' END
    END,
  CASE WHEN h % 50 = 0 THEN 'flex' END,
  CAST('{{"env":"' || CASE WHEN w % 6 = 0 THEN 'test' ELSE 'prod' END || '","team":"team-'
    || (w % 60 % 8) || '"}}' AS {json}), 'host/1/1', CASE WHEN m <> n THEN 'e' || m END
FROM drawn"""
READINGS = """
INSERT INTO readings (id, exchange_id, opened_at, revision, meter_version, usage_source,
  input_tokens, cache_read_tokens, output_tokens, reasoning_tokens, tool_units, further, remarks,
  usage_json, read_at, cost_state, amount_picousd, list_value_picousd, saved_picousd, charges)
{drawn}, counted AS (
  SELECT drawn.*, CASE WHEN usage_source <> 'estimated' THEN cached END AS read,
    {uncached_input} AS uncached_unit, {cache_read} AS cached_unit, {output} AS output_unit FROM drawn),
priced AS (
  SELECT counted.*, input_tokens - COALESCE(read, 0) AS uncached,
    (input_tokens - COALESCE(read, 0)) * uncached_unit + COALESCE(read, 0) * cached_unit
      + output_tokens * output_unit AS amount,
    CASE WHEN output_unit IS NULL THEN '"none","' ELSE '"genai-prices 0.2.3","' END
      || {settled_text} || CASE WHEN output_unit IS NULL THEN '","no price is known"]'
        ELSE '",null]' END AS source FROM counted)
SELECT 'r' || n, 'e' || n, {opened}, 1, '0.1.0', usage_source,
  CASE WHEN usage_source <> 'none' THEN input_tokens END,
  CASE WHEN usage_source IN ('reported', 'partial') THEN cached END,
  CASE WHEN usage_source <> 'none' THEN output_tokens END,
  CASE WHEN usage_source = 'reported' AND model < 3 THEN output_tokens / 4 END,
  CAST('{{}}' AS {json}), CAST('[]' AS {json}), CAST('[]' AS {json}),
  CASE WHEN usage_source IN ('reported', 'partial') THEN
    CAST('{{"prompt_tokens":' || input_tokens || ',"completion_tokens":' || output_tokens
      || ',"prompt_tokens_details":{{"cached_tokens":' || cached || '}}}}' AS {json}) END, {settled},
  CASE WHEN usage_source = 'none' THEN NULL WHEN amount IS NULL THEN 'unpriced' ELSE 'priced' END,
  CASE WHEN usage_source <> 'none' THEN amount END,
  CASE WHEN usage_source <> 'none' THEN amount END,
  CASE WHEN usage_source <> 'none' THEN read * (uncached_unit - cached_unit) END,
  CAST(CASE WHEN usage_source = 'none' THEN '[]' ELSE
    '[["uncached_input",null,' || uncached || ','
      || COALESCE(uncached_unit || ',' || (uncached * uncached_unit), 'null,null') || ',' || source
    || COALESCE(',["cache_read",null,' || read || ','
      || COALESCE(cached_unit || ',' || (read * cached_unit), 'null,null') || ',' || source, '')
    || ',["output",null,' || output_tokens || ','
      || COALESCE(output_unit || ',' || (output_tokens * output_unit), 'null,null') || ',' || source
    || ']' END AS {json})
FROM priced"""


def fill(engine: Engine, rows: int, *, last: int | None = None) -> float:
    """Make `rows` exchanges (or those up to `last` of so many); the seconds that it took."""
    words = _words(engine.dialect.name)
    started = time.perf_counter()
    if engine.dialect.name == "postgresql":
        months = {(BEGIN + timedelta(days=day)).date().replace(day=1) for day in range(DAYS + 1)}
        retention.make_partitions(engine, months, END.date())
    end = rows if last is None else last
    for first in range(0, end, SLICE):
        bounds = {
            "first": first,
            "last": min(first + SLICE, end) - 1,
            "begin": f"{BEGIN:%Y-%m-%d %H:%M:%S}" + ("Z" if _is_postgresql(engine) else ""),
            "step": (END - BEGIN).total_seconds() / rows,
        }
        with db.writing(engine) as connection:
            if not _is_postgresql(engine):
                connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
                connection.exec_driver_sql("PRAGMA cache_size = -200000")
            for text in (EXCHANGES, READINGS):
                connection.execute(sa.text(_escaped(text.format(**words))), bounds)
    _analyze(engine)
    return time.perf_counter() - started


def _is_postgresql(engine: Engine) -> bool:
    return engine.dialect.name == "postgresql"


def _escaped(text: str) -> str:
    """SQLAlchemy takes `:word` for a parameter, also in a literal."""
    for literal in ("https:", '":', "%H:", "%M:", "HH24:", "MI:"):
        text = text.replace(literal, literal.replace(":", "\\:"))
    return text.replace("\\\\:", "\\:")


def _analyze(engine: Engine) -> None:
    """PostgreSQL's autovacuum does so by itself; SQLite plans without figures, as in use."""
    if _is_postgresql(engine):
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM ANALYZE")


def _words(dialect: str) -> dict[str, str]:
    spelling = SPELLINGS[dialect]
    moment, digits = spelling["moment"], spelling["hex"]

    def by_model(place: int) -> str:
        cases = " ".join(f"WHEN {at} THEN '{each[place]}'" for at, each in enumerate(MODELS))
        return f"CASE model {cases} END"

    words = {
        **spelling,
        "opened": moment.format("0"),
        "first": moment.format("first_ms"),
        "settled": moment.format("whole_ms"),
        "provider": by_model(0),
        "origin": by_model(1),
        "dialect": by_model(2),
        "model": by_model(3),
        "hex_m": digits.format("m * 2654435761"),
        "hex_key": digits.format("(w % 60 + 1) * 2654435761 * 1009"),
        "hex_session": digits.format("session * 2654435761"),
        "settled_text": spelling["text"].format(moment.format("whole_ms")),
        **_units(),
    }
    return words | {"drawn": DRAWN.format(**words)}


def _units() -> dict[str, str]:
    """Line -> its unit prices by model, as the price list has them."""
    cases: dict[str, str] = {}
    for number, (provider, origin, dialect, model) in enumerate(MODELS):
        about = {"origin": origin, "provider": provider, "dialect": dialect}
        exchange = opened("e", at=BEGIN, response_model=model, **about)
        read = reading(
            exchange, usage=Usage(input_tokens=1000, cache_read_tokens=400, output_tokens=100)
        )
        for line in charge(exchange, read, PriceBook(), priced_at=BEGIN):
            case = f" WHEN {number} THEN {line.unit_picousd or 'NULL'}"
            cases[line.line] = cases.get(line.line, "CASE model") + case
    return {line: f"{case} END" for line, case in cases.items()}
