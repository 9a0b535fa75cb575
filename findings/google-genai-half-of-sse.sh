#!/usr/bin/env bash
# Guess: Google's SDK reads server-sent events as the standard says: a comment is skipped, the blank
#   behind `data:` may be missing, fields `id:` and `event:` may stand there. All other SDKs do.
# Seen: each of the four ends the stream with UnknownApiResponseError, at the line that is not
#   `data: ` with its blank; so does `data: [DONE]`. What passes: one event over two `data:` lines, bare
#   CR, no blank line at the end. Without `alt=sse`'s framing, a whole JSON array on one line is read as
#   one answer without text, model or usage, and without an error.
# Why it matters to a meter: a gateway or proxy that keeps a slow stream alive with comments, or writes
#   SSE anew with another library, breaks this client alone. What passes through has to stay as it came.
# Versions: google-genai 3.6.1 (Python); 2026-11-28.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check google-genai==3.6.1
"$folder/venv/bin/python" - <<'PYTHON'
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from google import genai


class Provider(BaseHTTPRequestHandler):
    body = b""

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Provider)
threading.Thread(target=server.serve_forever, daemon=True).start()
client = genai.Client(api_key="none", http_options={"base_url": f"http://127.0.0.1:{server.server_port}"})
answer = {
    "candidates": [{"content": {"parts": [{"text": "a"}], "role": "model"}, "finishReason": "STOP"}],
    "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 2, "totalTokenCount": 7},
}
text = json.dumps(answer)
start, end = text.split(', "usageMetadata"')
streams = {
    "as Google writes it": f"data: {text}\r\n\r\n",
    "two data lines": f'data: {start},\ndata: "usageMetadata"{end}\n\n',
    "bare CR": f"data: {text}\r\r",
    "no end of the line": f"data: {text}",
    "a comment first": f": keep-alive\n\ndata: {text}\n\n",
    "no blank": f"data:{text}\n\n",
    "with an id": f"id: 1\ndata: {text}\n\n",
    "with a name": f"event: message\ndata: {text}\n\n",
    "[DONE] behind": f"data: {text}\n\ndata: [DONE]\n\n",
    "an array": json.dumps([answer, answer]),
}
seen = {}
for name, body in streams.items():
    Provider.body = body.encode()
    parts = []
    try:
        for part in client.models.generate_content_stream(model="gemini-3.8-flash", contents="?"):
            usage = part.usage_metadata
            parts.append(usage and usage.total_token_count)
    except genai.errors.UnknownApiResponseError:
        parts.append("error")
    seen[name] = parts
    print(f"{name:20} {parts}")
assert list(seen.values()) == [[7]] * 4 + [["error"]] * 4 + [[7, "error"], [None]], seen
PYTHON
