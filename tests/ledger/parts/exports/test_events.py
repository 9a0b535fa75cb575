"""Billing events: valid, resumable, and in sum what the ledger says."""

import json
from datetime import timedelta
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest
import sqlalchemy as sa

from ledger.model.errors import LedgerError
from ledger.parts.exports import events
from ledger.store import db
from ledger.store.scope import Scope
from ledger.store.tables import exchanges
from tests.ledger.bundled import put
from tests.ledger.written import NOON, charge_again, on, reading, settled, totals, whole

SCHEMA = json.loads((Path(__file__).parent / "cloudevents.json").read_text())
MINUTE = timedelta(minutes=1)
SUMMED = ("input_tokens", "output_tokens", "cost_picousd")


def exported(place, folder, cursor="bill", **more):
    """The events of one run; its files are there, in order."""
    with on(place) as engine:
        files = list(events.export_events(engine, folder, cursor, Scope(**more)))
    return [json.loads(line) for file in files for line in file.path.read_text().splitlines()]


def everything(folder):
    found = {}
    for path in sorted(folder.iterdir()):
        assert path.suffix == ".jsonl"
        for line in path.read_text().splitlines():
            event = json.loads(line)
            jsonschema.validate(event, SCHEMA, format_checker=jsonschema.FormatChecker())
            found[event["id"]] = event
    return found.values()


def in_sum(folder):
    data = [event["data"] for event in everything(folder)]
    return tuple(sum(each[name] or 0 for each in data) for name in SUMMED)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "events"


def test_events_add_up_to_the_ledger_whatever_changes(engine, folder):
    put(engine, *(whole(settled(f"r{n}", at=NOON + n * 500 * MINUTE)) for n in range(5)))
    first = exported(engine, folder)
    assert [event["type"] for event in first] == [events.RECORDED] * 5
    assert in_sum(folder) == totals(engine)[1:]
    assert exported(engine, folder) == []

    charge_again(engine, "r1", 2, 70)  # a later price
    (price,) = exported(engine, folder)
    told = {event["subject"]: event["id"] for event in first}
    assert (price["type"], price["data"]["corrects"]) == (events.CORRECTED, told["r1"])
    assert price["data"]["cost_picousd"] == 20 * (70 - 50)
    assert price["data"]["input_tokens"] == 0
    assert price["data"]["cost_usd"] == "0.000000000400"
    assert in_sum(folder) == totals(engine)[1:]

    late = settled("r2", at=NOON + 1000 * MINUTE)  # a later reading of a request that was told
    fuller = reading(late, revision=2, usage_json='{"in": 100}')
    put(engine, (late, fuller, ()), whole(settled("merged", at=NOON - 3000 * MINUTE)))
    merged, again = exported(engine, folder)
    assert (merged["type"], merged["subject"]) == (events.RECORDED, "merged")
    assert again["data"]["corrects"] == told["r2"]
    assert again["data"]["cost_picousd"] < 0
    assert in_sum(folder) == tuple(value or 0 for value in totals(engine)[1:])

    with db.writing(engine) as connection:  # found to be the same answer as another
        connection.execute(
            sa.update(exchanges).where(exchanges.c.id == "r3").values(duplicate_of="r0")
        )
    (void,) = exported(engine, folder)
    assert void["data"]["corrects"] == told["r3"]
    assert void["data"]["input_tokens"] == -100
    assert in_sum(folder) == totals(engine)[1:]
    assert exported(engine, folder) == []


def test_a_run_that_was_killed_ends_with_the_same_file(engine, folder, monkeypatch):
    """Whatever was recorded meanwhile."""
    put(engine, *(whole(settled(f"r{n}")) for n in range(3)))

    def full(*_):
        raise LedgerError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(events, "replacing", full)
        with pytest.raises(LedgerError):
            exported(engine, folder)
    charge_again(engine, "r1", 2, 70)
    found = exported(engine, folder)
    assert [event["type"] for event in found] == [events.RECORDED] * 3 + [events.CORRECTED]
    assert [path.name for path in sorted(folder.iterdir())] == [
        "bill-00000001.jsonl",
        "bill-00000002.jsonl",
    ]
    assert in_sum(folder) == totals(engine)[1:]


def test_cursors_are_apart_and_files_bounded(engine, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(events, "FILE_EVENTS_MAX", 2)
    put(engine, *(whole(settled(f"r{n}")) for n in range(5)))
    assert len(exported(engine, folder)) == 5
    assert len(list(folder.iterdir())) == 3
    other = exported(engine, tmp_path / "other", "erp", since=NOON - MINUTE)
    assert {event["id"] for event in other} == {event["id"] for event in everything(folder)}


@pytest.mark.parametrize("cursor", ["", "../x", "A", "a" * 33])
def test_a_cursor_is_a_name(engine, folder, cursor):
    with pytest.raises(LedgerError, match="--cursor"):
        exported(engine, folder, cursor)


def test_a_condition_is_refused(engine, folder):
    with pytest.raises(LedgerError, match="no --only"):
        exported(engine, folder, only=(("model", "m"),))
