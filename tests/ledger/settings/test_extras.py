"""What a missing package needs: a command that can be pasted, and that keeps the extras that are there."""

import json
import shlex
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from ledger.settings import extras
from ledger.settings.extras import missing_extra, needs
from tests.named import for_each

ROOT = Path(__file__).parents[3]
THERE = {"pyarrow", "psycopg"}


@pytest.fixture
def installation(monkeypatch, tmp_path):
    """An installation of a clone with the extras `parquet` and `postgresql`, without uv and pip."""
    clone = tmp_path / "my clone"
    clone.mkdir()
    direct = {"url": clone.as_uri(), "dir_info": {}}
    distribution = SimpleNamespace(read_text=lambda name: json.dumps(direct))
    there = set(THERE)
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: distribution)
    monkeypatch.setattr(extras, "find_spec", lambda name: name if name in there else None)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin/python"))
    monkeypatch.delenv("UV_RUN_RECURSION_DEPTH", raising=False)
    return SimpleNamespace(clone=clone, direct=direct, there=there, prefix=tmp_path)


def command_of(text: str) -> list[str]:
    return shlex.split(text.partition(" it is: ")[2].partition(" (CLONE")[0])


def test_the_tables_have_the_extras_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras.EXTRAS.values()) == set(extras.PACKAGES)
    assert set(extras.PACKAGES) == set(project["optional-dependencies"])


@for_each(
    "name, extra",
    [
        ("pyarrow.parquet", "tokentee[parquet]"),
        ("psycopg", "tokentee[postgresql]"),
        ("distributed", "tokentee[dask]"),
        ("fsspec.core", "tokentee[dask]"),
        ("s3fs", "tokentee[s3]"),
        ("opentelemetry.sdk", "tokentee[otel]"),
    ],
)
def test_the_extra_is_named(name: str, extra: str):
    text = missing_extra(ModuleNotFoundError(name=name))
    assert text is not None
    assert extra in text


@for_each("name", ["mitmproxy", None])
def test_anything_else_is_no_extra(name: str | None):
    assert missing_extra(ModuleNotFoundError(name=name)) is None


@pytest.mark.parametrize("package", ["opentelemetry", "distributed", "s3fs"])
def test_an_installation_as_a_tool_keeps_its_extras(installation, package):
    (installation.prefix / "uv-receipt.toml").touch()
    words = command_of(needs(package))
    assert words[:-1] == ["uv", "tool", "install", "--with-executables-from", "mitmproxy"]
    wanted = ",".join(sorted({extras.EXTRAS[package], "parquet", "postgresql"}))
    assert words[-1] == f"{installation.clone}[{wanted}]"


def test_an_extra_of_which_a_part_is_there_is_not_kept(installation):
    installation.there.add("fsspec")
    assert extras.installed() == ["parquet", "postgresql"]
    installation.there.add("distributed")
    assert extras.installed() == ["parquet", "postgresql", "dask"]


def test_a_checkout_adds_to_its_environment(installation, monkeypatch):
    monkeypatch.setenv("UV_RUN_RECURSION_DEPTH", "1")
    assert command_of(needs("s3fs")) == ["uv", "sync", "--inexact", "--extra", "s3"]
    assert "CLONE" not in needs("s3fs")


def test_another_environment_is_named(installation):
    named = f"{installation.clone}[otel,parquet,postgresql]"
    python = f"{installation.prefix}/bin/python"
    assert command_of(needs("opentelemetry")) == [
        *("uv", "pip", "install", "--python"), python, named
    ]  # fmt: skip
    installation.there.add("pip")
    assert command_of(needs("opentelemetry")) == [python, "-m", "pip", "install", named]


def test_a_clone_that_runs_where_it_lies_stays_there(installation):
    installation.direct["dir_info"]["editable"] = True
    words = command_of(needs("opentelemetry"))
    assert words[-2:] == ["-e", f"{installation.clone}[otel,parquet,postgresql]"]


def test_a_clone_that_is_gone_is_asked_for(installation):
    installation.clone.rmdir()
    text = needs("opentelemetry")
    assert command_of(text)[-1] == "CLONE[otel,parquet,postgresql]"
    assert text.endswith(" (CLONE: the clone, or a wheel)")
