"""Replay in this process and in several."""

import gc
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from addon.recordings import replay_processes
from addon.recordings.replay_processes import Job, replay_here, replay_with
from ledger.maintenance import rollup
from ledger.store import db
from ledger.store.tables import daily, exchanges, meta
from tests.addon.recordings.doors import as_captures


def test_a_replay_looks_for_garbage_seldom_and_never_among_what_was_loaded(tmp_path: Path):
    seen = []
    gc.unfreeze()
    before = gc.get_threshold()
    job = Job(ledger_url=f"sqlite:///{tmp_path / 'a.db'}", url=None, prices=None)
    tally = replay_here(
        job,
        [as_captures(tmp_path)],
        log=lambda *_: None,
        advance=lambda *_: seen.append((gc.get_threshold()[0], gc.get_freeze_count())),
    )
    assert tally.new > 0
    assert {young for young, _ in seen} == {replay_processes.YOUNG_OBJECTS_MAX}
    assert all(frozen > 10_000 for _, frozen in seen)
    assert gc.get_threshold() == before


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
    job = Job(ledger_url=url, url=None, prices=None)
    # The processes are started anew and do not have the patch.
    with monkeypatch.context() as patched:
        patched.setattr(rollup, "roll", count)
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
