"""Finding agents' logs, whatever is in them."""

import json
import os
import sqlite3
from contextlib import closing

import pytest

from addon.parts.agent_logs import files
from addon.parts.agent_logs.agents import AGENTS
from addon.parts.agent_logs.files import SkippedCounts, agent_of, find, named, read
from addon.parts.agent_logs.unchanged import _state_of
from ledger.model.errors import LedgerError
from tests.addon.parts.agent_logs.logs import LINES, PATHS, TABLES, write_database, write_home
from tests.named import for_each


def test_each_agents_own_folder(tmp_path):
    write_home(tmp_path)
    for agent in AGENTS.values():
        (path,) = find(agent, {}, tmp_path)
        assert path == tmp_path / PATHS[agent.name]
        assert agent_of(path) is agent
    moved = {"CLAUDE_CONFIG_DIR": str(tmp_path / "elsewhere"), "XDG_DATA_HOME": str(tmp_path)}
    assert find(AGENTS["claude-code"], moved, tmp_path) == []
    assert find(AGENTS["amp"], moved, tmp_path) == []


def test_links_are_not_followed(tmp_path):
    write_home(tmp_path)
    folder = tmp_path / ".claude" / "projects" / "p"
    folder.mkdir()
    (folder / "link.jsonl").symlink_to("/etc/passwd")
    assert len(find(AGENTS["claude-code"], {}, tmp_path)) == 1


@for_each("agent", LINES)
def test_a_log_anywhere_is_known_by_its_first_lines(tmp_path, agent):
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES[agent]))
    assert agent_of(path) is AGENTS[agent]


@for_each("text", ['{"a": 1}\n', "", "no json\n"])
def test_what_is_no_log(tmp_path, text):
    for name in ("log.jsonl", "log.json", "log.db"):
        (tmp_path / name).write_text(text)
        assert agent_of(tmp_path / name) is None


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


CLAUDE, OPENCODE = AGENTS["claude-code"], AGENTS["opencode"]


def test_bad_lines_are_skipped_and_the_rest_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LINE_BYTES_MAX", 100)
    path = tmp_path / "a.jsonl"
    long = b'{"x": "' + b"y" * 350 + b'"}'
    path.write_bytes(b'{"a": 1}\nnot json\n\n[1]\n' + long + b'\n\xff\xfe\n{"a": 2}\n{"a": 3')
    skipped = SkippedCounts()
    assert list(read(AGENTS["codex"], path, skipped)) == [{"a": 1}, {"a": 2}]
    assert (skipped.lines, skipped.files) == ({path: 5}, {})


def test_lines_without_the_mark_of_an_answer_are_not_parsed(tmp_path):
    """Only where its bytes tell: a mark may be written with escapes, and a cut line is counted."""
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"type": "user"}\n'
        '{"type": "assistant"}\n'
        '{"type": "\\u0061ssistant", "a": 1}\n'
        '{"type": "user", "message": {\n'
        '{"type" : "assistant", "a": 2}'
    )
    skipped = SkippedCounts()
    found = [line.get("a") for line in read(CLAUDE, path, skipped)]
    assert (found, skipped.lines) == ([None, 1, 2], {path: 1})


def test_what_cannot_be_opened(tmp_path):
    skipped = SkippedCounts()
    (tmp_path / "a.json").write_text("[")
    (tmp_path / "a.db").write_text("no database")
    write_database(tmp_path / "b.db", ["CREATE TABLE other (id)"])
    paths = [tmp_path / name for name in ("a.json", "gone.jsonl", "a.db", "b.db", "gone.db")]
    for path in paths:
        assert list(read(OPENCODE, path, skipped)) == []
    assert (skipped.lines, skipped.files) == ({}, dict.fromkeys(paths, ""))
    assert not paths[-1].exists()


def test_the_rows_of_all_versions_of_a_database(tmp_path):
    path = tmp_path / "opencode.db"
    again = [each.replace("message ", "session_message ") for each in TABLES["opencode"][2:]]
    write_database(path, [*TABLES["opencode"], *again])
    skipped = SkippedCounts()
    rows = list(read(OPENCODE, path, skipped))
    assert [row["id"] for row in rows] == ["msg_1", "msg_2"] * 2
    assert skipped.lines == {path: 2}


def test_a_text_that_is_not_utf_8_ends_nothing(tmp_path):
    path = tmp_path / "opencode.db"
    write_database(path, TABLES["opencode"])
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE message SET data = CAST(X'FF7B' AS TEXT) WHERE id = 'msg_1'")
    skipped = SkippedCounts()
    assert [row["id"] for row in read(OPENCODE, path, skipped)] == ["msg_1", "msg_2"]
    assert skipped.files == {}


def test_a_database_that_is_locked_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BUSY_SECONDS", 0.01)
    path = tmp_path / "opencode.db"
    write_database(path, TABLES["opencode"])
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("BEGIN EXCLUSIVE")
        skipped = SkippedCounts()
        assert list(read(OPENCODE, path, skipped)) == []
    assert skipped.files == {path: ""}


