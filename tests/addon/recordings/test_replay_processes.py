"""Replay in this process and in several."""

import concurrent.futures
import gc
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from addon.recordings import replay
from addon.recordings.archives import ArchivePart
from addon.recordings.replay import ReplayJob, replay_here, replay_with
from ledger.maintenance import rollup
from ledger.model.errors import LedgerError
from ledger.store import db
from ledger.store.tables import daily, exchanges, meta
from tests.addon.recordings.recorded_files import as_captures
from tests.bench import recordings


def test_a_replay_looks_for_garbage_seldom_and_never_among_what_was_loaded(tmp_path: Path):
    seen = []
    gc.unfreeze()
    before = gc.get_threshold()
    job = ReplayJob(ledger_url=f"sqlite:///{tmp_path / 'a.db'}", url=None, prices=None)
    tally = replay_here(
        job,
        [as_captures(tmp_path)],
        log=lambda *_: None,
        advance=lambda *_: seen.append((gc.get_threshold()[0], gc.get_freeze_count())),
    )
    assert tally.new > 0
    assert {young for young, _ in seen} == {replay.YOUNG_OBJECTS_MAX}
    assert all(frozen > 10_000 for _, frozen in seen)
    assert gc.get_threshold() == before


class _Pool:
    """Runs what it is given at once, in this process."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.workers = 0
        self.parts: list[ArchivePart] = []
        self._failure = failure

    def __call__(
        self, workers: int, *, initializer: Any, initargs: tuple[object], **_: object
    ) -> Self:
        self.workers = workers
        initializer(*initargs)
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(
        self, function: Callable[..., object], job: ReplayJob, parts: list[ArchivePart]
    ) -> Future[Any]:
        self.parts += parts
        future: Future[Any] = Future()
        if self._failure is None:
            future.set_result(function(job, parts))
        else:
            future.set_exception(self._failure)
        return future


@pytest.fixture
def shared_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that all processes read."""
    monkeypatch.setattr(replay, "PART_BYTES", 1)
    monkeypatch.setattr(replay, "_read_bytes", None)
    path = tmp_path / "captures.jsonl"
    recordings.write(path, recordings.shorts(9))
    return path


def test_the_process_that_starts_the_others_reads_a_share(shared_file: Path, monkeypatch):
    pool = _Pool()
    monkeypatch.setattr(concurrent.futures, "ProcessPoolExecutor", pool)
    shown = []
    job = ReplayJob(ledger_url=f"sqlite:///{shared_file.with_suffix('.db')}", url=None, prices=None)
    tally = replay_with(
        3,
        job,
        [shared_file],
        log=lambda *_: None,
        advance=lambda read_bytes, _: shown.append(read_bytes),
    )
    assert pool.workers == 2
    assert sorted(part.part for part in pool.parts) == [1, 2]
    assert (tally.new, tally.known) == (9, 0)
    # The others' shares are in it. Each ends with its own last entry, not with the file's.
    assert 0.8 <= shown[-1] / shared_file.stat().st_size <= 1
    assert shown == sorted(shown)


def test_an_error_of_another_process_ends_the_replay(shared_file: Path, monkeypatch):
    monkeypatch.setattr(concurrent.futures, "ProcessPoolExecutor", _Pool(LedgerError("no room")))
    job = ReplayJob(ledger_url=f"sqlite:///{shared_file.with_suffix('.db')}", url=None, prices=None)
    with pytest.raises(LedgerError, match="no room"):
        replay_with(2, job, [shared_file], log=lambda *_: None, advance=lambda *_: None)


@pytest.mark.process
def test_processes_leave_the_sums_to_the_one_that_started_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    found = []

    def count(engine: Engine, **_: object) -> None:
        with engine.connect() as connection:
            rows = connection.scalar(sa.select(sa.func.count()).select_from(exchanges))
            days = connection.scalar(sa.select(sa.func.count()).select_from(daily))
            end = connection.scalar(sa.select(meta.c.value).where(meta.c.key == "rolled_until"))
        found.append((rows, days, end))

    url = f"sqlite:///{tmp_path / 'a.db'}"
    job = ReplayJob(ledger_url=url, url=None, prices=None)
    # The processes are started anew and do not have the patch.
    with monkeypatch.context() as patched:
        patched.setattr(rollup, "roll", count)
        patched.setattr(replay, "PART_BYTES", 1)
        tally = replay_with(
            2, job, [as_captures(tmp_path)], log=lambda *_: None, advance=lambda *_: None
        )
    assert tally.new > 0
    assert found == [(tally.new, 0, None)]
    replay_with(1, job, [as_captures(tmp_path)], log=lambda *_: None, advance=lambda *_: None)
    engine = db.open_existing(url)
    with engine.connect() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(daily))
    engine.dispose()
