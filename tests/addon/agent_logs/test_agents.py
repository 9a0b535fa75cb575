"""Finding agents' logs, whatever is in them; and their answers: once, with their last usage, and nothing that
is not there."""

import json
import time
from typing import Any

import pytest

from addon.agent_logs import booking
from addon.agent_logs.agents import AGENTS, CLAUDE_CODE, CODEX, GEMINI_CLI, OPEN_MAX
from addon.agent_logs.booking import SkippedCounts, agent_of, find, named, read
from addon.agent_logs.call import booked, folder_name, moment, text_or_none
from ledger.model.errors import LedgerError
from tests.addon.agent_logs.logs import SESSION, claude, codex_lines, gemini, write_home
from tests.addon.telemetry.made import NOON


def calls(*lines):
    return list(CLAUDE_CODE.calls(lines))


def test_an_answer_of_claude_code():
    (call,) = calls({"type": "user", "message": {"id": "x"}}, claude())
    assert (call.response_id, call.session_id) == ("msg_1", SESSION)
    assert (call.project, call.git_branch) == ("search", "main")
    assert (call.model, call.tool_calls) == ("claude-haiku-4-5-20251001", 0)
    assert (call.user_agent, call.service_tier) == ("claude-cli/2.0.31", "standard")
    exchange, reading = booked(call, now=NOON, capture="f", tags={"team": "a"})
    usage = reading.usage
    assert (usage.input_tokens, usage.cache_read_tokens) == (2_104, 2_000)
    assert usage.cache_write_tokens == 100
    assert (usage.output_tokens, exchange.agent, exchange.source) == (7, "claude-code", "import")


def test_the_last_of_several_lines_stands_and_tools_are_counted_once():
    """ccusage/ccusage#888 (the first line stood) and #994 (every line was added)."""
    tool = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}
    found = calls(
        claude(output=1),
        claude(output=3, block=tool),
        claude("msg_2", 9),
        claude(output=250, block=tool),
    )
    last = [(call.response_id, call.usage["output_tokens"]) for call in found]
    assert last == [("msg_2", 9), ("msg_1", 250)]
    assert [call.tool_calls for call in found] == [0, 1]


def test_a_subagent_is_a_session_of_its_own():
    (call,) = calls(claude(isSidechain=True, agentId="a1"))
    assert (call.session_id, call.parent_session_id) == (f"{SESSION}/a1", SESSION)
    (call,) = calls(claude(isSidechain=True))
    assert (call.session_id, call.parent_session_id) == (SESSION, SESSION)


def test_what_is_no_answer_of_a_model():
    assert calls(claude(message_more={"model": "<synthetic>"})) == []
    assert calls(claude(message_more={"usage": None})) == []
    assert calls(claude(message_more={"id": ""})) == []
    assert calls(claude(sessionId=None)) == []
    assert calls(claude(at="yesterday")) == []
    assert calls({"type": "assistant", "message": "text"}) == []
    (call,) = calls(claude(version=None, message_more={"content": "text"}))
    assert (call.user_agent, call.tool_calls) == (None, 0)


def test_many_interleaved_answers_are_bounded():
    lines = [claude(f"msg_{at}") for at in range(OPEN_MAX + 10)]
    assert len(calls(*lines)) == len(lines)


def meta(**more):
    lines = codex_lines()
    lines[0]["payload"] |= more
    return list(CODEX.calls(lines))


def test_each_answer_of_codex_once():
    first, second = meta()
    assert [call.number for call in (first, second)] == [1, 2]
    assert (first.session_id, first.project, first.git_branch) == (SESSION, "search", "feature")
    assert (first.model, first.user_agent) == ("gpt-5-codex", "codex_cli_rs/0.140.0")
    assert (first.tool_calls, second.tool_calls) == (1, 0)
    _, reading = booked(first, now=NOON, capture="f", tags={})
    usage = reading.usage
    assert (usage.input_tokens, usage.cache_read_tokens) == (1_000, 800)
    assert (usage.output_tokens, usage.reasoning_tokens) == (50, 20)


