"""Finding logs, and reading them whatever is in them."""

import json
import time
from typing import Any

import pytest

from addon.agent_logs import log_files
from addon.agent_logs.agents import AGENTS
from addon.agent_logs.log_files import SkippedCounts, agent_of, find, named, read
from ledger.model.errors import LedgerError
from tests.addon.agent_logs.logs import claude, codex_lines, gemini, write_home


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
    monkeypatch.setattr(log_files, "LINE_BYTES_MAX", 100)
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
    assert log_files.user_home() == tmp_path


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
