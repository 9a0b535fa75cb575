"""The files against the programs that read them, where those are installed."""

import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import replace

import pytest
import yaml

from addon.deploy import metrics_dashboard
from addon.deploy.writing import write
from addon.telemetry.endpoint import Endpoint
from addon.telemetry.health import Health
from addon.telemetry.metrics import Metrics
from tests.addon.telemetry.made import one

pytestmark = pytest.mark.process


def needs(program):
    return pytest.mark.skipif(not shutil.which(program), reason=f"{program} is not installed")


def ran(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **more)


@needs("promtool")
def test_promtool_takes_config_and_rules(tmp_path):
    write("prometheus", tmp_path)
    folder = tmp_path / "prometheus"
    found = ran("promtool", "check", "config", str(folder / "prometheus.yml"))
    assert found.returncode == 0, found.stdout + found.stderr
    assert "7 rules found" in found.stdout


@needs("promtool")
def test_alerts_fire_when_they_should_and_not_before(tmp_path):
    write("prometheus", tmp_path)
    series = [
        ("tokentee_ready{instance='p1'}", "1 1 0 0 0 0 0 0"),
        ("tokentee_dropped_total{instance='p1'}", "0 0 0 0 0 0 5 5"),
        ("tokentee_unpriced_total{model='new'}", "0 0 0 0 1 1 1 1"),
    ]
    tests = tmp_path / "tests.yml"
    cases = [
        ("1m", "TokenteeNotRecording", 0),
        ("4m", "TokenteeNotRecording", 1),
        ("5m", "TokenteeDropped", 0),
        ("7m", "TokenteeDropped", 1),
        ("3m", "TokenteeUnpriced", 0),
        ("6m", "TokenteeUnpriced", 1),
    ]
    document = {
        "rule_files": [str(tmp_path / "prometheus" / "tokentee-rules.yml")],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series],
                "promql_expr_test": [
                    {
                        "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})',
                        "eval_time": at,
                        "exp_samples": [{"labels": "{}", "value": count}] if count else [],
                    }
                    for at, alert, count in cases
                ],
            }
        ],
    }
    tests.write_text(yaml.safe_dump(document))
    found = ran("promtool", "test", "rules", str(tests))
    assert found.returncode == 0, found.stdout + found.stderr


@needs("haproxy")
def test_haproxy_takes_its_config(tmp_path):
    write("compose", tmp_path)
    found = ran("haproxy", "-c", "-f", str(tmp_path / "haproxy" / "haproxy.cfg"))
    assert found.returncode == 0, found.stdout + found.stderr


@needs("systemd-analyze")
def test_systemd_takes_the_unit(tmp_path):
    write("systemd", tmp_path)
    found = ran("systemd-analyze", "verify", "--man=no", str(tmp_path / "tokentee.service"))
    assert found.returncode == 0, found.stderr
    assert "tokentee.service" not in found.stderr, found.stderr


@needs("prometheus")
def test_prometheus_scrapes_a_proxy_and_answers_every_panel(tmp_path):
    """A real Prometheus: its own scrape, and each query of the dashboard."""
    health = Health(writer_alive=True, disk_free_bytes=10**10, oldest_waiting_seconds=1)
    metrics = Metrics(lambda: health)
    metrics.observe(one())
    metrics.observe(replace(one(), is_degraded=True, is_unpriced=True))
    endpoint = Endpoint("127.0.0.1", 0, health=lambda: health, metrics=metrics)
    endpoint.start()
    config = tmp_path / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s}\n"
        "scrape_configs:\n  - job_name: tokentee\n    static_configs:\n"
        f"      - targets: ['127.0.0.1:{endpoint.address[1]}']\n"
    )
    port = _free_port()
    server = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wanted = time.monotonic() + 40
        while not _query(port, "tokentee_ready") and time.monotonic() < wanted:
            time.sleep(0.2)
        assert _query(port, "tokentee_ready")[0]["value"][1] == "1"
        assert _query(port, 'up{job="tokentee"}')[0]["value"][1] == "1"
        for panel in metrics_dashboard.PANELS:
            assert _query(port, panel.query) is not None, panel.query
    finally:
        server.terminate()
        server.wait(20)
        endpoint.stop()


def _query(port, text):
    """The result; None for a query that is refused or a server that is not up."""
    url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": text})
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            document = yaml.safe_load(answer.read())
    except (urllib.error.URLError, ConnectionError):
        return None
    return document["data"]["result"] if document["status"] == "success" else None


def _free_port():
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