@pytest.mark.parametrize(
    ("more", "parent"),
    [
        ({"forked_from_id": "p1"}, "p1"),
        ({"source": {"subagent": {"thread_spawn": {"parent_thread_id": "p2"}}}}, "p2"),
        ({"source": {"subagent": "review"}}, None),
        ({"source": "cli"}, None),
    ],
)
def test_the_session_that_started_this_one(more, parent):
    assert meta(**more)[0].parent_session_id == parent


def test_what_the_log_does_not_tell():
    (call, _) = meta(git=None, originator=None, cwd=None)
    assert (call.git_branch, call.user_agent, call.project) == (None, None, None)
    assert meta(cli_version=None)[0].user_agent == "codex_cli_rs"
    assert meta(id=None) == []
    assert list(CODEX.calls([{"type": "session_meta", "payload": 1}])) == []


def test_a_usage_without_details():
    lines = codex_lines()
    for line in lines:
        if line["type"] == "event_msg" and line["payload"]["info"]:
            last = line["payload"]["info"]["last_token_usage"]
            last.pop("cached_input_tokens", None)
            last.pop("reasoning_output_tokens", None)
    call = next(CODEX.calls(lines))
    assert set(call.usage) == {"input_tokens", "output_tokens", "total_tokens"}


@pytest.mark.parametrize(
    ("limits", "stated"),
    [
        (
            {
                "limit_id": "codex",
                "primary": {"used_percent": 1.5, "window_minutes": 300, "resets_at": 1793000000},
                "secondary": {"used_percent": 40, "window_minutes": 10080, "resets_in_seconds": 60},
            },
            {"5h": 15_000, "7d": 400_000},
        ),
        (
            {"limit_id": "codex_spark", "primary": {"used_percent": 2, "window_minutes": 300}},
            {"5h spark": 20_000},
        ),
        ({"primary": None, "secondary": 7}, {}),
        ({"primary": {"used_percent": "many", "window_minutes": -1}}, {}),
        ("none", {}),
        (None, {}),
    ],
)
def test_what_stood_of_limits_beside_the_usage(limits, stated):
    lines = codex_lines()
    for line in lines:
        if line["type"] == "event_msg":
            line["payload"]["rate_limits"] = limits
    exchange, _ = booked(next(CODEX.calls(lines)), now=NOON, capture="f", tags={})
    assert {each.window: each.used_ppm for each in exchange.quotas} == stated


DOCUMENT = gemini()
LINES = [
    {key: value for key, value in DOCUMENT.items() if key != "messages"},
    *DOCUMENT["messages"],
    DOCUMENT["messages"][1],  # saved again
]


@pytest.mark.parametrize("lines", [[DOCUMENT], LINES])
def test_answers_of_gemini_cli(lines):
    (call,) = GEMINI_CLI.calls(lines)
    assert (call.session_id, call.model, call.tool_calls) == (SESSION, "gemini-2.5-pro", 1)
    _, reading = booked(call, now=NOON, capture="f", tags={})
    usage = reading.usage
    assert (usage.input_tokens, usage.cache_read_tokens) == (900, 500)
    assert (usage.output_tokens, usage.reasoning_tokens) == (100, 60)


def test_no_session_no_calls():
    assert list(GEMINI_CLI.calls(DOCUMENT["messages"])) == []


def test_a_message_without_an_id_and_a_folder():
    message = {**DOCUMENT["messages"][1], "id": None, "toolCalls": None}
    (call,) = GEMINI_CLI.calls([{**DOCUMENT, "messages": [message], "directory": "/w/app/"}])
    assert (call.project, call.tool_calls) == ("app", 0)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/home/ada/app", "app"),
        ("C:\\work\\app\\", "app"),
        ("app", "app"),
        ("/", None),
        (3, None),
        ("x" * 300, "x" * 100),
    ],
)
def test_folders(path, name):
    assert folder_name(path) == name


@pytest.mark.parametrize(
    "text", ["2026-11-02T12:00:00", "0001-01-01T00:00:00Z", "soon", None, 1_700_000_000]
)
def test_what_is_no_moment(text):
    assert moment(text) is None


def test_texts():
    assert [text_or_none(value) for value in ("a", "", None, 1)] == ["a", None, None, None]


