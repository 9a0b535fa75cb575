"""A ledger as a team has it after some months: weekdays, working hours, teams, keys, sessions.

    uv run python -m tests.ledger.parts.pages.filled FILE [--exchanges 50000] [--days 31]

What is wrong in it is known, so that a page can be checked for it: a model without a price, a
model that reports no usage, lost and degraded exchanges, duplicates, and one day on which one key
costs six times as much as usual.
"""

import argparse
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import sqlalchemy as sa
from msgspec.structs import asdict
from sqlalchemy.engine import Engine

from ledger.maintenance import rollup
from ledger.model.charge import Charge, pricing_of
from ledger.model.exchange import UsageSource
from ledger.store import db, retention
from ledger.store.tables import exchanges, readings
from ledger.store.writing import batch_insert

BATCH_ROWS = 5_000
END = datetime(2026, 11, 22, tzinfo=UTC)
"""A Sunday: the days before it are full weeks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    provider: str
    name: str
    share: float
    input_unit: int | None
    """Pico-USD per token; None: no price is known."""
    output_unit: int | None
    cached: float
    """Part of the input that comes from the provider's cache."""
    reports_usage: bool = True


MODELS = (
    Model(provider="anthropic", name="claude-sonnet-4-5", share=0.34, input_unit=3_000_000,
          output_unit=15_000_000, cached=0.72),
    Model(provider="openai", name="gpt-5", share=0.24, input_unit=1_250_000,
          output_unit=10_000_000, cached=0.41),
    Model(provider="openai", name="gpt-5-mini", share=0.17, input_unit=250_000,
          output_unit=2_000_000, cached=0.35),
    Model(provider="anthropic", name="claude-haiku-4-5", share=0.11, input_unit=1_000_000,
          output_unit=5_000_000, cached=0.55),
    Model(provider="google", name="gemini-2.5-pro", share=0.09, input_unit=1_250_000,
          output_unit=10_000_000, cached=0.2),
    Model(provider="mistral", name="mistral-large-2411", share=0.034, input_unit=2_000_000,
          output_unit=6_000_000, cached=0.0),
    Model(provider="api.acme-llm.example", name="acme/frontier-preview", share=0.012,
          input_unit=None, output_unit=None, cached=0.0),
    Model(provider="api.acme-llm.example", name="acme/quiet", share=0.004, input_unit=None,
          output_unit=None, cached=0.0, reports_usage=False),
)  # fmt: skip
KEYS = (
    ("search", "k3f1", 0.27), ("search", "9xQa", 0.14), ("support-bot", "T4tw", 0.2),
    ("data-platform", "m0Bz", 0.15), ("data-platform", "77ce", 0.08), ("mobile", "pL2s", 0.1),
    ("", "zz09", 0.06),
)  # fmt: skip
"""Team, last characters, share of the traffic."""
UNUSUAL_KEY = 3
HOURS = [0.2] * 7 + [0.6, 1.2, 1.8, 2, 1.9, 1.4, 1.6, 2, 2, 1.7, 1.2, 0.8] + [0.5] * 5


def fill(
    engine: Engine,
    *,
    rows: int = 50_000,
    days: int = 31,
    history_days: int = 56,
    end: datetime = END,
    seed: int = 7,
    sums: bool = True,
) -> None:
    """`rows` exchanges on the `days` before `end`, and a third as dense on those before."""
    chance = random.Random(seed)
    begin = end - timedelta(days=days + history_days)
    if engine.dialect.name == "postgresql":
        every = {
            (begin + timedelta(days=day)).date().replace(day=1)
            for day in range(days + history_days + 1)
        }
        retention.make_partitions(engine, every, end.date())
    every_day = [begin + timedelta(days=day) for day in range(days + history_days)]
    weights = [
        (0.28 if day.weekday() >= 5 else 1.0) * (1 + 0.05 * math.sin(day.toordinal()))
        for day in every_day
    ]
    scale = rows / sum(weights[history_days:])
    number = 0
    batch: list[Row] = []
    for day, (start, weight) in enumerate(zip(every_day, weights, strict=True)):
        is_history = day < history_days
        count = round(weight * scale * (0.33 if is_history else 1))
        strange = day == len(weights) - 5
        for place in range(number, number + count):
            hour = chance.choices(range(24), HOURS)[0]
            at = start + timedelta(hours=hour, seconds=chance.random() * 3600)
            at = at.replace(microsecond=place % 1_000_000)
            if at < end:
                batch.append(_row(chance, place, at, strange=strange, dense=not is_history))
                if len(batch) == BATCH_ROWS:
                    _write(engine, batch)
                    batch.clear()
        number += count
    _write(engine, batch)
    if engine.dialect.name == "sqlite":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("ANALYZE")
    if sums:
        rollup.roll(engine, now=end)


@dataclass(frozen=True, slots=True)
class Row:
    exchange: dict[str, Any]
    reading: dict[str, Any]


