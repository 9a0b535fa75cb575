"""The README says what is there: every command, every option, and queries that run."""

import re
import shlex
import sqlite3
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from addon import cli
from addon.run.call.arguments import parse
from ledger.store import db
from tests import reference

README = (Path(__file__).parent.parent / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
APPLICATION = cli.application()
COMMAND = typer.main.get_command(APPLICATION)


def commands(group=COMMAND, words: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            found += commands(command, (*words, name))
        else:
            found.append((*words, name))
    return found


def shown() -> list[list[str]]:
    """The `tokentee` calls in the README's console blocks, as words."""
    lines = [
        line.removeprefix("$ ")
        for kind, block in BLOCKS
        if kind == "console"
        for line in block.splitlines()
        if line.startswith("$ ")
    ]
    calls = [shlex.split(line, comments=True) for line in lines]
    return [call[call.index("tokentee") + 1 :] for call in calls if "tokentee" in call]


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_has_help_and_is_in_the_readme(words: tuple[str, ...]):
    done = CliRunner().invoke(APPLICATION, [*words, "--help"])
    assert done.exit_code == 0, done.output
    text = re.sub(r"\s+", " ", done.output)
    assert len(text) > 100, text
    assert "tokentee " + " ".join(words) in README


@pytest.mark.parametrize("words", shown(), ids=" ".join)
def test_every_call_in_the_readme_is_one(words: list[str]):
    """That it parses: its command is there, and so is every option."""
    if words[0] == "run":  # takes mitmdump's options, and refuses others
        parse(words[1:])
        return
    command = COMMAND
    rest = list(words)
    while rest and hasattr(command, "commands"):
        command = command.commands[rest.pop(0)]
    known = {name for parameter in command.params for name in parameter.opts}
    asked = {word.partition("=")[0] for word in rest if word.startswith("--")}
    assert asked <= known


def test_commands_options_and_columns_are_what_the_code_has():
    """`uv run python -m tests.reference` writes them."""
    assert reference.applied(README) == README


QUERIES = [block for kind, block in BLOCKS if kind == "sql"]


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("readme") / "ledger.sqlite3"
    db.ensure(f"sqlite:///{path}").dispose()
    return path


@pytest.mark.parametrize("block", QUERIES)
def test_every_query_in_the_readme_runs(ledger: Path, block: str):
    with sqlite3.connect(ledger) as connection:
        for query in filter(str.strip, block.split(";")):
            connection.execute(query).fetchall()
    connection.close()


def test_there_are_queries_and_calls_to_check():
    assert len(shown()) >= 10
    assert len(QUERIES) >= 1
