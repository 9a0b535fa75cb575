"""A proxy alone: where it listens, and who is warned."""

import pytest

from addon.run.alone import listen_words, warnings
from addon.run.call.arguments import parse


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
    assert listen_words(parse(words)) == options


def test_an_address_that_others_reach_is_warned_of():
    assert warnings(parse([])) == []
    assert warnings(parse(["--listen", "127.0.0.1:81"])) == []
    (line,) = warnings(parse(["--listen", "0.0.0.0:81"]))
    assert line.startswith("listening on 0.0.0.0: everyone who reaches this machine")
    (line,) = warnings(parse(["--mode", "regular@:81"]))
    assert line.startswith("listening on all interfaces: ")
