"""Folders of runs: removed at the end, by the next start, and never under a living one."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from addon.run import leftovers
from addon.run.leftovers import run_folder

HOLD = """
import os, sys, time
from addon.run.leftovers import run_folder
with run_folder() as folder:
    {inside}
    print(folder.path, flush=True)
    time.sleep(600)
"""
COMMAND = "import subprocess; child = subprocess.Popen(['sleep', '600'], pass_fds=[folder.lock]); print(child.pid)"


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def killed(inside: str = "pass") -> list[str]:
    """What a run printed that was killed."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD.format(inside=inside)], stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        lines = [run.stdout.readline().strip() for _ in range(1 + ("print" in inside))]
        run.kill()
    return lines


def test_a_folder_goes_with_its_run_and_a_dead_runs_with_the_next():
    (dead,) = killed()
    assert Path(dead, "lock").is_file()
    with run_folder() as one, run_folder() as other:
        assert not Path(dead).exists()
        assert one.path.is_dir()
        assert other.path.is_dir()
    assert not one.path.exists()


def test_the_folder_of_a_command_that_outlives_its_run_stays_as_long_as_it():
    pid, folder = killed(COMMAND)
    with run_folder():
        assert Path(folder, "lock").is_file()
    os.kill(int(pid), 9)
    # It is the child of init, or of nobody who waits: its lock is gone when it has ended.
    while Path(folder).exists():
        with run_folder():
            pass


def test_what_is_not_a_dead_runs_folder_stays(temporary: Path):
    old = [temporary / f"{leftovers.PREFIX}{name}" for name in ("empty", "unlocked", "old")]
    for folder, name in zip(old, (None, "lock.new", "a user's file"), strict=True):
        folder.mkdir()
        if name is not None:
            (folder / name).touch()
        os.utime(folder, (0, 0))
    (temporary / f"{leftovers.PREFIX}strange").mkdir()
    target = temporary / "target"
    target.mkdir()
    (target / "lock").touch()
    (temporary / f"{leftovers.PREFIX}link").symlink_to(target)
    with run_folder():
        pass
    names = {*(f"{leftovers.PREFIX}{name}" for name in ("link", "strange", "old")), "target"}
    assert {each.name for each in temporary.iterdir()} == names
    assert (target / "lock").is_file()
