"""What a command does where its streams are closed, full, or have no reader: a result that cannot be written is
one line and exit code 1; what stands beside a result changes no exit code."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from addon.cli import BY_NAME

pytestmark = pytest.mark.process

NO_READER = 141
CODE = "from addon.cli import main; main()"
NOTHING, FULL = "/dev/null", "/dev/full"
COMMANDS = [
    ["verify"], ["db", "describe"], ["limits"], ["report", "--format", "json"], ["requests", "-f", "csv"],
    ["prices", "show", "gpt-4o"], ["path"], ["--help"], ["--version"], ["report", "--help"],
]  # fmt: skip


def played(words: list[str], url: str, redirected: str) -> tuple[int, str]:
    """Exit code and stderr of a command whose streams a shell has redirected."""
    done = subprocess.run(
        ["bash", "-c", f'"$@" {redirected}', "bash", sys.executable, "-c", CODE, *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"TOKENTEE_LEDGER": url},
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_result_that_goes_nowhere_is_an_error(words: list[str], url: str):
    assert Path(FULL).exists()
    assert played(words, url, f"> {NOTHING}")[0] == 0
    for redirected, why in ((f"> {FULL}", "No space left on device"), (">&-", "is closed")):
        code, said = played(words, url, redirected)
        last = said.splitlines()[-1]
        assert code == 1
        assert last.startswith("tokentee: the result could not be written: ")
        assert why in last


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_what_stands_beside_a_result_changes_no_exit_code(words: list[str], url: str):
    for redirected in ("2>&-", f"2> {FULL}"):
        assert played(words, url, f"> {NOTHING} {redirected}")[0] == 0


@pytest.mark.parametrize(
    ("words", "code"), [(["reprot"], 2), (["report", "--by", "x"], 2), (["show", "x"], 1)]
)
def test_an_error_that_goes_nowhere_keeps_its_exit_code(words: list[str], code: int, url: str):
    for redirected in ("2>&1", "2>&-", f"2> {FULL}", f"> {FULL} 2> {FULL}"):
        assert played(words, url, redirected)[0] == code


CALLS: dict[str, list[str]] = {
    "run": ["run", "--", "sh", "-c", "echo a; exit 5"],
    "demo": ["demo", "--help"],
    "replay": ["replay", "gone"],
    "rebuild": ["rebuild", "gone"],
    "show": ["show", "gone"],
    "top": ["top", "--once"],
    "prices": ["prices", "show", "gpt-4o"],
    "reprice": ["reprice", "--dry-run"],
    "names": ["names", "check"],
    "db": ["db", "current"],
    "serve": ["serve", "--help"],
    "export": ["export", "requests", "--out", "folder"],
    "reconcile": ["reconcile", "gone.csv"],
    "sync": ["sync", "gone.db"],
}
"""Of the commands that need more than their name."""


def test_no_command_has_a_word_for_a_reader_that_left(url: str, tmp_path: Path, monkeypatch):
    """As with `| head -1`: 141, or the exit code of a command that had nothing to say."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert set(CALLS) <= set(BY_NAME)

    def both(name: str) -> tuple[str, int, int, str]:
        words = CALLS.get(name, [name])
        code, _ = played(words, url, f"> {NOTHING}")
        left, said = played(words, url, "| true; exit ${PIPESTATUS[0]}")
        return name, code, left, said

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(both, [*BY_NAME, "--help", "--version", "--show-completion"]))
    for name, code, left, said in found:
        assert left in (code, NO_READER), (name, said)
        assert "could not be written" not in said, name
        assert "BrokenPipe" not in said, name
    assert sum(left == NO_READER for *_, left, _ in found) > 10
