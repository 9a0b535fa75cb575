"""What was imported gives way to what is replayed or merged behind it: each answer counts once."""

import base64
import json
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from addon.recordings.replay import ReplayJob, replay_here
from ledger.maintenance import checking
from ledger.maintenance.imported import settle
from ledger.model.exchange import Source
from ledger.model.usage import Usage
from ledger.parts.sync import merging
from ledger.store import db
from tests.addon.parts.agent_logs.importing import run
from tests.addon.parts.agent_logs.logs import PATHS, SESSION, claude, write_home
from tests.addon.parts.agent_logs.test_sums import HAIKU, OPUS, cost_state, sums
from tests.app import APP
from tests.ledger.written import NOON, key_of, on, priced, put, reading, rows, settled
from tests.named import for_each

OTHER = "another"
COUNTED = "SELECT source, count(*), sum(input_tokens), sum(output_tokens) FROM requests GROUP BY 1"
AGENTS: dict[str, tuple[tuple[int, int, int], dict[str, Any]]] = {
    "codex": ((1_000, 800, 50), {"session_id": SESSION, "response_id": "resp_1"}),
    "gemini-cli": ((900, 500, 100), {"agent": "gemini-cli", "response_id": "resp_1"}),
    "qwen-code": ((900, 500, 40), {"session_id": f"qwen-code:{SESSION}"}),
    "claude-code": ((2_104, 2_000, 7), {"response_id": "msg_1"}),
    "cline": ((1_001, 200, 11), {"response_model": "gpt-4o"}),
}
"""What was recorded of the first answer in the log of each: input, of it cached, output; and what
its wire told."""


def recorded(of, name="live-1", *, seconds=0, lasts=9, **more):
    """The request of an agent's first answer."""
    (inputs, cached, output), facts = AGENTS[of]
    at = NOON + timedelta(seconds=seconds)
    exchange = settled(name, at=at, seconds=lasts, **{"source": Source.REPLAY, **facts, **more})
    usage = Usage(input_tokens=inputs, cache_read_tokens=cached, output_tokens=output)
    return exchange, reading(exchange, usage=usage), ()


def later(engine, *entries):
    put(engine, *entries)
    with db.writing(engine) as connection:
        settle(connection, [key_of(each) for each in entries], priced)


@pytest.fixture
def new_ledger(tmp_path):
    def make(name):
        url = f"sqlite:///{tmp_path}/{name}.sqlite3"
        db.ensure(url).dispose()
        return url

    return make


def wrong(engine):
    return [found.examples for found in checking.verify(engine) if found.count]


def imports_of(engine):
    return rows(engine, "SELECT count(*) FROM requests WHERE source = 'import'")[0][0]


@pytest.mark.parametrize("agent", AGENTS)
def test_what_is_recorded_behind_an_import_counts_in_its_place(home, engine, agent):
    write_home(home, agent)
    run()
    before = imports_of(engine)
    later(engine, recorded(agent))
    assert imports_of(engine) == before - 1
    later(engine, recorded(agent, "live-2", seconds=1))  # an answer is one request
    assert imports_of(engine) == before - 1
    assert not wrong(engine)
    (log,) = [path for path in [home / PATHS[agent]] if path.is_file()]
    log.touch()
    text = run("--agent", agent)
    assert " 0 booked" in text
    assert "1 recorded live" in text
    assert imports_of(engine) == before - 1


@pytest.mark.parametrize("agent", AGENTS)
def test_a_request_may_take_long(home, engine, agent):
    put(engine, recorded(agent, seconds=-2_400, lasts=2_410))
    write_home(home, agent)
    assert "1 recorded live" in run()


@for_each(
    "agent, more",
    [
        ("codex", {"session_id": OTHER}),
        ("codex", {"seconds": 7_200}),
        ("gemini-cli", {"agent": "qwen-code"}),
        ("gemini-cli", {"agent": None}),
        ("claude-code", {"response_id": "msg_2", "session_id": SESSION}),
        ("cline", {"response_model": "gpt-4", "request_model": "gpt-4"}),
        ("cline", {"seconds": 120}),
    ],
)
def test_what_is_another_answer_leaves_the_import(home, engine, agent, more):
    write_home(home, agent)
    run()
    before = imports_of(engine)
    later(engine, recorded(agent, **more))
    assert imports_of(engine) == before


