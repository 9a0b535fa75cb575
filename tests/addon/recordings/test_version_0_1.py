"""Recordings and a ledger that version 0.1 made: readable, known, and corrected by a rebuild.

`version_0_1/` holds captures that its proxy wrote and the ledger that its `replay` filled from
them. Two of the three answers were read wrongly then: cache writes of DashScope were not seen, and
Gemini's thoughts, which its OpenAI-compatible endpoint counts in the total alone.
"""

import gzip
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from addon.cli import application
from addon.metering.settlement import METER_VERSION
from addon.recordings.files import read
from addon.recordings.formats.recorded import Recorded
from ledger.store import db
from tests.ledger.written import rows

SAMPLES = Path(__file__).parent / "version_0_1"
CAPTURES = SAMPLES / "20261102T12-host-1-1.jsonl.gz"
READINGS = (
    "SELECT exchange_id, revision, meter_version, input_tokens, cache_write_tokens, output_tokens "
    "FROM readings ORDER BY exchange_id, revision"
)
BY_0_1 = [
    ("dashscope-cache-write", 1, "1", 3019, None, 104),
    ("gemini-thoughts-in-total", 1, "1", 7, None, 12),
    ("plain", 1, "1", 12, None, 3),
]


@pytest.fixture
def ledger(tmp_path: Path) -> str:
    path = tmp_path / "ledger.sqlite3"
    path.write_bytes(gzip.decompress((SAMPLES / "ledger.sqlite3.gz").read_bytes()))
    return f"sqlite:///{path}"


def run(*words: str) -> Any:
    done = CliRunner().invoke(application(), [*words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def readings(ledger: str) -> list[Any]:
    engine = db.open_engine(ledger)
    try:
        return [tuple(row) for row in rows(engine, READINGS)]
    finally:
        engine.dispose()


def test_its_captures_are_read():
    everything = list(read(CAPTURES, url=None))
    items = [item for item in everything if isinstance(item, Recorded)]
    assert len(items) == len(everything)
    assert [item.id for item in items] == [
        "dashscope-cache-write",
        "gemini-thoughts-in-total",
        "plain",
    ]
    assert {item.opened_at.isoformat() for item in items} == {"2026-11-02T12:00:00.123457+00:00"}
    assert all(b"authorization" not in dict(item.request_headers) for item in items)
    assert all(sum(size for size, _ in item.cuts) == len(item.response_body) for item in items)


def test_its_ledger_knows_them(ledger: str):
    done = run("replay", str(CAPTURES), "--ledger", ledger)
    assert done.exit_code == 0
    assert "3 exchanges read, 0 new in" in done.stderr
    assert readings(ledger) == BY_0_1


def test_a_rebuild_corrects_what_it_read_wrongly_and_keeps_it(ledger: str):
    done = run("rebuild", str(CAPTURES), "--ledger", ledger)
    assert done.exit_code == 0, done.stderr
    found = readings(ledger)
    assert [reading for reading in found if reading[1] == 1] == BY_0_1
    assert ("dashscope-cache-write", 2, METER_VERSION, 3019, 2043, 104) in found
    assert ("gemini-thoughts-in-total", 2, METER_VERSION, 7, None, 395) in found
    assert "$0.000990" in done.stderr  # 7 in and 395 out, at the prices of the day
    again = run("rebuild", str(CAPTURES), "--ledger", ledger)
    assert "0 exchanges are read differently now, 3 as they are booked" in again.stderr
    assert readings(ledger) == found
    done = run("verify", str(CAPTURES), "--ledger", ledger)
    assert (done.exit_code, done.stdout) == (0, ""), done.stdout
