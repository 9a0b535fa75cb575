"""What programs are told: `tokentee mcp`, asked by the SDK's own client over the standard streams of a real
process; `tokentee top`, and one line, whatever stands on standard input, and whether there is a ledger."""

import asyncio
import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from importlib.metadata import version

import pytest
from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp.server.fastmcp.exceptions import ToolError
from typer.testing import CliRunner

from ledger.commands import now, serve
from ledger.commands.serve import (
    ANSWER_BYTES_MAX,
    ERROR_CHARACTERS_MAX,
    TOOL_ROWS_MAX,
    Answers,
    bounded,
)
from ledger.model.errors import LedgerError
from ledger.pages.live.read_only import open_read_only
from ledger.store import db
from tests.app import APP
from tests.ledger.figures.test_limits import answered, play, stated
from tests.ledger.written import NOON

TOOLS = {"report", "requests", "explain", "limits", "cache", "budgets"}


def asked(url, *questions):
    """What the tools answer; (text, whether it is an error) for each question."""
    code = "from addon.cli import main; main()"
    server = StdioServerParameters(
        command=sys.executable, args=["-c", code, "mcp", "--ledger", url], env=None
    )

    async def ask():
        async with (
            stdio_client(server) as (read, write),
            ClientSession(read, write, read_timeout_seconds=timedelta(seconds=60)) as client,
        ):
            stated = await client.initialize()
            assert stated.serverInfo.version == version("tokentee")
            listed = await client.list_tools()
            tools = {tool.name: tool for tool in listed.tools}
            found = [await client.call_tool(name, words) for name, words in questions]
        return tools, [(str(one.content[0].text), bool(one.isError)) for one in found]  # type: ignore[union-attr]

    return asyncio.run(ask())


@pytest.mark.process
def test_every_tool_answers_with_the_figures_of_its_command(run, ledger):
    place = json.loads(run("requests", "--limit", "1", "-f", "json").stdout)[0]
    tools, answers = asked(
        ledger,
        ("report", {"by": ["model"], "top": 50}),
        ("requests", {"kinds": ["errors"], "limit": 5}),
        ("explain", {"id": place["id"]}),
        ("limits", {}),
        ("cache", {"by": "model"}),
        ("budgets", {}),
        ("report", {"by": ["colour"]}),
        ("requests", {"before": "x"}),
        ("requests", {"kinds": ["all"]}),
    )
    assert set(tools) == TOOLS
    assert all(tool.annotations.readOnlyHint for tool in tools.values())
    assert all(tool.description for tool in tools.values())
    texts = [text for text, is_error in answers[:6] if not is_error]
    assert len(texts) == 6
    report = json.loads(run("report", "-f", "json").stdout)
    total = report["total"]
    assert json.loads(texts[0])["total"] == {
        name: value
        for name, value in total.items()
        if value is not None and not (value == 0 and name.endswith(serve.COUNTS))
    }
    assert len(texts[0]) < 0.7 * len(json.dumps(report))
    assert len(json.loads(texts[1])["requests"]) == report["total"]["errors"]
    assert json.loads(texts[2])["exchange"]["id"] == place["id"]
    assert all(is_error for _, is_error in answers[6:])
    assert "no such dimension: 'colour'" in answers[6][0]
    assert "not a place in the list of requests" in answers[7][0]


def test_an_answer_is_bounded_and_says_what_is_left_out():
    rows = [{"name": "\u202e" * 300, "n": number} for number in range(5_000)]
    text = bounded({"rows": rows, "total": 1}, "rows")
    found = json.loads(text)
    assert len(text.encode()) <= ANSWER_BYTES_MAX
    assert 0 < len(found["rows"]) <= TOOL_ROWS_MAX
    assert found["left_out"] == f"{5_000 - len(found['rows'])} of 5000 rows: ask for less"
    assert json.loads(bounded({"rows": rows[:2]}, "rows")) == {"rows": rows[:2]}
    text = bounded({"rows": [{"errors": 0, "tokens": 0, "cost": None, "a": "1\n  2"}]}, "rows")
    assert text == '{"rows": [{"tokens": 0,"a": "1\\n  2"}]}'
    with pytest.raises(LedgerError, match="too long"):
        bounded({"rows": [], "text": "x" * ANSWER_BYTES_MAX}, "rows")


def test_questions_out_of_bounds_are_bounded():
    assert [serve._within(count) for count in (-1, 0, 7, 10**9)] == [1, 1, 7, TOOL_ROWS_MAX]


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("explain", {"id": "x" * 10**6}),
        ("report", {"by": ["model"] * 5_000}),
        ("report", {"by": ["x" * 10**5]}),
        ("report", {"only": ["y" * 10**5]}),
        ("report", {"since": "z" * 10**5}),
        ("requests", {"before": "w" * 10**5}),
    ],
    ids=lambda value: value if isinstance(value, str) else ",".join(value),
)
def test_an_error_is_one_short_line_without_sql(ledger, tool, words):
    with db.disposing(open_read_only(ledger)) as engine, pytest.raises(ToolError) as refused:
        serve._said(getattr(Answers(engine), tool))(**words)
    text = str(refused.value)
    assert len(text) <= ERROR_CHARACTERS_MAX
    assert "SELECT" not in text
    assert "\n" not in text


