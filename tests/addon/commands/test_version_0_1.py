"""Recordings and a ledger of version 0.1: readable, known, and corrected by `tokentee rebuild`.

`version_0_1/` holds what its proxy recorded (README there). For each answer that it read wrongly
the corrected figures are worked out here by hand, from the provider's usage object and the price
list beside the recordings: 1 USD for a million input tokens, 0.10 for those read from a cache, 1.25
for those written into one, 10 for output.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from addon.metering.settlement import METER_VERSION
from addon.recordings.files import read
from addon.recordings.formats.recorded import Recorded
from ledger.maintenance import rollup
from ledger.parts.sync import merging
from ledger.store import db
from tests.app import APP

pytestmark = pytest.mark.large

SAMPLES = Path(__file__).parent / "version_0_1"
FILES = tuple(str(SAMPLES / name) for name in ("captures.jsonl", "lines.jsonl"))
PRICES = str(SAMPLES / "prices.toml")
LINE = "2a449f4f0ef97a93e837d1932a1cc142"
"""The id that version 0.1 derived for the line without one."""
LATER = datetime(2027, 3, 1, tzinfo=UTC)
"""By then the sums of the recordings' days are kept."""
MICRO_USD = 1_000_000
"""In pico-USD."""
FIGURES = (
    "usage_source", "input_tokens", "cache_read_tokens", "cache_write_tokens",
    "cache_write_5m_tokens", "output_tokens", "reasoning_tokens", "estimated_input_tokens",
    "estimated_output_tokens", "extra_input_tokens", "extra_output_tokens", "tool_units",
    "reported_cost_picousd",
)  # fmt: skip
"""Of the view `requests`; what a case does not name is NULL."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """What version 0.1 booked of an exchange, and what its recording says."""

    before: Mapping[str, Any]
    now: Mapping[str, Any] | None = None
    """None: it was read right, or the recording does not tell more; no further reading."""
    cost_before: float | None = None
    """In micro-USD. None: nothing has a price."""
    cost_now: float | None = None


def reported(*, input: int, output: int, **more: Any) -> dict[str, Any]:  # noqa: A002  # one word
    return {
        "usage_source": "reported",
        "input_tokens": input,
        "output_tokens": output,
        **more,
    }


def estimated(*, output: int, **more: Any) -> dict[str, Any]:
    return {"usage_source": "estimated", "estimated_output_tokens": output, **more}


def as_before(figures: Mapping[str, Any], cost: float) -> Case:
    """The same figures; the usage object is now as it was on the wire."""
    return Case(before=figures, cost_before=cost, now=figures, cost_now=cost)


NONE: dict[str, Any] = {"usage_source": "none"}
WRITTEN = {"cache_read_tokens": 0, "cache_write_tokens": 2_048, "cache_write_5m_tokens": 2_048}
# 2 048 of the 2 071 are written into the cache: 2 048 x 1.25 + 23 + 5 x 10.
DASHSCOPE = Case(
    before=reported(input=2_071, output=5, cache_read_tokens=0),
    cost_before=2_121,
    now=reported(input=2_071, output=5, **WRITTEN),
    cost_now=2_633,
)
CASES = {
    "dashscope-chat": DASHSCOPE,
    "dashscope-responses": DASHSCOPE,
    # The answer's `cost: {"usd": 0.000123}`; what is charged are the operator's own prices.
    "charm-hyper": Case(
        before=reported(input=10, output=2),
        cost_before=30,
        now=reported(input=10, output=2, reported_cost_picousd=123 * MICRO_USD),
        cost_now=30,
    ),
    # 402 in all, 7 of them input: 395 are output, most of them thoughts.
    "gemini-thoughts": Case(
        before=reported(input=7, output=12),
        cost_before=127,
        now=reported(input=7, output=395),
        cost_now=3_957,
    ),
    # 5 202 in all, 1 073 of them output: 4 129 are input, most of them audio.
    "mistral-audio": Case(
        before=reported(input=4, output=1_073, tool_units={"audio_milliseconds": 330_000}),
        cost_before=10_734,
        now=reported(input=4_129, output=1_073, tool_units={"audio_milliseconds": 330_000}),
        cost_now=14_859,
    ),
    # Two models answered: 3 + 4 and 30 + 5.
    "volcengine-bot": Case(
        before=NONE,
        now=reported(input=3, output=4, extra_input_tokens=30, extra_output_tokens=5),
        cost_now=33 + 90,
    ),
    # 37 tokens come from the cache, beside the 1 that prompt_tokens says.
    "gigachat": Case(
        before=reported(input=1, output=4),
        cost_before=41,
        now=reported(input=38, output=4, cache_read_tokens=37),
        cost_now=3.7 + 41,
    ),
    "watsonx": Case(before=NONE, now=reported(input=12, output=4), cost_now=52),
    "titan-cut": Case(
        before=NONE, now={"usage_source": "partial", "input_tokens": 9}, cost_now=9
    ),
    # prompt_tokens has 40 digits, total_tokens is 1: neither is the input.
    "no-count": Case(
        before={"usage_source": "reported", "input_tokens": 1},
        cost_before=1,
        now={"usage_source": "reported"},
    ),
    "replicate": Case(before=NONE, now=reported(input=29, output=93), cost_now=959),
    # `"type" :"response.completed"`. The estimate was a quarter of the request's 49 bytes, and a
    # token for each of 9 frames.
    "blank-before-colon": Case(
        before=estimated(output=9, estimated_input_tokens=12),
        cost_before=102,
        now=reported(input=11, output=5, cache_read_tokens=3, reasoning_tokens=2),
        cost_now=0.3 + 8 + 50,
    ),
    # `"\u0075sage"`
    "escaped-keys": Case(
        before={**NONE, "estimated_output_tokens": 4},
        now=reported(input=8, output=3),
        cost_now=38,
    ),
    # `stream:chat:` cut inside a frame is no end: a quarter of the request's 78 bytes, and of the
    # 19 bytes of text.
    "cut-inside-a-frame": Case(
        before={**NONE, "estimated_output_tokens": 4},
        now=estimated(output=4, estimated_input_tokens=19),
        cost_now=59,
    ),
    # An endpoint that version 0.1 did not know, on a host that it was told of.
    "databricks": Case(before=NONE, now=reported(input=10, output=2), cost_now=30),
    # /v1/complete reports no usage; its three frames are estimated.
    "anthropic-complete": Case(before=NONE, now={**NONE, "estimated_output_tokens": 3}),
    # 11 characters at 15 USD a million, the published price of tts-1.
    "speech": Case(
        before=NONE,
        now={"usage_source": "estimated", "tool_units": {"input_characters": 11}},
        cost_now=165,
    ),
    LINE: Case(
        before=reported(input=35, output=12),
        cost_before=155,
        now=reported(input=35, output=74),
        cost_now=775,
    ),
    "incomplete": as_before(
        reported(
            input=21, output=6, cache_read_tokens=0, reasoning_tokens=0,
            reported_cost_picousd=28_500_000,
        ),
        cost=81,
    ),
    "incomplete-none": as_before(reported(input=3, output=4), cost=43),
    # A key that is written with an escape is no token, so the text of upstream is not kept.
    "duplicate-keys": Case(before=reported(input=9, output=2), cost_before=29),
    # Read right. The counts of the first stood in headers alone, which version 0.1 redacted.
    "bedrock-mistral": Case(before=reported(input=5, output=2), cost_before=25),
    "venice": Case(
        before=reported(input=20, output=5, reported_cost_picousd=580_800_000), cost_before=70
    ),
    "injected": Case(
        before=reported(input=12, output=3, cache_read_tokens=4), cost_before=0.4 + 8 + 30
    ),
    "anthropic-cut": Case(
        before={
            "usage_source": "partial",
            "input_tokens": 28,
            "cache_read_tokens": 7,
            "cache_write_tokens": 0,
            "output_tokens": 1,
            "estimated_output_tokens": 1,
        },
        cost_before=0.7 + 21 + 10,
    ),
    "closed": Case(before={**NONE, "estimated_output_tokens": 4}),
    "no-usage": Case(before={**NONE, "estimated_output_tokens": 4}),
    # It was reset before any finish reason. Version 0.1 recorded this neither in the ledger nor in
    # the capture: nothing tells it from a stream that ended by closing.
    "reset": Case(before={**NONE, "estimated_output_tokens": 4}),
    # No LLM call. It was booked as one, and what is booked stays.
    "form": Case(before=NONE),
}  # fmt: skip
DIFFER = sorted(name for name, case in CASES.items() if case.now is not None)
AGAIN = f"0 exchanges are read differently now, {len(CASES)} as they are booked"

type Rows = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Rebuilt:
    """A ledger of version 0.1, migrated, before and after the rebuild."""

    path: Path
    engine: sa.Engine
    booked: Mapping[str, list[Rows]]
    """Its tables before the migration."""
    before: Rows
    after: Rows
    stderr: str


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rebuilt]:
    path = tmp_path_factory.mktemp("version_0_1") / "ledger.sqlite3"
    loaded = sqlite3.connect(path)
    loaded.executescript((SAMPLES / "ledger.sql").read_text())
    loaded.row_factory = sqlite3.Row
    booked = {
        table: [dict(row) for row in loaded.execute(f"SELECT * FROM {table} ORDER BY id")]
        for table in ("exchanges", "readings", "charges")
    }
    loaded.close()
    path.chmod(0o600)
    engine = db.ensure(f"sqlite:///{path}")  # migrates it
    rollup.roll(engine, now=LATER)
    before = snapshot(engine)
    call = ("rebuild", *FILES, "--ledger", str(engine.url), "--prices", PRICES)
    assert "nothing was written" in run(*call).stderr, "one is read with fewer tokens"
    done = run(*call, "--accept")
    assert done.exit_code == 0, done.stderr
    yield Rebuilt(
        path=path,
        engine=engine,
        booked=booked,
        before=before,
        after=snapshot(engine),
        stderr=done.stderr,
    )
    engine.dispose()


def run(*words: str) -> Any:
    done = CliRunner().invoke(APP, [*words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def snapshot(engine: sa.Engine) -> Rows:
    """The facts of a ledger, and what its views show of them."""
    with engine.connect() as connection:

        def of(statement: str) -> list[Any]:
            return list(connection.exec_driver_sql(statement).mappings())

        return {
            "exchanges": {row["id"]: dict(row) for row in of("SELECT * FROM exchanges")},
            "readings": {
                (row["exchange_id"], row["revision"]): dict(row)
                for row in of("SELECT * FROM readings")
            },
            "charges": {row["id"]: dict(row) for row in of("SELECT * FROM charges")},
            "requests": {row["id"]: dict(row) for row in of("SELECT * FROM requests")},
            "sums": dict(of(SUMS)[0]),
        }


SUMS = (
    "SELECT SUM(requests) AS requests, SUM(input_tokens) AS input, SUM(output_tokens) AS output, "
    "SUM(estimated_input_tokens) AS estimated_input, "
    "SUM(extra_input_tokens) AS extra_input, SUM(extra_output_tokens) AS extra_output, "
    "SUM(cost_picousd) AS cost, SUM(estimated_cost_picousd) AS estimated_cost FROM usage_daily"
)


def picousd(cost: float | None) -> int | None:
    return None if cost is None else round(cost * MICRO_USD)


def shown(request: Mapping[str, Any]) -> dict[str, Any]:
    said = {name: request[name] for name in FIGURES}
    if isinstance(units := said["tool_units"], str):
        said["tool_units"] = json.loads(units)  # SQLite has JSON as text
    return {name: value for name, value in said.items() if value not in (None, {})}


def test_its_captures_are_read() -> None:
    items = [item for name in FILES for item in read(Path(name), url=None)]
    assert all(isinstance(item, Recorded) for item in items)
    recorded = [item for item in items if isinstance(item, Recorded)]
    assert {item.id if item.has_own_id else LINE for item in recorded} == set(CASES)
    assert all(
        sum(size for size, _ in item.cuts) == len(item.response_body)
        for item in recorded
        if item.has_own_id
    )


def cost_of(row: Mapping[str, Any]) -> int | None:
    """Of reported usage or of an estimate, which has a column of its own."""
    is_estimated = row["usage_source"] == "estimated"
    assert row["estimated_cost_picousd" if not is_estimated else "cost_picousd"] is None
    found: int | None = row["estimated_cost_picousd" if is_estimated else "cost_picousd"]
    return found


@pytest.mark.parametrize("name", CASES)
def test_the_corrected_figures_are_booked_as_a_new_reading(rebuilt: Rebuilt, name: str) -> None:
    case = CASES[name]
    was, now = rebuilt.before["requests"][name], rebuilt.after["requests"][name]
    assert shown(was) == case.before
    assert cost_of(was) == picousd(case.cost_before)
    assert (was["reading_revision"], was["meter_version"]) == (1, "1")
    if case.now is None:
        assert now == was
        return
    assert shown(now) == case.now
    assert cost_of(now) == picousd(case.cost_now)
    assert (now["reading_revision"], now["meter_version"]) == (2, METER_VERSION)
    reason = rebuilt.after["readings"][name, 2]["reason"]
    assert reason.startswith(f"rebuilt by meter {METER_VERSION}: ")


def test_a_reason_names_what_changed(rebuilt: Rebuilt) -> None:
    readings = rebuilt.after["readings"]
    begin = f"rebuilt by meter {METER_VERSION}: "
    assert readings["gigachat", 2]["reason"] == (
        f"{begin}usage_json, input_tokens 1 -> 38, cache_read_tokens NULL -> 37"
    )
    assert ("duplicate-keys", 2) not in readings


@pytest.mark.parametrize("table", ["exchanges", "readings", "charges"])
def test_what_version_0_1_wrote_stays(rebuilt: Rebuilt, table: str) -> None:
    booked = rebuilt.booked[table]
    ids = {row["id"] for row in booked}
    columns = ", ".join(booked[0])
    with rebuilt.engine.connect() as connection:
        found = connection.exec_driver_sql(f"SELECT {columns} FROM {table} ORDER BY id").mappings()
        assert [dict(row) for row in found if row["id"] in ids] == booked


def test_a_rebuild_only_adds(rebuilt: Rebuilt) -> None:
    before, after = rebuilt.before, rebuilt.after
    assert after["exchanges"] == before["exchanges"]
    assert {key: after["readings"][key] for key in before["readings"]} == before["readings"]
    assert {key: after["charges"][key] for key in before["charges"]} == before["charges"]
    assert sorted(key for key in after["readings"] if key not in before["readings"]) == [
        (name, 2) for name in DIFFER
    ]
    new = [line for key, line in after["charges"].items() if key not in before["charges"]]
    assert {line["exchange_id"] for line in new} == {
        name for name in DIFFER if CASES[name].cost_now is not None
    }


def test_how_an_exchange_ended_stays_as_it_was_settled(rebuilt: Rebuilt) -> None:
    """An exchange is settled once. What the meter reads otherwise of its other facts is no figure,
    and stays: `verify` counts it."""
    settled = {
        name: (row["outcome"], row["finish_reason"], row["dialect"])
        for name, row in rebuilt.after["requests"].items()
    }
    assert settled["cut-inside-a-frame"] == ("complete", None, "openai.chat")
    assert settled["blank-before-colon"] == ("upstream_cut", None, "openai.responses")
    assert settled["incomplete-none"] == ("complete", "incomplete:None", "openai.responses")
    assert settled["bedrock-mistral"] == ("complete", None, "bedrock.invoke")
    assert settled["anthropic-complete"] == ("complete", None, "unknown")


def test_totals_change_by_what_was_corrected(rebuilt: Rebuilt) -> None:
    before, after = rebuilt.before["sums"], rebuilt.after["sums"]
    # Input: 4 125 of Mistral's audio, 37 of GigaChat's cache, 12 + 9 + 29 + 8 + 10 + 3 that were
    # not read, 1 less that was no count, 11 that were only estimated.
    # Output: 383 and 62 of Gemini's thoughts, 4 + 93 + 3 + 2 + 4 that were not read, 5 that were
    # only estimated.
    assert after["requests"] == before["requests"] == len(CASES)
    assert after["input"] - before["input"] == 4_125 + 37 + 71 - 1 + 11
    assert after["output"] - before["output"] == 383 + 62 + 106 + 5
    assert (before["estimated_input"], after["estimated_input"]) == (12, 19)
    assert (before["extra_input"], after["extra_input"]) == (None, 30)
    assert (before["extra_output"], after["extra_output"]) == (None, 5)
    # The charges of estimates are summed up on their own: 102 before, 59 + 165 now.
    assert (before["estimated_cost"], after["estimated_cost"]) == (102 * MICRO_USD, 224 * MICRO_USD)
    changes = [
        (picousd(case.cost_now) or 0) - (picousd(case.cost_before) or 0)
        for case in CASES.values()
        if case.now is not None
    ]
    assert sum(changes) == 10_993 * MICRO_USD
    assert after["cost"] - before["cost"] == (10_993 - (224 - 102)) * MICRO_USD


def test_a_second_rebuild_adds_nothing(rebuilt: Rebuilt) -> None:
    assert f"{len(DIFFER)} readings were added" in rebuilt.stderr
    done = run("rebuild", *FILES, "--ledger", str(rebuilt.engine.url), "--prices", PRICES)
    assert done.exit_code == 0
    assert AGAIN in done.stderr
    assert snapshot(rebuilt.engine) == rebuilt.after


def test_a_replay_of_them_finds_them_all_known(rebuilt: Rebuilt) -> None:
    done = run("replay", *FILES, "--ledger", str(rebuilt.engine.url), "--prices", PRICES)
    assert done.exit_code == 0, done.stderr
    assert snapshot(rebuilt.engine) == rebuilt.after


def test_the_ledger_holds(rebuilt: Rebuilt) -> None:
    rollup.roll(rebuilt.engine, now=LATER)
    assert snapshot(rebuilt.engine) == rebuilt.after
    done = run("verify", *FILES, "--ledger", str(rebuilt.engine.url))
    assert (done.exit_code, done.stdout) == (0, ""), done.stdout
    assert "everything holds" in done.stderr
    # After a rebuild there are no figures left to add; facts that stay are no reason for another.
    assert "`tokentee rebuild`" not in done.stderr
    assert "would be settled with other facts by this version" in done.stderr


def test_the_corrected_figures_reach_postgresql(rebuilt: Rebuilt, new_database: Any) -> None:
    target = new_database()
    for _ in range(2):
        merging.sync(f"sqlite:///{rebuilt.path}", target)
    engine = db.open_engine(target)
    try:
        there = snapshot(engine)
    finally:
        engine.dispose()
    assert there["sums"] == rebuilt.after["sums"]
    assert there["readings"].keys() == rebuilt.after["readings"].keys()
    for name, request in rebuilt.after["requests"].items():
        assert shown(there["requests"][name]) == shown(request)
        assert there["requests"][name]["cost_picousd"] == request["cost_picousd"]
