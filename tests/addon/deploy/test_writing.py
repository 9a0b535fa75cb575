"""The files of every kind: written whole, never over somebody's changes; the queries and the layout of
the dashboards."""

import errno
import json
import re
import tomllib
from pathlib import Path

import pytest
import sqlalchemy as sa
import yaml
from typer.testing import CliRunner

from addon.deploy import kinds
from addon.deploy.kinds import (
    DASHBOARDS,
    GRID_COLUMNS,
    KINDS,
    Occupied,
    dashboard,
    next_steps,
    panels_of,
    write,
)
from addon.telemetry.health import Health
from addon.telemetry.metrics import Metrics
from ledger.budgets import budgets as budgets_file
from ledger.model.exchange import Outcome, UsageSource
from ledger.store import db
from ledger.store.scope import requests
from tests.addon.telemetry.made import one, reading
from tests.app import APP
from tests.ledger.written import NOON, put, settled, whole
from tests.named import for_each


def texts(kind, folder):
    return {
        one.path.relative_to(folder).as_posix(): one.path.read_text() for one in write(kind, folder)
    }


@for_each("kind", KINDS)
def test_every_kind_is_written_and_says_no_placeholder(kind, tmp_path):
    found = texts(kind, tmp_path)
    assert set(found) == set(KINDS[kind])
    for name, text in found.items():
        assert text.strip(), name
        assert not re.search(r"@[A-Z]+@", text), name
        if name.endswith((".yaml", ".yml")):
            assert list(yaml.safe_load_all(text)), name
        if name.endswith(".toml"):
            assert tomllib.loads(text)


def test_a_full_disk_leaves_nothing_beside(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="no space left"):
        write("compose", tmp_path)
    assert [*tmp_path.iterdir()] == []


def test_writing_twice_changes_nothing(tmp_path):
    assert all(one.is_new for one in write("compose", tmp_path))
    assert not any(one.is_new for one in write("compose", tmp_path))


def test_a_changed_file_is_not_replaced_and_nothing_else_is_written(tmp_path):
    changed = tmp_path / "tokentee.toml"
    changed.write_text("# mine\n")
    with pytest.raises(Occupied) as occupied:
        write("docker", tmp_path)
    assert occupied.value.paths == (changed,)
    assert [path.name for path in tmp_path.iterdir()] == ["tokentee.toml"]
    write("docker", tmp_path, force=True)
    assert changed.read_text() != "# mine\n"


def test_what_is_no_text_is_in_the_way_too(tmp_path):
    (tmp_path / "tokentee.toml").write_bytes(b"\xff")
    with pytest.raises(Occupied):
        write("systemd", tmp_path)


def test_a_file_larger_than_the_memory_is_in_the_way_too(tmp_path):
    with (tmp_path / "tokentee.toml").open("wb") as file:
        file.truncate(2**40)  # without a block on the disk
    with pytest.raises(Occupied):
        write("systemd", tmp_path)


def test_the_container_is_confined(tmp_path):
    text = texts("docker", tmp_path)["Dockerfile"]
    assert re.search(r"^USER 10001$", text, re.MULTILINE)
    assert "HEALTHCHECK" in text
    compose = yaml.safe_load(texts("compose", tmp_path / "c")["compose.yaml"])
    for name in ("proxy-1", "proxy-2"):
        proxy = compose["services"][name]
        assert proxy["read_only"] is True
        assert proxy["cap_drop"] == ["ALL"]


def test_published_ports_of_compose_are_on_loopback(tmp_path):
    compose = yaml.safe_load(texts("compose", tmp_path)["compose.yaml"])
    ports = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_files_that_compose_mounts_are_among_those_written(tmp_path):
    found = texts("compose", tmp_path)
    compose = yaml.safe_load(found["compose.yaml"])
    mounts = [
        volume.partition(":")[0].removeprefix("./")
        for service in compose["services"].values()
        for volume in service.get("volumes", [])
        if volume.startswith("./")
    ]
    assert mounts
    for mount in mounts:
        assert any(name == mount or name.startswith(f"{mount}/") for name in found), mount


