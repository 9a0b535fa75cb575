"""`import --compare` accounts for each session of the logs and of the wire."""

import json

from msgspec.structs import replace

from tests.addon.parts.agent_logs.importing import run
from tests.addon.parts.agent_logs.logs import SESSION, claude, write_home
from tests.addon.parts.agent_logs.test_command import live
from tests.addon.parts.agent_logs.test_sums import cost_state
from tests.ledger.written import put


def recorded(name, *, agent, session, input_tokens=900, output_tokens=100):
    exchange, read, _ = live(
        name, f"resp_{name}", input_tokens=input_tokens, output_tokens=output_tokens
    )
    usage = replace(read.usage, cache_read_tokens=500)
    return replace(exchange, agent=agent, session_id=session), replace(read, usage=usage), ()


def compared(*words):
    """Agent, session, messages in both, in the log alone, on the wire alone."""
    return [
        (
            *(row["agent"], row["session"], row["messages_both"]),
            row["messages_log"] - row["messages_both"],
            row["messages_wire"] - row["messages_both"],
        )
        for row in json.loads(run("--compare", "--format", "json", *words, streams="stdout"))
    ]


def test_each_session_of_both_sides(home, engine):
    put(
        engine,
        recorded("a", agent="gemini-cli", session=None),
        recorded("b", agent="gemini-cli", session=None, output_tokens=7),
        recorded("c", agent="codex", session="gone"),
        recorded("d", agent=None, session=None),
        recorded("e", agent="aider", session="s"),
    )
    write_home(home, "claude-code", "gemini-cli")
    assert compared() == [
        ("claude-code", SESSION, 0, 1, 0),
        ("codex", "gone", 0, 0, 1),
        ("gemini-cli", None, 0, 0, 1),
        ("gemini-cli", SESSION, 1, 0, 0),
    ]
    assert "gone" in run("--compare")
    assert compared("--since", "2026-11-03") == []


def test_a_copy_in_a_fork_and_a_sum_are_no_messages(home, engine):
    write_home(home, "claude-code", claude_lines=[claude(), cost_state(**{"claude-opus-5": 60})])
    fork = home / ".claude/projects/p/fork.jsonl"
    fork.parent.mkdir()
    fork.write_text(json.dumps(claude(sessionId="fork")) + "\n")
    assert [row[2:] for row in compared()] == [(0, 1, 0)]
