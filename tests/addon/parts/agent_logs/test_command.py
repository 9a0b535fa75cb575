"""`tokentee import`: each answer once, beside what was recorded live."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from addon.parts.agent_logs.agents import AGENTS
from addon.parts.agent_logs.call import booked
from addon.parts.agent_logs.files import SkippedCounts, read
from addon.parts.agent_logs.reader import calls_of
from ledger.model.errors import LedgerError
from tests.addon.parts.agent_logs.importing import run
from tests.addon.parts.agent_logs.logs import PATHS, SESSION, claude, codex_lines, write_home
from tests.ledger.written import put, reading, rows, settled

NOON = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)


def test_all_agents_and_a_second_time(home, engine):
    write_home(home)
    text = run()
    assert "claude-code: 1 log, 1 session: 1 booked" in text
    assert "codex: 1 log, 1 session: 2 booked" in text
    assert "opencode: not read: 1 line (opencode.db)" in text
    assert rows(engine, "SELECT count(DISTINCT agent) FROM requests") == [(len(AGENTS),)]
    assert "codex: 1 log, 1 session: 0 booked, 2 known" in run()
    assert rows(engine, "SELECT count(*), count(DISTINCT agent) FROM requests") == [(20, 19)]
    states = dict(rows(engine, "SELECT agent, cost_state FROM requests"))
    assert states["claude-code"] == states["codex"] == states["gemini-cli"] == "priced"
    # A session's sum does not tell the size of a request; Copilot states its bill.
    assert (states["droid"], states["copilot"]) == ("partial", "reported")


def test_the_month_and_what_is_next_stand_at_the_end(home, engine):
    write_home(home, "claude-code", "codex")
    assert "by model" not in run("--dry-run")
    text = run("--since", "2026-11-01", "--until", "2026-12-01")
    assert "Requests by model, 2026-11-01 to 2026-11-30 UTC" in text
    assert re.search(r"^Total +3 .*\$0\.\d+", text, re.MULTILINE)
    following = ("tokentee report --by day", "tokentee serve --open", "tokentee run -- claude")
    assert text.splitlines()[-4:] == ["Next:", *(f"  {each}" for each in following)]
    assert "all time" not in text
    # Else the total of a few days would stand alone below thousands of booked answers.
    text = run("--since", "2026-11-02T12:00:15", "--until", "2026-12-01")
    assert re.search(r"^all time: 3 requests, \$0\.\d+: tokentee report$", text, re.MULTILINE)
    # Nothing of this period: all time.
    assert "by model, all time (2026-11-02" in run("--since", "2026-12-01")


def test_nothing_of_what_was_said_is_kept(home, engine, tmp_path):
    write_home(home)
    run()
    engine.dispose()
    for path in tmp_path.glob("ledger.sqlite3*"):
        assert path.is_dir() or b"PRIVATE" not in path.read_bytes()


def live(exchange_id, response_id, *, input_tokens=1_000, output_tokens=50, at=NOON):
    exchange = settled(exchange_id, response_id=response_id, at=at, session_id=SESSION)
    figures = {"input_tokens": input_tokens, "output_tokens": output_tokens}
    figures |= {"cache_read_tokens": 800, "cache_write_tokens": None}
    usage = replace(reading(exchange).usage, **figures)
    return exchange, replace(reading(exchange), usage=usage), ()


def test_what_was_recorded_live_keeps_its_row(home, engine):
    """Claude Code's answer by its id; Codex's by session, figures and time."""
    put(engine, live("live-1", "msg_1"), live("live-2", "resp_1"))
    write_home(home, "claude-code", "codex")
    text = run("--dry-run")
    assert "claude-code: 1 log, 1 session: 0 would be booked, 1 recorded live" in text
    text = run()
    assert "claude-code: 1 log, 1 session: 0 booked, 1 recorded live" in text
    assert "codex: 1 log, 1 session: 1 booked, 1 recorded live" in text


def test_what_was_recorded_without_a_session_keeps_its_row(home, engine):
    exchange, read, _ = live("live-1", "resp_1", input_tokens=900, output_tokens=100)
    exchange = replace(exchange, session_id=None, agent="gemini-cli")
    put(engine, (exchange, replace(read, usage=replace(read.usage, cache_read_tokens=500)), ()))
    write_home(home, "gemini-cli")
    for _ in range(2):
        assert "0 booked, 1 recorded live" in run("--agent", "gemini-cli")


def test_an_id_of_another_time_is_another_answer(home, engine):
    put(engine, live("live-1", "msg_1", at=NOON - timedelta(days=1)))
    write_home(home, "claude-code")
    assert "1 booked" in run()


def test_a_dry_run_makes_no_ledger(home, tmp_path):
    write_home(home)
    assert "1 would be booked" in run("--dry-run")
    assert not (tmp_path / "ledger.sqlite3").exists()


def test_an_answer_that_was_read_while_it_ran_is_corrected(home, engine):
    """Also by a copy, in any order, and never back (anthropics/claude-code#93620)."""
    running = claude(output=7, message_more={"stop_reason": None})
    write_home(home, "claude-code", claude_lines=[running])
    assert "1 booked" in run()
    log = home / PATHS["claude-code"]
    with log.open("a") as file:
        file.write(json.dumps(claude(output=2_500, at="2026-11-02T12:00:30Z")) + "\n")
    assert "0 would be booked, 1 would be corrected" in run("--dry-run")
    assert "0 booked, 1 corrected" in run()
    log.write_text(json.dumps(running) + "\n")
    assert "0 booked, 1 known" in run()
    assert rows(engine, "SELECT output_tokens, usage_source, reading_revision FROM requests") == [
        (2_500, "reported", 2)
    ]
    assert rows(engine, "SELECT output_tokens, reason FROM readings ORDER BY revision") == [
        (7, None),
        (2_500, "the log has more of the answer: output_tokens 7 -> 2500"),
    ]


@pytest.mark.parametrize(
    ("age", "says"),
    [(timedelta(seconds=5), "1 still running"), (-timedelta(days=9), "1 of a time to come")],
)
def test_an_answer_of_now_or_later_is_left_for_the_next_time(home, engine, age, says):
    at = (datetime.now(UTC) - age).isoformat()
    write_home(home, "claude-code", claude_lines=[claude(), claude("msg_2", at=at)])
    assert f"1 booked, {says}" in run()


def test_period_tags_and_unreadable_lines(home, engine):
    write_home(home)
    (log,) = (home / ".claude").rglob("*.jsonl")
    log.write_text(log.read_text() + "no json\n")
    text = run("--agent", "claude-code", "--since", "2026-11-03")
    assert "0 booked, 1 outside of the period" in text
    assert f"not read: 1 line ({SESSION}.jsonl)" in text
    run(log, "--tag", "team=search")
    assert rows(engine, "SELECT tags FROM exchanges") == [('{"team":"search"}',)]


def test_a_plan_that_codex_states(home, engine):
    path = home / PATHS["codex"]
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in codex_lines(plan="pro")))
    run()
    query = "SELECT DISTINCT billing, cost_usd, list_value_usd > 0 FROM requests"
    assert rows(engine, query) == [("plan", None, 1)]