@pytest.fixture
def capture(tmp_path):
    """Of the first answer of Gemini CLI."""
    usage = {"promptTokenCount": 900, "cachedContentTokenCount": 500, "candidatesTokenCount": 100}
    answer: dict[str, Any] = {
        "responseId": "r1",
        "modelVersion": "gemini-2.5-pro",
        "usageMetadata": usage,
    }
    answer |= {"candidates": [{"content": {"parts": [{"text": "x"}]}, "finishReason": "STOP"}]}
    row = {
        "name": "one",
        "started_at": "2026-11-02T12:00:00+00:00",
        "ended_at": "2026-11-02T12:00:03+00:00",
        "request": {
            "method": "POST",
            "url": "https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-pro:generateContent",
            "headers": {"user-agent": "GeminiCLI/0.61.0/gemini-2.5-pro (linux; x64)"},
            "body": {"contents": []},
        },
        "response": {
            "status": 200,
            "headers": {"content-type": "application/json"},
            "body_b64": base64.b64encode(json.dumps(answer).encode()).decode(),
        },
    }
    capture = tmp_path / "captures.jsonl"
    capture.write_text(json.dumps(row) + "\n")
    return capture


def test_a_capture_that_is_replayed(home, engine, capture):
    write_home(home, "gemini-cli")
    run()
    assert rows(engine, COUNTED) == [("import", 1, 900, 100)]
    for _ in range(2):
        done = CliRunner().invoke(APP, ["replay", str(capture)])
        assert done.exit_code == 0, done.output
        assert rows(engine, COUNTED) == [("replay", 1, 900, 100)]
    assert rows(engine, "SELECT count(*) FROM exchanges WHERE duplicate_of IS NOT NULL") == [(1,)]


def test_a_replay_that_is_interrupted(home, engine, capture):
    """The next one knows what it has committed, so that this one lets it count."""
    write_home(home, "gemini-cli")
    run()
    job = ReplayJob(ledger_url=str(engine.url), url=None, prices=None)

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replay_here(job, [capture], log=stop, advance=stop)
    assert rows(engine, COUNTED) == [("replay", 1, 900, 100)]
    assert not wrong(engine)


@pytest.mark.parametrize("first", ["import", "recorded"])
def test_ledgers_that_are_merged(home, engine, new_ledger, first):
    """In any order, and however often."""
    write_home(home, "codex", "qwen-code")
    run()
    both, other = new_ledger("both"), new_ledger("other")
    put(other, recorded("codex"), recorded("qwen-code", "live-2"))
    places = [str(engine.url), other] if first == "import" else [other, str(engine.url)]
    for place in places * 2:
        merging.sync(place, both)
    assert rows(both, "SELECT source, count(*) FROM requests GROUP BY 1") == [
        ("import", 1),
        ("replay", 2),
    ]
    with on(both) as merged:
        assert not wrong(merged)


def test_the_rest_of_a_sum_shrinks_by_what_was_recorded(home, engine, new_ledger):
    write_home(home, "claude-code", claude_lines=[claude(), cost_state(**{HAIKU: 9, OPUS: 60})])
    run()
    assert sums(engine) == [(HAIKU, 0, 0, 2), (OPUS, 2_104, 2_000, 60)]
    other = new_ledger("other")
    exchange = settled("live-1", response_id="msg_9", session_id=SESSION)
    exchange = replace(exchange, request_model=OPUS, response_model=OPUS)
    usage = Usage(
        input_tokens=2_104, cache_read_tokens=2_000, cache_write_tokens=100, output_tokens=45
    )
    put(other, (exchange, reading(exchange, usage=usage), ()))
    for _ in range(2):
        merging.sync(other, str(engine.url))
        assert sums(engine) == [(HAIKU, 0, 0, 2), (OPUS, 0, 0, 15)]
    log = home / PATHS["claude-code"]
    log.write_text(log.read_text() + "\n")
    assert "0 booked" in run()
    assert sums(engine) == [(HAIKU, 0, 0, 2), (OPUS, 0, 0, 15)]
