"""One line, whatever stands on standard input, and whether there is a ledger or not."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner

from addon.cli import application
from tests.ledger.figures.test_limits import answered, play, stated
from tests.ledger.written import NOON

CLAUDE = {
    "hook_event_name": "Status",
    "session_id": "s1",
    "model": {"id": "claude-opus-4-1", "display_name": "Opus"},
    "cost": {"total_cost_usd": 0.01234},
}


def line(url, text="", *words):
    call = ["statusline", "--ledger", url, *words]
    done = CliRunner().invoke(application(), call, input=text)
    assert done.exit_code == 0, done.output
    (found,) = done.stdout.splitlines()
    return found


@pytest.fixture
def url(tmp_path):
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    now = datetime.now(UTC)
    minutes = int((now - NOON).total_seconds() // 60)
    limit = stated(42, now + timedelta(hours=2, minutes=30))
    play(url, [answered("1", minutes, "s1", "k", [limit])]).dispose()
    return url


def test_the_session_that_claude_code_names(url):
    found = line(url, json.dumps(CLAUDE))
    assert found.startswith(
        "session $0.0000000010, 1 request · today $0.0000000010 · 5h 42% (resets"
    )
    assert line(url, "", "--session", "s1") == found


@pytest.mark.parametrize("text", ["", "no JSON", "[]", '{"session_id": 7}', '{"session_id": "x"}'])
def test_any_other_input_leaves_the_session_out(url, text):
    assert line(url, text).startswith("today $")


def test_without_a_ledger_it_says_so(tmp_path):
    assert line(f"sqlite:///{tmp_path / 'none.sqlite3'}").startswith("tokentee: ")
