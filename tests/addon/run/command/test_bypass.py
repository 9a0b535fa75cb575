"""Connections that went past the recorder."""

import asyncio
import os
import socket
import sys
from pathlib import Path

import pytest

from addon.run.command import bypass
from addon.run.command.bypass import Watch, resolve, warnings

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"
LINES = {
    "openai": ("040A0A0A:01BB", "01", "11"),
    "connecting": ("050A0A0A:01BB", "02", "12"),
    "http": ("040A0A0A:0050", "01", "13"),
    "ended": ("040A0A0A:01BB", "06", "14"),
    "ollama": ("0100007F:2CAA", "01", "15"),
    "proxy": ("0100007F:1F90", "01", "16"),
    "of-another-process": ("040A0A0A:01BB", "01", "17"),
}


def table(**rows: tuple[str, str, str]) -> str:
    lines = [
        f" 0: 0100007F:9999 {remote} {state} 0:0 0:0 0 0 0 {inode}"
        for remote, state, inode in rows.values()
    ]
    return "\n".join([HEAD, *lines])


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A process 1 with a child 2 that holds the connections."""
    for pid, children in (("1", "2 "), ("2", "")):
        (tmp_path / pid / "net").mkdir(parents=True)
        (tmp_path / pid / "fd").mkdir()
        (tmp_path / pid / "task" / pid).mkdir(parents=True)
        (tmp_path / pid / "task" / pid / "children").write_text(children)
    (tmp_path / "1" / "net" / "tcp").write_text(table(**LINES))
    v6 = {"v6": ("00000000000000000000000001000000:2CAA", "01", "18"),
          "mapped": ("0000000000000000FFFF0000040A0A0A:01BB", "01", "19")}  # fmt: skip
    (tmp_path / "1" / "net" / "tcp6").write_text(table(**v6) + "\nbad line\n")
    (tmp_path / "2" / "fd" / "0").symlink_to("/dev/null")
    for inode in (11, 12, 13, 14, 15, 16, 18, 19):
        (tmp_path / "2" / "fd" / str(inode)).symlink_to(f"socket:[{inode}]")
    return tmp_path


def test_direct_connections_of_the_tree_are_counted_once(proc: Path):
    watch = Watch(1, own_port=8080, proc=proc)
    watch.sample()
    watch.sample()
    assert watch.seen == {
        ("10.10.10.4", 443): 2,
        ("10.10.10.5", 443): 1,
        ("127.0.0.1", 11434): 1,
        ("::1", 11434): 1,
    }


def test_a_process_without_such_connections(proc: Path):
    (proc / "1" / "net" / "tcp").write_text(HEAD)
    (proc / "1" / "net" / "tcp6").unlink()
    watch = Watch(1, own_port=0, proc=proc)
    watch.sample()
    assert not watch.seen


def test_a_tree_is_bounded(proc: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bypass, "PROCESSES_MAX", 1)
    watch = Watch(1, own_port=8080, proc=proc)
    watch.sample()
    assert not watch.seen


def test_where_there_is_no_proc_nothing_is_watched(tmp_path: Path):
    asyncio.run(Watch(1, own_port=0, proc=tmp_path).run())


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_real_connection_is_seen(monkeypatch: pytest.MonkeyPatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setattr(bypass, "LOCAL_SERVERS", {port: "Test"})
        with socket.create_connection(("127.0.0.1", port)):
            watch = Watch(os.getpid(), own_port=0)
            watch.sample()
    assert watch.seen == {("127.0.0.1", port): 1}


def test_names_that_do_not_resolve_are_left_out():
    found = asyncio.run(resolve(["localhost", "no.such.host.invalid"]))
    assert set(found.values()) == {"localhost"}
    assert "127.0.0.1" in found


def test_what_is_said():
    seen = {
        ("10.0.0.1", 443): 1,
        ("10.0.0.2", 443): 2,
        ("10.0.0.9", 443): 7,
        ("127.0.0.1", 11434): 3,
        ("::1", 1234): 1,
    }
    names = {"10.0.0.1": "api.openai.com", "10.0.0.2": "api.openai.com"}
    openai, ollama, studio = warnings(seen, names)
    assert openai.startswith("3 connections to api.openai.com went past the recorder")
    assert ollama.startswith("3 connections to Ollama at 127.0.0.1:11434 went past")
    assert "--set tee_hosts=127.0.0.1:11434" in ollama
    assert studio.startswith("1 connection to LM Studio at [::1]:1234 went past")
