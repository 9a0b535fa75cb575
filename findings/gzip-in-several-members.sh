#!/usr/bin/env bash
# Guess: a body of two gzip members behind `content-encoding: gzip` (RFC 1952 allows any number; a
#   server that closes the compressor at each flush writes them) is read whole by every client, as
#   `gunzip` and Python's `gzip.decompress` do.
# Seen: requests, aiohttp and Node's fetch give all of it. httpx and httpx2, on which the OpenAI and
#   Anthropic SDKs stand, give the first member and drop the rest without a word; with the OpenAI
#   SDK a stream of three events has one, no finish and no usage, and the loop ends as if all was well.
#   An empty first member makes the whole answer empty.
# Why it matters to a meter: bytes on the wire have usage that the client never saw. A proxy that reads
#   with one decoder and a client that reads with another disagree on what was answered; the bill
#   agrees with the wire.
# Versions: httpx 0.28.1, httpx2 2.16.2, openai 3.57.0, requests 2.34.2, aiohttp 3.14.5; 2026-11-28.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check \
    httpx==0.28.1 httpx2==2.16.2 openai==3.57.0 requests==2.34.2 urllib3==2.8.0 aiohttp==3.14.5
"$folder/venv/bin/python" - <<'PYTHON'
import asyncio
import gzip
import json
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import aiohttp
import httpx
import httpx2
import openai
import requests


def chunk(choices, usage=None):
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return b"data: " + json.dumps({**head, "choices": choices, "usage": usage}).encode() + b"\n\n"


events = [
    chunk([{"index": 0, "delta": {"content": "hello"}, "finish_reason": None}]),
    chunk([{"index": 0, "delta": {}, "finish_reason": "stop"}]),
    chunk([], {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}) + b"data: [DONE]\n\n",
]
bodies = {
    "/members/chat/completions": b"".join(gzip.compress(event) for event in events),
    "/empty-first": gzip.compress(b"") + gzip.compress(b"".join(events)),
}
whole = b"".join(events)
assert all(gzip.decompress(body) == whole for body in bodies.values())


class Provider(BaseHTTPRequestHandler):
    def do_GET(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        body = bodies[self.path]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-encoding", "gzip")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Provider)
threading.Thread(target=server.serve_forever, daemon=True).start()
base = f"http://127.0.0.1:{server.server_port}"


async def with_aiohttp(url):
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return await response.read()


def with_node(url):
    script = "fetch(process.argv[1]).then(r => r.text()).then(t => process.stdout.write(t))"
    return subprocess.run(["node", "-e", script, url], capture_output=True, check=True).stdout


clients = {
    "httpx": lambda url: httpx.get(url).content,
    "httpx2": lambda url: httpx2.get(url).content,
    "requests": lambda url: requests.get(url).content,
    "aiohttp": lambda url: asyncio.run(with_aiohttp(url)),
    "node": with_node,
}
seen = {}
for name, read in clients.items():
    bytes_read = [len(read(base + path)) for path in bodies]
    seen[name] = bytes_read
    print(f"{name:10} {bytes_read[0]} and {bytes_read[1]} of {len(whole)} bytes")
client = openai.OpenAI(base_url=f"{base}/members", api_key="none")
chunks = list(client.chat.completions.create(model="m", messages=[{"role": "user", "content": "?"}], stream=True))
print(f"openai     {len(chunks)} of 3 chunks, usage {[each.usage for each in chunks]}")
first, all_of_it = [len(events[0]), 0], [len(whole)] * 2
assert seen == {
    "httpx": first, "httpx2": first, "requests": all_of_it, "aiohttp": all_of_it, "node": all_of_it
}
assert len(chunks) == 1
PYTHON
