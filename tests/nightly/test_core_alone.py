"""The core stands by itself: without any part, its tests pass.

All parts are deleted from a copy, and with them the tests that say by an import, their own or of
what they import, that they prove the core together with a part; what checks the repository as a
whole is left out, too.

pytest -m nightly tests/nightly/test_core_alone.py
"""

import ast
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("tests/addon", "tests/ledger")
WHOLE = (
    "tests/addon/test_buffers.py",
    "tests/addon/test_cli.py",
    "tests/addon/proxy/test_options.py",
)
"""They hold every room, every command, every option to a table."""
TOGETHER = (
    "addon/commands/test_run.py::test_what_has_no_bound_is_refused_or_passed_by_a_cap_of_a_command",
    "addon/recordings/test_hosted_agents.py::test_commands_keep_the_figures",
    "addon/recordings/test_public_reports.py::test_the_readme_has_the_five_worst",
    "ledger/commands/test_now.py",
    "ledger/commands/test_report.py::test_an_export_tells_of_its_files",
    "ledger/commands/test_report.py::test_what_the_operator_did_wrong_is_one_line",
    "ledger/commands/test_shown_texts.py::test_exported_csv_can_do_nothing_either",
    "ledger/maintenance/test_checking.py::test_nothing_negative_is_charged",
    "ledger/maintenance/test_corrections.py::test_two_ledgers_corrected_alike_hold_one_reading",
    "ledger/maintenance/test_rollup.py::test_what_is_written_late_shows_at_once",
    "ledger/store/engines/test_urls.py::test_a_new_file_is_its_owners_alone",
    "ledger/store/schema/test_views.py::test_of_equal_revisions_the_fuller_counts_whichever_came_first",
    "ledger/store/schema/test_views.py::test_the_highest_revision_counts_and_of_equal_ones_the_earliest",
    "ledger/store/test_tables.py::test_what_is_old_and_has_ended_goes_whole",
    "ledger/text/test_period.py",
)
"""Tests of core modules that prove the core together with a part: statusline with caps, rows that
come from another ledger, what pages and exports spell."""
SHARE_MIN = 0.8
"""Of the core's test modules, that prove it alone."""


@cache
def needs_a_part(path: Path) -> bool:
    """Whether a module of the tests imports a part, or one that does, when it is loaded."""
    names = set()
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    if any(name.startswith(("addon.parts.", "ledger.parts.")) for name in names):
        return True
    further = (ROOT / f"{name.replace('.', '/')}.py" for name in names if name.startswith("tests."))
    return any(needs_a_part(other) for other in further if other.is_file() and other != path)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_the_tests_of_the_core_without_any_part(tmp_path: Path) -> None:
    for name in ("addon", "ledger", "migrations", "tests", "docs"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for parts in ("addon/parts", "ledger/parts"):
        for folder in (tmp_path / parts).glob("*/"):
            shutil.rmtree(folder)
        shutil.rmtree(tmp_path / "tests" / parts)
    there = [path for room in ROOMS for path in (ROOT / room).rglob("test_*.py")]
    core = [path for path in there if "parts" not in path.parts]
    alone = [path for path in core if not needs_a_part(path)]
    assert len(alone) > SHARE_MIN * len(core)
    left_out = {str(path.relative_to(ROOT)) for path in set(core) - set(alone)} | {*WHOLE}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n2", "-m", "unit", "-p", "no:cacheprovider",
         *ROOMS, *(f"--ignore={name}" for name in sorted(left_out)),
         *(f"--deselect=tests/{name}" for name in TOGETHER)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=800,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8_000:]
