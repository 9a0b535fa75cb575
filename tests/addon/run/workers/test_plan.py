"""What workers are started with, and what they refuse."""

from pathlib import Path

import pytest

from addon.run.call.arguments import parse
from addon.run.workers.supervisor import plan_of
from ledger.model.errors import WrongCallError


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
