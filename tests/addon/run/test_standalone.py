"""A proxy alone: where it listens, who is warned, and what its imports and its log cost."""

import asyncio
import gc
import logging
from pathlib import Path

import pytest
from mitmproxy import log, master, options
from mitmproxy.proxy import server

from addon.proxy.recorder import Recorder
from addon.run.call.arguments import parse
from addon.run.imports import uncollected_imports
from addon.run.master import RecordingMaster, parsed_options
from addon.run.standalone import warnings, words_of
from tests.named import for_each


@for_each(
    "words, hosts",
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


@for_each(
    "is_skipped",
    [pytest.param(True, id="alone"), pytest.param(False, id="with a script")],
)
def test_who_can_see_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_skipped: bool):
    script = tmp_path / "script.py"
    script.touch()
    scripts = [] if is_skipped else [str(script)]
    connections = logging.getLogger(server.__name__)
    before = (connections.level, list(logging.getLogger().handlers))

    async def ran_master(_self: master.Master) -> None:
        events = [one for one in logging.getLogger().handlers if type(one) is log.LegacyLogEvents]
        assert (not events) is is_skipped
        assert (connections.level == logging.WARNING) is is_skipped

    async def run() -> None:
        made = RecordingMaster(options.Options(confdir=str(tmp_path)), [], Recorder())
        made.options.update(termlog_verbosity="warn", scripts=scripts)
        monkeypatch.setattr(master.Master, "run", ran_master)
        await made.run()

    try:
        asyncio.run(run())
    finally:
        connections.setLevel(before[0])
        logging.getLogger().handlers[:] = before[1]


def test_what_is_made_meanwhile_is_never_walked() -> None:
    with uncollected_imports():
        assert not gc.isenabled()
        made: list[object] = [[]]
    assert gc.isenabled()
    assert not any(seen is made for seen in gc.get_objects())


def test_collector_works_again_after_an_import_that_failed() -> None:
    with pytest.raises(ImportError), uncollected_imports():
        raise ImportError
    assert gc.isenabled()


@for_each(
    "words, options",
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