def test_a_database_that_is_damaged_in_the_middle_is_named(tmp_path):
    path = tmp_path / "opencode.db"
    write_database(path, TABLES["opencode"])
    with closing(sqlite3.connect(path)) as database, database:
        database.executemany(
            "INSERT INTO message SELECT ? || id, session_id, data FROM message WHERE id = 'msg_1'",
            [(str(number),) for number in range(300)],
        )
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] + b"\xff" * (len(whole) // 2))
    skipped = SkippedCounts()
    assert len(list(read(OPENCODE, path, skipped))) < 300
    assert skipped.files == {path: ""}


def test_the_home_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert files.user_home() == tmp_path


NUMBERS = "WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c)"
ENDLESS = {
    "rows": f"{NUMBERS} SELECT 'x' || n AS id, 'ses_1' AS session_id, '{{}}' AS data FROM c",
    "no row": f"{NUMBERS} SELECT n AS id, n AS session_id, '' AS data FROM c WHERE n < 0",
    "product": " CROSS JOIN ".join(
        [f"SELECT 'x' AS id, '' AS session_id, '{{}}' AS data FROM {'k a'}"]
        + [f"k {name}" for name in "bcdefghi"]
    ),
}


@for_each("view", ENDLESS)
def test_a_table_without_an_end_is_named_and_the_others_are_read(tmp_path, view):
    path = tmp_path / "opencode.db"
    others = [each.replace("message ", "session_message ") for each in TABLES["opencode"][2:]]
    numbers = ", ".join(f"({n})" for n in range(50))
    keys = ["CREATE TABLE k (n)", f"INSERT INTO k VALUES {numbers}"]
    views = [f"CREATE VIEW message AS {ENDLESS[view]}"]
    write_database(path, [*TABLES["opencode"][:2], *others, *keys, *views])
    skipped = SkippedCounts()
    rows = list(read(OPENCODE, path, skipped))
    assert [row["id"] for row in rows if row["id"] != "x"][-2:] == ["msg_1", "msg_2"]
    assert len(rows) < files.STEPS_FREE
    assert skipped.files == {path: "table message has more than the file can hold"}


def write_generated(path, expression):
    """A database whose answers are made as they are read: its writer would never be done with it."""
    others = [each for each in TABLES["opencode"] if "message" not in each]
    message = "CREATE TABLE message (id, session_id, data AS (17))"
    write_database(
        path,
        [*others, message, f"INSERT INTO message {NUMBERS} SELECT n, 'ses_1' FROM c LIMIT 4000",
         "PRAGMA writable_schema = ON",
         f"""UPDATE sqlite_master SET sql = replace(sql, '17', "{expression}") WHERE name = 'message'"""],
    )  # fmt: skip


LONG = "printf('%.*c', 30000000, '0')"
ONE_STEP = {
    "instr": f"instr({LONG}, substr({LONG}, 1, 9999999) || '1')",
    "hex": "instr(hex(zeroblob(15000000)), hex(zeroblob(7000000)) || '1')",
    "like": "CAST(zeroblob(40) AS TEXT) LIKE '%a%a%a%a%a%a%a%a%b'",
    "trim": "trim(id || '0', id || '1')",
}


@for_each("expression", ONE_STEP)
@pytest.mark.timeout(20)
def test_a_function_that_nothing_can_interrupt_is_not_called(tmp_path, expression):
    path = tmp_path / "opencode.db"
    write_generated(path, ONE_STEP[expression])
    skipped = SkippedCounts()
    assert list(read(OPENCODE, path, skipped)) == []
    assert skipped.files == {path: ""}


@pytest.mark.timeout(20)
def test_a_column_that_takes_long_to_make_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "SECONDS_FREE", 0.1)
    path = tmp_path / "opencode.db"
    text = "'" + "a" * 50_000 + "'"
    write_generated(path, "length(" + "||".join([text, *["id"] * 300]) + ")")
    skipped = SkippedCounts()
    assert len(list(read(OPENCODE, path, skipped))) < 4000
    assert skipped.files == {path: "table message has more than the file can hold"}


def test_a_line_without_an_end_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "SKIPPED_BYTES_MAX", 2 * files.LINE_BYTES_MAX)
    path = tmp_path / "a.jsonl"
    path.touch()
    os.truncate(path, 1 << 44)
    skipped = SkippedCounts()
    assert list(read(AGENTS["codex"], path, skipped)) == []
    assert skipped.files == {path: "a line beyond 0 GiB"}


@for_each("name", ["-journal", "-wal", "-shm"])
@pytest.mark.timeout(20)
def test_a_pipe_beside_a_database_is_not_opened(tmp_path, name):
    path = tmp_path / "opencode.db"
    write_database(path, TABLES["opencode"])
    os.mkfifo(f"{path}{name}")
    skipped = SkippedCounts()
    assert list(read(OPENCODE, path, skipped)) == []
    assert skipped.files == {path: "a pipe or a device"}


def test_a_view_that_ends_is_read(tmp_path):
    path = tmp_path / "opencode.db"
    tables = [each.replace("message ", "kept ") for each in TABLES["opencode"]]
    write_database(path, [*tables, "CREATE VIEW message AS SELECT * FROM kept"])
    skipped = SkippedCounts()
    assert [row["id"] for row in read(OPENCODE, path, skipped)] == ["msg_1", "msg_2"]
    assert skipped.files == {}


@for_each("name", [".claude/projects/p/a.jsonl", ".local/share/opencode/opencode.db"])
def test_a_pipe_is_not_opened_and_named(tmp_path, name):
    write_home(tmp_path, "codex")
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    agent = agent_of(path)
    assert agent is not None
    assert (agent, path) in list(named([tmp_path]))
    assert path in find(agent, {}, tmp_path)
    skipped = SkippedCounts()
    assert list(read(agent, path, skipped)) == []
    assert skipped.files == {path: "a pipe or a device"}
    assert _state_of(path) is None


@for_each("name", ["/dev/zero", "/dev/null", "pipe.jsonl"])
def test_what_is_named_and_no_file_is_not_opened(tmp_path, name):
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(LedgerError, match="a pipe or a device is not read"):
        list(named([tmp_path / name]))


def test_a_list_of_projects_that_is_a_pipe_is_not_opened(tmp_path):
    path = tmp_path / AGENTS["crush"].homes[0] / "projects.json"
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    assert find(AGENTS["crush"], {}, tmp_path) == []
