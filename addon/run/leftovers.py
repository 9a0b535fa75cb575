"""Edge. The folder of a run: its certificates, and what its workers share. It is removed at the
end, or by the next start if the run was killed."""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PREFIX = "tokentee-run-"
LOCK = "lock"
UNLOCKED_SECONDS_MAX = 60
"""A folder gets its lock at once: the run of an older one without a lock was killed before."""
FOLDERS_MAX = 1_000
"""Folders that one start looks at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFolder:
    """A folder that nobody removes while the lock is held."""

    path: Path
    lock: int
    """The descriptor of its lock. A command inherits it, since it reads certificates in the folder
    even if the run is killed."""


@contextlib.contextmanager
def run_folder() -> Iterator[RunFolder]:
    """A folder for this run, locked. Those of runs that are dead, with their commands, are
    removed."""
    remove_leftovers(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as name:
        lock = os.open(f"{name}/{LOCK}.new", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            Path(f"{name}/{LOCK}.new").rename(f"{name}/{LOCK}")  # it never stands there unlocked
            yield RunFolder(path=Path(name), lock=lock)
        finally:
            os.close(lock)


def remove_leftovers(parent: Path) -> None:
    """Remove the folders of this user's runs that nobody locks."""
    for path in sorted(parent.glob(f"{PREFIX}*"))[:FOLDERS_MAX]:
        with contextlib.suppress(OSError):
            if path.is_symlink() or path.stat().st_uid != os.getuid():
                continue
            if not (path / LOCK).exists():
                if time.time() - path.stat().st_mtime > UNLOCKED_SECONDS_MAX:
                    (path / f"{LOCK}.new").unlink(missing_ok=True)
                    path.rmdir()  # a folder with anything else is not a run's
                continue
            lock = os.open(path / LOCK, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path)
            finally:
                os.close(lock)
