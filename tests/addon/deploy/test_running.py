"""The files at work, and against the programs that read them, where those are installed."""

import contextlib
import http.client
import http.server
import json
import re
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import kubernetes_validate
import pytest
import sqlalchemy as sa
import yaml

from addon.deploy import kinds
from addon.deploy.kinds import write
from addon.telemetry.endpoint import Endpoint
from addon.telemetry.health import Health
from addon.telemetry.metrics import Metrics
from ledger.store import db
from ledger.sync.merging import sync
from tests.addon.telemetry.made import one
from tests.ledger.written import put, settled, whole
from tests.proxy.mitmdump import free_port

pytestmark = pytest.mark.process
SECONDS_MAX = 30


def needs(program):
    return pytest.mark.skipif(not shutil.which(program), reason=f"{program} is not installed")


class Proxy:
    """Stands for one proxy: answers with its name, and says whether it is ready."""

    def __init__(self, name):
        proxy = self
        self.is_ready = True

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                status = 200 if proxy.is_ready or self.path != "/readyz" else 503
                body = name.encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@contextlib.contextmanager
def started(*command):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=SECONDS_MAX)


@contextlib.contextmanager
def passable(folder):
    """PgBouncer does not run as root, and must reach the server's socket."""
    mode = folder.stat().st_mode
    folder.chmod(0o711)
    try:
        yield
    finally:
        folder.chmod(mode)


def ask(port):
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as client:
        client.request("GET", "/v1/models")
        answer = client.getresponse()
        return answer.status, answer.read().decode()


def until(condition):
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, http.client.HTTPException, sa.exc.DBAPIError):
            if condition():
                return
        time.sleep(0.1)
    raise AssertionError("it did not come about")


@needs("haproxy")
def test_haproxy_sends_requests_to_proxies_that_are_ready(tmp_path):
    write("compose", tmp_path)
    proxies = [Proxy("one"), Proxy("two")]
    port = free_port()
    text = (tmp_path / "haproxy" / "haproxy.cfg").read_text()
    text = text.replace("bind *:8001", f"bind 127.0.0.1:{port}")
    text = text.replace("bind *:8002", f"bind 127.0.0.1:{free_port()}")
    text = text.replace("init-addr none resolvers docker", "inter 200ms rise 1 fall 1")
    for number, proxy in enumerate(proxies, start=1):
        text = re.sub(
            rf"proxy-{number}:800\d check port 9464", f"127.0.0.1:{proxy.port} check", text
        )
    config = tmp_path / "haproxy.cfg"
    config.write_text(text.partition("\nresolvers docker")[0] + "\n")
    try:
        with started("haproxy", "-db", "-f", str(config)):
            until(lambda: {ask(port)[1] for _ in range(6)} == {"one", "two"})
            proxies[0].is_ready = False
            until(lambda: {ask(port) for _ in range(6)} == {(200, "two")})
    finally:
        for proxy in proxies:
            proxy.close()


@pytest.mark.postgres
@needs("pgbouncer")
def test_a_ledger_behind_pgbouncer(tmp_path, new_postgres):
    """Transaction pooling: a ledger is merged in and read, through the file that we write."""
    target = sa.make_url(new_postgres())
    write("compose", tmp_path)
    port = free_port()
    text = (tmp_path / "pgbouncer" / "pgbouncer.ini").read_text()
    upstream = f"tokentee = host={target.query['host']} dbname={target.database} user=postgres"
    text = re.sub(r"tokentee = .*", upstream, text)
    text = text.replace("listen_addr = *", "listen_addr = 127.0.0.1\nunix_socket_dir =")
    text = text.replace("listen_port = 6432", f"listen_port = {port}")
    text = re.sub(r"auth_type = .*\nauth_file = .*", "auth_type = any", text)
    config = tmp_path / "pgbouncer.ini"
    config.write_text(text)
    for path in (tmp_path, config):
        path.chmod(0o755 if path.is_dir() else 0o644)
    source = f"sqlite:///{tmp_path / 'source.sqlite3'}"
    engine = db.ensure(source)
    put(engine, whole(settled("a")), whole(settled("b")))
    engine.dispose()
    url = f"postgresql+psycopg://postgres@127.0.0.1:{port}/tokentee"
    sockets = Path(str(target.query["host"]))
    with passable(sockets), started("pgbouncer", "-u", "nobody", str(config)):

        def is_up():
            engine = db.open_engine(url)
            try:
                with engine.connect() as connection:
                    return connection.scalar(sa.text("SELECT 1")) == 1
            finally:
                engine.dispose()

        until(is_up)
        sync(source, url)
        sync(source, url)
        engine = db.open_engine(url)
        with engine.connect() as connection:
            assert connection.scalar(sa.text("SELECT count(*) FROM requests")) == 2
        engine.dispose()


