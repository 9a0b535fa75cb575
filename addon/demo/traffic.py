"""Edge. The demo's connections: fake providers on loopback, a real mitmdump with the addon in front
of them, and the agent."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from addon.demo.scenes import Scene
from ledger.model.errors import LedgerError

SCENE_HEADER = "x-demo-scene"
"""Holds the name of the scene; a real system would use the request's content."""
ANSWER_SECONDS_MAX = 30
MITMDUMP_START_SECONDS_MAX = 60
"""Import, migration of a new ledger and mitmproxy's new certificate take 2-4 s, and more on a
machine that has just installed everything."""
MITMDUMP_STOP_SECONDS_MAX = 20
LOG_LINES_MAX = 40


@contextlib.contextmanager
def serving(scenes: Mapping[str, Scene]) -> Iterator[int]:
    """Answer requests by the name of their scene; yields the port."""

    class FakeProvider(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = ANSWER_SECONDS_MAX

        def do_POST(self) -> None:
            scene = scenes[self.headers[SCENE_HEADER]]
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            asked = (body.get("stream_options") or {}).get("include_usage") is True
            self.send_response(scene.status)
            kind = "text/event-stream" if scene.status == 200 else "application/json"
            headers = {"content-type": kind, "transfer-encoding": "chunked"}
            for name, value in (headers | dict(scene.answer_headers)).items():
                self.send_header(name, value)
            self.end_headers()
            for piece in map(str.encode, scene.pieces_sent(asked=asked)):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            if scene.leaves:
                self.rfile.read(1)  # the proxy leaves, too
                self.close_connection = True
            else:
                self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *_: Any) -> None:
            """The demo's own requests are not worth a line."""

    with ThreadingHTTPServer(("127.0.0.1", 0), FakeProvider) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@contextlib.contextmanager
def recording(ledger: Path, conf: Path, upstreams: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Run mitmdump in front of each provider's port; yields the port to send to, by provider.
    At the end of the block mitmdump has ended and the ledger is complete."""
    with contextlib.ExitStack() as held:  # all at once, or one could be chosen twice
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in upstreams]
        chosen = [each.getsockname()[1] for each in sockets]
    ports = dict(zip(upstreams, chosen, strict=True))
    # The mitmdump of this environment, without its script's path.
    start = "from mitmproxy.tools.main import mitmdump; mitmdump()"
    words = [sys.executable, "-c", start, "-s", str(Path(__file__).parent.parent / "tee.py")]
    for name, port in upstreams.items():
        words += ["--mode", f"reverse:http://127.0.0.1:{port}@127.0.0.1:{ports[name]}"]
    for name, value in {
        "confdir": conf,
        "ledger_url": f"sqlite:///{ledger}",
        "tee_hosts": ",".join(f"127.0.0.1:{port}={name}" for name, port in upstreams.items()),
        "flow_detail": "0",
        "termlog_verbosity": "info",
    }.items():
        words += ["--set", f"{name}={value}"]
    # A separate secret: the user's secret is for the user's ledgers.
    secret = {"TOKENTEE_SECRET_FILE": str(ledger.with_name("secret"))}
    process = subprocess.Popen(  # noqa: S603  # our own words
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=os.environ | {"PYTHONUNBUFFERED": "1", "NO_COLOR": "1"} | secret,
    )
    log: deque[str] = deque(maxlen=LOG_LINES_MAX)
    is_up, is_decided = False, threading.Event()

    def read_log() -> None:
        """Also drains the pipe: mitmdump would block on a full one."""
        nonlocal is_up
        assert process.stdout is not None
        listening, records = 0, False
        for line in process.stdout:
            log.append(line.rstrip())
            listening += "listening at" in line
            records = records or "tokentee: ledger " in line
            if records and listening == len(ports):
                is_up = True
                is_decided.set()
        is_decided.set()

    reading = threading.Thread(target=read_log, daemon=True)
    reading.start()
    try:
        is_decided.wait(MITMDUMP_START_SECONDS_MAX)
        if not is_up:
            raise LedgerError(f"the demo's mitmdump did not start. Its log:\n{'\n'.join(log)}")
        yield ports
    finally:
        process.terminate()
        try:
            process.wait(MITMDUMP_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
        reading.join(MITMDUMP_STOP_SECONDS_MAX)


def play(scene: Scene, port: int) -> str:
    """The body that the client received, complete or not."""
    headers = {"x-tokentee-session": scene.name, "x-tokentee-tag": "team=search"}
    headers |= {**scene.headers, SCENE_HEADER: scene.name, "content-type": "application/json"}
    try:
        with contextlib.closing(
            HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS_MAX)
        ) as connection:
            connection.request("POST", scene.path, json.dumps(scene.body), headers)
            with connection.getresponse() as response:
                return response.read(len(scene.client_body) if scene.leaves else None).decode()
    except (OSError, HTTPException) as failure:  # Ctrl-C in a terminal ends mitmdump, too
        raise LedgerError(f"the demo's mitmdump did not answer: {failure}") from failure
