"""A part can be taken out: its folder is deleted from a copy, and all else goes on.

Every module imports that is not of the part or of one that uses it; `--help` has fewer rows, and a
command of the part names what is missing. A real mitmdump records one stream, and the
report has it.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from addon.attach import PARTS
from ledger.part import Part
from tests.ledger.priced import exchange as exchange_of
from tests.ledger.priced import fill, reading, settled
from tests.proxy import mitmdump
from tests.proxy.pair import OPENAI, exchange, speak
from tests.proxy.upstream import Upstream

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "docs" / "adding.md").read_text()
ROWS = [part for part in PARTS if ".parts." in part.package]
IMPORT_ALL = """
import importlib, pathlib, sys
without = tuple(sys.argv[1].split(","))
for folder in ("addon", "ledger"):
    for path in sorted(pathlib.Path(folder).rglob("*.py")):
        name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        if not name.startswith(without) and path.name not in ("tee.py", "__main__.py"):
            importlib.import_module(name)
from addon import cli
print(cli.__file__)
print(cli.overview())
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The product in a folder of its own."""
    folder = tmp_path_factory.mktemp("product")
    for name in ("addon", "ledger", "migrations"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    return folder


@pytest.fixture(params=ROWS, ids=lambda part: part.name)
def part(request: pytest.FixtureRequest, copy: Path) -> Iterator[Part]:
    """A part whose folder is not in the copy meanwhile."""
    row: Part = request.param
    there = copy / row.package.replace(".", "/")
    away = copy / "away"
    there.rename(away)
    yield row
    away.rename(there)


def run(copy: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", *words],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": str(copy), "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.process
def test_all_else_imports_and_the_overview_is_shorter(copy: Path, part: Part) -> None:
    gone = [part, *(row for row in ROWS if part.package in row.uses)]
    done = run(copy, IMPORT_ALL, ",".join(row.package for row in gone))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(copy)), "the copy is what runs"
    commands = [(row, command.name) for row in gone for command in row.commands]
    for row, name in commands:
        assert f"\n  {name} " not in done.stdout
        called = run(copy, "from addon.cli import main; main()", name)
        lacking = [each for each in (row.package, *row.uses) if each == part.package]
        assert (called.returncode, called.stdout) == (2, "")
        expected = f"{name} belongs to a part that is missing here: {', '.join(lacking)}"
        assert called.stderr == f"tokentee: {expected}\n"
    assert done.stdout.count("\n  ") > 10


@pytest.mark.process
def test_the_part_that_the_guide_shows(copy: Path, tmp_path: Path) -> None:
    about, module, row = re.findall(
        r"```python\n(.*?)```", GUIDE.split("## A part\n")[1], re.DOTALL
    )
    row = row.partition("# those that are there\n")[2].removesuffix(")\n")
    folder = copy / "ledger" / "parts" / "dearest"
    folder.mkdir()
    (folder / "__init__.py").write_text(about)
    (folder / "command.py").write_text(module)
    table = copy / "ledger" / "parts" / "__init__.py"
    before = table.read_text()
    begin = "PARTS: tuple[Part, ...] = ("
    assert before.count(begin) == 1
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    fill(url, [(settled(exchange_of("gpt-4.1")), reading(input_tokens=10, output_tokens=5))])
    main = "from addon.cli import main; main()"
    page = tmp_path / "page.html"
    try:
        table.write_text(before.replace(begin, f"{begin}\n{row}"))
        assert "\n  dearest " in run(copy, main, "--help").stdout
        named = run(copy, main, "dearest", "--ledger", url)
        assert (named.returncode, named.stdout) == (0, ""), named.stderr
        text = named.stderr.removeprefix("tokentee: ").strip()
        assert text.endswith(": $0.000060")
        assert run(copy, main, "report", "--html", str(page), "--ledger", url).returncode == 0
        assert text in page.read_text()
    finally:
        table.write_text(before)
        shutil.rmtree(folder)


@pytest.mark.proxy
def test_the_first_light(
    copy: Path, part: Part, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = copy / "addon" / "tee.py"
    monkeypatch.setattr(mitmdump, "TEE", script)
    with Upstream(speak(OPENAI)) as upstream:
        proxy = mitmdump.Mitmdump(
            tmp_path,
            upstreams=[upstream.url],
            script=script,
            environment={"PYTHONPATH": str(copy)},
            has_own_interpreter=True,
        )
        with proxy:
            answer = exchange(proxy, OPENAI, "one", asked=True)
        assert "Traceback" not in proxy.log
    assert answer.status == 200, part.name
    ledger = f"sqlite:///{proxy.ledger}"
    main = "from addon.cli import main; main()"
    (row,) = json.loads(run(copy, main, "report", "-f", "json", "--ledger", ledger).stdout)["rows"]
    assert row["requests"] == 1
    assert row["input_tokens"] > 0
