"""The files of docs/deploy: each is read by the program that it is for, where that is installed."""

import contextlib
import http.client
import http.server
import json
import os
import re
import shutil
import subprocess
import threading
import time
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import sqlalchemy as sa
import yaml
from prometheus_client import generate_latest

from addon.parts.telemetry.metrics import Metrics
from addon.proxy.health import Health
from ledger.model.exchange import Outcome, UsageSource
from ledger.parts.budgets import budgets_file
from ledger.parts.sync.merging import sync
from ledger.store import db
from ledger.store.scope import requests
from tests.addon.parts.telemetry.made import one, reading
from tests.ledger.conftest import (  # noqa: F401  # fixtures
    administer,
    migrated_database,
    new_database,
    new_postgres,
    postgres_server,
)
from tests.ledger.written import NOON, put, settled, whole
from tests.named import for_each
from tests.proxy.mitmdump import free_port

FILES = Path(__file__).parent.parent / "docs" / "deploy"
DASHBOARDS = FILES / "grafana" / "dashboards"
GRID_COLUMNS = 24
"""Of Grafana."""
SECONDS_MAX = 30


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not shutil.which(program), reason=f"{program} is not installed")


def panels(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((DASHBOARDS / f"tokentee-{name}.json").read_text())[
        "panels"
    ]
    return found


def taken_by(*command: str | Path, cwd: Path | None = None) -> str:
    """What a program says of files that it takes."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@contextlib.contextmanager
def started(*command: str | Path) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        yield
    finally:
        process.terminate()
        process.communicate(timeout=SECONDS_MAX)


def until(condition: Any) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, http.client.HTTPException, sa.exc.DBAPIError):
            if condition():
                return
        time.sleep(0.1)
    raise AssertionError("it did not come about")


class Proxy:
    """Stands for one proxy: answers with its name, and says whether it is ready."""

    def __init__(self, name: str) -> None:
        proxy = self
        self.is_ready = True

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200 if proxy.is_ready or self.path != "/readyz" else 503)
                self.send_header("Content-Length", str(len(name)))
                self.end_headers()
                self.wfile.write(name.encode())

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


# What any reader of the format takes


@for_each("path", sorted(path for path in FILES.rglob("*") if path.is_file()), ids=str)
def test_every_file_is_whole_and_named_on_the_page(path: Path):
    text = path.read_text()
    assert text.strip()
    if path.suffix in (".yaml", ".yml"):
        assert list(yaml.safe_load_all(text))
    if path.suffix == ".toml":
        assert tomllib.loads(text)
    page = (FILES / "README.md").read_text()
    below = path.relative_to(FILES).as_posix()
    assert below == "README.md" or "provisioning" in below or f"({below})" in page


def test_compose_is_confined_pinned_limited_and_on_loopback():
    services = yaml.safe_load((FILES / "compose.yaml").read_text())["services"]
    for name in ("proxy-1", "proxy-2"):
        assert services[name]["read_only"] is True
        assert services[name]["cap_drop"] == ["ALL"]
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)
    for name, service in services.items():
        if "image" in service:
            assert re.search(r":v?\d+\.\d+[\w.-]*$", service["image"]), name
        assert service["deploy"]["resources"]["limits"], name
        for volume in service.get("volumes", []):
            if volume.startswith("./"):
                assert (FILES / volume.partition(":")[0]).exists(), volume


def test_the_image_is_confined_and_has_the_ports_of_its_settings():
    text = (FILES / "Dockerfile").read_text()
    assert re.search(r"^FROM python:3\.12\.\d+-slim", text, re.M)
    assert re.search(r"^USER 10001$", text, re.M)
    # Nothing writes bytecode later.
    assert "PYTHONDONTWRITEBYTECODE" not in text or "pip install --compile " in text
    exposed = re.search(r"^EXPOSE (.*)$", text, re.M)
    assert exposed is not None
    settings = (FILES / "tokentee.toml").read_text()
    assert {*re.findall(r'listen = "[\d.]+:(\d+)"', settings)} == {*exposed[1].split()}
    sent = (FILES / ".dockerignore").read_text().splitlines()
    assert {"*", "!tokentee.toml", "!budgets.toml", "!*.whl"} == {*sent}


def test_the_health_check_of_the_image_fails_where_nobody_is_ready():
    text = (FILES / "Dockerfile").read_text()
    found = re.search(r"HEALTHCHECK.*?CMD (\[.*?\])\n", text, re.DOTALL)
    assert found is not None
    proxy = Proxy("one")
    probe = json.loads(found[1])[2].replace("9464", str(proxy.port))
    try:
        assert subprocess.run(["python3", "-c", probe], check=False).returncode == 0
        proxy.is_ready = False
        failed = subprocess.run(["python3", "-c", probe], check=False, capture_output=True)
        assert failed.returncode != 0
    finally:
        proxy.close()


def test_kubernetes_schemas_take_every_object_and_names_agree():
    documents = list(yaml.safe_load_all((FILES / "kubernetes.yaml").read_text()))
    for document in documents:
        kubernetes_validate.validate(document, "1.31", strict=True)
    config, service, disruption, workload = documents
    assert tomllib.loads(config["data"]["tokentee.toml"])["upstream"]
    assert config["data"]["budgets.toml"] == (FILES / "budgets.toml").read_text()
    *_, problems = budgets_file.read(config["data"]["budgets.toml"])
    assert problems == []
    assert disruption["spec"]["selector"] == workload["spec"]["selector"]
    pod = workload["spec"]["template"]
    assert service["spec"]["selector"] == pod["metadata"]["labels"]
    assert pod["metadata"]["labels"] == workload["spec"]["selector"]["matchLabels"]
    (container,) = pod["spec"]["containers"]
    volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
    claims = {claim["metadata"]["name"] for claim in workload["spec"]["volumeClaimTemplates"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes | claims
    assert set(container["resources"]) == {"requests", "limits"}


# Dashboards


@for_each("name", ["postgresql", "prometheus"])
def test_panels_do_not_overlap_and_fit_the_grid(name: str):
    cells = set()
    for panel in panels(name):
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            assert x < GRID_COLUMNS
            assert (x, place["y"]) not in cells
            cells.add((x, place["y"]))


@pytest.mark.postgres
def test_every_query_runs_on_postgresql(new_postgres: Any):  # noqa: F811
    engine = db.open_engine(new_postgres())
    failed = settled("b", outcome=Outcome.HTTP_ERROR, http_status=429)
    put(engine, whole(settled("a", session_id="s1", first_token_at=NOON)), whole(failed))
    with engine.connect() as connection:
        for panel in panels("postgresql"):
            query = panel["targets"][0]["rawSql"]
            query = re.sub(r"\$__timeFilter\((\w+)\)", r"\1 > '2000-01-01'", query)
            assert connection.execute(sa.text(query)).all(), panel["title"]
    engine.dispose()


def test_queries_read_public_views_alone():
    for panel in panels("postgresql"):
        query = panel["targets"][0]["rawSql"]
        assert set(re.findall(r"FROM (\w+)", query)) == {"requests"}
        named = set(re.findall(r"sum\((\w+)\)", query))
        assert named <= set(requests.c.keys()) | {"cost_usd", "list_value_usd"}


def test_every_metric_that_is_asked_for_is_exposed():
    metrics = Metrics(
        lambda: Health(
            writer_alive=True,
            oldest_waiting_seconds=1,
            disk_free_bytes=1,
            waiting_to_ship=1,
            shipper_alive=True,
        )
    )
    metrics.observe(one())
    metrics.observe(one(charges=(), degraded="unread"))
    metrics.observe(one(reading(UsageSource.NONE)))
    exposed = set(
        re.findall(r"^(tokentee_\w+)", generate_latest(metrics.registry).decode(), re.MULTILINE)
    )
    rules = (FILES / "prometheus" / "tokentee-rules.yml").read_text()
    texts = [panel["targets"][0]["expr"] for panel in panels("prometheus")]
    texts += re.findall(r"expr: (.*)", rules)
    asked = {name for text in texts for name in re.findall(r"tokentee_\w+", text)}
    assert len(asked) > 10
    assert asked <= exposed


# The programs


@needs("promtool")
def test_promtool_takes_config_rules_and_every_panel(tmp_path: Path):
    config = FILES / "prometheus" / "prometheus.yml"
    assert "11 rules found" in taken_by("promtool", "check", "config", config)
    rules = [
        {"record": f"panel:{number}", "expr": panel["targets"][0]["expr"]}
        for number, panel in enumerate(panels("prometheus"))
    ]
    groups = {"groups": [{"name": "panels", "rules": rules}]}
    (tmp_path / "panels.yml").write_text(yaml.safe_dump(groups))
    taken_by("promtool", "check", "rules", tmp_path / "panels.yml")


def check_rules(folder: Path, evaluation_interval: str, **test: Any) -> None:
    """Let promtool test our rules."""
    document = {
        "rule_files": [str(FILES / "prometheus" / "tokentee-rules.yml")],
        "evaluation_interval": evaluation_interval,
        "tests": [test],
    }
    (folder / "tests.yml").write_text(yaml.safe_dump(document))
    taken_by("promtool", "test", "rules", folder / "tests.yml")


def firing(alert: str, at: str, count: int) -> dict[str, Any]:
    return {
        "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})',
        "eval_time": at,
        "exp_samples": [{"labels": "{}", "value": count}] if count else [],
    }


@needs("promtool")
def test_alerts_fire_when_they_should_and_not_before(tmp_path: Path):
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
@for_each("cost, count", [("0+1x180 180+9x80", 1), ("0+1x260", 0)])
def test_an_hour_that_costs_more_than_the_week_before_is_told(
    tmp_path: Path, cost: str, count: int
):
    """A dollar an hour, then nine; each sample is an hour."""
    check_rules(
        tmp_path,
        "10m",
        interval="30m",
        input_series=[{"series": "tokentee_cost_usd_total", "values": cost}],
        promql_expr_test=[firing("TokenteeCostUnusual", "94h", count)],
    )


@needs("haproxy")
@pytest.mark.process
def test_haproxy_sends_requests_to_proxies_that_are_ready(tmp_path: Path):
    taken_by("haproxy", "-c", "-f", FILES / "haproxy" / "haproxy.cfg")
    proxies = [Proxy("one"), Proxy("two")]
    port = free_port()
    text = (FILES / "haproxy" / "haproxy.cfg").read_text()
    text = text.replace("bind *:8001", f"bind 127.0.0.1:{port}")
    text = text.replace("bind *:8002", f"bind 127.0.0.1:{free_port()}")
    text = text.replace("init-addr none resolvers docker", "inter 200ms rise 1 fall 1")
    for number, proxy in enumerate(proxies, start=1):
        text = re.sub(
            rf"proxy-{number}:800\d check port 9464", f"127.0.0.1:{proxy.port} check", text
        )
    config = tmp_path / "haproxy.cfg"
    config.write_text(text.partition("\nresolvers docker")[0] + "\n")

    def ask() -> tuple[int, bytes]:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as client:
            client.request("GET", "/v1/models")
            answer = client.getresponse()
            return answer.status, answer.read()

    try:
        with started("haproxy", "-db", "-f", config):
            until(lambda: {ask()[1] for _ in range(6)} == {b"one", b"two"})
            proxies[0].is_ready = False
            until(lambda: {ask() for _ in range(6)} == {(200, b"two")})
    finally:
        for proxy in proxies:
            proxy.close()


@needs("pgbouncer")
@pytest.mark.process
@pytest.mark.postgres
def test_a_ledger_behind_pgbouncer(tmp_path: Path, new_postgres: Any):  # noqa: F811
    """Transaction pooling: a ledger is merged in and read, through our file."""
    target = sa.make_url(new_postgres())
    port = free_port()
    text = (FILES / "pgbouncer" / "pgbouncer.ini").read_text()
    upstream = f"tokentee = host={target.query['host']} dbname={target.database} user=postgres"
    text = re.sub(r"tokentee = .*", upstream, text)
    text = text.replace("listen_addr = *", "listen_addr = 127.0.0.1\nunix_socket_dir =")
    text = text.replace("listen_port = 6432", f"listen_port = {port}")
    config = tmp_path / "pgbouncer.ini"
    config.write_text(re.sub(r"auth_type = .*\nauth_file = .*", "auth_type = any", text))
    tmp_path.chmod(0o755)
    source = f"sqlite:///{tmp_path / 'source.sqlite3'}"
    engine = db.ensure(source)
    put(engine, whole(settled("a")), whole(settled("b")))
    engine.dispose()
    url = f"postgresql+psycopg://postgres@127.0.0.1:{port}/tokentee"

    def asked(query: str) -> Any:
        with db.disposing(db.open_engine(url)) as engine, engine.connect() as connection:
            return connection.scalar(sa.text(query))

    sockets = Path(str(target.query["host"]))
    mode = sockets.stat().st_mode
    sockets.chmod(0o711)  # PgBouncer does not run as root, and must reach the server's socket
    try:
        with started("pgbouncer", "-u", "nobody", config):
            until(lambda: asked("SELECT 1") == 1)
            sync(source, url)
            sync(source, url)
            assert asked("SELECT count(*) FROM requests") == 2
    finally:
        sockets.chmod(mode)


@needs("systemd-analyze")
def test_systemd_takes_the_unit(tmp_path: Path):
    program = tmp_path / "tokentee"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / "tokentee.service"
    text = (FILES / unit.name).read_text()
    unit.write_text(text.replace("/usr/local/bin/tokentee", str(program)))
    said = taken_by("systemd-analyze", "verify", "--man=no", unit)
    assert "tokentee.service" not in said, said


@needs("docker")
def test_docker_compose_takes_its_file(tmp_path: Path):
    if subprocess.run(
        ["docker", "compose", "version"], capture_output=True, check=False
    ).returncode:
        pytest.skip("this docker has no compose")
    shutil.copytree(FILES, tmp_path, dirs_exist_ok=True)
    (tmp_path / ".env").write_text("POSTGRES_PASSWORD=a\nGRAFANA_PASSWORD=b\n")
    taken_by("docker", "compose", "config", cwd=tmp_path)


@pytest.mark.clients
@pytest.mark.timeout(600)
def test_the_image_is_built_becomes_healthy_and_stops(tmp_path: Path):
    """By name: it needs an engine (docker or podman), the base image and a package index."""
    engine = next(filter(None, map(shutil.which, ("docker", "podman"))), None)
    if (
        engine is None
        or subprocess.run([engine, "info"], capture_output=True, check=False).returncode
    ):
        pytest.skip("no container engine runs here")
    name, health = f"tokentee-test-{os.getpid()}", free_port()
    context = tmp_path / "context"
    shutil.copytree(FILES, context)
    taken_by("uv", "build", "--quiet", "--wheel", "--out-dir", context, cwd=FILES.parent.parent)
    config = context / "tokentee.toml"
    text = config.read_text().replace("0.0.0.0:9464", f"127.0.0.1:{health}")
    config.write_text(re.sub(r"0\.0\.0\.0:800\d", lambda _: f"127.0.0.1:{free_port()}", text))

    def is_ready() -> bool:
        url = f"http://127.0.0.1:{health}/readyz"
        return bool(urllib.request.urlopen(url, timeout=2).read())

    try:
        subprocess.run(
            [engine, "build", "-t", name, "."], cwd=context, check=True, timeout=500,
            env=os.environ | {"BUILDAH_FORMAT": "docker"},
        )  # fmt: skip
        taken_by(
            *(engine, "run", "--detach", "--name", name, "--network", "host", "--read-only"),
            *("--tmpfs", "/tmp", "-v", f"{name}:/var/lib/tokentee", name),
        )
        until(is_ready)
        said = taken_by(engine, "exec", name, "stat", "--format", "%u %g", "/var/lib/tokentee")
        assert said == "10001 10001\n"
        taken_by(engine, "stop", name)
        assert taken_by(engine, "wait", name) == "0\n"
    finally:
        for words in (["rm", "--force", name], ["volume", "rm", name], ["rmi", name]):
            subprocess.run([engine, *words], check=False, capture_output=True)
