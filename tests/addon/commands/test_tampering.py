"""`tokentee verify` against a ledger in which one field was changed: each column of each table in
turn. What finds the change is listed here, and what cannot be found, with the reason."""

import base64
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from msgspec.structs import replace
from typer.testing import CliRunner

from addon.commands.verify import _REPRODUCIBLE, CAPTURED, compared
from addon.recordings.matching import MatchCounts, pairs
from ledger.maintenance import corrections, reprice, rollup
from ledger.maintenance.checking import verify as promises_of
from ledger.model.exchange import Billing, Exchange
from ledger.parts.sync import merging
from ledger.pricing.prices import PriceBook
from ledger.store import db
from ledger.store.engines import migration
from ledger.store.scope import Scope
from ledger.store.tables import exchanges, pricings, readings
from tests.addon.recorded_exchanges import (
    HANDED,
    NOON,
    PRICES,
    captures,
    entry,
    exchange,
    misread,
    reading,
    recording,
)
from tests.app import APP
from tests.ledger.written import put

pytestmark = pytest.mark.large

LATER = datetime(2027, 3, 1, tzinfo=UTC)
FAILED = b'{"error":{"type":"invalid_request_error","code":"bad","message":"no such model"}}'

NOT_FOUND = {
    "exchanges.node": "says only which process wrote the row",
    "exchanges.source": "says only how the row came",
    "exchanges.capture": "a name of a file, which may have been moved",
    "exchanges.key_hint": "the key is neither in the ledger nor in captures",
    "exchanges.error_message": "kept only where the operator wants it",
    "exchanges.account": "a hash with the ledger's secret, and a capture redacts what it is of",
    "exchanges.tags": "the header is removed before the capture; options are not recorded",
    "exchanges.session_id": "the header is removed before the capture",
    "exchanges.parent_session_id": "agents' headers are redacted in a capture",
    "exchanges.purpose": "agents' headers are redacted in a capture",
    "exchanges.project": "the folder that a command ran in is not recorded",
    "exchanges.git_branch": "the folder that a command ran in is not recorded",
    "exchanges.tool_calls": "only agents' own logs have it",
    "exchanges.first_byte_at": "times are measured beside the wire, some microseconds apart",
    "exchanges.first_token_at": "times are measured beside the wire, some microseconds apart",
    "exchanges.settled_at": "times are measured beside the wire, some microseconds apart",
    "exchanges.hold_picousd": "a hold follows from prices and caps of its time, and from no wire",
    "exchanges.hold_list_value_picousd": "the same",
    "exchanges.hold_tokens": "the same",
    "exchanges.resent": "the first request is not in the capture of the second",
    "exchanges.degraded": "what failed on our side is recorded nowhere else",
}
"""Columns of which no change is contradicted by ledger or captures, with the reason."""


