"""Figures that stand elsewhere in an agent's log than in its answers, and what changes their price."""

import json
from pathlib import PurePath

from msgspec.structs import replace

from addon.parts.agent_logs.agents import AGENTS
from addon.parts.agent_logs.files import SkippedCounts, read
from addon.parts.agent_logs.matching import KnownAnswers, answer_of
from addon.parts.agent_logs.reader import calls_of
from tests.addon.parts.agent_logs.logs import LINES, PATHS, claude, codex_lines, write_database
from tests.named import for_each


def calls(agent, *lines, path=None):
    return list(calls_of(AGENTS[agent], lines, PurePath("/", path or PATHS[agent])))


def rows_of(tmp_path, agent, statements):
    path = tmp_path / PATHS[agent]
    path.parent.mkdir(parents=True)
    write_database(path, statements)
    return list(calls_of(AGENTS[agent], read(AGENTS[agent], path, SkippedCounts()), path))


@for_each(
    "speed, tier, stated",
    [
        ("fast", "standard", "fast"),
        ("fast", "priority", "fast"),
        ("standard", "priority", "priority"),
        (None, "standard", "standard"),
    ],
)
def test_the_speed_of_claude_code_is_billed_whatever_the_tier(speed, tier, stated):
    usage = {"input_tokens": 9, "output_tokens": 3, "service_tier": tier, "speed": speed}
    (call,) = calls("claude-code", claude(message_more={"usage": usage}))
    assert call.service_tier == stated


@for_each("tier, stated", [("fast", "priority"), ("flex", "flex"), (None, None)])
def test_the_tier_of_codex_is_that_of_the_settings_before(tier, stated):
    first, *others = codex_lines()
    settings = {"type": "thread_settings_applied", "thread_settings": {"service_tier": tier}}
    settings = {"timestamp": first["timestamp"], "type": "event_msg", "payload": settings}
    last = next(n for n in reversed(range(len(others))) if others[n]["type"] == "event_msg")
    found = calls("codex", first, *others[:last], settings, *others[last:])
    assert [call.service_tier for call in found] == [None, stated]
    assert {call.model for call in found} == {"gpt-5-codex"}


@for_each(
    "bill, multiplier, server",
    [
        ("NULL", "0.0", "unknown"),
        ("0", "0.0", "api.githubcopilot.com"),
        ("NULL", "1.0", "api.githubcopilot.com"),
    ],
)
def test_copilot_with_a_provider_of_the_users_own(tmp_path, bill, multiplier, server):
    folder = tmp_path / f"{bill}{multiplier}"
    (call,) = rows_of(
        folder,
        "copilot",
        [
            "CREATE TABLE sessions (id, cwd, branch)",
            "CREATE TABLE assistant_usage_events (id, session_id, model, input_tokens, "
            "output_tokens, total_nano_aiu, request_multiplier, created_at)",
            "INSERT INTO assistant_usage_events VALUES "
            f"(1, 's', 'gpt-4o', 9, 2, {bill}, {multiplier}, '2026-11-02 12:00:05')",
        ],
    )
    assert call.server == server


def test_a_subagent_of_gemini_cli_has_its_parent():
    (document,) = LINES["gemini-cli"]
    path = ".gemini/tmp/ab12/chats/parent-1/child-2.json"
    (call,) = calls("gemini-cli", document | {"kind": "subagent"}, path=path)
    assert call.parent_session_id == "parent-1"
    assert calls("gemini-cli", document)[0].parent_session_id is None


