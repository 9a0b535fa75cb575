"""Counters, their bounds, and that Prometheus' own tool takes them."""

import json
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from addon.telemetry import metrics as module
from addon.telemetry.health import Health
from addon.telemetry.metrics import Metrics, metrics_of_workers
from ledger.model.exchange import Outcome
from ledger.model.quota import Quota, QuotaKind
from ledger.model.reading import UsageSource
from tests.addon.telemetry.made import line, one, reading

FINE = Health(writer_alive=True, shipper_alive=True, waiting_to_ship=3, oldest_waiting_seconds=1.5)


def samples(metrics):
    text = metrics.exposition().decode()
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture
def metrics():
    return Metrics(lambda: FINE)


MODEL = "gpt-4.1-2025-04-14"


def test_tokens_and_cost_by_model(metrics):
    read = reading(
        input_tokens=100,
        cache_read_tokens=80,
        cache_write_tokens=0,
        output_tokens=20,
        reasoning_tokens=5,
    )
    metrics.observe(one(read, (line(2 * 10**12),)))
    metrics.observe(one(read, (line(10**12),)))
    found = samples(metrics)
    assert found["tokentee_requests_total", "complete", MODEL, "openai"] == 2
    assert found["tokentee_tokens_total", MODEL, "input", "openai"] == 200
    assert found["tokentee_tokens_total", "cache_read", MODEL, "openai"] == 160
    assert found["tokentee_tokens_total", MODEL, "openai", "reasoning"] == 10
    assert found["tokentee_cost_usd_total", MODEL, "openai"] == 3
    assert ("tokentee_unpriced_total", MODEL, "openai") not in found


def test_estimates_are_in_no_counter_of_tokens_or_cost(metrics):
    metrics.observe(one(reading(UsageSource.ESTIMATED, output_tokens=10), (line(),)))
    metrics.observe(one(reading(UsageSource.NONE), ()))
    found = samples(metrics)
    assert found["tokentee_without_usage_total", MODEL, "openai"] == 1
    assert found["tokentee_estimated_total", MODEL, "openai"] == 1
    assert not any(name.startswith(("tokentee_tokens", "tokentee_cost")) for name, *_ in found)


def test_degraded_unpriced_and_durations(metrics):
    metrics.observe(one(charges=(line(None),), degraded="why", outcome=Outcome.CLIENT_LEFT))
    metrics.observe(one(first_token_at=None))
    found = samples(metrics)
    assert found["tokentee_degraded_total", "openai"] == 1
    assert found["tokentee_unpriced_total", MODEL, "openai"] == 1
    assert found["tokentee_duration_seconds_count", "openai"] == 2
    assert found["tokentee_time_to_first_token_seconds_count", "openai"] == 1


def test_health_stands_beside(metrics):
    found = samples(metrics)
    assert found["tokentee_ready",] == 1
    assert found["tokentee_shipping_waiting",] == 3
    assert found["tokentee_shipping_lag_seconds",] == 1.5
    assert ("tokentee_wal_bytes",) not in found


def test_labels_are_bounded_however_many_names_an_upstream_invents(monkeypatch, metrics):
    monkeypatch.setattr(module, "MODELS_MAX", 2)
    for number in range(5):
        metrics.observe(one(response_model=f"m{number}\n" + "x" * 500))
    found = samples(metrics)
    models = {key for key in found if key[0] == "tokentee_requests_total"}
    assert len(models) == 3
    assert found["tokentee_requests_total", "complete", "openai", "other"] == 3
    assert all(len(part) <= 100 for key in models for part in key[1:])
    metrics.close(1)


@pytest.mark.process
@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed")
def test_promtool_takes_the_exposition(metrics):
    metrics.observe(one())
    checked = subprocess.run(
        ["promtool", "check", "metrics"],
        input=metrics.exposition(),
        capture_output=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr


def quota(window, used_ppm, **more):
    return Quota(window=window, window_name=window, kind=QuotaKind.PLAN, used_ppm=used_ppm, **more)


def test_limits_as_the_last_answer_stated_them(metrics):
    for used in (100_000, 250_000):
        stated = (quota("5h", used, resets_at=datetime(2026, 11, 2, tzinfo=UTC)), quota("7d", None))
        metrics.observe(one(quotas=stated, account="0123456789abcdef"))
    found = samples(metrics)
    of_window = ("01234567", "openai", "plan")
    assert found["tokentee_limit_used_ratio", of_window[0], "5h", *of_window[1:]] == 0.25
    resets = found["tokentee_limit_resets_timestamp_seconds", of_window[0], "5h", *of_window[1:]]
    assert resets == datetime(2026, 11, 2, tzinfo=UTC).timestamp()
    assert not [key for key in found if "7d" in key]


def test_made_up_limits_are_bounded(metrics):
    for number in range(2 * module.LIMITS_MAX):
        metrics.observe(one(quotas=(quota(f"w{number}", 1),)))
    found = [key for key in samples(metrics) if key[0] == "tokentee_limit_used_ratio"]
    assert len(found) == module.LIMITS_MAX


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


@pytest.mark.process
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
