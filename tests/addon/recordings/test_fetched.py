"""A result that is fetched is booked once: whole, however often, in any order of its keys."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from addon.cli import application
from ledger.model.duplicates import content_digest
from ledger.store import db
from tests.addon.dialects.test_cases import CASES, load
from tests.ledger.written import rows

app = application()
FETCHED = [
    case for case in CASES if json.loads((case / "request.json").read_bytes())["method"] == "GET"
]


def line(case: Path, body: bytes, second: int) -> str:
    _, request, _, content_type, _ = load(case)
    value: dict[str, Any] = {
        "started_at": f"2026-11-02T12:00:{second:02}+00:00",
        "request": {
            "method": "GET", "url": f"https://{request['host']}{request['path']}", "headers": {}, "body": None,
        },
        "response": {
            "status": 200, "headers": {"content-type": content_type},
            "body_b64": base64.b64encode(body).decode(),
        },
    }  # fmt: skip
    return json.dumps(value) + "\n"


def booked(folder: Path, lines: str) -> list[Any]:
    path = folder / "fetched.jsonl"
    path.write_text(lines)
    url = f"sqlite:///{folder / 'ledger.sqlite3'}"
    CliRunner().invoke(app, ["replay", str(path), "--ledger", url])
    engine = db.open_engine(url)
    try:
        return rows(
            engine, "SELECT outcome, usage_source, input_tokens, output_tokens FROM requests"
        )
    finally:
        engine.dispose()


@pytest.mark.parametrize("case", FETCHED, ids=lambda case: f"{case.parent.name}-{case.name}")
def test_a_part_is_no_result_and_the_whole_is_booked_once(case: Path, tmp_path: Path):
    body = load(case)[-1]
    cut = body.rstrip()[:-1].rstrip()
    whole = booked(tmp_path, line(case, body, 1))
    assert booked(tmp_path, line(case, cut, 2) + line(case, cut[:-9], 3)) == whole
    assert booked(tmp_path, line(case, body, 4) + line(case, body, 5)) == whole


def test_the_order_of_keys_and_nulls_do_not_make_another_response():
    def digest(usage: str) -> str | None:
        return content_digest(
            response_model="m", created=1, finish_reason="completed", usage_json=usage
        )

    first = digest('{"input_tokens":5,"details":{"a":1,"b":null},"list":[{"x":1,"y":2}]}')
    assert digest('{"list":[{"y":2,"x":1}],"details":{"a":1},"input_tokens":5}') == first
    assert digest('{"list":[{"y":2,"x":1}],"details":{"a":2},"input_tokens":5}') != first
    assert digest("not json") not in (None, first)
