"""Metrics of several processes, in processes of their own: the library chooses once a process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from addon.telemetry.health import Health
from addon.telemetry.metrics import metrics_of_workers

pytestmark = pytest.mark.process

COUNT = """
import os, signal, sys
from pathlib import Path
from addon.telemetry import metrics as module
from addon.telemetry.health import Health, MetricFiles
from addon.telemetry.metrics import metrics_of_worker
from tests.addon.telemetry.made import one
module.MODELS_MAX = 3
files = MetricFiles(folder=Path(sys.argv[1]), index=int(sys.argv[2]))
metrics = metrics_of_worker(files, lambda: Health(writer_alive=True), dropped_observations=lambda: 0)
for model in sys.argv[3:]:
    metrics.observe(one(response_model=model))
os.kill(os.getpid(), signal.SIGKILL)
"""


def count(folder: Path, index: int, *models: str) -> None:
    """A worker that counts and is killed."""
    subprocess.run(
        [sys.executable, "-c", COUNT, str(folder), str(index), *models], check=False, timeout=100
    )


def test_what_killed_workers_counted_stays_and_adds_up(tmp_path: Path):
    count(tmp_path, 0, "a", "b")
    count(tmp_path, 1, "a")
    count(tmp_path, 0, "a", "c", "d")
    health = Health(writer_alive=True, workers=2, worker_restarts=3)
    metrics = metrics_of_workers(tmp_path, lambda: health, dropped_observations=lambda: 4)
    text = metrics().decode()
    wanted = {"a": 3, "b": 1, "c": 1, "other": 1}
    for model, requests in wanted.items():
        labels = f'model="{model}",outcome="complete",provider="openai"'
        assert f"tokentee_requests_total{{{labels}}} {requests}.0" in text, text
    assert 'model="d"' not in text, "an index's next process goes on with the labels that it has"
    assert "tokentee_workers 2.0" in text
    assert "tokentee_worker_restarts_total 3.0" in text
    assert "tokentee_dropped_observations_total 4.0" in text
    assert 'tokentee_duration_seconds_count{provider="openai"} 6.0' in text
    assert len(list(tmp_path.glob("*.db"))) == 4, json.dumps([str(p) for p in tmp_path.iterdir()])