def test_kubernetes_names_agree(tmp_path):
    documents = list(yaml.safe_load_all(texts("kubernetes", tmp_path)["tokentee.yaml"]))
    config, service, disruption, workload = documents
    assert tomllib.loads(config["data"]["tokentee.toml"])["upstream"]
    budgets, problems = budgets_file.read(config["data"]["budgets.toml"])
    assert (len(budgets.budgets), len(budgets.quotas), problems) == (1, 1, [])
    assert disruption["spec"]["selector"] == workload["spec"]["selector"]
    labels = workload["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == labels == workload["spec"]["selector"]["matchLabels"]
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    volumes = {volume["name"] for volume in workload["spec"]["template"]["spec"]["volumes"]}
    claims = {claim["metadata"]["name"] for claim in workload["spec"]["volumeClaimTemplates"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes | claims
    assert set(container["resources"]) == {"requests", "limits"}


def test_images_are_pinned_and_everything_has_limits(tmp_path):
    services = yaml.safe_load(texts("compose", tmp_path)["compose.yaml"])["services"]
    for name, service in services.items():
        if "image" in service:
            assert re.search(r":v?\d+\.\d+[\w.-]*$", service["image"]), name
        assert service["deploy"]["resources"]["limits"], name
    assert re.search(
        r"^FROM python:\d+\.\d+\.\d+-", (tmp_path / "Dockerfile").read_text(), re.MULTILINE
    )


@for_each("kind", KINDS)
def test_every_file_is_used_by_another_or_named_in_the_next_steps(kind, tmp_path):
    found = texts(kind, tmp_path)
    steps = next_steps(kind)
    assert re.search(r"@[A-Z]+@", steps) is None
    for name in found:
        used = (name, Path(name).name, f"./{Path(name).parent}", str(Path(name).parent.parent))
        others = [text for other, text in found.items() if other != name]
        known = name in ("Dockerfile", ".dockerignore", "compose.yaml")  # docker finds these itself
        assert known or any(
            word in text for word in used if len(word) > 1 for text in [steps, *others]
        )


def test_an_image_is_made_from_a_wheel_that_is_given(tmp_path):
    wheel = tmp_path / "tokentee-1.2.3-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    runner, to = CliRunner(), tmp_path / "to"
    call = ["deploy", "compose", "--to", str(to), "--wheel"]
    assert runner.invoke(APP, [*call, str(wheel)]).exit_code == 0
    assert (to / wheel.name).read_bytes() == b"a wheel"
    text = (to / "Dockerfile").read_text()
    assert f"COPY {wheel.name} /tmp/{wheel.name}\nRUN pip install" in text
    for name, said in [
        ("tokentee-9.9.9-py3-none-any.whl", "is not a file"),
        ("other.whl", "is not the name"),
    ]:
        refused = runner.invoke(APP, [*call, str(tmp_path / name)])
        assert said in str(refused.exception)
    refused = runner.invoke(APP, ["deploy", "systemd", "--wheel", str(wheel)])
    assert "docker, compose" in str(refused.exception)


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        write("docker", Path(tmp_path / "file" / "below"))


@for_each("folder", kinds.HIDDEN)
def test_a_program_that_the_unit_hides_is_installed_where_it_is_seen(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda _: f"{folder}/somebody/bin/tokentee")
    unit = texts("systemd", tmp_path)["tokentee.service"]
    assert "ExecStart=/usr/local/bin/tokentee run" in unit
    assert next_steps("systemd").startswith("test -x /usr/local/bin/tokentee ||")
    settings = {"/home": "ProtectHome=yes", "/tmp": "PrivateTmp=yes"}
    assert all(line in unit for line in settings.values())


@for_each("name", DASHBOARDS)
def test_panels_do_not_overlap_and_fit_the_grid(name):
    cells = set()
    for panel in json.loads(dashboard(name))["panels"]:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            assert x < GRID_COLUMNS
            assert (x, place["y"]) not in cells
            cells.add((x, place["y"]))


@pytest.mark.postgres
def test_every_query_runs_on_postgresql(new_postgres):
    engine = db.open_engine(new_postgres())
    failed = settled("b", outcome=Outcome.HTTP_ERROR, http_status=429)
    put(engine, whole(settled("a", session_id="s1", first_token_at=NOON)), whole(failed))
    with engine.connect() as connection:
        for panel in json.loads(dashboard("ledger"))["panels"]:
            query = panel["targets"][0]["rawSql"]
            query = re.sub(r"\$__timeFilter\((\w+)\)", r"\1 > '2000-01-01'", query)
            rows = connection.execute(sa.text(query)).all()
            assert rows, panel["title"]
    engine.dispose()


def test_queries_read_public_views_alone():
    for panel in panels_of("ledger"):
        assert set(re.findall(r"FROM (\w+)", panel.query)) == {"requests"}
        named = set(re.findall(r"sum\((\w+)\)", panel.query))
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
    exposed = set(re.findall(r"^(tokentee_\w+)", metrics.exposition().decode(), re.MULTILINE))
    rules = KINDS["prometheus"]["prometheus/tokentee-rules.yml"]()
    texts = [
        *(panel.query for panel in panels_of("metrics")),
        *re.findall(r"expr: (.*)", rules),
    ]
    asked = {name for text in texts for name in re.findall(r"tokentee_\w+", text)}
    assert len(asked) > 10
    assert asked <= exposed
