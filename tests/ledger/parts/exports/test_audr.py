"""AUDR records: the fields of version 1.1, corrections in full."""

import json
import re
from typing import Any

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from ledger.model.exchange import Outcome
from ledger.model.usage import Usage
from ledger.parts.exports import audr, events
from ledger.store import db
from ledger.store.scope import Scope
from ledger.store.tables import exchanges
from tests.app import APP
from tests.ledger.bundled import put
from tests.ledger.written import NOON, charge_again, on, settled, whole

UUID_7 = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def exported(place, folder, environment="test", cursor="audr"):
    with on(place) as engine:
        files = list(events.export_events(engine, folder, cursor, Scope(), environment))
    return [json.loads(line) for file in files for line in file.path.read_text().splitlines()]


def test_a_request_is_a_record(engine, tmp_path):
    tags = {"environment": "staging", "account_id": "acme", "team": "search", "no label": "x"}
    usage = Usage(
        input_tokens=1_000,
        cache_read_tokens=600,
        cache_write_tokens=100,
        output_tokens=50,
        reasoning_tokens=20,
    )
    more: dict[str, Any] = {
        "session_id": "session-1",
        "tags": tags,
        "end_user": "u1",
        "project": "p",
    }
    put(engine, whole(settled("request-1", provider="aws.bedrock", **more), usage=usage))
    (record,) = exported(engine, tmp_path)
    assert UUID_7.fullmatch(record.pop("record_id"))
    assert record.pop("emitter")["component"] == "router"
    assert record.pop("cost")["currency"] == "USD"
    assert record == {
        "spec_version": "1.1.0",
        "timing": {"event_time": "2026-11-02T12:00:01.000Z"},
        "resource": {
            "provider": "aws-bedrock",
            "type": "model",
            "name": "model-1",
            "operation": "generation",
            "modality": "text",
        },
        "run": {"run_id": "session-1", "span_id": "request-1"},
        "attribution": {
            "environment": "staging",
            "account_id": "acme",
            "user_id": "u1",
            "labels": {"project": "p", "team": "search"},
        },
        "usage": {
            "llm": {
                "input_tokens": 300,
                "output_tokens": 30,
                "cache_read_tokens": 600,
                "cache_write_tokens": 100,
                "reasoning_tokens": 20,
                "requests": 1,
            }
        },
    }


def test_a_correction_states_all_again_and_a_duplicate_is_void(engine, tmp_path):
    put(engine, whole(settled("r1")), whole(settled("r2")))
    told = {each["run"]["span_id"]: each for each in exported(engine, tmp_path)}
    assert exported(engine, tmp_path) == []
    charge_again(engine, "r1", 2, 70)
    (again,) = exported(engine, tmp_path)
    assert again["corrects"] == told["r1"]["record_id"] != again["record_id"]
    assert again["usage"] == told["r1"]["usage"]
    assert again["cost"]["total_cost"] > told["r1"]["cost"]["total_cost"]
    with db.writing(engine) as connection:
        connection.execute(
            sa.update(exchanges).where(exchanges.c.id == "r2").values(duplicate_of="r1")
        )
    (void,) = exported(engine, tmp_path)
    assert void["corrects"] == told["r2"]["record_id"]
    assert void["resource"] == told["r2"]["resource"]
    assert not any(void["usage"]["llm"].values())
    assert void["cost"]["total_cost"] == 0


def test_what_a_record_has_of_what_is_not_known(engine, tmp_path):
    exchange = settled(
        "r",
        provider="?",
        operation="embeddings",
        request_model=None,
        response_model=None,
        outcome=Outcome.CLIENT_LEFT,
        end_user="ada@example.com",
    )
    put(engine, whole(exchange, (), usage=Usage()))
    (record,) = exported(engine, tmp_path, "production")
    assert record["attribution"] == {
        "environment": "production",
        "account_id": audr.UNATTRIBUTED,
    }
    assert record["usage"] == {"llm": {"requests": 1}}
    assert "cost" not in record
    assert record["run"]["error_code"] == "CLIENT_LEFT"
    assert len(record["run"]["run_id"]) == 32
    resource = record["resource"]
    assert (resource["provider"], resource["name"]) == ("unknown", "unknown")
    assert (resource["operation"], resource["modality"]) == ("embedding", "text")


def test_its_cursors_are_not_those_of_events(engine, tmp_path):
    put(engine, whole(settled("r", at=NOON)))
    with on(engine) as place:
        (of_events,) = events.export_events(place, tmp_path, "bill", Scope())
        (of_audr,) = events.export_events(place, tmp_path, "bill", Scope(), "test")
    assert "specversion" in json.loads(of_events.path.read_text())
    assert "spec_version" in json.loads(of_audr.path.read_text())


@pytest.mark.parametrize("words", [["audr"], ["events", "--environment", "test"]])
def test_audr_needs_an_environment(tmp_path, words):
    result = CliRunner().invoke(APP, ["export", str(tmp_path), "--what", *words])
    assert "--environment" in str(result.exception)
