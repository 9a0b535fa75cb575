"""In somebody else's process nothing is changed but one wrapped set; and afterwards not even that.

The snapshot is of every class of mitmproxy and the libraries under it, so a mechanism that nobody
thought of fails here too.
"""

import asyncio
import logging
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from mitmproxy import contentviews
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.addons.view import View
from mitmproxy.hooks import DoneHook
from mitmproxy.log import MitmLogHandler
from mitmproxy.options import Options
from mitmproxy.test import taddons
from mitmproxy.tools.dump import DumpMaster

from addon.parts.fast.options import FAST, is_wanted
from addon.proxy import process
from addon.proxy.process import owner_of
from addon.proxy.recorder import Recorder
from tests.addon.proxy.recording import answered, flow_of, recording
from tests.addon.proxy.snapshots import changes, snapshot
from tests.proxy.mitmdump import free_port

pytestmark = pytest.mark.large
WRAPPED = {
    f"mitmproxy.proxy.layers.http:HttpStream.{name}"
    for name in (
        "check_body_size",
        "handle_protocol_error",
        "send_response",
        "start_request_stream",
        "start_response_stream",
    )
} | {
    "mitmproxy.proxy.layers.websocket:WebsocketLayer.relay_messages",
    "mitmproxy.proxy.server:ConnectionHandler.handle_connection",
}


def play(ledger: Path, **options: Any) -> tuple[set[str], set[str]]:
    """What is changed while a recorder works, and what after it has stopped."""

    async def session() -> tuple[set[str], set[str]]:
        with taddons.context(Proxyserver()) as outer:
            before = snapshot(outer.master)
        recorder = Recorder()
        async with recording(ledger, recorder=recorder, **options) as (_, context):
            hooks_before = snapshot(context.master)
            flow = flow_of()
            recorder.requestheaders(flow)
            recorder.request(flow)
            answered(flow, content=b"{}", content_type="application/json")
            recorder.responseheaders(flow)
            await recorder.response(flow)
            during = changes(before, snapshot())
            assert changes(hooks_before, snapshot(context.master)) == set()
        return during, changes(before, snapshot())

    try:
        return asyncio.run(session())
    finally:
        for handler in logging.getLogger().handlers[:]:
            if isinstance(handler, MitmLogHandler):  # its loop is closed
                handler.uninstall()


def test_a_guest_that_wraps_nothing_changes_nothing(ledger: Path, caplog):
    caplog.set_level(logging.INFO)
    during, after = play(ledger, tee_wrap="no")
    assert during == after == set()
    (line,) = [each for each in caplog.messages if "a guest" in each]
    assert "tee_wrap=no" in line
    assert "does not wait for its commit" in line


@pytest.mark.parametrize("end", ["removed", "stopped", "refused"])
@pytest.mark.parametrize(
    "options",
    [{}, {"tee_log_format": "json"}, {"tee_metrics": "PORT"}, {"tee_otlp": "http://127.0.0.1:9"}],
)
async def test_whatever_was_asked_for_nothing_stays(
    ledger: Path, tmp_path: Path, options: dict[str, str], end: str
):
    """Of loggers, content views, threads and ports, in a master that shows flows."""
    port = str(free_port())
    values = {name: value.replace("PORT", port) for name, value in options.items()}
    logger = logging.getLogger("opentelemetry")
    logger.handlers, logger.propagate = [], True
    recorder = Recorder()
    with taddons.context(Proxyserver(), View()) as context:
        before, views = snapshot(context.master), dict(contentviews.registry)
        context.master.addons.add(recorder)
        context.options.update(
            ledger_url=f"sqlite:///{ledger}", tee_capture=str(tmp_path / "captures"), **values
        )
        if end == "refused":
            context.options.update_defer(tee_nothing="1")
        recorder.running()
        if end == "stopped":
            context.master.should_exit.set()
            await context.master.addons.trigger_event(DoneHook())
            context.master.addons.chain.remove(recorder)
        elif end == "removed":
            assert dict(contentviews.registry) == views
            context.master.addons.remove(recorder)
        while any(t.name.startswith("tokentee-") for t in threading.enumerate()):
            await asyncio.sleep(0.01)
        if end == "refused":
            context.master.addons.remove(recorder)
        async with asyncio.timeout(60):
            while changes(before, snapshot(context.master)):
                await asyncio.sleep(0.01)
        assert dict(contentviews.registry) == views
        with socket.create_server(("127.0.0.1", int(port))):
            pass


class Other:
    """An addon of somebody else."""


@pytest.mark.parametrize(
    ("argv", "scripts", "addons", "is_us", "why"),
    [
        (["/x/bin/mitmdump"], ["tee.py"], [], True, "this script alone"),
        (["/x/bin/mitmdump"], ["tee.py", "b.py"], [], False, "other scripts"),
        (["/x/bin/mitmdump"], ["tee.py"], [Other()], False, "other scripts or addons"),
        (["my_program.py"], ["tee.py"], [], False, "embeds"),
    ],
)
def test_whose_process_it_is(
    monkeypatch: pytest.MonkeyPatch,
    argv: list[str],
    scripts: list[str],
    addons: list[object],
    is_us: bool,
    why: str,
):
    async def ask() -> process.Owner:
        master = DumpMaster(Options(), with_termlog=False, with_dumper=False)
        # Not loaded: that the option names them is enough.
        master.options._options["scripts"].value = scripts
        for addon in addons:
            master.addons.add(addon)
        found = owner_of(master)
        await master.done()
        return found

    monkeypatch.setattr("sys.argv", argv)
    found = asyncio.run(ask())
    assert found.is_us is is_us
    assert why in found.reason
    assert is_wanted({"tee_fast": FAST.read("yes")}, found.is_us)
    assert not is_wanted({"tee_fast": FAST.read("no")}, found.is_us)
    assert is_wanted({"tee_fast": FAST.read(None)}, found.is_us) is is_us
