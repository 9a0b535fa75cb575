#!/usr/bin/env bash
# Guess: clients that read `content-encoding: gzip` read it also as `x-gzip` (RFC 9110: the same), as
#   `identity, gzip`, with an empty list element (`gzip,`, which a recipient has to skip), and twice.
# Seen: no two agree. httpx and httpx2 read all but `x-gzip`, which they hand on compressed as if it
#   were the text. aiohttp knows a single name only: a list, `x-gzip` or two gzips are handed on
#   compressed. requests reads `x-gzip` and two, and raises on the other two. Node's fetch reads
#   `x-gzip` and two, and hands the other two on compressed, where requests raises.
# Why it matters to a meter: "could be decoded" is a fact of each client. A meter that reads only what
#   a known client would read misses figures; one that takes an unknown name for plain text finds none
#   and has to say why.
# Versions: httpx 0.28.1, httpx2 2.16.2, requests 2.34.2 with urllib3 2.8.0, aiohttp 3.14.5, Node's
#   fetch (20.20); 2026-11-28.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check \
    httpx==0.28.1 httpx2==2.16.2 requests==2.34.2 urllib3==2.8.0 aiohttp==3.14.5
"$folder/venv/bin/python" - <<'PYTHON'
import asyncio
import gzip
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import aiohttp
import httpx
import httpx2
import requests

TEXT = b'{"usage": {"prompt_tokens": 7}}'
once = gzip.compress(TEXT)
answers = [("gzip", once), ("x-gzip", once), ("identity, gzip", once), ("gzip,", once), ("gzip, gzip", gzip.compress(once))]


class Provider(BaseHTTPRequestHandler):
    def do_GET(self):
        encoding, body = answers[int(self.path[1:])]
        self.send_response(200)
        self.send_header("content-encoding", encoding)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Provider)
threading.Thread(target=server.serve_forever, daemon=True).start()


async def with_aiohttp(url):
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return await response.read()


def with_node(url):
    script = "fetch(process.argv[1]).then(r => r.bytes ? r.bytes() : r.arrayBuffer()).then(b => process.stdout.write(Buffer.from(b)))"
    return subprocess.run(["node", "-e", script, url], capture_output=True, check=True).stdout


clients = {
    "httpx": lambda url: httpx.get(url).content,
    "httpx2": lambda url: httpx2.get(url).content,
    "requests": lambda url: requests.get(url).content,
    "aiohttp": lambda url: asyncio.run(with_aiohttp(url)),
    "node": with_node,
}
print(f"{'':10}", *(f"{encoding!r:18}" for encoding, _ in answers))
seen = {}
for name, read in clients.items():
    words = []
    for number in range(len(answers)):
        try:
            content = read(f"http://127.0.0.1:{server.server_port}/{number}")
            words.append("read" if content == TEXT else "compressed" if content[:2] == b"\x1f\x8b" else "other")
        except Exception:
            words.append("error")
    seen[name] = words
    print(f"{name:10}", *(f"{word:18}" for word in words))
reads = ["read", "compressed", "read", "read", "read"]
assert seen == {
    "httpx": reads,
    "httpx2": reads,
    "requests": ["read", "read", "error", "error", "read"],
    "aiohttp": ["read", "compressed", "compressed", "compressed", "compressed"],
    "node": ["read", "read", "compressed", "compressed", "read"],
}
PYTHON
