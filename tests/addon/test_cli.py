"""The command line: what is answered at once, and that commands are imported when called."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

from addon import cli
from addon.proxy import options
from addon.recordings.replay import ReplayJob, replay_here
from addon.run.call.arguments import SHORT_FOR
from addon.run.command.child import workspace_of
from ledger import cli as ledger_cli
from ledger.attach import commands_of
from ledger.model.errors import LedgerError
from ledger.part import Command, Part, commands_in
from ledger.store import db
from tests.bench import recordings
from tests.named import for_each


def called(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str):
    """Exit code, stdout and stderr of `tokentee WORDS`."""
    monkeypatch.setattr(sys, "argv", ["tokentee", *words])
    code = 0
    try:
        cli.main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    out = capsys.readouterr()
    return code, out.out, out.err


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["help"]])
def test_the_overview_names_every_command(monkeypatch, capsys, words: list[str]):
    code, out, err = called(monkeypatch, capsys, *words)
    assert (code, err) == (0, "")
    assert len(cli.BY_NAME) == len(cli.COMMANDS)
    for name in cli.BY_NAME:
        assert out.count(f"\n  {name} ") == 1
    assert max(map(len, out.splitlines())) <= 81


def test_the_version(monkeypatch, capsys):
    code, said, wrong = called(monkeypatch, capsys, "--version")
    assert (code, wrong) == (0, "")
    assert said.startswith(f"tokentee {cli.version()} (Python 3.")
    assert "mitmproxy 12." in said


@pytest.mark.parametrize("command", cli.GONE)
def test_a_command_that_went_names_what_is_there_instead(monkeypatch, capsys, command):
    code, out, err = called(monkeypatch, capsys, command, "--weekly")
    assert (code, out) == (2, "")
    assert err == f"tokentee: there is no {command} any more; {cli.GONE[command]}\n"
    assert command not in cli.BY_NAME


@pytest.mark.parametrize("command", cli.ELSEWHERE)
def test_a_command_of_other_tools_names_ours(monkeypatch, capsys, command):
    code, out, err = called(monkeypatch, capsys, command, "--json")
    ours = cli.ELSEWHERE[command]
    assert (code, out) == (2, "")
    assert err == f"tokentee: there is no {command}; this does it: tokentee {ours}\n"
    assert command not in cli.BY_NAME
    words = ours.split()
    application: Any = typer.main.get_command(cli.application([cli.BY_NAME[words[0]]]))
    application.commands[words[0]].make_context(words[0], words[1:])  # it parses


@pytest.mark.parametrize(
    "words", [["report"], ["requests"], ["top"], ["serve"], ["export", "x"], ["verify"], ["limits"]]
)
def test_without_a_ledger_the_logs_of_agents_are_named(monkeypatch, capsys, tmp_path, words):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CLAUDE_CONFIG_DIR", "TOKENTEE_LEDGER", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    code, _, err = called(monkeypatch, capsys, *words)
    assert (code, err.count("\n"), "tokentee import" in err) == (1, 1, False)
    for place in ("a/1.jsonl", "a/2.jsonl", "b/sub/3.jsonl"):
        path = tmp_path / ".claude/projects" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    code, _, err = called(monkeypatch, capsys, *words)
    assert (code, err.count("\n")) == (1, 1)
    assert err.endswith("; 3 logs of Claude Code: tokentee import\n")
    _, _, err = called(monkeypatch, capsys, *words, "--ledger", "none.db")
    assert err.endswith("; 3 logs of Claude Code: tokentee import --ledger none.db\n")


@pytest.mark.parametrize("words", [["report"], ["report", "--by", "day"], ["requests"]])
def test_an_empty_ledger_names_the_logs_of_agents(monkeypatch, capsys, tmp_path, words):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    url = f"sqlite:///{tmp_path}/empty.db"
    monkeypatch.setenv("TOKENTEE_LEDGER", url)
    with db.disposing(db.ensure(url)):
        path = tmp_path / ".claude/projects/a/1.jsonl"
        path.parent.mkdir(parents=True)
        path.touch()
    code, out, err = called(monkeypatch, capsys, *words)
    assert (code, out.strip(), err.count("\n")) == (0, "", 1)
    assert err.endswith("; 1 log of Claude Code: tokentee import\n")


@pytest.mark.parametrize("words", cli.GONE_WORDS)
def test_a_word_that_went_names_what_is_there_instead(monkeypatch, capsys, words):
    code, out, err = called(monkeypatch, capsys, *words, "gpt-5")
    said = f"there is no {' '.join(words)} any more; {cli.GONE_WORDS[words]}"
    assert (code, out, err) == (2, "", f"tokentee: {said}\n")


@pytest.mark.parametrize("option", cli.GONE_OPTIONS)
def test_an_option_that_went_says_so_and_one_of_the_command_does_not(monkeypatch, capsys, option):
    said = f"tokentee: there is no {option} any more; {cli.GONE_OPTIONS[option]}\n"
    for words in (("report", option, "EUR"), ("export", f"{option}=x")):
        assert called(monkeypatch, capsys, *words) == (2, "", said)
    _, _, err = called(monkeypatch, capsys, "report", "--top", "x", "--", option)
    assert "any more" not in err


@pytest.mark.parametrize(
    ("word", "near"),
    [("reprot", "report"), ("--versoin", "--version"), ("xyzzy", "--help"), ("rnu", "run")],
)
def test_an_unknown_command_is_refused_with_the_nearest(monkeypatch, capsys, word, near):
    code, out, err = called(monkeypatch, capsys, word)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert repr(word) in err
    assert near in err


def test_a_command_of_a_missing_part_names_the_part(monkeypatch, capsys):
    rows = commands_in("ledger.parts.paint", "Look", ("paint", "command", "paint", "Paint it"))
    part = Part(package="ledger.parts.paint", about="paints", commands=rows)
    assert commands_of([part]) == ((), {"paint": "ledger.parts.paint"})
    monkeypatch.setattr(cli, "MISSING", {"paint": "ledger.parts.paint"})
    code, out, err = called(monkeypatch, capsys, "paint", "--red")
    assert (code, out) == (2, "")
    assert err == "tokentee: paint belongs to a part that is missing here: ledger.parts.paint\n"


def test_an_unknown_option_is_refused_with_the_nearest(monkeypatch, capsys):
    code, _, err = called(monkeypatch, capsys, "report", "--sinc", "1d")
    assert code == 2
    assert "--since" in err


def test_a_command_is_called_with_its_words(monkeypatch, capsys):
    code, out, _ = called(monkeypatch, capsys, "path")
    assert code == 0
    assert out.endswith("addon/tee.py\n")


def test_run_keeps_its_words(monkeypatch, capsys):
    code, out, _ = called(monkeypatch, capsys, "run", "--help")
    assert code == 0
    assert out.startswith("Usage: tokentee run")


def test_completion_knows_every_command(monkeypatch, capsys):
    monkeypatch.setenv("_TOKENTEE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "tokentee re")
    monkeypatch.setenv("COMP_CWORD", "1")
    _, out, _ = called(monkeypatch, capsys)
    assert {"report", "replay", "reprice", "reconcile", "rebuild"} <= set(out.split())


@for_each("command", cli.COMMANDS, ids=lambda command: command.name)
def test_every_row_names_a_command(command: Command):
    app = cli.application([command])
    assert isinstance(app, typer.Typer)
    done = CliRunner().invoke(app, [command.name, "--help"])
    assert done.exit_code == 0, done.output
    assert len(command.summary) <= 64


def test_the_help_of_run_names_every_option(monkeypatch, capsys):
    _, out, _ = called(monkeypatch, capsys, "run", "-h")
    named = {
        **{name: f" {name}=" for name in options.help_of()},
        **{v: f" {k} " for k, v in SHORT_FOR.items()},
    }
    assert [text for text in named.values() if text not in out] == []
    assert max(map(len, out.splitlines())) <= 80


def helps(command: typer._click.Command, words: tuple[str, ...]):
    """The help of a command and of all below it."""
    yield CliRunner().invoke(cli.application([cli.BY_NAME[words[0]]]), [*words, "-h"]).output
    for name, each in getattr(command, "commands", {}).items():
        yield from helps(each, (*words, name))


@for_each("name", [name for name in cli.BY_NAME if name != "run"])
def test_help_names_each_value_by_what_it_is(name: str):
    """FILE, NAME, PORT; Typer's own words are `<path>`, `<str>` and `{paths}`."""
    app = typer.main.get_command(cli.application([cli.BY_NAME[name]]))
    assert isinstance(app, TyperGroup)
    found = list(helps(app.commands[name], (name,)))
    assert found
    for text in found:
        assert not re.search(r"^  [a-z]+ +[^ ].*\.\.\.$", text, re.MULTILINE), "a cut summary"
        assert not re.search(r"Usage:.*[{}]", text), text
        assert not re.search(r"<(int|str|float|path|file)\b|\{[a-z]|\[[a-z]+\]\.\.\.", text), text


