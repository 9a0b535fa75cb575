#!/usr/bin/env bash
# Guess: the stream helper of the OpenAI SDK keeps the usage of the chunk that states it, whatever
#   chunks without usage come before or behind.
# Seen: each chunk's `usage` replaces the one kept. A server that states usage with the finish reason
#   and then sends another chunk with `"usage": null` (or without the key) leaves the client with None.
#   Usage in every chunk, rising, is right by luck: the last stands. Details (`cached_tokens`) that
#   came earlier are gone when the last one has none. `service_tier` is the opposite: the first
#   chunk's stands, so "auto" hides the "flex" that served.
# Why it matters to a meter: what an application logs from `get_final_completion()` is neither the sum
#   nor the last statement; to set it beside what passed on the wire, take the last usage that is an
#   object and the last tier.
# Versions: openai 3.57.0 (Python); 2026-11-28.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check openai==3.57.0
"$folder/venv/bin/python" - <<'PYTHON'
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import openai


class Provider(BaseHTTPRequestHandler):
    chunks: list = []

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        lines = [json.dumps(chunk) for chunk in self.chunks] + ["[DONE]"]
        body = "".join(f"data: {line}\n\n" for line in lines).encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Provider)
threading.Thread(target=server.serve_forever, daemon=True).start()
client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.server_port}", api_key="none")


def chunk(text=None, finish=None, **more):
    choices = [] if text is None else [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return {**head, "choices": choices, **more}


def final(*chunks):
    Provider.chunks = list(chunks)
    with client.chat.completions.stream(model="m", messages=[{"role": "user", "content": "?"}]) as stream:
        done = stream.get_final_completion()
    usage = done.usage and done.usage.model_dump(exclude_none=True)
    return usage, done.service_tier


stated = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
cached = {**stated, "prompt_tokens_details": {"cached_tokens": 4}}
seen = {
    "at the end": final(chunk("a"), chunk("", "stop"), chunk(usage=stated))[0],
    "with the finish, then null": final(chunk("a"), chunk("", "stop", usage=stated), chunk(usage=None))[0],
    "first, then no key": final(chunk(usage=stated), chunk("a"), chunk("", "stop"))[0],
    "cached, then without details": final(chunk("a", usage=cached), chunk("", "stop", usage=stated))[0],
    "tier auto, then flex": final(chunk("a", service_tier="auto"), chunk("", "stop", service_tier="flex"))[1],
}
for name, value in seen.items():
    print(f"{name:30}", value)
assert list(seen.values()) == [stated, None, None, stated, "auto"]
PYTHON
