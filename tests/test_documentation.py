"""The documentation says what is there: every command, option and column, calls that parse, queries
that run, links that lead somewhere."""

import os
import re
import shlex
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from addon.run.call.arguments import parse
from ledger.store import db
from tests import reference
from tests.app import APP
from tests.named import for_each

TEXTS = {page: page.read_text() for page in reference.PAGES}
DOCUMENTATION = "\n".join(TEXTS.values())
README_BYTES_MAX = 12 * 1024
"""It says what, why, and the first steps; everything else lies in `docs/`."""
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", DOCUMENTATION, re.MULTILINE | re.DOTALL)
COMMAND = typer.main.get_command(APP)


def test_nothing_is_installed_from_an_index_under_our_name():
    """It may have another project of that name, or none."""
    shipped = [
        path
        for folder in ("addon", "ledger", "docs")
        for path in (reference.ROOT / folder).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    ]
    found = [
        (path.name, line)
        for path in [*shipped, reference.ROOT / "README.md"]
        for line in path.read_text(errors="replace").splitlines()
        if re.search(r"install ['\"]?tokentee(?![-./\w])", line)
    ]
    assert found == []


def commands(group=COMMAND, words: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            found += commands(command, (*words, name))
        else:
            found.append((*words, name))
    return found


def shown() -> list[list[str]]:
    """The `tokentee` calls in console blocks, as words."""
    lines = [
        line.removeprefix("$ ")
        for kind, block in BLOCKS
        if kind == "console"
        for line in block.splitlines()
        if line.startswith("$ ")
    ]
    calls = [shlex.split(line, comments=True) for line in lines]
    return [call[call.index("tokentee") + 1 :] for call in calls if "tokentee" in call]


@for_each("words", commands(), ids=" ".join)
def test_every_command_has_help_and_is_documented(words: tuple[str, ...]):
    done = CliRunner().invoke(APP, [*words, "--help"])
    assert done.exit_code == 0, done.output
    text = re.sub(r"\s+", " ", done.output)
    assert len(text) > 100, text
    assert "tokentee " + " ".join(words) in DOCUMENTATION


@for_each("words", commands(), ids=" ".join)
def test_a_command_that_takes_a_period_takes_the_zone_of_its_days(words: tuple[str, ...]):
    command: Any = COMMAND
    for word in words:
        command = command.commands[word]
    known = {name for parameter in command.params for name in parameter.opts}
    if words != ("reconcile",):  # the days of a statement are its vendor's
        assert "--since" not in known or "--timezone" in known


@for_each("words", shown(), ids=" ".join)
def test_every_call_that_is_shown_is_one(words: list[str]):
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


@for_each("page", TEXTS, ids=lambda page: page.name)
def test_a_page_has_what_the_code_has(page: Path):
    """`uv run python -m tests.reference` writes it."""
    assert reference.applied(TEXTS[page]) == TEXTS[page]


def test_every_made_part_stands_on_one_page():
    for name in reference.PARTS:
        assert DOCUMENTATION.count(f"<!-- {name} -->") == 1, name


@for_each("page", TEXTS, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path):
    targets = re.findall(r"\]\(([^)\s]+)\)", TEXTS[page])
    files = [each.partition("#")[0] for each in targets if "://" not in each]
    assert [each for each in files if each and not (page.parent / each).exists()] == []


def test_the_readme_is_short():
    assert len((reference.ROOT / "README.md").read_bytes()) <= README_BYTES_MAX


QUERIES = [block for kind, block in BLOCKS if kind == "sql"]


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("documentation") / "ledger.sqlite3"
    db.ensure(f"sqlite:///{path}").dispose()
    return path


@pytest.mark.parametrize("block", QUERIES)
def test_every_query_runs(ledger: Path, block: str):
    with sqlite3.connect(ledger) as connection:
        for query in filter(str.strip, block.split(";")):
            connection.execute(query).fetchall()
    connection.close()


def test_every_example_in_python_is_an_addon_or_a_dialect():
    for block in (block for kind, block in BLOCKS if kind == "python"):
        names: dict[str, object] = {}
        if "addons = [" in block:
            exec(block, names)
            assert names["addons"]
        else:
            compile(block, "example", "exec")


def test_there_are_queries_and_calls_to_check():
    assert len(shown()) >= 10
    assert len(QUERIES) >= 1


FINDINGS = reference.ROOT / "findings"


@for_each("script", sorted(FINDINGS.glob("*.sh")), ids=lambda script: script.stem)
def test_every_finding_says_what_it_is(script: Path):
    text = script.read_text()
    assert os.access(script, os.X_OK)
    assert f"]({script.name})" in (FINDINGS / "README.md").read_text()
    for part in ("# Guess:", "# Seen:", "# Why it matters to a meter:", "# Versions:"):
        assert part in text
    assert re.search(r"[\w\]]==\d|\w@\d", text), "it pins what it installs"
    assert "trap 'rm -rf" in text
    assert "tokentee" not in text