def _row(chance: random.Random, number: int, at: datetime, *, strange: bool, dense: bool) -> Row:
    model = chance.choices(MODELS, [each.share for each in MODELS])[0]
    place = chance.choices(range(len(KEYS)), [key[2] for key in KEYS])[0]
    if strange and chance.random() < 0.3:
        place, model = UNUSUAL_KEY, MODELS[0]
    team, hint, _ = KEYS[place]
    factor = (3 if strange and place == UNUSUAL_KEY else 1) * (1 if dense else 3)
    tokens_in = int(chance.lognormvariate(9.4, 1.1) * factor) + 20
    tokens_out = int(chance.lognormvariate(5.7, 0.9) * (1 if dense else 3)) + 1
    first_ms = int(chance.lognormvariate(6.3, 0.5))
    took_ms = first_ms + tokens_out * chance.randint(8, 20) // (1 if dense else 3)
    fate = chance.random()
    status: int | None = 200
    outcome, state, source = "complete", "settled", "reported"
    if fate < 0.013:
        outcome, status, source = "http_error", chance.choice([429, 429, 500, 529]), "none"
    elif fate < 0.016:
        outcome, source = "client_left", "estimated"
    elif fate < 0.0163:
        outcome, state, source, status = "lost", "lost", "none", None
    if not model.reports_usage:
        source = "none"
    has_usage = source != "none"
    cached = int(tokens_in * model.cached * min(1, chance.random() * 1.5)) if has_usage else 0
    key = {"exchange_id": f"{number:08x}-7b1e-4c0a-9d52-{number:012x}", "opened_at": at}
    exchange: dict[str, Any] = {
        "id": key["exchange_id"],
        "opened_at": at,
        "state": state,
        "outcome": outcome,
        "settled_at": at + timedelta(milliseconds=took_ms),
        "first_byte_at": at + timedelta(milliseconds=first_ms) if status else None,
        "first_token_at": at + timedelta(milliseconds=first_ms) if has_usage else None,
        "source": "live",
        "origin": f"https://api.{model.provider}.com:443",
        "provider": model.provider,
        "dialect": "anthropic.messages" if model.provider == "anthropic" else "openai.chat",
        "operation": "chat",
        "path": "/v1/messages" if model.provider == "anthropic" else "/v1/chat/completions",
        "request_model": model.name,
        "response_model": model.name if has_usage else None,
        "response_id": f"chatcmpl-{number}",
        "id_unstable": False,
        "id_collision": False,
        "streamed": True,
        "http_status": status,
        "finish_reason": "stop" if has_usage else None,
        "error_type": "rate_limit_error" if status == 429 else None,
        "request_bytes": tokens_in * 4,
        "response_bytes": tokens_out * 180,
        "client_bytes": tokens_out * 180,
        "events": tokens_out,
        "usage_injected": model.provider == "openai",
        "usage_stripped": model.provider == "openai",
        "resent": False,
        "degraded": "KeyError in addon/metering/meter.py:88" if fate > 0.99985 else None,
        "key_fingerprint": f"{place:x}" * 32,
        "key_hint": hint,
        "user_agent": "OpenAI/Python 2.1.0",
        "session_id": f"{team or 'none'}-{at:%m%d}-{number % 97:02d}" if place % 3 else None,
        "tags": orjson.dumps({"team": team, "env": "prod"} if team else {}).decode(),
        "node": "host/1/1",
        "duplicate_of": None,
    }
    if 0.9990 < fate < 0.9994 and number > 10:
        exchange["duplicate_of"] = f"{number - 1:08x}-7b1e-4c0a-9d52-{number - 1:012x}"
    reading = {
        "id": f"r{number:031x}",
        **key,
        "revision": 1 if state == "settled" else 0,
        "meter_version": "0.1.0",
        "usage_source": source,
        "input_tokens": tokens_in if has_usage else None,
        "cache_read_tokens": cached if has_usage and model.cached else None,
        "output_tokens": tokens_out if has_usage else None,
        "reasoning_tokens": tokens_out // 3 if has_usage and model.provider == "openai" else None,
        "tool_units": "{}",
        "further": "[]",
        "remarks": "[]",
        "usage_json": f'{{"input_tokens": {tokens_in}, "output_tokens": {tokens_out}}}'
        if source == "reported"
        else None,
        "read_at": exchange["settled_at"],
    }
    lines: list[tuple[str, int, int | None]] = []
    if has_usage:
        unit = model.input_unit
        lines.append(("uncached_input", tokens_in - cached, unit))
        if model.cached:
            lines.append(("cache_read", cached, None if unit is None else unit // 10))
        lines.append(("output", tokens_out, model.output_unit))
    charged = [
        Charge(
            line=line,
            quantity=quantity,
            unit_picousd=unit,
            amount_picousd=None if unit is None else quantity * unit,
            price_source="genai-prices 0.2.3",
            priced_at=exchange["settled_at"],
            reason=f"no price for {model.name!r}" if unit is None else None,
        )
        for line, quantity, unit in lines
    ]
    reading |= asdict(pricing_of(charged, UsageSource(source)))
    reading["charges"] = orjson.dumps(
        [batch_insert.charge_values(line) for line in charged]
    ).decode()
    return Row(exchange, reading)


def _write(engine: Engine, batch: Sequence[Row]) -> None:
    with db.writing(engine) as connection:
        for table, rows in (
            (exchanges, [row.exchange for row in batch]),
            (readings, [row.reading for row in batch]),
        ):
            if rows:
                connection.execute(sa.insert(table), rows)


def main() -> None:
    """Make a ledger by hand, to look at."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--exchanges", type=int, default=50_000)
    parser.add_argument("--days", type=int, default=31)
    parser.add_argument("--end", type=datetime.fromisoformat, default=END)
    options = parser.parse_args()
    with db.disposing(db.ensure(f"sqlite:///{options.file}")) as engine:
        fill(engine, rows=options.exchanges, days=options.days, end=options.end)


if __name__ == "__main__":
    main()
