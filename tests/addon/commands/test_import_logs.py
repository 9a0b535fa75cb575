"""`tokentee import`: each answer once, beside what was recorded live."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from addon.cli import BY_NAME, application
from ledger.model.errors import LedgerError
from tests.addon.agent_logs.logs import SESSION, claude, write_home
from tests.ledger.written import put, reading, rows, settled

NOON = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)


@pytest.fixture
def home(tmp_path, monkeypatch):
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("TOKENTEE_LEDGER", f"sqlite:///{tmp_path / 'ledger.sqlite3'}")
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME"):
        monkeypatch.delenv(name, raising=False)
    return home


def run(*words, code=0):
    found = CliRunner().invoke(application([BY_NAME["import"]]), ["import", *map(str, words)])
    if isinstance(found.exception, LedgerError):
        raise found.exception
    assert found.exit_code == code, (found.output, found.exception)
    return found.output


def test_all_three_agents_and_a_second_time(home, engine):
    write_home(home)
    text = run()
    assert "claude-code: 1 log, 1 session: 1 booked" in text
    assert "codex: 1 log, 1 session: 2 booked" in text
    assert "gemini-cli: 1 log, 1 session: 1 booked" in text
    text = run()
    assert "codex: 1 log, 1 session: 0 booked, 2 known" in text
    assert rows(
        engine,
        "SELECT agent, project, git_branch, input_tokens, output_tokens, source, cost_state "
        "FROM requests ORDER BY agent, opened_at",
    ) == [
        ("claude-code", "search", "main", 2_104, 7, "import", "priced"),
        ("codex", "search", "feature", 1_000, 50, "import", "priced"),
        ("codex", "search", "feature", 1_200, 30, "import", "priced"),
        ("gemini-cli", None, None, 900, 100, "import", "priced"),
    ]


def test_nothing_of_what_was_said_is_kept(home, engine, tmp_path):
    write_home(home)
    run()
    engine.dispose()
    for path in tmp_path.glob("ledger.sqlite3*"):
        assert path.is_dir() or b"PRIVATE" not in path.read_bytes()


def test_what_was_recorded_live_keeps_its_row(home, engine):
    """Claude Code's answer by its id; Codex's by session, figures and time."""
    by_id = settled("live-1", response_id="msg_1", at=NOON)
    by_figures = settled("live-2", response_id="resp_1", at=NOON, session_id=SESSION)
    put(
        engine,
        (by_id, reading(by_id), ()),
        (
            by_figures,
            replace(
                reading(by_figures),
                usage=replace(reading(by_figures).usage, input_tokens=1_000, output_tokens=50),
            ),
            (),
        ),
    )
    write_home(home)
    text = run()
    assert "claude-code: 1 log, 1 session: 0 booked, 1 recorded live" in text
    assert "codex: 1 log, 1 session: 1 booked, 1 recorded live" in text


def test_a_dry_run_makes_no_ledger(home, tmp_path):
    write_home(home)
    assert "1 would be booked" in run("--dry-run")
    assert not (tmp_path / "ledger.sqlite3").exists()


def test_an_answer_that_may_still_grow_is_left_for_the_next_time(home, engine):
    recent = (datetime.now(UTC) - timedelta(seconds=5)).isoformat()
    write_home(home, claude_lines=[claude(), claude("msg_2", at=recent)])
    assert "1 booked, 1 still running" in run("--agent", "claude-code")


def test_period_agents_tags_and_unreadable_lines(home, engine):
    write_home(home)
    (log,) = (home / ".claude").rglob("*.jsonl")
    log.write_text(log.read_text() + "no json\n")
    text = run("--agent", "claude-code", "--since", "2026-11-03")
    assert "0 booked, 1 outside of the period" in text
    assert "not read: 1 line, 0 files" in text
    run(log, "--tag", "team=search")
    assert rows(engine, "SELECT tags FROM exchanges") == [('{"team":"search"}',)]


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
    home.mkdir()
    with pytest.raises(LedgerError, match=says):
        run(*words)
