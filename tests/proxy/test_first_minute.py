"""What a proxy says at its start and at Ctrl-C, and what a run says that recorded nothing."""

import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from mitmproxy.io import FlowReader

from tests.proxy import rows
from tests.proxy.client import Http1
from tests.proxy.mitmdump import Mitmdump, free_port
from tests.proxy.pair import OPENAI, post, speak
from tests.proxy.test_run import run
from tests.proxy.upstream import Upstream
from tests.proxy.workers import Workers

pytestmark = pytest.mark.proxy


def proxy_of(kind: str, folder: Path, upstream: Upstream, **more: Any) -> Mitmdump:
    if kind == "workers":
        return Workers(folder, upstream.url, **more)
    return Mitmdump(folder, [upstream.url], tool=kind, **more)


@pytest.mark.parametrize("kind", ["tokentee", "mitmdump", "workers"])
def test_a_proxy_says_what_to_set_and_prints_its_bill_at_ctrl_c(tmp_path: Path, kind: str):
    with Upstream(speak(OPENAI)) as upstream:
        options = {"tee_hosts": f"127.0.0.1:{upstream.port}=openai"}
        with proxy_of(kind, tmp_path, upstream, options=options) as proxy:
            host, port = proxy.address()
            said = f"clients set their base URL to http://{host}:{port} in the place of"
            assert proxy.wait_for_log(said)
            assert proxy.wait_for_log(f"tokentee report --ledger sqlite:///{proxy.ledger}")
            with Http1(proxy.address()) as client:
                post(client, OPENAI, "x", body=OPENAI.request(asked=True))
                assert client.receive().status == 200
            assert proxy.stop(signal.SIGINT) == 0
    (row,) = rows.by_tag(tmp_path / "ledger.db", "case")["x"]
    assert row["response_model"] in proxy.log.partition("This run by model")[2]
    run = f"node={row['node']}" if kind == "mitmdump" else f"tag:run={row['tags']['run']}"
    assert f"tokentee report --ledger sqlite:///{proxy.ledger} --only {run}" in proxy.log
    assert proxy.log.count("clients set") == 1


@pytest.mark.parametrize("kind", ["tokentee", "mitmdump", "workers"])
def test_a_proxy_that_recorded_nothing_names_the_host(tmp_path: Path, kind: str):
    with Upstream(speak(OPENAI)) as upstream, proxy_of(kind, tmp_path, upstream) as proxy:
        with Http1(proxy.address()) as client:
            client.send("GET", "/health", [])
            client.receive()
        assert proxy.stop(signal.SIGINT) == 0
    assert f"--set tee_hosts=127.0.0.1:{upstream.port}" in proxy.log.partition("no LLM request")[2]


@pytest.mark.parametrize("stores", [False, True])
def test_saved_flows_have_their_bodies_or_the_start_says_how(tmp_path: Path, stores: bool):
    saved = tmp_path / "saved.mitm"
    options = {"save_stream_file": str(saved), "store_streamed_bodies": str(stores).lower()}
    with (
        Upstream(speak(OPENAI)) as upstream,
        Mitmdump(tmp_path, [upstream.url], options=options) as proxy,
        Http1(proxy.address()) as client,
    ):
        post(client, OPENAI, "x", body=OPENAI.request(asked=True))
        assert client.receive().status == 200
    with saved.open("rb") as file:
        (flow,) = FlowReader(file).stream()
    assert bool(flow.response.raw_content) is stores  # type: ignore[attr-defined]
    assert ("--set store_streamed_bodies=true" in proxy.log) is not stores


LOCAL = "import urllib.request as r; r.urlopen('http://127.0.0.1:{port}/v1').read(1)"


class Slow(BaseHTTPRequestHandler):
    """Keeps the connection for long enough to be seen."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.server.done.wait(self.server.seconds)  # type: ignore[attr-defined]

    def log_message(self, *_: object) -> None:
        """No log."""


def test_a_command_that_called_this_machine_is_told_so(tmp_path: Path):
    port = free_port()  # where servers listen
    hint = f"tokentee run --set tee_hosts=127.0.0.1:{port} -- COMMAND"
    with ThreadingHTTPServer(("127.0.0.1", port), Slow) as server:
        server.done = Event()  # type: ignore[attr-defined]
        Thread(target=server.serve_forever, daemon=True).start()
        for seconds in (3.0, 30.0):  # the busier the machine, the more seldom the watch looks
            server.seconds = seconds  # type: ignore[attr-defined]
            done = run(tmp_path, "--", sys.executable, "-c", LOCAL.format(port=port))
            if hint in done.stderr.decode():
                break
        server.done.set()  # type: ignore[attr-defined]
        server.shutdown()
    assert hint in done.stderr.decode().partition("no LLM request passed")[2]