def loaded(code: str, names: list[str]) -> tuple[str, str]:
    """Which of these modules a process of its own has imported behind the code, and its stderr."""
    code = f"import sys\ntry:\n    {code}\nfinally:\n    print([n for n in {names} if n in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    return done.stdout.splitlines()[-1], done.stderr


def command(*words: str) -> str:
    return f"sys.argv = {['tokentee', *words]}; from addon import cli; cli.main()"


UNUSED = {
    "the help of all": (
        command("--help"),
        "sqlalchemy typer rich mitmproxy genai_prices alembic",
    ),
    "a replay: servers and extras": (
        "from addon import cli; cli.application([cli.BY_NAME['replay']])",
        "dask fsspec h11",
    ),
    "a run into SQLite without metrics and budgets": (
        "import addon.run.proxied_command",
        "alembic genai_prices ledger.parts.budgets.alerts ledger.figures.queries ledger.parts.sync.shipper "
        "prometheus_client pydantic sqlalchemy typer",
    ),
}


@pytest.mark.process
@pytest.mark.parametrize(("code", "unused"), UNUSED.values(), ids=UNUSED)
def test_what_a_call_does_not_use_is_not_imported(code: str, unused: str):
    found, said = loaded(code, unused.split())
    assert found == "[]", said


@pytest.mark.process
def test_a_report_of_a_current_sqlite_ledger_imports_nothing_that_it_does_not_use(tmp_path):
    """Each of these costs 30 to 200 ms of CPU at every call."""
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    db.ensure(url).dispose()
    unused = "alembic genai_prices jinja2 mitmproxy pydantic sqlalchemy.dialects.postgresql "
    unused += "sqlalchemy.orm starlette"
    found, said = loaded(command("report", "--ledger", url), unused.split())
    assert found == "[]", said


