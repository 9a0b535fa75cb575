"""Replay in this process and in several."""

import gc
from pathlib import Path

from addon.recordings import replay_processes
from addon.recordings.replay_processes import Job, replay_here
from tests.addon.recordings.doors import as_captures


def test_a_replay_looks_for_garbage_seldom_and_leaves_the_collector_as_it_was(tmp_path: Path):
    seen = []
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
    assert gc.get_freeze_count() < 10_000
