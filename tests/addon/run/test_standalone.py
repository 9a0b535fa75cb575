"""A proxy alone: where it listens, and who is warned."""

import pytest

from addon.run.call.arguments import parse
from addon.run.master import parsed_options
from addon.run.standalone import warnings, words_of
from ledger.model.errors import WrongCallError


@pytest.mark.parametrize(
    ("words", "options"),
    [
        pytest.param([], ["--listen-host", "127.0.0.1"], id="loopback unless asked otherwise"),
        pytest.param(["--listen", "0.0.0.0"], ["--listen-host", "0.0.0.0"], id="host"),
        pytest.param(
            ["--listen", "127.0.0.2:81"],
            ["--listen-host", "127.0.0.2", "--listen-port", "81"],
            id="host and port",
        ),
    ],
)
def test_where_it_listens(words: list[str], options: list[str]):
    assert list(words_of(parse(words))) == options


@pytest.mark.parametrize(
    ("words", "hosts"),
    [
        ("", []),
        ("--listen 127.0.0.2", []),
        ("--listen 127.0.0.1:81", []),
        ("--listen 0.0.0.0", ["0.0.0.0"]),
        ("--listen-host ::", ["::"]),
        ("--set listen_host=::", []),  # the address of --listen stands above it
        ("--mode reverse:https://api.openai.com@8080", []),
        ("--mode reverse:https://api.openai.com@localhost:8080", []),
        ("-m reverse:https://api.openai.com@10.0.0.1:8080", ["10.0.0.1"]),
        ("--mode=regular@10.0.0.1:8080", ["10.0.0.1"]),
        ("--mode regular@:81", ["all interfaces"]),
        ("--listen 0.0.0.0 -n", []),
    ],
)
def test_an_address_that_others_reach_is_warned_of(words: str, hosts: list[str]):
    opts, _ = parsed_options(words_of(parse(words.split())))
    begins = [f"listening on {host}: everyone who reaches this machine" for host in hosts]
    lines = warnings(opts)
    assert len(lines) == len(begins)
    assert all(line.startswith(begin) for line, begin in zip(lines, begins, strict=True))


def test_a_mode_that_is_none_is_a_wrong_call():
    opts, _ = parsed_options(["--mode", "reversed:x"])
    with pytest.raises(WrongCallError, match="--mode reversed:x: unknown mode"):
        warnings(opts)
