"""The files of every kind: written whole, never over somebody's changes."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from addon.deploy.kinds import KINDS
from addon.deploy.writing import Occupied, write


def texts(kind, folder):
    return {
        one.path.relative_to(folder).as_posix(): one.path.read_text() for one in write(kind, folder)
    }


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_written_and_says_no_placeholder(kind, tmp_path):
    found = texts(kind, tmp_path)
    assert set(found) == set(KINDS[kind])
    for name, text in found.items():
        assert text.strip(), name
        assert "@VERSION@" not in text
        if name.endswith((".yaml", ".yml")):
            assert list(yaml.safe_load_all(text)), name
        if name.endswith(".toml"):
            assert tomllib.loads(text)


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
    config, service, workload = documents
    assert tomllib.loads(config["data"]["tokentee.toml"])["upstream"]
    labels = workload["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == labels == workload["spec"]["selector"]["matchLabels"]
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    volumes = {volume["name"] for volume in workload["spec"]["template"]["spec"]["volumes"]}
    claims = {claim["metadata"]["name"] for claim in workload["spec"]["volumeClaimTemplates"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes | claims


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        write("docker", Path(tmp_path / "file" / "below"))