def changed(value: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if value is None:
        return None
    if isinstance(value, str) and value.startswith("{"):
        return '{"x": 1}'
    if isinstance(value, str) and value.startswith("["):
        return '["x"]'
    if isinstance(value, datetime):
        return value.replace(microsecond=(value.microsecond + 1) % 1_000_000)
    return f"{value}x"


OTHER_WORDS = {
    "outcome": "client_left",
    "meant_model": "another",
    "source": "import",
    "usage_source": "partial",
    "state": "lost",
    "charges": '[["output",null,1,1,1,"s","2026-11-02 12:00:00.000000Z",null]]',
}


CLAUDE = {
    "id": "msg-1",
    "type": "message",
    "role": "assistant",
    "model": "m-1",
    "content": [{"type": "tool_use", "id": "t", "name": "look", "input": {}}],
    "stop_reason": "tool_use",
    "diagnostics": {"cache_miss_reason": {"type": "tools_changed"}},
    "usage": {
        "input_tokens": 5,
        "cache_read_input_tokens": 7,
        "cache_creation_input_tokens": 11,
        "cache_creation": {"ephemeral_5m_input_tokens": 8, "ephemeral_1h_input_tokens": 3},
        "output_tokens": 13,
        "output_tokens_details": {"thinking_tokens": 2},
        "service_tier": "priority",
        "iterations": [
            {"type": "message", "input_tokens": 5, "output_tokens": 13,
             "cache_read_input_tokens": 7, "cache_creation_input_tokens": 11},
            {"type": "compaction", "model": "m-2", "input_tokens": 17, "output_tokens": 19},
        ],
    },
}  # fmt: skip
"""Every kind of cached tokens, and a part that another model answered."""
ROUTED = {
    "id": "r-9",
    "object": "chat.completion",
    "model": "m-1",
    "choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}],
    "usage": {
        "prompt_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 6},
        "completion_tokens": 10,
        "completion_tokens_details": {"reasoning_tokens": 3, "audio_tokens": 2},
        "cost": 0.5,
        "is_byok": True,
        "cost_details": {"upstream_inference_cost": 0.25},
    },
}
"""Audio, and what the provider says that it costs."""
MORE_PRICES = """
[[price]]
model = "m-*"
usd_per_mtok = { cache_read = 1, cache_write_5m = 2, cache_write_1h = 3, input_audio = 4, output_audio = 5 }

[[price]]
model = "m-2"
usd_per_mtok = { uncached_input = 1, output = 10 }
"""


REFUSED = {
    "content-type": "application/json",
    "retry-after": "2",
    "anthropic-organization-id": "an-organization",
}


def document(name: str, answer: dict[str, Any], asked: dict[str, Any], path: str, **headers: str):
    """A recorded answer in one piece, with a request of its own."""
    line = json.loads(
        recording(
            name,
            json.dumps(answer).encode(),
            path=path,
            headers={"content-type": "application/json"},
        )
    )
    line["request"]["body_b64"] = base64.b64encode(json.dumps(asked).encode()).decode()
    line["request"]["headers"].update({key.replace("_", "-"): headers[key] for key in headers})
    return json.dumps(line).encode() + b"\n"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A ledger in which every column has a value somewhere, and the captures of its exchanges.

    What a capture gives comes from a replay. What only a live proxy knows is booked beside it. One
    reading was rebuilt, and some charges were priced again.
    """
    folder = tmp_path_factory.mktemp("tampering")
    prices, dearer = folder / "prices.toml", folder / "dearer.toml"
    prices.write_text(PRICES + MORE_PRICES)
    tier = '\n[[price]]\nmodel = "m-*"\nservice_tier = "priority"\nusd_per_mtok = { output = 11 }\n'
    dearer.write_text(prices.read_text().replace("cache_read = 1", "cache_read = 6") + tier)
    chat = {
        "model": "m-1",
        "messages": [],
        "stream_options": {"include_usage": True},
    }
    lines = captures(
        folder / "captures",
        recording("passed", HANDED),
        recording("asked", more={"usage_injected": True, "end": "finished"}),
        recording("failed", FAILED, status=400, headers=REFUSED),
        document(
            "claude",
            CLAUDE,
            {"model": "m-1", "max_tokens": 9, "messages": [], "metadata": {"user_id": "u-1"}},
            "/v1/messages",
            user_agent="claude-cli/2.0",
            anthropic_version="2023-06-01",
            x_claude_code_session_id="s-1",
            x_claude_code_agent_id="a-1",
        ),
        document("routed", ROUTED, chat, "/v1/chat/completions"),
        document("routed again", ROUTED, chat, "/v1/chat/completions"),
        recording("live"),
        recording("degraded"),
        recording("misread"),
    )
    ledger = f"sqlite:///{folder / 'ledger.sqlite3'}"
    engine = db.open_engine(ledger)
    migration.upgrade(engine)
    live = exchange(
        "live",
        response_id="r-2",
        first_byte_at=NOON + timedelta(milliseconds=1),
        first_token_at=NOON + timedelta(milliseconds=2),
        key_fingerprint="ab" * 16,
        key_hint="wxyz",
        tags={"team": "search"},
        session_id="s-2",
        error_message="a text of an older version",
        project="p",
        git_branch="main",
        tool_calls=1,
        node="host/1/1",
        capture="20261102T12.jsonl.gz",
        hold_picousd=5,
        hold_list_value_picousd=6,
        hold_tokens=7,
    )
    degraded = exchange("degraded", degraded="KeyError in addon.metering:1", response_id="r-3")
    wrong = exchange("misread", response_id="r-4")
    put(
        engine,
        entry(live, replace(reading(live), billing=Billing.METERED), prices),
        entry(degraded, reading(degraded), prices),
        entry(wrong, misread(wrong), prices),
    )
    for command in ("replay", "rebuild"):
        words = [command, str(lines), "--ledger", ledger, "--prices", str(prices)]
        done = CliRunner().invoke(APP, words)
        assert done.exit_code == 0, done.stderr
    book = PriceBook.load(str(dearer))
    assert reprice.apply(engine, book, Scope(), now=LATER, reason="dearer") > 0
    rollup.roll(engine, now=LATER)
    engine.dispose()
    return folder / "ledger.sqlite3", lines


def breaches(engine: sa.Engine, lines: Path) -> dict[str, list[str]]:
    """Promise or `captured` -> what was found."""
    found = {
        verdict.promise.name: [detail for _, detail in verdict.examples]
        for verdict in promises_of(engine)
        if verdict.count and not verdict.promise.is_remark
    }
    seen = MatchCounts()
    find = partial(corrections.find, engine)
    both = pairs(sorted(lines.iterdir()), find, seen, url=None, advance=lambda *_: None)
    for kind, _, detail in compared(both, seen):
        if kind == CAPTURED:
            found.setdefault(CAPTURED, []).append(detail)
    if seen.unknown or seen.unreadable:
        found.setdefault(CAPTURED, []).append("not in the ledger")
    return found


@pytest.fixture(scope="module")
def sqlite_copy(recorded: tuple[Path, Path]) -> Iterator[sa.Engine]:
    """A ledger that takes every change; one for all tests, since each change is undone. A new
    engine for each would compile every question anew."""
    path = recorded[0].with_name("copy.sqlite3")
    shutil.copy(recorded[0], path)
    engine = db.open_engine(f"sqlite:///{path}")
    with db.writing(engine) as connection:
        triggers = connection.exec_driver_sql(
            "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        ).scalars()
        for name in triggers.all():
            connection.exec_driver_sql(f'DROP TRIGGER "{name}"')

    @sa.event.listens_for(engine, "checkout")
    def ignore(connection, *_):
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute("PRAGMA foreign_keys = OFF")

    yield engine
    engine.dispose()


@pytest.fixture(scope="module")
def postgres_copy(
    recorded: tuple[Path, Path],
    postgres_server: Callable[[str], str],
    administer: Callable[[str], object],
) -> Iterator[sa.Engine]:
    """The same, merged into a PostgreSQL."""
    administer("CREATE DATABASE tampering")
    url = postgres_server("tampering")
    merging.sync(f"sqlite:///{recorded[0]}", url)
    engine = db.open_engine(url)
    rollup.roll(engine, now=LATER)
    with db.writing(engine) as connection:
        checks = connection.exec_driver_sql(
            "SELECT conrelid::regclass::text, conname FROM pg_constraint "
            "WHERE contype = 'c' AND conparentid = 0 AND coninhcount = 0 "
            "AND conrelid::regclass::text IN ('exchanges', 'readings', 'pricings')"
        )
        for table, name in checks.all():
            connection.exec_driver_sql(f'ALTER TABLE {table} DROP CONSTRAINT "{name}"')

    @sa.event.listens_for(engine, "checkout")
    def ignore(connection, *_):
        connection.execute("SET session_replication_role = replica")
        connection.commit()

    yield engine
    engine.dispose()
    administer("DROP DATABASE tampering WITH (FORCE)")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def copy(request: pytest.FixtureRequest, recorded: tuple[Path, Path]) -> tuple[sa.Engine, Path]:
    """A ledger that takes every change, on either database, and the captures."""
    return request.getfixturevalue(f"{request.param}_copy"), recorded[1]


@contextmanager
def with_changed(
    engine: sa.Engine, table: sa.Table, row: Any, name: str, other: Any
) -> Iterator[None]:
    """One field of one row has another value meanwhile."""
    before = {each.name: getattr(row, each.name) for each in table.primary_key.columns}
    after = {key: other if key == name else value for key, value in before.items()}

    def update(key: dict[str, Any], value: Any) -> None:
        where = sa.and_(*(table.c[each] == key[each] for each in key))
        with db.writing(engine) as connection:
            done = connection.execute(sa.update(table).where(where).values({name: value}))
            assert done.rowcount == 1

    update(before, other)
    try:
        yield
    finally:
        update(after, getattr(row, name))


COLUMNS = [
    pytest.param(table, column.name, id=f"{table.name}.{column.name}")
    for table in (exchanges, readings, pricings)
    for column in table.c
]


def test_an_untouched_ledger_holds(copy):
    assert breaches(*copy) == {}


@pytest.mark.parametrize(
    "database",
    ["sqlite", pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.nightly])],
)
@pytest.mark.parametrize(("table", "name"), COLUMNS)
def test_one_changed_field(request, recorded, database: str, table: sa.Table, name: str):
    """On PostgreSQL by name: that both find the same is in `tests/ledger/maintenance`."""
    engine, lines = request.getfixturevalue(f"{database}_copy"), recorded[1]
    with engine.connect() as connection:
        rows = connection.execute(sa.select(*table.c).order_by(*table.primary_key.columns)).all()
    tried = 0
    for row in rows:
        value = getattr(row, name)
        other = OTHER_WORDS.get(name) if name in OTHER_WORDS else changed(value)
        if other is None or other == value:
            continue
        with with_changed(engine, table, row, name, other):
            found = breaches(engine, lines)
        tried += 1
        if found:
            assert f"{table.name}.{name}" not in NOT_FOUND, f"it is found now: {found}"
            return
    assert tried, "no row has a value to change: add one to the ledger of this test"
    assert f"{table.name}.{name}" in NOT_FOUND, f"{tried} changes were not found"


def test_a_figure_that_vanishes(copy):
    """NULL beside a charge is a contradiction, not an unknown."""
    engine, lines = copy
    with engine.connect() as connection:
        rows = connection.execute(
            sa.select(*readings.c).where(readings.c.output_tokens.is_not(None))
        ).all()
    with ExitStack() as changes:
        for row in rows:
            changes.enter_context(with_changed(engine, readings, row, "output_tokens", None))
        found = breaches(engine, lines)
    assert {"lines", "digests", CAPTURED} <= set(found)
    assert found["lines"][0] == "input 12, charged 12; output -1, charged 3"


def test_what_captures_are_asked_for_is_there():
    names = set(Exchange.__struct_fields__)
    assert set(_REPRODUCIBLE) <= names
    assert {key.partition(".")[2] for key in NOT_FOUND} <= {column.name for column in exchanges.c}
