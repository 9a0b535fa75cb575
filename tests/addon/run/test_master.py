"""What the lean master's log costs: nothing where nobody can see it."""

import asyncio
import logging
from pathlib import Path

import pytest
from mitmproxy import log, master, options
from mitmproxy.proxy import server

from addon.proxy.recorder import Recorder
from addon.run.master import RecordingMaster


@pytest.mark.parametrize(
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