@pytest.mark.process
def test_a_replay_of_what_a_sqlite_ledger_has_imports_neither_meter_nor_prices(tmp_path):
    """Each of these costs 30 to 300 ms of CPU, more than the reading of a hundred MB."""
    path = tmp_path / "captures.jsonl"
    recordings.write(path, recordings.shorts(3))
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    job = ReplayJob(ledger_url=url, url=None, prices=None)
    first = replay_here(job, [path], log=lambda *_: None, advance=lambda *_: None)
    assert first.new == 3
    unused = "addon.dialects.routes addon.metering.opening ledger.pricing.prices mitmproxy.http "
    unused += "multiprocessing sqlalchemy"
    found, said = loaded(command("replay", str(path), "--ledger", url), unused.split())
    assert "3 known" in said
    assert found == "[]", said


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (LedgerError("no such ledger"), "no such ledger"),
        (
            ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow"),
            "with tokentee[parquet] it is: uv ",
        ),
        (
            ModuleNotFoundError("No module named 'psycopg'", name="psycopg.rows"),
            "with tokentee[postgresql] it is: uv ",
        ),
    ],
)
def test_what_the_operator_can_mend_is_one_line(capsys, error: Exception, text: str):
    def fails() -> None:
        raise error

    with pytest.raises(SystemExit) as ended:
        ledger_cli.run(fails)
    assert ended.value.code == 1
    err = capsys.readouterr().err
    assert err.startswith("tokentee: ")
    assert text in err


def test_any_other_missing_module_is_a_bug():
    def fails() -> None:
        raise ModuleNotFoundError(name="mitmproxy")

    with pytest.raises(ModuleNotFoundError):
        ledger_cli.run(fails)


@pytest.mark.parametrize(
    "words",
    [
        ["report", "--by", "modle"],
        ["report", "--since", "yesterdayy"],
        ["report", "--ledger", "foo://x"],
        ["run", "--workers", "many"],
    ],
)
def test_a_value_that_means_nothing_is_a_wrong_call(monkeypatch, capsys, tmp_path, words):
    monkeypatch.setenv("TOKENTEE_LEDGER", f"sqlite:///{tmp_path / 'ledger.sqlite3'}")
    if "--ledger" not in words:
        db.ensure(f"sqlite:///{tmp_path / 'ledger.sqlite3'}").dispose()
    code, out, err = called(monkeypatch, capsys, *words)
    assert (code, out) == (2, "")
    assert words[-1] in err
    assert "Traceback" not in err


def test_a_current_folder_that_was_removed_is_said_in_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(SystemExit) as ended:
        ledger_cli.run(lambda: os.chdir(Path.cwd()))
    assert ended.value.code == 1
    assert capsys.readouterr().err == (
        "tokentee: the current folder was removed: go to another one\n"
    )
    assert workspace_of() == (None, None)


def test_ctrl_c_ends_a_command_without_a_traceback():
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as ended:
        ledger_cli.run(interrupted)
    assert ended.value.code == 130