@pytest.mark.parametrize("agent", ["claude-code", "codex", "gemini-cli"])
def test_answers_that_version_0_2_booked_are_known(home, engine, agent):
    """Its ids had other parts, and its times were those of an answer's last line."""
    later = claude(output=9, at="2026-11-02T12:00:30Z")
    write_home(home, agent, claude_lines=[claude(), later])
    path = home / PATHS[agent]
    for call in calls_of(AGENTS[agent], read(AGENTS[agent], path, SkippedCounts()), path):
        exchange, figures = booked(call, now=NOON, capture="f", tags={})
        facts = {"opened_at": call.ended_at}
        legacy = replace(exchange, id=f"log-{call.ended_at}", settled_at=call.ended_at, **facts)
        figures = replace(figures, exchange_id=legacy.id, usage_json=None, **facts)
        put(engine, (legacy, figures, ()))
    assert ": 0 booked" in run()


def test_what_the_logs_miss(home, engine):
    """`--compare` books nothing: log / wire, message by message."""
    put(
        engine,
        live("live-1", "msg_1", input_tokens=4_208, output_tokens=70),
        live("live-2", "msg_2"),
        live("live-3", "resp_1", input_tokens=900, output_tokens=100),
    )
    write_home(home, "claude-code")
    (row,) = json.loads(run("--compare", "--format", "json", streams="stdout"))
    assert row == {
        "agent": "claude-code",
        "session": SESSION,
        "messages_log": 1,
        "messages_wire": 3,
        "messages_both": 1,
        "log": {
            "input_tokens": 2_104,
            "cache_read_tokens": 2_000,
            "cache_write_tokens": 100,
            "output_tokens": 7,
        },
        "wire": {
            "input_tokens": 4_208,
            "cache_read_tokens": 800,
            "cache_write_tokens": None,
            "output_tokens": 70,
        },
        "factor": {
            "input_tokens": 0.5,
            "cache_read_tokens": 2.5,
            "cache_write_tokens": None,
            "output_tokens": 0.1,
        },
    }
    assert "0.50" in run("--compare")
    assert rows(engine, "SELECT count(*) FROM exchanges") == [(3,)]


def test_a_log_without_ids_is_compared_by_the_nearest_request(home, engine):
    put(
        engine,
        live("live-1", "resp_1", input_tokens=2_000, at=NOON + timedelta(seconds=8)),
        live("live-2", "resp_2", input_tokens=2_400, at=NOON + timedelta(seconds=18)),
    )
    write_home(home, "codex")
    (row,) = json.loads(run("--compare", "--format", "json", streams="stdout"))
    assert (row["messages_log"], row["messages_wire"], row["messages_both"]) == (2, 2, 2)
    assert row["factor"]["input_tokens"] == 0.5


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--agent", "claude"], "--agent 'claude': unknown"),
        (["--tag", "x"], "--tag 'x' is not NAME=VALUE"),
        (["nowhere.jsonl"], "nowhere.jsonl: no such file or folder"),
        ([], "no session logs: looked in"),
    ],
)
def test_wrong_calls(home, words, says):
    with pytest.raises(LedgerError, match=says):
        run(*words)