def test_each_step_of_a_message_of_opencode(tmp_path):
    """1 000 + 2 000 + 4 000 in, 1 + 2 + 4 out: the message states the last step alone."""

    def tokens(n):
        return {"input": 1_000 * n, "output": n, "reasoning": 0, "cache": {"read": 0, "write": 0}}

    message = {
        "role": "assistant",
        "modelID": "m",
        "time": {"created": 1_793_620_800_000, "completed": 1_793_620_809_000},
        "tokens": tokens(4),
    }
    parts = [
        {"type": "step-finish", "tokens": tokens(1)},
        {"type": "text", "text": "step-finish"},
        {"type": "step-finish", "tokens": tokens(2)},
        {"type": "step-finish", "tokens": tokens(4)},
    ]
    found = rows_of(
        tmp_path,
        "opencode",
        [
            "CREATE TABLE session (id, parent_id, directory)",
            "CREATE TABLE message (id, session_id, data)",
            f"INSERT INTO message VALUES ('msg_1', 's', '{json.dumps(message)}')",
            "CREATE TABLE part (id, message_id, data)",
            *(
                f"INSERT INTO part VALUES ('prt_{n}', 'msg_1', '{json.dumps(part)}')"
                for n, part in enumerate(parts)
            ),
            "INSERT INTO part VALUES ('prt_9', 'msg_1', 'no json')",
        ],
    )
    assert sorted(call.usage.input_tokens for call in found) == [1_000, 2_000, 4_000]
    assert sorted(call.usage.output_tokens for call in found) == [1, 2, 4]
    # The message is the last step, as it was booked before.
    assert [call.key[1] for call in found if call.usage.output_tokens == 4] == ["msg_1"]


@for_each("tables", [("session_v2",), ("session", "session_v2"), ("session",)])
def test_a_database_of_opencode_2_fresh_or_migrated(tmp_path, tables):
    message = {
        "model": {"id": "gpt-5.4", "providerID": "openai"},
        "time": {"created": 1_793_620_800_000, "completed": 1_793_620_809_000},
        "tokens": {"input": 70, "output": 7, "reasoning": 0, "cache": {"read": 0, "write": 0}},
    }
    made = [
        *(f"CREATE TABLE {name} (id, parent_id, directory)" for name in tables),
        *(f"INSERT INTO {name} VALUES ('s', 'p', '/w/app')" for name in tables),
        "CREATE TABLE session_message (id, session_id, data)",
        f"INSERT INTO session_message VALUES ('m', 's', '{json.dumps(message)}')",
    ]
    (call,) = rows_of(tmp_path, "opencode", made)
    assert (call.usage.input_tokens, call.project, call.parent_session_id) == (70, "app", "p")


def test_the_call_of_pi_that_sums_up_a_branch_and_what_it_keeps_for_an_hour():
    head, answer = LINES["pi"]
    usage = {"input": 50, "output": 5, "cacheRead": 0, "cacheWrite": 30, "cacheWrite1h": 20}
    summary = {"type": "branch_summary", "id": "b1", "timestamp": answer["timestamp"]}
    _, call = calls("pi", head, answer, summary | {"usage": usage})
    assert (call.model, call.server) == ("anthropic/claude-haiku-4.5", "openrouter.ai")
    found = call.usage
    assert (found.input_tokens, found.output_tokens) == (80, 5)
    assert (found.cache_write_tokens, found.cache_write_1h_tokens) == (30, 20)
    assert len(calls("pi", head, answer, {**summary, "type": "label", "usage": usage})) == 1


def test_answers_without_ids_in_one_millisecond_are_each_one():
    head, record, _ = LINES["kimi-code"]
    other = {**record, "usage": {**record["usage"], "output": 41}}
    found = calls("kimi-code", head, record, other, record)
    assert sorted(call.usage.output_tokens for call in found) == [40, 41]
    assert len({call.exchange_id for call in found}) == 2


def test_a_fork_of_kimi_cli_repeats_an_answer_by_its_id():
    """The copy in another session is the same answer, an answer of another id is not."""
    (call,) = calls("kimi-cli", *LINES["kimi-cli"])
    (copy,) = calls("kimi-cli", *LINES["kimi-cli"], path=".kimi/sessions/ab12/fork/wire.jsonl")
    known = KnownAnswers([answer_of(call)])
    found = known.find(copy)
    assert copy.session_id != call.session_id
    assert found is not None
    assert found.id == call.exchange_id
    assert known.find(replace(copy, response_id="another", key=("x",))) is None
