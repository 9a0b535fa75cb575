"""The same traffic from every kind of file gives the same rows, and a second time gives none."""

import itertools
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ledger.store import db
from tests.addon.recordings import recorded_files
from tests.addon.recordings.recorded_files import (
    EXCHANGES,
    FILE_KINDS,
    REFUSED,
    URL,
    Exchange,
    as_bodiless_flows,
    as_flows,
    as_lines,
)
from tests.app import APP
from tests.ledger.written import rows

pytestmark = pytest.mark.large

FACTS = (
    "origin, dialect, operation, path, request_model, response_model, response_id, outcome, "
    "http_status, finish_reason, error_type, error_code, error_message, streamed, events, "
    "usage_source, input_tokens, output_tokens, usage_json, user_agent"
)
SESSIONS = 2
"""Responses of the one session."""


@pytest.fixture
def ledger(migrated_file: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(migrated_file, tmp_path / "ledger.sqlite3"))


def replay(ledger: Path, *words: object) -> Any:
    done = CliRunner().invoke(APP, ["replay", *map(str, words), "--ledger", f"sqlite:///{ledger}"])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def facts(ledger: Path, columns: str = FACTS, where: str = "") -> list[Any]:
    engine = db.open_engine(f"sqlite:///{ledger}")
    try:
        return rows(engine, f"SELECT {columns} FROM requests {where} ORDER BY {columns}")
    finally:
        engine.dispose()