def test_the_health_check_of_the_image_is_python(tmp_path):
    """The command of HEALTHCHECK runs as it stands, and fails where nobody answers."""
    write("docker", tmp_path)
    text = (tmp_path / "Dockerfile").read_text()
    found = re.search(r"HEALTHCHECK.*?CMD (\[.*?\])\n", text, re.DOTALL)
    assert found is not None
    command = json.loads(found[1])
    proxy = Proxy("one")
    probe = command[2].replace("9464", str(proxy.port))
    try:
        assert subprocess.run(["python3", "-c", probe], check=False).returncode == 0
        proxy.is_ready = False
        failed = subprocess.run(["python3", "-c", probe], check=False, capture_output=True)
        assert failed.returncode != 0
    finally:
        proxy.close()


def ran(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **more)


def taken_by(*command, **more):
    """What a program says of files that it takes."""
    found = ran(*command, **more)
    assert found.returncode == 0, found.stdout + found.stderr
    return found


@needs("promtool")
def test_promtool_takes_config_and_rules(tmp_path):
    write("prometheus", tmp_path)
    config = tmp_path / "prometheus" / "prometheus.yml"
    assert "11 rules found" in taken_by("promtool", "check", "config", str(config)).stdout


def check_rules(folder, evaluation_interval, **test):
    """Let promtool test our rules."""
    write("prometheus", folder)
    document = {
        "rule_files": [str(folder / "prometheus" / "tokentee-rules.yml")],
        "evaluation_interval": evaluation_interval,
        "tests": [test],
    }
    (folder / "tests.yml").write_text(yaml.safe_dump(document))
    taken_by("promtool", "test", "rules", str(folder / "tests.yml"))


def firing(alert, at, count):
    return {
        "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})',
        "eval_time": at,
        "exp_samples": [{"labels": "{}", "value": count}] if count else [],
    }


@needs("promtool")
def test_alerts_fire_when_they_should_and_not_before(tmp_path):
    series = [
        ("tokentee_ready{instance='p1'}", "1 1 0 0 0 0 0 0"),
        ("tokentee_exchanges_dropped_total{instance='p1'}", "0 0 0 0 0 0 5 5"),
        ("tokentee_requests_unpriced_total{model='new'}", "0 0 0 0 1 1 1 1"),
        ("tokentee_requests_total{provider='a',outcome='complete'}", "0+30x40"),
        ("tokentee_requests_total{provider='a',outcome='http_error'}", "0x9 0+6x30"),
        ("tokentee_requests_total{provider='b',outcome='complete'}", "0+30x40"),
        ("tokentee_requests_total{provider='b',outcome='client_left'}", "0+30x40"),
        ("tokentee_cost_usd_total{provider='a'}", "0x9 0+10x40"),
        ("tokentee_limit_used_ratio{provider='a',window='5h'}", "0.5 0.95x40"),
        ("tokentee_limit_resets_timestamp_seconds{provider='a',window='5h'}", "600x40"),
    ]
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
    check_rules(
        tmp_path,
        "1m",
        interval="1m",
        input_series=[{"series": name, "values": values} for name, values in series],
        promql_expr_test=[firing(alert, at, count) for at, alert, count in cases],
    )


@needs("promtool")
@pytest.mark.parametrize(("cost", "count"), [("0+1x180 180+9x80", 1), ("0+1x260", 0)])
def test_an_hour_that_costs_more_than_the_week_before_is_told(tmp_path, cost, count):
    """A dollar an hour, then nine; each sample is an hour."""
    check_rules(
        tmp_path,
        "10m",
        interval="30m",
        input_series=[{"series": "tokentee_cost_usd_total", "values": cost}],
        promql_expr_test=[firing("TokenteeCostUnusual", "94h", count)],
    )


@needs("haproxy")
def test_haproxy_takes_its_config(tmp_path):
    write("compose", tmp_path)
    taken_by("haproxy", "-c", "-f", str(tmp_path / "haproxy" / "haproxy.cfg"))


@needs("systemd-analyze")
def test_systemd_takes_the_unit(tmp_path, monkeypatch):
    monkeypatch.setattr(kinds, "HIDDEN", ())  # this checkout may lie where a service cannot look
    write("systemd", tmp_path)
    found = taken_by("systemd-analyze", "verify", "--man=no", str(tmp_path / "tokentee.service"))
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
    taken_by("docker", "compose", "config", cwd=tmp_path)


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
    port = free_port()
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
