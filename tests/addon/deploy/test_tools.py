"""The files against the programs that read them, where those are installed."""

import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

import kubernetes_validate
import pytest
import yaml

from addon.deploy import kinds
from addon.deploy.kinds import write
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
    assert "11 rules found" in found.stdout


@needs("promtool")
def test_alerts_fire_when_they_should_and_not_before(tmp_path):
    write("prometheus", tmp_path)
    series = [
        ("tokentee_ready{instance='p1'}", "1 1 0 0 0 0 0 0"),
        ("tokentee_dropped_total{instance='p1'}", "0 0 0 0 0 0 5 5"),
        ("tokentee_unpriced_total{model='new'}", "0 0 0 0 1 1 1 1"),
        ("tokentee_requests_total{provider='a',outcome='complete'}", "0+30x40"),
        ("tokentee_requests_total{provider='a',outcome='http_error'}", "0x9 0+6x30"),
        ("tokentee_requests_total{provider='b',outcome='complete'}", "0+30x40"),
        ("tokentee_requests_total{provider='b',outcome='client_left'}", "0+30x40"),
        ("tokentee_cost_usd_total{provider='a'}", "0x9 0+10x40"),
        ("tokentee_limit_used_ratio{provider='a',window='5h'}", "0.5 0.95x40"),
        ("tokentee_limit_resets_timestamp_seconds{provider='a',window='5h'}", "600x40"),
    ]
    tests = tmp_path / "tests.yml"
    cases = [
        ("1m", "TokenteeNotRecording", 0),
        ("4m", "TokenteeNotRecording", 1),
        ("5m", "TokenteeDropped", 0),
        ("7m", "TokenteeDropped", 1),
        ("3m", "TokenteeUnpriced", 0),
        ("6m", "TokenteeUnpriced", 1),
        ("9m", "TokenteeErrors", 0),
        ("30m", "TokenteeErrors", 1),
        ("14m", "TokenteeDayOverBudget", 0),
        ("25m", "TokenteeDayOverBudget", 1),
        ("0m", "TokenteeLimitNearlyUsed", 0),
        ("2m", "TokenteeLimitNearlyUsed", 1),
        ("11m", "TokenteeLimitNearlyUsed", 0),  # it has been reset
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


@needs("promtool")
@pytest.mark.parametrize(("cost", "count"), [("0+1x180 180+9x80", 1), ("0+1x260", 0)])
def test_an_hour_that_costs_more_than_the_week_before_is_told(tmp_path, cost, count):
    """A dollar an hour, then nine; each sample is an hour."""
    write("prometheus", tmp_path)
    document = {
        "rule_files": [str(tmp_path / "prometheus" / "tokentee-rules.yml")],
        "evaluation_interval": "10m",
        "tests": [
            {
                "interval": "30m",
                "input_series": [{"series": "tokentee_cost_usd_total", "values": cost}],
                "promql_expr_test": [
                    {
                        "expr": 'count(ALERTS{alertname="TokenteeCostUnusual",alertstate="firing"})',
                        "eval_time": "94h",
                        "exp_samples": [{"labels": "{}", "value": count}] if count else [],
                    }
                ],
            }
        ],
    }
    tests = tmp_path / "tests.yml"
    tests.write_text(yaml.safe_dump(document))
    found = ran("promtool", "test", "rules", str(tests))
    assert found.returncode == 0, found.stdout + found.stderr


@needs("haproxy")
def test_haproxy_takes_its_config(tmp_path):
    write("compose", tmp_path)
    found = ran("haproxy", "-c", "-f", str(tmp_path / "haproxy" / "haproxy.cfg"))
    assert found.returncode == 0, found.stdout + found.stderr


@needs("systemd-analyze")
def test_systemd_takes_the_unit(tmp_path, monkeypatch):
    monkeypatch.setattr(kinds, "HIDDEN", ())  # this checkout may lie where a service cannot look
    write("systemd", tmp_path)
    found = ran("systemd-analyze", "verify", "--man=no", str(tmp_path / "tokentee.service"))
    assert found.returncode == 0, found.stderr
    assert "tokentee.service" not in found.stderr, found.stderr


def test_kubernetes_schemas_take_every_object(tmp_path):
    (written,) = write("kubernetes", tmp_path)
    kinds = []
    for document in yaml.safe_load_all(written.path.read_text()):
        kubernetes_validate.validate(document, "1.31", strict=True)
        kinds.append(document["kind"])
    assert kinds == ["ConfigMap", "Service", "PodDisruptionBudget", "StatefulSet"]


@needs("docker")
def test_docker_compose_takes_its_file(tmp_path):
    if ran("docker", "compose", "version").returncode:
        pytest.skip("this docker has no compose")
    write("compose", tmp_path)
    (tmp_path / ".env").write_text("POSTGRES_PASSWORD=a\nGRAFANA_PASSWORD=b\n")
    found = ran("docker", "compose", "config", cwd=tmp_path)
    assert found.returncode == 0, found.stderr


@needs("prometheus")
def test_prometheus_scrapes_a_proxy_and_answers_every_panel(tmp_path):
    """A real Prometheus: its own scrape, and each query of the dashboard."""
    health = Health(writer_alive=True, disk_free_bytes=10**10, oldest_waiting_seconds=1)
    metrics = Metrics(lambda: health)
    metrics.observe(one())
    metrics.observe(one(charges=(), degraded="unread"))
    endpoint = Endpoint("127.0.0.1", 0, health=lambda: health, metrics=metrics.exposition)
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
        for panel in kinds.panels_of("metrics"):
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
