#!/usr/bin/env bash
# Guess: `get_final_response()` of the OpenAI SDK gives the response of any of the API's three ends:
#   completed, incomplete (`max_output_tokens`), failed. Each carries the response; two carry usage.
# Seen: only `response.completed` counts. After `response.incomplete`, with its text and usage, it raises
#   RuntimeError: the event was not received. The chat helper gives a cut answer as it is.
# Why it matters to a meter: answers cut at their limit are billed in full, and an application that logs
#   usage from the final response has none of them, and counts them as errors.
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
    end = ""

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        response = {"id": "r", "object": "response", "created_at": 1, "model": "m", "output": [], "tools": [],
                    "tool_choice": "auto", "parallel_tool_calls": True, "status": "in_progress", "usage": None}
        usage = {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 5,
                 "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 15}
        ended = {**response, "status": self.end, "usage": usage}
        if self.end == "incomplete":
            ended["incomplete_details"] = {"reason": "max_output_tokens"}
        events = [
            {"type": "response.created", "sequence_number": 0, "response": response},
            {"type": f"response.{self.end}", "sequence_number": 1, "response": ended},
        ]
        body = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()
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
seen = {}
for end in ("completed", "incomplete"):
    Provider.end = end
    with client.responses.stream(model="m", input="?") as stream:
        try:
            seen[end] = stream.get_final_response().usage.total_tokens
        except RuntimeError as error:
            seen[end] = "RuntimeError"
            print(error)
    print(f"{end:12} {seen[end]}")
assert seen == {"completed": 15, "incomplete": "RuntimeError"}
PYTHON
