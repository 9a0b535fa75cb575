"""Each command that a message names can be pasted: it is one of ours, and its options are too.

Every text of the code that is no docstring and has `tokentee …` is looked at, with `1` in the place of
what a message fills in. In a sentence a command stands in backticks, or it ends at a mark of
punctuation.
"""

import ast
import re
import shlex
from collections.abc import Iterator
from typing import Any

import typer

from addon import cli
from addon.run.call.arguments import parse
from ledger.text.hints import ASK_A_LEDGER, OTHERS, as_typed
from tests.app import APP
from tests.named import for_each
from tests.test_rooms import MODULES, ids, parsed

NO_HINTS = {
    "addon/commands/run.py",  # the help of `run`, with a picture of its forms
    "ledger/reports/activity_text.py",  # headings
}
"""Modules whose texts with `tokentee …` are no hints."""
QUOTED = re.compile(r"`(tokentee [^`]+)`")
COMMAND: Any = typer.main.get_command(APP)
BARE = re.compile(rf"(?<![-\w`/\"])(tokentee (?:{'|'.join(COMMAND.commands)})\b[^`,;()\n]*)")
"""Without backticks `tokentee records it` is prose, so the first word is one of our commands."""


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The line and the text of each string that is no docstring; `1` for what is filled in."""
    passed = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = []
            for part in node.values:
                passed.add(id(part))
                if isinstance(part, ast.Constant):
                    parts.append(str(part.value))
                else:  # an option of its own behind a word, or a value
                    before = "".join(parts)[-1:]
                    is_value = not before or before in " ='/:["
                    parts.append("1" if is_value else "")
            yield node.lineno, "".join(parts)
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in passed:
            yield node.lineno, node.value  # type: ignore[attr-defined]  # a Constant


def commands_in(text: str) -> list[str]:
    """The commands that a text names."""
    bare = BARE.findall(QUOTED.sub("", text))
    return [*QUOTED.findall(text), *(each.strip().rstrip(".") for each in bare)]


HINTS = sorted(
    {
        (ids(path), command)
        for path in MODULES
        if ids(path) not in NO_HINTS
        for _, text in texts(parsed(path))
        for command in commands_in(text)
    }
)


def parse_ours(words: list[str]) -> None:
    """Fail if these words behind `tokentee` are no call."""
    if words[0] == "run":  # takes its words as they are
        parse(words[1:])
        return
    command, rest, name = COMMAND, list(words), ""
    while rest and hasattr(command, "commands"):
        name = rest.pop(0)
        assert name in command.commands, f"no command {name}"
        command = command.commands[name]
    command.make_context(name, rest)


@for_each("path, command", HINTS, ids=str)
def test_a_hint_is_a_call(path: str, command: str):
    words = shlex.split(command)
    assert words[0] == "tokentee"
    parse_ours(words[1:])
    named = as_typed(command, {}, "sqlite:///my ledger.db")
    if named != command:
        parse_ours(shlex.split(named)[1:])
        assert "sqlite:///my ledger.db" in shlex.split(named)


def test_the_search_finds_hints():
    assert len(HINTS) > 30
    text = "see `tokentee a b`: tokentee run --d 1; tokentee has e, tokentee top (g)"
    assert commands_in(text) == ["tokentee a b", "tokentee run --d 1", "tokentee top"]


def test_the_commands_with_a_ledger_are_those_of_the_table():
    found = set()

    def look(command: Any, words: tuple[str, ...]) -> None:
        for name, below in getattr(command, "commands", {}).items():
            look(below, (*words, name))
        if any("--ledger" in parameter.opts for parameter in command.params):
            found.add(" ".join(words))

    look(COMMAND, ())
    assert found | {"run"} == set(ASK_A_LEDGER)
    names = {each.split()[0] for each in (*ASK_A_LEDGER, *OTHERS)}
    assert names == {*COMMAND.commands, "--help", "--version"}


@for_each("text", [*cli.GONE.values(), *cli.GONE_WORDS.values()])
def test_what_went_names_calls(text: str):
    """A command of ours in these is whole, as it is typed."""
    rest = QUOTED.sub("", text)
    assert not any(re.search(rf"\b{name} (--|[A-Z])", rest) for name in COMMAND.commands)


CALLS_OF_UV = {
    "uv run": {"--python"},
    "uv tool install": {"--with-executables-from"},
    "uv sync": {"--inexact", "--extra"},
    "uv pip install": {"--python"},
}
"""What messages name of uv: commands, and their options (docs.astral.sh/uv/reference/cli)."""


def test_calls_of_uv_are_known():
    """`tests/ledger/settings/test_extras.py` has those that are made for an installation."""
    found = {
        (ids(path), command)
        for path in MODULES
        for _, text in texts(parsed(path))
        for command in re.findall(r"\buv (?:run|tool|sync|pip) [^`]+", text)
        if "{" not in command
    }
    assert len(found) > 4
    for place, command in found:
        name = next((each for each in CALLS_OF_UV if command.startswith(each)), None)
        assert name is not None, (place, command)
        options = {word for word in command.split() if word.startswith("--")}
        assert options <= CALLS_OF_UV[name], (place, command)
