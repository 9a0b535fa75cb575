"""Public reports of people who meter LLM traffic, each as a test that carries its number.

`tests/data/public_reports/*.json` has a request and its answer, made anew after the report; `right`
has what the provider bills or states. `docs/compared.md` is the table of the same files.
"""

import json
import math
import re
from base64 import b64encode
from decimal import Decimal
from pathlib import Path

import pytest

from tests.addon.recordings.test_file_kinds import facts, ledger, replay

__all__ = ["ledger"]

FOLDER = Path(__file__).parents[2] / "data" / "public_reports"
REPORTS = {path.stem: json.loads(path.read_bytes()) for path in sorted(FOLDER.glob("*.json"))}
PAGE = Path(__file__).parents[3] / "docs" / "compared.md"
README = PAGE.parents[1] / "README.md"
COLUMNS = (
    "input_tokens output_tokens cache_read_tokens cache_write_tokens reported_cost_picousd "
    "provider billing cost_state cost_picousd tool_units"
)


def named(name: str) -> str:
    return " ".join((name, *REPORTS[name]["reports"]))


@pytest.mark.parametrize("name", REPORTS, ids=named)
def test_the_bill_of_a_public_report(name, ledger, tmp_path):
    report = REPORTS[name]
    request, response = report["request"], report["response"]
    body = json.dumps(response["document"]) if "document" in response else response["text"]
    asked = {"body": request["body"]} if "body" in request else {}
    if "body_text" in request:
        asked = {"body_b64": b64encode(request["body_text"].encode()).decode()}
    line = {
        "name": name,
        "started_at": report["at"],
        "request": {
            "method": "POST",
            "url": request["url"],
            "headers": request["headers"],
            **asked,
        },
        "response": {
            "status": 200,
            "headers": {"content-type": response["content_type"]},
            "body_b64": b64encode(body.encode()).decode(),
            "encoded": True,
        },
    }
    path = tmp_path / "report.jsonl"
    path.write_text(json.dumps(line) + "\n", encoding="utf-8")
    done = replay(ledger, path)
    (values,) = facts(ledger, COLUMNS.replace(" ", ", "))
    found = dict(zip(COLUMNS.split(), values, strict=True))
    right = dict(report["right"])
    if (usd := right.pop("cost_usd", None)) is not None:
        right["cost_picousd"] = int(Decimal(str(usd)) * 10**12)
    if (sound := right.pop("audio_milliseconds", None)) is not None:
        assert json.loads(found["tool_units"])["audio_milliseconds"] == sound
    assert {each: found[each] for each in right} == right, done.stderr


def test_the_page_has_a_row_for_each_report():
    def link(report: str) -> str:
        repository, _, number = report.partition("#")
        return f"[{report}](https://github.com/{repository}/issues/{number})"

    text = PAGE.read_text(encoding="utf-8")
    for report in REPORTS.values():
        links = ", ".join(map(link, report["reports"])) or "the provider's price page"
        assert f"| {links} | {report['theirs']} | {report['ours']} | {report['bill']} |" in text


def factor_of(report) -> float:
    """How far what is booked there is from the bill, where both are amounts."""
    amounts = [re.match(r"\$([\d.]+\d|0)", report[name]) for name in ("theirs", "bill")]
    low, high = sorted(float(found[1]) if found else 1.0 for found in amounts)
    return 1.0 if None in amounts else high / low if low else math.inf


def test_the_readme_has_the_five_worst():
    worst = sorted(REPORTS.values(), key=factor_of, reverse=True)[:5]
    assert all(factor_of(report) > 2 for report in worst)
    rows = [f"| {each['theirs']} | {each['ours']} | {each['bill']} |" for each in worst]
    text = README.read_text(encoding="utf-8")
    assert [line.partition(") ")[2] for line in text.splitlines() if "/issues/" in line] == rows
