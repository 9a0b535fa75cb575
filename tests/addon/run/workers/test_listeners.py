"""What the supervisor is made of: the sockets, the log, and what workers are started with."""

import errno
import io
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from addon.run.call.arguments import parse
from addon.run.workers import worker_process as module
from addon.run.workers.listeners import ConnectionCounts, Listeners
from addon.run.workers.supervisor import plan_of
from addon.run.workers.worker_process import LineSplitter, Log
from ledger.model.errors import LedgerError, WrongCallError

LOOPBACK = ("127.0.0.1", 0)


@pytest.fixture
def listeners() -> Iterator[Listeners]:
    made = Listeners()
    yield made
    made.close()


def port_of(listeners: Listeners) -> int:
    return int(listeners.shown()[0].rpartition(":")[2])


def test_a_port_that_the_kernel_chooses_is_shown_and_listens(listeners: Listeners):
    listeners.open([LOOPBACK])
    ((address, (descriptor,)),) = listeners.descriptors([LOOPBACK])
    assert (address, descriptor >= 0) == (LOOPBACK, True)
    socket.create_connection(("127.0.0.1", port_of(listeners)), 5).close()


def test_an_empty_host_is_every_interface_on_one_port(listeners: Listeners):
    listeners.open([("", 0)])
    ports = {name.rpartition(":")[2] for name in listeners.shown()}
    assert len(ports) == 1
    socket.create_connection(("127.0.0.1", port_of(listeners)), 5).close()


def test_an_address_that_is_taken_is_named_and_nothing_stays_open(listeners: Listeners):
    listeners.open([LOOPBACK])
    taken = ("127.0.0.1", port_of(listeners))
    other = Listeners()
    with pytest.raises(LedgerError, match=rf"127.0.0.1:{taken[1]}: Address already in use"):
        other.open([LOOPBACK, taken])
    assert other.shown() == []


def test_addresses_come_and_go(listeners: Listeners):
    listeners.open([LOOPBACK])
    before = listeners.shown()
    listeners.open([LOOPBACK, ("127.0.0.2", 0)])
    assert listeners.shown()[:1] == before
    assert len(listeners.shown()) == 2
    listeners.keep_only([("127.0.0.2", 0)])
    assert [name.partition(":")[0] for name in listeners.shown()] == ["127.0.0.2"]


def test_a_system_without_ipv6(listeners: Listeners, monkeypatch: pytest.MonkeyPatch):
    made = socket.socket

    def without(family: int, kind: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "no")
        return made(family, kind)

    monkeypatch.setattr(socket, "socket", without)
    listeners.open([("", 0)])
    assert [name.partition(":")[0] for name in listeners.shown()] == ["0.0.0.0"]


def test_a_host_that_is_none(listeners: Listeners):
    with pytest.raises(LedgerError, match=r"cannot listen on no\.such\.host\.invalid:1"):
        listeners.open([("no.such.host.invalid", 1)])


def test_the_worker_with_the_fewest_connections_takes_the_next(tmp_path: Path):
    one = ConnectionCounts(tmp_path, processes_max=4)
    two = ConnectionCounts(tmp_path)
    one.write(0, 3)
    two.write(1, 2)
    assert not one.is_least(0)
    assert two.is_least(1)
    two.write(1, 3)
    assert one.is_least(0)
    assert two.is_least(1)
    two.write(3, 1)
    assert not one.is_least(0)
    one.clear(3)
    assert one.is_least(0), "one that does not accept does not count"


def written(log: Log, out: io.StringIO) -> list[str]:
    return out.getvalue().splitlines()


def test_lines_are_whole_however_they_are_cut():
    out = io.StringIO()
    log = Log(out)
    one, two = LineSplitter(log, 1), LineSplitter(log, 2)
    one.feed(b"first ha")
    two.feed(b"of two\nand m")
    one.feed(b"lf\n\n")
    two.end()
    one.end()
    assert written(log, out) == ["worker 2: of two", "worker 1: first half", "worker 2: and m"]


def test_json_lines_stay_json():
    out = io.StringIO()
    log = Log(out)
    log.as_json = True
    log.line_of_worker(3, b'{"time": "t", "message": "m"}')
    log.warning("it ended")
    of_worker, own = (json.loads(line) for line in written(log, out))
    assert of_worker == {"worker": 3, "time": "t", "message": "m"}
    assert (own["level"], own["message"]) == ("warning", "it ended")


def test_a_line_without_end_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "LINE_BYTES_MAX", 4)
    out = io.StringIO()
    lines = LineSplitter(log := Log(out), 1)
    lines.feed(b"abcdefghij")
    assert written(log, out) == ["worker 1: abcd", "worker 1: efgh"]


def test_quiet_keeps_warnings_and_a_closed_stderr_hurts_nobody():
    out = io.StringIO()
    log = Log(out)
    log.quiet = True
    log.info("started")
    log.warning("ended")
    assert written(log, out) == ["tokentee: ended"]

    class Gone(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError("gone")

    Log(Gone()).warning("x")


def plan(folder: Path, *words: str):
    return plan_of(parse(["--set", f"confdir={folder}", *words]), folder)


def test_the_addresses_are_those_that_mitmproxy_asks_for(tmp_path: Path):
    assert plan(tmp_path).addresses == (("127.0.0.1", 8080),)
    assert plan(tmp_path, "--listen", "0.0.0.0:81").addresses == (("0.0.0.0", 81),)
    found = plan(tmp_path, "--mode", "reverse:https://api.openai.com@8001", "--mode", "socks5")
    assert found.addresses == (("127.0.0.1", 8001), ("127.0.0.1", 1080))
    assert found.trusted.is_file()


def test_mitmproxys_configuration_file_counts(tmp_path: Path):
    (tmp_path / "config.yaml").write_text("listen_port: 8123\nproxyauth: a:b\n")
    assert plan(tmp_path).addresses == (("127.0.0.1", 8123),)


def test_options_of_mitmproxys_addons_are_left_to_the_workers(tmp_path: Path):
    found = plan(tmp_path, "--proxyauth", "a:b", "--upstream-auth", "c:d", "-s", "x.py")
    assert found.words[-2:] == ("-s", "x.py")


def test_only_errors_are_wanted(tmp_path: Path):
    assert plan(tmp_path, "-q").quiet
    assert not plan(tmp_path).quiet


def test_strangers_who_can_reach_it_are_told(tmp_path: Path):
    assert any("0.0.0.0" in note for note in plan(tmp_path, "--listen", "0.0.0.0:81").notes)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--mode", "wireguard"], "--mode wireguard does not go with --workers"),
        (["--mode", "reverse:http3://h@9"], "does not go with --workers"),
        (["--mode", "reversed:x"], "--mode reversed:x"),
        (["-w", "flows"], "-w) does not go with --workers"),
        (["--set", "save_stream_file=flows"], "-w) does not go with --workers"),
        (["-n"], "--no-server does not go with --workers"),
        (["--set", "listen_port=x"], "listen_port"),
    ],
)
def test_what_workers_refuse(tmp_path: Path, words: list[str], says: str):
    with pytest.raises(WrongCallError) as raised:
        plan(tmp_path, *words)
    assert says in str(raised.value)