def test_once(run):
    first, second, *_ = run("top", "--once").stdout.splitlines()
    assert first.startswith("tokentee top, 20")
    assert re.fullmatch(r"\d+ running · 0 tok/s · \$0 today · 0 requests", second)
    assert run("top").stdout.startswith("tokentee top, 20")  # no terminal


@pytest.mark.process
def test_live_in_a_terminal_until_ctrl_c(ledger):
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
    process = subprocess.Popen(
        [sys.executable, "-c", "from addon.cli import main; main()", "top", "--ledger", ledger],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment | {"PYTHONFAULTHANDLER": "1"},
    )
    os.close(slave)
    seen, deadline = b"", time.monotonic() + 60
    try:
        while b"tok/s" not in seen and time.monotonic() < deadline:
            if select.select([master], [], [], 1)[0]:
                seen += os.read(master, 65536)
        process.send_signal(signal.SIGINT)
        while process.poll() is None and time.monotonic() < deadline:
            if select.select([master], [], [], 0.2)[0]:
                with contextlib.suppress(OSError):  # the other end is closed
                    seen += os.read(master, 65536)
        try:
            assert process.wait(30) == 0
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # prints where it stands
            process.wait(30)
            pytest.fail(os.read(master, 65536).decode())
    finally:
        process.kill()
        process.wait()
        os.close(master)
    assert b"\x1b[?1049h" in seen  # the alternate screen
    assert b"tokentee top" in seen


@pytest.mark.large
def test_an_interrupt_that_python_drops_ends_it_all_the_same(monkeypatch):
    class Interrupting:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    dropped: list[object] = []
    before = signal.getsignal(signal.SIGINT)

    def ask(*_: int) -> list[str]:
        assert not dropped, "it goes on"
        Interrupting()
        return ["shown"]

    monkeypatch.setattr(sys, "unraisablehook", lambda lost: dropped.append(lost.exc_type))
    now._live(ask)
    assert dropped == [KeyboardInterrupt]
    assert signal.getsignal(signal.SIGINT) is before


CLAUDE = {
    "hook_event_name": "Status",
    "session_id": "s1",
    "model": {"id": "claude-opus-4-1", "display_name": "Opus"},
    "cost": {"total_cost_usd": 0.01234},
    "context_window": {"context_window_size": 200},
}


def line(url, text="", *words):
    call = ["statusline", "--ledger", url, *words]
    done = CliRunner().invoke(APP, call, input=text)
    assert done.exit_code == 0, done.output
    (found,) = done.stdout.splitlines()
    return found


@pytest.fixture
def url(tmp_path):
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    now = datetime.now(UTC)
    minutes = int((now - NOON).total_seconds() // 60)
    limit = stated(42, now + timedelta(hours=2, minutes=30))
    play(url, [answered("1", minutes, "s1", "k", [limit])])
    return url


def test_the_session_that_claude_code_names(url):
    found = line(url, json.dumps(CLAUDE))
    parts = found.split(" · ")
    assert parts[0] == "$0.0000000010/h"
    assert re.fullmatch(r"5h 42% \(2 h (29|30) min left\)", parts[1])
    assert parts[2] == "ctx 50%"
    assert parts[3:] == ["session $0.0000000010", "today $0.0000000010", "model-1"]
    assert "ctx 50%" in found[:80], "what matters first is left where a terminal cuts"
    assert line(url, "", "--session", "s1") == found.replace("50%", "100"), "no size is known"


@pytest.mark.parametrize("size", ["200000", -1, 0, 10**30, None, [], True])
def test_a_size_that_is_none_leaves_the_tokens(url, size):
    text = json.dumps(CLAUDE | {"context_window": {"context_window_size": size}})
    assert "ctx 100 " in line(url, text)


@pytest.mark.parametrize("text", ["", "no JSON", "[]", '{"session_id": 7}', '{"session_id": "x"}'])
def test_any_other_input_leaves_the_session_out(url, text):
    assert re.fullmatch(r"5h 42% \(2 h \d\d min left\) · today \$0\.0000000010", line(url, text))


def test_caps_stand_in_the_line_and_on_top(url, tmp_path, monkeypatch):
    without = line(url)
    file = tmp_path / "budgets.toml"
    monkeypatch.setenv("TOKENTEE_BUDGETS", str(file))
    file.write_text("[[cap]]\nname = 'nightly'\nrequests = 4\nperiod = '5h'\n")
    assert "cap nightly: 25% of 4 requests" in line(url)
    done = CliRunner().invoke(APP, ["top", "--once", "--ledger", url])
    assert "cap nightly: 25% of 4 requests" in done.stdout
    file.write_text("[[cap]]\nname = 'nightly'\n")
    assert line(url) == without


def test_without_a_ledger_it_says_so(tmp_path):
    assert line(f"sqlite:///{tmp_path / 'none.sqlite3'}").startswith("tokentee: ")
