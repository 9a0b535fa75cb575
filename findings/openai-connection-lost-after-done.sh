#!/usr/bin/env bash
# Guess: a client of the OpenAI SDK keeps its HTTP/1.1 connection from one streamed chat to the next, whether it
#   is the plain or the async one: both read up to `[DONE]`, and the end of the body is right behind it.
# Seen: the plain client closes the connection at `[DONE]`, always, even where the body's end came in the same
#   packet: four calls open four connections. The async one reads on for a tenth of a second: four calls share one
#   connection, unless the end comes later than that; then it leaves, too. Neither says a word.
# Why it matters to a meter: a server or a proxy that does some work between the last event and the end of the
#   body (accounting, logs) sees each such stream end as one that its client left, though nothing of it is
#   missing; a bill that leaves out what was left leaves out all of them. And each call pays a TLS handshake.
# Versions: openai 3.57.0 (Python); 2026-11-29.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check openai==3.57.0
"$folder/venv/bin/python" - <<'PYTHON'
import asyncio
import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import openai

CALLS = 4
ASKED = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "?"}]}


class Provider(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seconds_behind_done = 0.0
    connections = 0
    left = 0

    def setup(self):
        super().setup()
        Provider.connections += 1

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
                 "choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"}]}
        event = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()
        body, end = b"%x\r\n%s\r\n" % (len(event), event), b"0\r\n\r\n"
        if not self.seconds_behind_done:
            self.wfile.write(body + end)
            return
        self.wfile.write(body)
        self.connection.settimeout(self.seconds_behind_done)
        try:
            gone = self.connection.recv(1, socket.MSG_PEEK) == b""
        except TimeoutError:
            gone = False
        Provider.left += gone
        self.close_connection = gone
        self.connection.settimeout(None)
        if not gone:
            self.wfile.write(end)

    def log_message(self, *_):
        pass


async def call_async(url):
    async with openai.AsyncOpenAI(base_url=url, api_key="none") as client:
        for _ in range(CALLS):
            stream = await client.chat.completions.create(**ASKED)
            assert [chunk.choices[0].delta.content async for chunk in stream] == ["hi"]


def call(url):
    with openai.OpenAI(base_url=url, api_key="none") as client:
        for _ in range(CALLS):
            stream = client.chat.completions.create(**ASKED)
            assert [chunk.choices[0].delta.content for chunk in stream] == ["hi"]


server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
seen = {}
for name in ("OpenAI", "AsyncOpenAI"):
    for seconds in (0, 0.02, 1):
        Provider.seconds_behind_done, Provider.connections, Provider.left = seconds, 0, 0
        call(url) if name == "OpenAI" else asyncio.run(call_async(url))
        time.sleep(0.2)
        seen[name, seconds] = Provider.connections, Provider.left
        print(f"{name:12} end {seconds} s behind [DONE]: {CALLS} calls, {Provider.connections} connections, "
              f"left before the end: {Provider.left}")
assert seen == {
    ("OpenAI", 0): (CALLS, 0), ("OpenAI", 0.02): (CALLS, CALLS), ("OpenAI", 1): (CALLS, CALLS),
    ("AsyncOpenAI", 0): (1, 0), ("AsyncOpenAI", 0.02): (1, 0), ("AsyncOpenAI", 1): (CALLS, CALLS),
}
PYTHON