def test_each_agents_own_folder(tmp_path):
    write_home(tmp_path)
    for agent in AGENTS.values():
        (path,) = find(agent, {}, tmp_path)
        assert agent_of(path) is agent
    moved = {"CLAUDE_CONFIG_DIR": str(tmp_path / "elsewhere")}
    assert find(AGENTS["claude-code"], moved, tmp_path) == []


def test_links_are_not_followed(tmp_path):
    write_home(tmp_path)
    folder = tmp_path / ".claude" / "projects" / "p"
    folder.mkdir()
    (folder / "link.jsonl").symlink_to("/etc/passwd")
    assert len(find(AGENTS["claude-code"], {}, tmp_path)) == 1


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (json.dumps(claude()), "claude-code"),
        (json.dumps(codex_lines()[0]), "codex"),
        (json.dumps(gemini()), "gemini-cli"),
        ('{"a": 1}', None),
        ("", None),
    ],
)
def test_a_log_anywhere_is_known_by_its_first_line(tmp_path, text, name):
    path = tmp_path / "log.jsonl"
    path.write_text(text + "\n")
    found = agent_of(path)
    assert (found.name if found else None) == name


def test_files_and_folders_that_are_named(tmp_path):
    write_home(tmp_path)
    (tmp_path / "other.json").write_text("{}")
    assert {agent.name for agent, _ in named([tmp_path])} == set(AGENTS)
    (_, path) = next(named([tmp_path / ".codex"]))
    assert [found for _, found in named([path])] == [path]
    with pytest.raises(LedgerError, match="no such file or folder"):
        list(named([tmp_path / "nothing"]))
    with pytest.raises(LedgerError, match="not a session log of claude-code, codex, gemini-cli"):
        list(named([tmp_path / "other.json"]))


def test_bad_lines_are_skipped_and_the_rest_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(booking, "LINE_BYTES_MAX", 100)
    path = tmp_path / "a.jsonl"
    long = b'{"x": "' + b"y" * 350 + b'"}'
    path.write_bytes(b'{"a": 1}\nnot json\n\n[1]\n' + long + b'\n\xff\xfe\n{"a": 2}\n{"a": 3')
    skipped = SkippedCounts()
    assert list(read(path, skipped)) == [{"a": 1}, {"a": 2}]
    assert (skipped.lines, skipped.files) == (5, 0)


def test_a_document_that_is_none_and_a_file_that_is_gone(tmp_path):
    skipped = SkippedCounts()
    (tmp_path / "a.json").write_text("[")
    assert list(read(tmp_path / "a.json", skipped)) == []
    assert list(read(tmp_path / "gone.jsonl", skipped)) == []
    assert (skipped.lines, skipped.files) == (0, 2)


def test_the_home_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert booking.user_home() == tmp_path


@pytest.mark.large
@pytest.mark.parametrize("name", AGENTS)
def test_the_work_is_linear_in_the_lines(name: str):
    """Four times as many lines, of as many tools in one answer or of as many answers, take about
    four times the CPU time; what is quadratic takes sixteen times."""
    for of_one_answer in (True, False):
        few, many = (_cpu_seconds(name, count, of_one_answer) for count in (4_000, 16_000))
        assert many < 9 * max(few, 0.002)


def _cpu_seconds(name: str, count: int, of_one_answer: bool) -> float:
    if name == "claude-code":
        lines = [
            claude(
                "msg_1" if of_one_answer else f"msg_{number}",
                block={"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {}},
            )
            for number in range(count)
        ]
    elif name == "codex":
        start, *rest = codex_lines()
        lines = [start, *(rest * (count // len(rest)))]
    else:
        message: dict[str, Any] = {
            "type": "gemini",
            "timestamp": "2026-11-02T12:00:00Z",
            "model": "m",
        }
        message |= {"tokens": {"input": 1, "output": 1}}
        lines = [
            {"sessionId": "s", f"k{number}": 1}
            | message
            | {"id": "one" if of_one_answer else f"m{number}"}
            for number in range(count)
        ]
    return min(_seconds_of(name, lines) for _ in range(3))


def _seconds_of(name: str, lines: list[dict[str, Any]]) -> float:
    begin = time.process_time()
    for _ in AGENTS[name].calls(lines):
        pass
    return time.process_time() - begin