@pytest.fixture(scope="module")
def expected(migrated_file: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The rows of the flow file, which `tests/proxy/test_replay.py` holds against live traffic."""
    folder = tmp_path_factory.mktemp("expected")
    shutil.copy(migrated_file, folder / "ledger.sqlite3")
    assert replay(folder / "ledger.sqlite3", as_flows(folder)).exit_code == 0
    found = facts(folder / "ledger.sqlite3")
    assert len(found) == len(EXCHANGES) - 1 + SESSIONS
    return found


@pytest.mark.parametrize("kind", FILE_KINDS)
def test_every_kind_of_file_gives_the_same_rows_once(
    kind: str, ledger: Path, tmp_path: Path, expected: list[Any]
):
    path = FILE_KINDS[kind](tmp_path)
    done = replay(ledger, path)
    has_session = not kind.startswith("lines")
    assert done.exit_code == 0, done.stderr
    count = len(EXCHANGES) - 1 + (SESSIONS if has_session else 0)
    assert f"{count} exchanges read, {count} new in" in done.stderr
    wanted = [row for row in expected if has_session or row[1] != "openai.responses"]
    found = facts(ledger)
    if kind.endswith("-har"):
        # A HAR says that an answer broke off, but not in mitmproxy's words for each.
        assert [row[:8] for row in found] == [row[:8] for row in wanted]
        assert [row[13:] for row in found] == [row[13:] for row in wanted]
    elif not has_session:
        # A corpus does not say that an answer broke off: it is found by what is missing.
        assert [row[:10] for row in found] == [row[:10] for row in wanted]
        assert [row[13:] for row in found] == [row[13:] for row in wanted]
    else:
        assert found == wanted
    again = replay(ledger, path)
    assert again.exit_code == 0
    assert f"{count} exchanges read, 0 new in" in again.stderr
    assert f"{count} known: the ledger has them" in again.stderr
    assert facts(ledger) == found


ORDERS = random.Random(1).sample(list(itertools.permutations(FILE_KINDS)), 3)


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: "-".join(order)[:40])
def test_reading_other_kinds_of_files_adds_nothing_to_the_totals(
    order: tuple[str, ...], ledger: Path, tmp_path: Path
):
    totals = "SUM(input_tokens), SUM(output_tokens)"
    answered = "WHERE response_id IS NOT NULL"
    for kind in order:
        replay(ledger, FILE_KINDS[kind](tmp_path))
    before = facts(ledger, totals, answered)
    responses = facts(ledger, "COUNT(DISTINCT response_id), COUNT(*)", answered)
    for kind in order:
        again = replay(ledger, FILE_KINDS[kind](tmp_path))
        assert ", 0 new in" in again.stderr
    assert facts(ledger, totals, answered) == before
    assert responses[0][0] == 5  # chatcmpl-7, -8 and -9, resp_1 and resp_2


def test_two_requests_with_one_answer_are_two_exchanges(ledger: Path, tmp_path: Path):
    """R15: the same 429 for two different requests."""
    text = as_lines(tmp_path).read_text().splitlines()
    refused = next(line for line in text if "refused" in line)
    path = tmp_path / "two.jsonl"
    path.write_text(f"{refused}\n{refused.replace('gpt-4o-mini', 'gpt-4o')}\n")
    assert "2 exchanges read, 2 new" in replay(ledger, path).stderr
    assert "2 exchanges read, 0 new" in replay(ledger, path).stderr


def test_what_was_saved_without_its_body_is_skipped_and_counted(ledger: Path, tmp_path: Path):
    """R3."""
    done = replay(ledger, as_bodiless_flows(tmp_path))
    assert done.exit_code == 0
    assert "4 skipped: recorded without the body of its answer" in done.stderr
    # Of an answer that broke off the error is known, and that it was asked for.
    found = facts(ledger, "dialect, outcome, error_type, response_bytes, usage_source")
    assert [tuple(row) for row in found] == [
        ("openai.chat", "upstream_cut", "transport", None, "none")
    ]


@pytest.mark.process
def test_several_processes_read_the_same(ledger: Path, tmp_path: Path, expected: list[Any]):
    done = replay(ledger, as_flows(tmp_path), "--jobs", "2")
    assert done.exit_code == 0, done.stderr
    assert facts(ledger) == expected


@pytest.mark.parametrize(
    ("suffix", "body"), [(".json", REFUSED), (".sse", b"data: [DONE]\n\n")], ids=["json", "sse"]
)
def test_single_bodies(ledger: Path, tmp_path: Path, suffix: str, body: bytes):
    (tmp_path / f"one{suffix}").write_bytes(body)
    assert "1 exchanges read, 1 new" in replay(ledger, tmp_path, "--url", URL).stderr
    assert "1 exchanges read, 0 new" in replay(ledger, tmp_path, "--url", URL).stderr
    done = replay(ledger, tmp_path / f"one{suffix}")
    assert done.exit_code == 1
    assert "say where it came from with --url" in done.stderr


def test_wrong_calls(ledger: Path, tmp_path: Path):
    def bad(*words: str) -> str:
        call = ["replay", *words, "--ledger", f"sqlite:///{ledger}"]
        return str(CliRunner().invoke(APP, call).exception)

    assert "no such file" in bad(str(tmp_path / "nowhere"))
    assert "nothing to read" in bad(str(tmp_path))
    assert "a pipe or a device is not read" in bad("/dev/zero")
    as_flows(tmp_path)
    assert "--jobs 0: from 1 to 64" in bad(str(tmp_path), "--jobs", "0")


INNOCENT = tuple(
    Exchange(
        name=f"innocent-{number}",
        url=url,
        request=json.dumps(asked).encode(),
        content_type="application/json",
        body=json.dumps(answer).encode(),
    )
    for number, (url, asked, answer) in enumerate(
        [
            ("https://prompts.example/log-request", {"prompt": "p", "model": "m"}, {"id": "l-1"}),
            ("https://jobs.example/workflows/3/run", {"inputs": {}}, {"status": "queued"}),
            ("https://jobs.example/workflows/run", {"name": "nightly"}, {"run": 3}),
            ("https://forms.example/api/forms/7/responses", {"answers": [1]}, {"id": "r-1"}),
            ("https://shop.example/api/v1/chat", {"text": "hi"}, {"ok": True}),
            ("https://shop.example/completion", {"word": "he"}, {"words": ["hello"]}),
            ("https://git.example/graphql", {"query": "{ me }"}, {"data": {"me": None}}),
            ("https://ml.example/v1/embeddings", {"rows": 3}, {"done": True}),
            ("https://telemetry.example/v1/traces", {"spans": []}, {}),
        ]
    )
)


# The proxy captures only what has a row.
@pytest.mark.parametrize("kind", [*(kind for kind in FILE_KINDS if kind != "captures"), "bodies"])
def test_calls_of_other_services_are_rows_from_no_kind_of_file(
    kind: str, ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(recorded_files, "EXCHANGES", INNOCENT)
    if kind == "flows":
        replay(ledger, as_flows(tmp_path, INNOCENT))
    elif kind == "bodies":
        for one in INNOCENT:
            (tmp_path / f"{one.name}.json").write_bytes(one.body)
            replay(ledger, tmp_path / f"{one.name}.json", "--url", one.url)
    else:
        done = replay(ledger, FILE_KINDS[kind](tmp_path))
        assert f"{len(INNOCENT)} skipped: no LLM calls" in done.stderr
    assert facts(ledger) == []
